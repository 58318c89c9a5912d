"""How a classifier of images is asked. Files are decoded here, at once for all that wait."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from heedful.data.flaws import Flaw
from heedful.predict.images import UNPACKS, ImageExample, ImagePredictor, Seen
from heedful.serve.batching import Wanted
from heedful.serve.refusals import Refusal

MOST_PIXELS = 40_000_000
"""Of an image: what it takes to decode it is bounded."""


class Picture(NamedTuple):
    """An image file's content."""

    content: bytes

    @property
    def weight(self) -> int:
        """Every image is brought to one size."""
        return 1000


@dataclass(frozen=True, eq=False)
class SeeWork:
    """Classes of images."""

    predictor: ImagePredictor
    cost: int
    """Tokens that an image is for the model: its patches."""

    @property
    def key(self) -> Hashable:
        """All images."""
        return "see"

    def prepare(self, examples: Sequence[Picture]) -> list[np.ndarray | Refusal]:
        """(H, W, C) bytes of each, at the model's size."""
        found = self.predictor.reader().prepare([ImageExample("an image", one.content) for one in examples])
        return [_told(one) if isinstance(one, Flaw) else one for one in found]

    def tokens(self, prepared: np.ndarray) -> int:  # noqa: ARG002 (all images are the same)
        """The same for all."""
        return self.cost

    def answer(self, prepared: Sequence[np.ndarray], wanted: Wanted) -> list[Seen]:  # noqa: ARG002 (it is one batch)
        """The class of each."""
        return self.predictor.reader().answer(prepared)


def _told(flaw: Flaw) -> Refusal:
    return Refusal(413 if flaw.problem.startswith(UNPACKS) else 422, f"an image can't be read: {flaw.problem}")


def see_work(predictor: ImagePredictor) -> SeeWork:
    """How a classifier is asked."""
    patches = (predictor.engine.image_size // 16) ** 2
    return SeeWork(predictor, max(16, patches))
