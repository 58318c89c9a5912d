"""How a classifier of images is asked. Files are decoded here, at once for all that wait."""

import contextlib
import io
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

import numpy as np
from PIL import Image

from heedful.data.image_files import Unreadable, careful, read_image
from heedful.predict.images import ImagePredictor, Seen
from heedful.serve.batching import Wanted
from heedful.serve.refusals import Refusal

MOST_PIXELS = 40_000_000
"""Of an image: what it takes to decode it is bounded."""
_THREADS = 4
_READING = Lock()
"""Warnings, which are watched while images are read, belong to the whole process."""


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
        with _READING, careful(), ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(self._ready, examples))

    def _ready(self, example: Picture) -> np.ndarray | Refusal:
        engine = self.predictor.engine
        # Whatever is wrong with the file, read_image finds words for it.
        with contextlib.suppress(Exception), Image.open(io.BytesIO(example.content)) as image:
            if image.width * image.height > MOST_PIXELS:
                size = f"{image.width:,} x {image.height:,} pixels"
                return Refusal(413, f"an image has {size}, and {MOST_PIXELS:,} can be read; make it smaller")
        try:
            framing = self.predictor.reader().framing
            return read_image(io.BytesIO(example.content), engine.image_size, engine.channels, framing)
        except Unreadable as flaw:
            return Refusal(422, f"an image can't be read: {flaw}")

    def tokens(self, prepared: np.ndarray) -> int:  # noqa: ARG002 (all images are the same)
        """The same for all."""
        return self.cost

    def answer(self, prepared: Sequence[np.ndarray], wanted: Wanted) -> list[Seen]:  # noqa: ARG002 (it is one batch)
        """The class of each."""
        return self.predictor.reader().answer(prepared)


def see_work(predictor: ImagePredictor) -> SeeWork:
    """How a classifier is asked."""
    patches = (predictor.engine.image_size // 16) ** 2
    return SeeWork(predictor, max(16, patches))
