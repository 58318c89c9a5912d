"""How answers are made: examples are prepared, or found wanting; then what was prepared is answered, many at once.

The two steps are apart so that a stream keeps its order when an example can't be read, and so that a training run
prepares its dev set once.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from heedful.data.flaws import Flaw

Example = TypeVar("Example")
Prepared = TypeVar("Prepared")
Answer = TypeVar("Answer")

CHUNK = 4096
"""Examples that are prepared, sorted by length and answered together."""


class Reader(Protocol, Generic[Example, Prepared, Answer]):
    """A way to answer one kind of example."""

    def prepare(self, examples: Sequence[Example]) -> list[Prepared | Flaw]:
        """What the model reads for each example, or why it can't."""
        ...

    def answer(self, prepared: Sequence[Prepared]) -> list[Answer]:
        """What the model says of each."""
        ...


def short(text: str, most: int = 60) -> str:
    """A text as messages show it, in quotes."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")


def answers(
    reader: Reader[Example, Prepared, Answer], items: Iterable[Example | Flaw], chunk: int = CHUNK
) -> Iterator[tuple[Example, Answer] | Flaw]:
    """Each example with its answer, in order and in constant memory; flaws keep their place."""
    waiting = iter(items)
    while taken := list(itertools.islice(waiting, chunk)):
        examples = [item for item in taken if not isinstance(item, Flaw)]
        prepared = reader.prepare(examples)
        found = iter(reader.answer([one for one in prepared if not isinstance(one, Flaw)]))
        ready = iter(zip(examples, prepared, strict=True))
        for item in taken:
            if isinstance(item, Flaw):
                yield item
                continue
            example, one = next(ready)
            yield one if isinstance(one, Flaw) else (example, next(found))
