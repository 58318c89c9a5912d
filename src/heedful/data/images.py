"""Labelled images in one array, mapped from disk or in memory, and what can be said of them as a whole.

Knows nothing of files or of torch.

Shapes: P images in the array, N images of a part, H height, W width, C channels, K classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from heedful.errors import UserError

HELD_OUT, MOST_HELD_OUT = 0.1, 5000
"""Share of the images that is held out where none is given, and the most of them."""
CHANNELS = (1, 3)
"""Grey and RGB."""
_PIECE = 1024


class Moments(NamedTuple):
    """Of bytes over 255, one number a channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Images:
    """Some or all images of an array, and the class of each."""

    pixels: np.ndarray
    """(P, H, W, C) uint8, from 0, black, to 255."""
    labels: np.ndarray
    """(N,) int64: indices into the classes."""
    classes: tuple[str, ...]
    rows: np.ndarray
    """(N,) int64: where in the array each image is."""

    @classmethod
    def of(cls, pixels: np.ndarray, labels: np.ndarray, classes: tuple[str, ...]) -> "Images":
        """All images of an array."""
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] not in CHANNELS:
            raise UserError(f"images of {pixels.dtype} {pixels.shape} are not uint8 (N, height, width, 1 or 3)")
        if labels.shape != pixels.shape[:1]:
            raise UserError(f"{len(pixels):,} images, but labels of shape {labels.shape}; give one label an image")
        beyond = labels[(labels < 0) | (labels >= len(classes))]
        if len(beyond):
            raise UserError(f"label {beyond[0]} has no name: there are {len(classes)} classes, from 0 on")
        return cls(pixels, labels.astype(np.int64), classes, np.arange(len(pixels)))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""
        return self.pixels.shape[1]

    @property
    def width(self) -> int:
        """Pixels from left to right."""
        return self.pixels.shape[2]

    @property
    def channels(self) -> int:
        """1 for grey, 3 for RGB."""
        return self.pixels.shape[3]

    def take(self, chosen: np.ndarray) -> np.ndarray:
        """The pixels of some of the N images, (n, H, W, C), copied into memory."""
        return np.ascontiguousarray(self.pixels[self.rows[chosen]])

    def part(self, chosen: np.ndarray) -> "Images":
        """Some of the N images, still in the same array."""
        return Images(self.pixels, self.labels[chosen], self.classes, self.rows[chosen])

    def pieces(self, size: int = _PIECE) -> Iterator[np.ndarray]:
        """The pixels of all images, a few at a time."""
        for start in range(0, len(self), size):
            yield self.take(np.arange(start, min(start + size, len(self))))


def measure(images: Images) -> Moments:
    """The mean and the deviation of the pixels in each channel, exactly; a channel that never changes keeps 1."""
    counts = np.zeros((images.channels, 256), np.int64)
    for piece in images.pieces():
        for channel in range(images.channels):
            counts[channel] += np.bincount(piece[..., channel].ravel(), minlength=256)
    values = np.arange(256) / 255.0
    shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
    mean = shares @ values
    std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(1))
    std[std < 1e-6] = 1.0
    return Moments(tuple(mean.tolist()), tuple(std.tolist()))


def split(images: Images, share: float | None = None, seed: int = 0) -> tuple[Images, Images]:
    """Images to train on and those held out: the same share of every class, drawn by the seed.

    Every class keeps at least one image to train on, and holds out at least one where it has two.
    """
    part = min(HELD_OUT, MOST_HELD_OUT / max(1, len(images))) if share is None else share
    if not 0.0 < part < 1.0:
        raise UserError(f"a held-out share of {part:g} is not between 0 and 1; try 0.1")
    rng = np.random.default_rng([seed, len(images)])
    out = np.zeros(len(images), bool)
    for label in range(len(images.classes)):
        members = np.flatnonzero(images.labels == label)
        count = min(max(1, round(part * len(members))), len(members) - 1)
        out[rng.permutation(members)[: max(0, count)]] = True
    if not out.any():
        raise UserError(
            f"{len(images)} images of {len(images.classes)} classes are too few to hold some out; "
            "give at least two of a class, or a test folder beside the train folder"
        )
    return images.part(np.flatnonzero(~out)), images.part(np.flatnonzero(out))
