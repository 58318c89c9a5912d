"""From what a user typed to a function's arguments, by tyro; a mistake ends as one line."""

import contextlib
import difflib
import functools
import io
import itertools
import re
from collections.abc import Callable
from typing import Any

from tyro.conf import OmitArgPrefixes, arg

from heedful.errors import UserError

optional = functools.partial(arg, help_behavior_hint="")
"""An argument whose help says itself what happens without it."""


def flag(name: str) -> str:
    """A field as it is typed."""
    return f"--{name.replace('_', '-')}"


def parse(target: Callable[..., Any], name: str, arguments: list[str], **options: Any) -> Any:
    """What the user typed as the target's arguments; tyro's explanation of a mistake becomes one line."""
    import tyro

    said = io.StringIO()
    asked = functools.partial(tyro.cli, target, prog=f"heedful {name}", config=(OmitArgPrefixes,), **options)
    try:
        with contextlib.redirect_stderr(said):
            return asked(args=arguments)
    except SystemExit as stop:
        if not stop.code:
            raise
        helped = io.StringIO()
        with contextlib.redirect_stdout(helped), contextlib.suppress(SystemExit):
            asked(args=["--help"])
        known = set(re.findall(r"--[a-z][\w-]*", helped.getvalue()))
        mistake = _one_line(said.getvalue()) + _misspelt(said.getvalue(), arguments, known)
        raise UserError(f"{mistake} (heedful {name} --help says more)") from None


def deferred(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """The command with its arguments, to be called once they are known to be right."""

    @functools.wraps(command)
    def bind(*arguments: Any, **named: Any) -> Callable[[], None]:
        return functools.partial(command, *arguments, **named)

    return bind


def _one_line(box: str) -> str:
    """The text of tyro's box, drawn or in plain dashes: its first part, and the option that was perhaps meant."""
    lines = [line.strip("│╭╰╮╯ ") for line in box.splitlines()[1:]]
    grouped = itertools.groupby(lines, lambda line: bool(re.fullmatch("[─-]{4,}", line)))
    parts = (" ".join(" ".join(part).split()) for rule, part in grouped if not rule)
    first = next(filter(None, parts), "this can't be understood").rstrip(".")
    if number := re.match(r"Error parsing (\S+):.*(int\(\) with base 10|string to float): ('.*?'|\".*?\")", first):
        kind = "a whole number" if number[2].startswith("int") else "a number"
        kind += " or auto" if "'auto'" in box else ""
        return f"{number[1]} is {number[3]} but must be {kind}"
    if choice := re.fullmatch(r"invalid choice (.*) for argument '(\S+)'. Expected one of \((.*)\)", first):
        known = sorted(set(re.findall(r"'(.*?)'", choice[3])) - {"None"})
        return f"{choice[2]} is {choice[1]}; choose from {', '.join(known)}"
    if missing := re.match(r"Missing from heedful \S+ (\S+)", first):
        return f"{missing[1]} is missing"
    meant = re.search(r"Perhaps you meant:\W+(--[\w-]+)", box)
    return f"{first}; did you mean {meant[1]}?" if meant else first


def _misspelt(box: str, arguments: list[str], known: set[str]) -> str:
    """For a required option that is missing: what was perhaps typed in its place."""
    for flag in re.findall(r"Missing from [^:]*:\W+(--[\w-]+)", box):
        typed = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
        if near := difflib.get_close_matches(flag, [one for one in typed if one not in known], n=1):
            return f"; {near[0]} is not an option, did you mean {flag}?"
    return ""
