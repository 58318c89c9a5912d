"""The order of labelled examples: every epoch all of them once, shuffled by (seed, epoch) alone, in equal batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from heedful.data.batch import LabelledBatch, collate
from heedful.data.inputs import Input
from heedful.data.sampler import START, Position, in_turns


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """Batches of a number of examples; only an epoch's last may be smaller."""

    inputs: Sequence[Input]
    targets: Sequence[np.ndarray] | np.ndarray
    """One an input: a number, some numbers, or a tag for each of its tokens."""
    batch: int
    seed: int

    @property
    def batches(self) -> int:
        """In an epoch."""
        return -(-len(self.inputs) // self.batch)

    def stream(
        self, position: Position = START, rank: int = 0, ranks: int = 1
    ) -> Iterator[tuple[Position, LabelledBatch]]:
        """Batches from the position on, without end, each with the position after it and its peers'."""
        return in_turns(self._all(position), rank, ranks)

    def _all(self, position: Position) -> Iterator[tuple[Position, Callable[[], LabelledBatch]]]:
        """The position after each batch, and how the batch is made."""
        while True:
            order = np.random.default_rng([self.seed, position.epoch]).permutation(len(self.inputs))
            for number in range(position.batch, self.batches):
                chosen = order[number * self.batch : (number + 1) * self.batch]
                yield Position(position.epoch, number + 1), partial(self._take, chosen)
            position = Position(position.epoch + 1, 0)

    def _take(self, chosen: np.ndarray) -> LabelledBatch:
        inputs = collate([self.inputs[one] for one in chosen])
        if isinstance(self.targets, np.ndarray):
            return LabelledBatch(inputs, self.targets[chosen])
        return LabelledBatch(inputs, np.concatenate([self.targets[one] for one in chosen]))
