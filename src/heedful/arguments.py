"""From what a user typed to a function's arguments, by tyro; a mistake ends as one line."""

import contextlib
import difflib
import functools
import io
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

from tyro.conf import OmitArgPrefixes, arg

from heedful.errors import UserError
from heedful.wording import any_of

optional = functools.partial(arg, help_behavior_hint="")
"""An argument whose help says itself what happens without it."""
several = functools.partial(arg, help_behavior_hint="(required)")
"""At least one; tyro would show an empty list as what is taken by default."""

LENGTHS = ("--epochs", "--steps", "--budget")
"""How long a run is told to be."""
ELSEWHERE = {
    **dict.fromkeys(
        ("--epochs", "--num-epochs", "--num-train-epochs", "--steps", "--max-steps", "--budget"), LENGTHS
    ),
    **dict.fromkeys(("--time", "--minutes", "--max-time"), LENGTHS[::-1]),
    **dict.fromkeys(("--fp16", "--bf16", "--fp32", "--dtype", "--mixed-precision"), ("--precision",)),
    **dict.fromkeys(("--output", "--output-dir", "--output-file", "--save", "--save-dir"), ("--out",)),
    **dict.fromkeys(("--seq-length", "--max-seq-length", "--sequence-length"), ("--length", "--max-length")),
    **dict.fromkeys(("--batch-size", "--per-device-train-batch-size"), ("--batch", "--batch-tokens")),
    **dict.fromkeys(("--gpu", "--cuda", "--cpu", "--no-gpu", "--no-cuda", "--use-cpu"), ("--device",)),
    **dict.fromkeys(("--warmup-steps", "--warmup-ratio"), ("--warmup",)),
    **dict.fromkeys(("--model", "--model-name-or-path"), ("--from",)),
    "--learning-rate": ("--lr",),
    "--mlm-probability": ("--mask-rate",),
    "--gradient-accumulation-steps": ("--accumulation",),
}
"""What other tools, or other commands, call an option, and what it may be called here."""
SURE, LIKELY = 0.8, 0.7
"""How alike a typed name must be to one of these, and to one that there is here, to be taken for it."""
SHORT = len("--x")
"""Of what was typed; more may be the beginning of an option."""


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
        raise UserError(f"{_one_line(said.getvalue(), arguments, known)} (heedful {name} --help says more)") from None


def deferred(command: Callable[..., None]) -> Callable[..., Callable[[], None]]:
    """The command with its arguments, to be called once they are known to be right."""

    @functools.wraps(command)
    def bind(*arguments: Any, **named: Any) -> Callable[[], None]:
        return functools.partial(command, *arguments, **named)

    return bind


def _one_line(box: str, arguments: list[str], known: set[str]) -> str:
    """The text of tyro's box, drawn or in plain dashes: its first part, and what was perhaps meant."""
    lines = [line.strip("│╭╰╮╯ ") for line in box.splitlines()[1:]]
    grouped = itertools.groupby(lines, lambda line: bool(re.fullmatch("[─-]{4,}", line)))
    parts = (" ".join(" ".join(part).split()) for rule, part in grouped if not rule)
    first = next(filter(None, parts), "this can't be understood").rstrip(".")
    if number := re.match(r"Error parsing (\S+):.*(int\(\) with base 10|string to float): ('.*?'|\".*?\")", first):
        kind = "a whole number" if number[2].startswith("int") else "a number"
        words = re.search(r"no type matching [^{]*\{([\w,]+)\}", first)
        others = [word for word in words[1].split(",") if word != "None"] if words else []
        return f"{number[1]} is {number[3]} but must be {any_of([kind, *others])}"
    if choice := re.fullmatch(r"invalid choice (.*) for argument '(\S+)'. Expected one of \((.*)\)", first):
        choices = sorted(set(re.findall(r"'(.*?)'", choice[3])) - {"None"})
        return f"{choice[2]} is {choice[1]}; choose from {', '.join(choices)}"
    if empty := re.fullmatch(r"Missing value for argument '(\S+)'. Expected (\d+) values", first):
        return f"{empty[1]} needs {'a value' if empty[2] == '1' else f'{empty[2]} values'}"
    for typed, _, value in (argument.partition("=") for argument in arguments):
        if typed in known and value and first == f"Unrecognized options: {value}":
            opposite = f"--no-{typed[2:]}"
            return f"{typed} takes no value{f'; its opposite is {opposite}' if opposite in known else ''}"
    meant = _meant(arguments, known)
    if missing := re.match(r"Missing from heedful \S+ (\S+)", first):
        instead = next((typed for typed, here in meant.items() if missing[1] in here), None)
        hint = f"; {instead} is not an option, did you mean {missing[1]}?" if instead else ""
        return f"{missing[1]} is missing{hint}"
    if not first.startswith("Unrecognized options") or not meant:
        return first
    typed, here = next(iter(meant.items()))
    return f"{first}; {f'for {typed} ' if len(meant) > 1 else ''}did you mean {' or '.join(here)}?"


def _meant(arguments: list[str], known: set[str]) -> dict[str, list[str]]:
    """What each option that there is not may be called here: as other tools call it, or nearly as it was typed."""
    typed = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    found = {one: _likely(one.lower(), known) for one in typed if one not in known}
    return {one: here for one, here in found.items() if here}


def _likely(typed: str, known: set[str]) -> list[str]:
    """The options that one which there is not may mean, if any."""
    if typed in known:
        return [typed]
    if typed not in ELSEWHERE:
        mixed = next((flag for flag in sorted(known) if sorted(flag) == sorted(typed)), None)
        begun = next((flag for flag in sorted(known) if len(typed) > SHORT and flag.startswith(typed)), None)
        near = mixed or _near(typed, [*known, *ELSEWHERE], SURE) or begun or _near(typed, known, LIKELY)
        if near is None or near in known:
            return [near] if near else []
        typed = near
    return [flag for flag in ELSEWHERE[typed] if flag in known]


def _near(typed: str, names: Iterable[str], cutoff: float) -> str | None:
    """The name that is most like what was typed; their dashes are no likeness."""
    bare = {name.lstrip("-"): name for name in names}
    return next((bare[one] for one in difflib.get_close_matches(typed.lstrip("-"), sorted(bare), 1, cutoff)), None)
