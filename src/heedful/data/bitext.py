"""The order of sentence pairs: every epoch all of them once, in batches of about so many tokens.

Pairs of like length go together, so that their rectangles have little padding; which of them, and in what order the
batches come, is a function of (seed, epoch) alone. Batches have one of a few shapes, which a GPU can record.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from heedful.data.batch import PairBatch
from heedful.data.sampler import START, Position, in_turns


class Marks(NamedTuple):
    """The ids that frame a sentence."""

    pad: int
    sos: int
    eos: int


class Pairs(NamedTuple):
    """Sources and targets as ids, without marks; one array a sentence."""

    sources: Sequence[np.ndarray]
    targets: Sequence[np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Bitext:
    """Batches of pairs."""

    pairs: Callable[[int], Pairs]
    """The pairs of an epoch: always as many, perhaps taken apart differently each time."""
    marks: Marks
    batch_tokens: int
    """Positions of a batch on its longer side, padding included."""
    seed: int
    whole: bool = False
    """Fill every batch up to its full shape, where else it is as large as its content."""

    def batches(self, epoch: int = 0) -> int:
        """In an epoch."""
        return len(self._plan(self.pairs(epoch), epoch))

    def stream(
        self, position: Position = START, rank: int = 0, ranks: int = 1
    ) -> Iterator[tuple[Position, PairBatch]]:
        """Batches from the position on, without end, each with the position after it and its peers'."""
        return in_turns(self._all(position), rank, ranks)

    def _all(self, position: Position) -> Iterator[tuple[Position, Callable[[], PairBatch]]]:
        """The position after each batch, and how the batch is made."""
        while True:
            pairs = self.pairs(position.epoch)
            plan = self._plan(pairs, position.epoch)
            for number in range(position.batch, len(plan)):
                yield Position(position.epoch, number + 1), partial(self._take, pairs, *plan[number])
            position = Position(position.epoch + 1, 0)

    def once(self, pairs: Pairs) -> Iterator[PairBatch]:
        """Every pair, in any order, for evaluation."""
        for length, chosen in self._plan(pairs, 0):
            yield self._take(pairs, length, chosen)

    def _plan(self, pairs: Pairs, epoch: int) -> list[tuple[int, np.ndarray]]:
        """The batches of an epoch: the length of each, and which pairs it holds."""
        random = np.random.default_rng([self.seed, epoch])
        longest = np.array([1 + max(len(one), len(other)) for one, other in zip(*pairs, strict=True)])
        lengths = rounded(longest)
        batches = []
        for length in np.unique(lengths):
            chosen = random.permutation(np.flatnonzero(lengths == length))
            size = max(1, self.batch_tokens // length)
            batches += [(int(length), chosen[first : first + size]) for first in range(0, len(chosen), size)]
        return [batches[number] for number in random.permutation(len(batches))]

    def _take(self, pairs: Pairs, length: int, chosen: np.ndarray) -> PairBatch:
        pad, sos, eos = self.marks
        rows = max(1, self.batch_tokens // length) if self.whole else len(chosen)
        sources, targets = ([side[one] for one in chosen] for side in pairs)
        across = [length, length] if self.whole else [1 + max(map(len, side)) for side in (sources, targets)]
        source = np.full((rows, across[0]), pad, np.int64)
        target = np.full((rows, across[1] + 1), pad, np.int64)
        # A row that only fills up the batch has a source to look at, and nothing to write.
        source[:, 0], target[:, 0] = eos, sos
        for row, (one, other) in enumerate(zip(sources, targets, strict=True)):
            source[row, : len(one) + 1] = [*one, eos]
            target[row, 1 : len(other) + 2] = [*other, eos]
        return PairBatch(source, target, pad)


def rounded(lengths: np.ndarray) -> np.ndarray:
    """Each length rounded up to one of a few: steps of 4 up to 32, then steps that grow with the length."""
    step = 2 ** np.maximum(2, np.ceil(np.log2(np.maximum(lengths, 1))).astype(int) - 3)
    return -(-lengths // step) * step
