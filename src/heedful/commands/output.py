"""How commands speak."""

import json
import sys


def say(line: str) -> None:
    """A line for whoever reads, at once."""
    print(line, flush=True)


def warn(line: str) -> None:
    """A line on standard error."""
    # With its end, so that lines of several processes do not run into each other.
    print(f"heedful: {' '.join(line.split())}\n", end="", file=sys.stderr, flush=True)


def facts(found: list[tuple[str, str]], *, as_json: bool) -> None:
    """Names and what is to say of them."""
    if as_json:
        say(json.dumps(dict(found), ensure_ascii=False, indent=2))
        return
    width = max(len(name) for name, _ in found)
    for name, value in found:
        say(f"{name:<{width}}  {value}")
