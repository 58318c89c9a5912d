"""How answers are made: examples are prepared, or found wanting; then what was prepared is answered, many at once.

The two steps are apart so that a stream keeps its order when an example can't be read, and so that a training run
prepares its dev set once.
"""

import itertools
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Generic, NamedTuple, Protocol, TypeVar

from heedful.data.flaws import Flaw

Example = TypeVar("Example")
Prepared = TypeVar("Prepared")
Answer = TypeVar("Answer")

CHUNK = 4096
"""Examples that are prepared, sorted by length and answered together."""
GPU_CHUNK = 16384
"""The same where a GPU computes: some batches for it at a time."""
UNDER_WAY = 3
"""Chunks that are prepared or answered at the same time, while the answers of another are used."""


class Pace(NamedTuple):
    """How many examples go together, and whether the next are prepared while the model answers these."""

    chunk: int = CHUNK
    ahead: bool = False


class Reader(Protocol, Generic[Example, Prepared, Answer]):
    """A way to answer one kind of example. Several threads may ask it."""

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
    reader: Reader[Example, Prepared, Answer],
    items: Iterable[Example | Flaw],
    chunk: int = CHUNK,
    *,
    ahead: bool = False,
) -> Iterator[tuple[Example, Answer] | Flaw]:
    """Each example with its answer, in order and in constant memory; flaws keep their place.

    To go `ahead`, for a model on a GPU, threads read, prepare and ask the chunks to come meanwhile.
    """
    waiting = iter(items)
    chunks = iter(lambda: list(itertools.islice(waiting, chunk)), [])
    each = _ahead(reader, chunks) if ahead else (_answered(reader, taken) for taken in chunks)
    with closing(each):  # its threads end with the answers, not when Python gets to it
        for one in each:
            ready, found = iter(one.prepared), iter(one.found)
            for item in one.taken:
                if isinstance(item, Flaw):
                    yield item
                    continue
                read = next(ready)
                yield read if isinstance(read, Flaw) else (item, next(found))
            del one, ready, found  # or they would still be there while the next are made


class _Answered(NamedTuple, Generic[Example, Prepared, Answer]):
    """A chunk of the items, what was prepared of those that are not flaws, and the answers to those that could be."""

    taken: list[Example | Flaw]
    prepared: list[Prepared | Flaw]
    found: list[Answer]


def _answered(
    reader: Reader[Example, Prepared, Answer], taken: list[Example | Flaw]
) -> _Answered[Example, Prepared, Answer]:
    prepared = reader.prepare([item for item in taken if not isinstance(item, Flaw)])
    return _Answered(taken, prepared, reader.answer([one for one in prepared if not isinstance(one, Flaw)]))


def _ahead(
    reader: Reader[Example, Prepared, Answer], chunks: Iterator[list[Example | Flaw]]
) -> Generator[_Answered[Example, Prepared, Answer], None, None]:
    """The chunks with their answers, in order; what goes wrong with one is raised in its turn.

    One thread takes them from their source. Several do the rest, each with a chunk of its own, so that the GPU, the
    tokenizer and Python all have something to do.
    """
    taking, answering = ThreadPoolExecutor(1, "take"), ThreadPoolExecutor(UNDER_WAY, "answer")

    def begin() -> Future[_Answered[Example, Prepared, Answer] | None]:
        coming = taking.submit(next, chunks, None)

        def finish() -> _Answered[Example, Prepared, Answer] | None:
            taken = coming.result()
            return None if taken is None else _answered(reader, taken)

        return answering.submit(finish)

    try:
        begun = deque(begin() for _ in range(UNDER_WAY))
        while (one := begun.popleft().result()) is not None:
            begun.append(begin())
            yield one
            del one
    finally:
        taking.shutdown(wait=False, cancel_futures=True)
        answering.shutdown(cancel_futures=True)
        taking.shutdown()
