"""Images as a model is to see them in training: changed at random, and mixed.

What is drawn is a few numbers for each image. They come from a generator on the host, so that the same ones are drawn
on every device and nobody waits, and go to the device together; the pixels are worked on where they are. Only the
noise that fills what is erased is the device's own.

Shapes: B images, C channels, H height, W width, K classes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from heedful.data.augmentation import Augmentation
from heedful.nn import image_geometry as geometry
from heedful.nn import image_mixing as mixing
from heedful.nn import rand_augment
from heedful.nn.pixels import Pixels

ERASED_AREA, ERASED_RATIO = (0.02, 0.33), (0.3, 3.3)
"""Of the rectangles of random erasing: share of the image, and height to width (Zhong et al. 2020, section 4.2)."""
ZOOMED_RATIO = (3 / 4, 4 / 3)


class Mixture(NamedTuple):
    """With whom each image was mixed, and how much of it is left."""

    partners: Tensor
    """(B,) int64."""
    share: Tensor
    """(B,) from 0 to 1."""

    def targets(self, labels: Tensor, classes: int) -> Tensor:
        """(B, K): the shares of the classes in each image."""
        return mixing.soft_labels(labels, self.partners, self.share, classes)


def draws(seed: int, number: int) -> Generator:
    """What is drawn for the batch that begins with an image of this number: the same in whatever run or rank."""
    return np.random.default_rng([seed, number, 1])  # with a zero it could be an epoch's own


class Drawn(NamedTuple):
    """All that is drawn for a batch."""

    numbers: dict[str, np.ndarray]
    """For the device, by what they are for; what is not done has none."""
    counts: list[list[int]]
    """Of the images that get each operation, in every round of RandAugment."""
    seed: int
    """Of the noise that fills erased rectangles."""


def draw_numbers(how: Augmentation, read_as: Pixels, shape: Sequence[int], rng: Generator) -> Drawn:
    """The numbers for images of a shape (B, C, H, W), on the host."""
    count, channels, height, width = shape
    outside = read_as.mean if how.fill == "mean" else (0.0,) * channels
    numbers: dict[str, np.ndarray] = {"fill": 255.0 * np.array(outside, np.float32)}
    if how.zoom < 1.0:
        numbers["zoom"] = zoom_boxes(rng, count, height, width, how.zoom)
    if how.crop > 0.0:
        farthest = [round(how.crop * side) for side in (height, width)]
        numbers["moves"] = np.stack([rng.integers(-most, most + 1, count) for most in farthest])
    if how.flip:
        numbers["flipped"] = rng.random(count) < 0.5
    counts = []
    if how.rand_augment:
        numbers["orders"] = np.empty((how.rand_augment, 2, count), np.int64)
        numbers["strengths"] = np.empty((how.rand_augment, count), np.float32)
    for number in range(how.rand_augment):
        chosen = rng.integers(0, len(rand_augment.operations(channels)), count)
        numbers["strengths"][number] = how.magnitude / 10.0 * rng.choice([-1.0, 1.0], count)
        numbers["orders"][number], sizes = rand_augment.grouped(chosen)
        counts.append(sizes)
    seed = 0
    if how.erasing:
        numbers["erased"] = erasing_boxes(rng, count, height, width, how.erasing)
        seed = int(rng.integers(2**63))
    if how.mixes:
        numbers["partners"] = rng.permutation(count)
        among = rng.random(count) < how.mixed
        cut = rng.random(count) < 0.5 if how.mixup and how.cutmix else np.full(count, how.cutmix > 0.0)
        over = rng.beta(how.mixup, how.mixup, count) if how.mixup else np.ones(count)
        around = rng.beta(how.cutmix, how.cutmix, count) if how.cutmix else np.ones(count)
        numbers["cut"] = cutmix_boxes(rng, np.where(among & cut, around, 1.0), height, width)
        numbers["share"] = np.where(among & ~cut, over, 1.0).astype(np.float32)
    return Drawn(numbers, counts, seed)


def changed(pixels: Tensor, numbers: Mapping[str, Tensor], counts: list[list[int]]) -> Tensor:
    """(B, C, H, W) uint8, each image cropped, flipped and changed by RandAugment in its own way."""
    if "zoom" in numbers:
        top, left, height, width = numbers["zoom"]
        pixels = geometry.zoom(pixels, top, left, height, width)
    if "moves" in numbers:
        down, right = numbers["moves"]
        pixels = geometry.shift(pixels, down, right, numbers["fill"])
    if "flipped" in numbers:
        pixels = geometry.flip(pixels, numbers["flipped"])
    for number, sizes in enumerate(counts):
        order, strength = numbers["orders"][number], numbers["strengths"][number]
        pixels = rand_augment.apply(pixels, order, sizes, strength, numbers["fill"])
    return pixels


def erased(pixels: Tensor, numbers: Mapping[str, Tensor], seed: int) -> Tensor:
    """(B, C, H, W) normalised, where some images have a rectangle of noise instead of what was there."""
    if "erased" not in numbers:
        return pixels
    generator = torch.Generator(pixels.device).manual_seed(seed)
    noise = torch.randn(pixels.shape, generator=generator, device=pixels.device, dtype=pixels.dtype)
    return mixing.erase(pixels, numbers["erased"], noise)


def mixed(pixels: Tensor, numbers: Mapping[str, Tensor]) -> tuple[Tensor, Mixture | None]:
    """(B, C, H, W) normalised, each image mixed with another of its batch, and how; None if none is."""
    if "partners" not in numbers:
        return pixels, None
    partners, share = numbers["partners"], numbers["share"]
    laid = mixing.mixup(pixels, partners, share)
    # Where an image was laid over another, its box is empty, and the other way round.
    whole, left = mixing.cutmix(pixels, partners, numbers["cut"])
    both = torch.where((share < 1.0)[:, None, None, None], laid, whole)
    return both, Mixture(partners, share * left)


def zoom_boxes(rng: Generator, count: int, height: int, width: int, least: float) -> np.ndarray:
    """(4, B) float32: top, left, height and width of random parts of an image, of at least such a share."""
    share = rng.uniform(least, 1.0, count)
    # No taller than the image, and no wider: a side that had to be cut off would leave less than the share.
    fits = share * height / width, height / width / share
    lowest, highest = (np.log(np.clip(bound, *fits)) for bound in ZOOMED_RATIO)
    area, ratio = share * height * width, np.exp(rng.uniform(lowest, highest))
    tall, wide = np.minimum(np.sqrt(area * ratio), height), np.minimum(np.sqrt(area / ratio), width)
    top, left = rng.random(count) * (height - tall), rng.random(count) * (width - wide)
    return np.stack([top, left, tall, wide]).astype(np.float32)


def erasing_boxes(rng: Generator, count: int, height: int, width: int, rate: float) -> np.ndarray:
    """(B, 4) int64: the rectangles to erase; empty for images that lose nothing."""
    chosen = rng.random(count) < rate
    area = rng.uniform(*ERASED_AREA, count) * height * width
    ratio = _ratios(rng, ERASED_RATIO, count)
    tall = np.clip(np.rint(np.sqrt(area * ratio)), 1, height)
    wide = np.clip(np.rint(np.sqrt(area / ratio)), 1, width)
    top, left = np.floor(rng.random(count) * (height - tall + 1)), np.floor(rng.random(count) * (width - wide + 1))
    return (np.stack([top, left, tall, wide], 1) * chosen[:, None]).astype(np.int64)


def cutmix_boxes(rng: Generator, share: np.ndarray, height: int, width: int) -> np.ndarray:
    """(B, 4) int64: boxes that leave about such shares (B,) of an image, about centres anywhere in it."""
    cut = np.sqrt(1.0 - share)
    tall, wide = np.floor(cut * height), np.floor(cut * width)
    middle = rng.integers(0, height, len(share)), rng.integers(0, width, len(share))
    return np.stack([middle[0] - tall // 2, middle[1] - wide // 2, tall, wide], 1).astype(np.int64)


def _ratios(rng: Generator, bounds: tuple[float, float], count: int) -> np.ndarray:
    """(B,) height to width: twice as tall is as likely as twice as wide."""
    return np.exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1]), count))
