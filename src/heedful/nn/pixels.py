"""What a model reads of a picture: bytes become numbers around zero, by a mean and a deviation for each channel.

Knows nothing of files: how a picture of another size becomes one of the model's is said here, and done elsewhere.

Shapes: B batch, H height, W width, C channels.
"""

import functools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.nn.transfer import on_device

RESAMPLES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""How pictures are made larger or smaller, in the order of Pillow's numbers for them."""


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """How a picture becomes what a model reads."""

    mean: tuple[float, ...] = (0.5,)
    """Of bytes over 255: one number for all channels, or one for each."""
    std: tuple[float, ...] = (0.5,)
    resample: str = "bilinear"
    edge: int | None = None
    """What the shorter side is made before the middle is cut out; None where a picture is stretched to the model's
    size, whatever its own shape."""

    def __post_init__(self) -> None:
        if self.resample not in RESAMPLES:
            raise UserError(f"resample {self.resample!r} is not known; choose from {', '.join(RESAMPLES)}")
        if not self.mean or not self.std:
            raise UserError("mean and std need a number for all channels, or one for each")
        if not all(0 < value < float("inf") for value in self.std):
            raise UserError(f"std {', '.join(map(str, self.std))} must be above 0 everywhere; it divides")
        if self.edge is not None and self.edge < 1:
            raise UserError(f"edge {self.edge} must be at least 1")


def normalised(picture: Tensor, pixels: Pixels) -> Tensor:
    """(byte / 255 - mean) / std, channels first: (B, H, W, C) uint8 -> (B, C, H, W)."""
    mean, std = _moments(pixels.mean, pixels.std, picture.device)
    return ((picture.float() / 255 - mean) / std).permute(0, 3, 1, 2)


@functools.lru_cache(maxsize=16)
def _moments(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> Tensor:
    """(2, C), brought to the device once: a transfer takes the host as long as many of a small model's kernels."""
    both = np.stack(np.broadcast_arrays(mean, std)).astype(np.float32)  # either may be one for all
    return on_device(both, device)
