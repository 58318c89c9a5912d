"""RandAugment (Cubuk et al. 2020): a few operations of fourteen, all of the same strength.

The strongest of each are those of the paper's appendix: 30 degrees, a shear of 0.3, a move by 150/331 of the side, a
factor of 1.9 or 0.1, 4 bits, every value inverted. Nothing is drawn here: who calls says which image gets what.

Shapes: B images, C channels, H height, W width. Pixels are (B, C, H, W) uint8.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from heedful.nn import image_colours as colours
from heedful.nn import image_geometry as geometry

FARTHEST = 150 / 331
Operation = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Pixels, strengths from -1 to 1 (B,), and the colour of what comes in from outside (C,)."""

OPERATIONS: dict[str, Operation] = {
    "identity": lambda x, _, __: x,
    "autocontrast": lambda x, _, __: colours.autocontrast(x),
    "equalize": lambda x, _, __: colours.equalize(x),
    "rotate": lambda x, by, fill: geometry.rotate(x, 30.0 * by, fill),
    "solarize": lambda x, by, _: colours.solarize(x, 256.0 * (1.0 - by.abs())),
    "posterize": lambda x, by, _: colours.posterize(x, 8 - (4.0 * by.abs()).round().int()),
    "contrast": lambda x, by, _: colours.contrast(x, 1.0 + 0.9 * by),
    "brightness": lambda x, by, _: colours.brightness(x, 1.0 + 0.9 * by),
    "sharpness": lambda x, by, _: colours.sharpness(x, 1.0 + 0.9 * by),
    "shear_x": lambda x, by, fill: geometry.shear_x(x, 0.3 * by, fill),
    "shear_y": lambda x, by, fill: geometry.shear_y(x, 0.3 * by, fill),
    "translate_x": lambda x, by, fill: geometry.translate_x(x, FARTHEST * by, fill),
    "translate_y": lambda x, by, fill: geometry.translate_y(x, FARTHEST * by, fill),
    "colour": lambda x, by, _: colours.colour(x, 1.0 + 0.9 * by),
}
"""In a fixed order; the last one is for images that have colours."""


def operations(channels: int) -> tuple[str, ...]:
    """What can be done to images of so many channels."""
    return tuple(OPERATIONS) if channels == 3 else tuple(OPERATIONS)[:-1]


def grouped(chosen: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Images in the order of their operations' numbers (B,) and back again, (2, B); and how many each one gets."""
    order = np.argsort(chosen, kind="stable")
    return np.stack([order, np.argsort(order)]), np.bincount(chosen, minlength=len(OPERATIONS)).tolist()


def apply(pixels: Tensor, order: Tensor, counts: list[int], strength: Tensor, fill: Tensor) -> Tensor:
    """To each image its operation, as `grouped` says, by its strength (B,) from -1 to 1.

    The counts are on the host: images of the same operation are brought together without asking the device.
    """
    groups, strengths = pixels[order[0]].split(counts), strength[order[0]].split(counts)
    done = [
        operation(group, by, fill)
        for operation, group, by in zip(OPERATIONS.values(), groups, strengths, strict=True)
        if len(group)
    ]
    return torch.cat(done)[order[1]]
