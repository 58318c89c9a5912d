"""A body that does not fit its schema, told in one line without repeating what was sent."""

from collections.abc import Sequence
from typing import Any

from heedful.serve.refusals import Refusal
from heedful.serve.schemas import MOST_ITEMS

MOST = 3
"""Ways to be right that are named; a union has one for each of its types."""
SHOWN = 60
"""Characters of a key that a client made up."""


def told(errors: Sequence[Any]) -> Refusal:
    """What is wrong, as a refusal: 400 for what is not JSON, 413 for a list without end, 422 for a field."""
    if any(error["type"] in ("json_invalid", "json_type") for error in errors):
        return Refusal(400, "the body is not valid JSON; check its quotes, commas and encoding (UTF-8)")
    if any(error["type"] == "too_long" and error["ctx"]["max_length"] == MOST_ITEMS for error in errors):
        return Refusal(413, f"a list has more than {MOST_ITEMS:,} items; send less at once", limit="max-inputs")
    said: dict[str, list[str]] = {}
    for error in errors:
        place = [str(part) for part in error["loc"] if part not in ("body", "query", "path")]
        name = place[0][:SHOWN] if place else "the body"
        reason = error["msg"][:1].lower() + error["msg"][1:]
        if reason not in said.setdefault(name, []):
            said[name].append(reason)
    parts = [f"{name}: {' or '.join(reasons[:MOST])}" for name, reasons in said.items()]
    return Refusal(422, "; ".join(parts[:MOST]) or "the body is wrong")
