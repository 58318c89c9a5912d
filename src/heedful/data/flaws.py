"""What is wrong with one row, told in the place where the row would have been.

Readers yield examples and flaws in the order of the file and go on after a flaw; whoever reads decides whether
a flaw ends the command or is passed over. What is wrong with a file as a whole is no flaw but a `UserError`.
Knows nothing of files.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from heedful.errors import UserError
from heedful.wording import shortened

OR_SKIP = "or pass over such rows with --skip-bad"
"""How a flaw ends that only readers with that option tell."""

T = TypeVar("T")

_LONG = 40


class Flaw(NamedTuple):
    """A row that cannot be used."""

    where: str
    """File and row: reviews.csv:12."""
    problem: str
    """What is wrong and the way out, in one line."""

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


def shown(value: object) -> str:
    """A value as a problem shows it, short enough for its line."""
    return shortened(repr(value), _LONG)


def reason(flaw: Flaw) -> str:
    """A flaw as it is told where it was passed over: without the advice to do so."""
    return str(flaw).removesuffix(f", {OR_SKIP}")


def told(flaws: Sequence[Flaw], count: int | None = None) -> str:
    """How many rows were passed over, and why the first was; with a count, of more than are kept."""
    count = len(flaws) if count is None else count
    rows = "1 bad row" if count == 1 else f"{count:,} bad rows, the first"
    return f"{rows}: {reason(flaws[0])}"


def sound(items: Iterable[T | Flaw], skip: bool = False, skipped: list[Flaw] | None = None) -> Iterator[T]:
    """What is not a flaw. The first flaw is raised, or, to `skip` them, all are appended to `skipped`."""
    for item in items:
        if not isinstance(item, Flaw):
            yield item
        elif not skip:
            raise UserError(str(item))
        elif skipped is not None:
            skipped.append(item)
