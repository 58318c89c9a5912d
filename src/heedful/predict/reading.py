"""How answers are made: examples are prepared, or found wanting; then what was prepared is answered, many at once.

The two steps are apart so that a stream keeps its order when an example can't be read, and so that a training run
prepares its dev set once.
"""

import itertools
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from heedful.data.flaws import Flaw, sound
from heedful.data.inputs import Inputs
from heedful.wording import shortened

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


USUAL = Pace()
"""Without a GPU."""


class Reader(Protocol, Generic[Example, Prepared, Answer]):
    """A way to answer one kind of example. Several threads may ask it."""

    def prepare(self, examples: Sequence[Example]) -> Sequence[Prepared | Flaw]:
        """What the model reads for each example, or why it can't."""
        ...

    def answer(self, prepared: Sequence[Prepared]) -> Sequence[Answer] | np.ndarray:
        """What the model says of each."""
        ...


def short(text: str, most: int = 60) -> str:
    """A text as messages show it, in quotes."""
    return repr(shortened(text, most))


class Answered(NamedTuple, Generic[Example, Answer]):
    """A chunk of the items, and the answer to each of them, or why there is none."""

    taken: list[Example | Flaw]
    found: Sequence[Answer | Flaw] | np.ndarray
    """An array only where every item has an answer."""


def answers(
    reader: Reader[Example, Prepared, Answer],
    items: Iterable[Example | Flaw],
    pace: Pace = USUAL,
) -> Iterator[tuple[Example, Answer] | Flaw]:
    """Each example with its answer, in order and in constant memory; flaws keep their place."""
    with closing(answered(reader, items, pace)) as chunks:
        for one in chunks:
            for item, found in zip(one.taken, one.found, strict=True):
                if isinstance(found, Flaw):
                    yield found
                    continue
                assert not isinstance(item, Flaw)  # it would be its own answer
                yield item, found
            del one, item, found  # or they would still be there while the next are made


def answered(
    reader: Reader[Example, Prepared, Answer],
    items: Iterable[Example | Flaw],
    pace: Pace = USUAL,
) -> Generator[Answered[Example, Answer], None, None]:
    """The same, so many at once.

    To go `ahead`, for a model on a GPU, threads read, prepare and ask the chunks to come meanwhile.
    """
    waiting = iter(items)
    chunks = iter(lambda: list(itertools.islice(waiting, pace.chunk)), [])
    each = _ahead(reader, chunks) if pace.ahead else (_answered(reader, taken) for taken in chunks)
    with closing(each):  # its threads end with the answers, not when Python gets to it
        yield from each


def _answered(reader: Reader[Example, Prepared, Answer], taken: list[Example | Flaw]) -> Answered[Example, Answer]:
    prepared = reader.prepare([item for item in taken if not isinstance(item, Flaw)])
    asked = readable(prepared, skip=True)
    found = reader.answer(asked)
    if len(asked) == len(taken):
        return Answered(taken, found)
    read, known = iter(prepared), iter(found)
    each = (item if isinstance(item, Flaw) else next(read) for item in taken)
    return Answered(taken, [one if isinstance(one, Flaw) else next(known) for one in each])


def readable(prepared: Sequence[Prepared | Flaw], *, skip: bool = False) -> Sequence[Prepared]:
    """What was prepared for a model to read; the first flaw is raised, or, to `skip` them, all are left out."""
    whole: Any = prepared
    # There are no flaws among `Inputs`, and an object for each would take long.
    return whole if isinstance(prepared, Inputs) else list(sound(prepared, skip))


def _ahead(
    reader: Reader[Example, Prepared, Answer], chunks: Iterator[list[Example | Flaw]]
) -> Generator[Answered[Example, Answer], None, None]:
    """The chunks with their answers, in order; what goes wrong with one is raised in its turn.

    One thread takes them from their source. Several do the rest, each with a chunk of its own, so that the GPU, the
    tokenizer and Python all have something to do.
    """
    taking, answering = ThreadPoolExecutor(1, "take"), ThreadPoolExecutor(UNDER_WAY, "answer")

    def begin() -> Future[Answered[Example, Answer] | None]:
        coming = taking.submit(next, chunks, None)

        def finish() -> Answered[Example, Answer] | None:
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
