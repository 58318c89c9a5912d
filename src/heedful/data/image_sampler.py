"""The order of images: every epoch all of them once, shuffled by (seed, epoch) alone, in equal batches.

Shapes: B images of a batch, H height, W width, C channels.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from heedful.data.batch import ImageBatch
from heedful.data.images import Images
from heedful.data.sampler import START, Position, in_turns
from heedful.errors import UserError

MOST_LEFT_OUT = 0.02
"""Share of the images that an epoch may leave out, for the sake of batches that are all alike."""


def even_batch(images: int, batch: int) -> int:
    """A size of batches, about the one asked for, of which whole ones make an epoch: of this many, or a few fewer."""
    count = -(-images // batch)
    return batch if images % batch <= MOST_LEFT_OUT * images else images // count


@dataclass(frozen=True, kw_only=True)
class ImageSampler:
    """Batches of a number of images; only an epoch's last may be smaller."""

    images: Images
    batch: int
    seed: int
    even: bool = False
    """Leave an epoch's last batch out where it would be smaller: every batch then has the same shape."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise UserError(f"a batch of {self.batch} images is not 1 or more; try 64")

    @property
    def batches(self) -> int:
        """In an epoch; at least one, however few images there are."""
        whole = len(self.images) // self.batch
        return whole if self.even and whole else -(-len(self.images) // self.batch)

    def stream(
        self, position: Position = START, rank: int = 0, ranks: int = 1
    ) -> Iterator[tuple[Position, ImageBatch]]:
        """Batches from the position on, without end, each with the position after it and its peers'."""
        return in_turns(self._all(position), rank, ranks)

    def once(self) -> Iterator[ImageBatch]:
        """All images in their own order, for evaluation."""
        for start in range(0, len(self.images), self.batch):
            chosen = np.arange(start, min(start + self.batch, len(self.images)))
            yield self._take(chosen, chosen)

    def _all(self, position: Position) -> Iterator[tuple[Position, Callable[[], ImageBatch]]]:
        """The position after each batch, and how the batch is made."""
        count = len(self.images)
        while True:
            order = np.random.default_rng([self.seed, position.epoch]).permutation(count)
            for number in range(position.batch, self.batches):
                places = np.arange(number * self.batch, min((number + 1) * self.batch, count))
                made = partial(self._take, order[places], position.epoch * count + places)
                yield Position(position.epoch, number + 1), made
            position = Position(position.epoch + 1, 0)

    def _take(self, chosen: np.ndarray, numbers: np.ndarray) -> ImageBatch:
        return ImageBatch(self.images.take(chosen), self.images.labels[chosen], numbers)
