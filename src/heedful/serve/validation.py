"""A body that does not fit its schema, told in one line without repeating what was sent."""

from collections.abc import Sequence
from typing import Any

from heedful.serve.refusals import Refusal

MOST = 3
"""Ways to be right that are named; a union has one for each of its types."""


def told(errors: Sequence[Any]) -> Refusal:
    """What is wrong, as a refusal: 400 for what is not JSON, 422 for a field."""
    if any(error["type"] in ("json_invalid", "json_type") for error in errors):
        return Refusal(400, "the body is not valid JSON; check its quotes, commas and encoding (UTF-8)")
    said: dict[str, list[str]] = {}
    for error in errors:
        place = [str(part) for part in error["loc"] if part not in ("body", "query", "path")]
        name = place[0] if place else "the body"
        reason = error["msg"][:1].lower() + error["msg"][1:]
        if reason not in said.setdefault(name, []):
            said[name].append(reason)
    parts = [f"{name}: {' or '.join(reasons[:MOST])}" for name, reasons in said.items()]
    return Refusal(422, "; ".join(parts[:MOST]) or "the body is wrong")
