"""Numbers, choices and long texts as messages word them."""

from collections.abc import Sequence

SHOWN = 150
"""Characters of a text that an evaluation shows among the worst mistakes."""


def counted(number: int, noun: str, many: str | None = None) -> str:
    """So many of something, in words."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters; where it goes on, the last of them is an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def any_of(choices: Sequence[str]) -> str:
    """Choices in a sentence: a, b or c."""
    return " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
