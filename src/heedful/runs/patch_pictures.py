"""Pictures of which patches a classifier of images looks at.

Shapes: H height, W width, C channels, A heads, G patches a side.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np

from heedful.predict.looking import Looks
from heedful.runs.pictures import check_format, families, save, short

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

PANEL = 1.7
"""Inches of one."""
HEAT = "inferno"
DIM, OPAQUE = 0.55, 0.62
"""How bright the image stays under the heat, and how much of it the heat covers."""


class Drawn(NamedTuple):
    """An image, what it is taken for, and where the model looked."""

    name: str
    answer: str
    picture: np.ndarray
    """(H, W, C) bytes, as the model reads them."""
    looks: Looks


def draw(images: Sequence[Drawn], path: Path) -> None:
    """Draw a row for each image: the image, where each head of the layer looks, and the rollout over all layers.

    The brighter a patch, the more of the attention it gets; each panel has its own scale, whose top is written
    under it.
    """
    check_format(path)
    heads = len(images[0].looks.heads)
    columns, rows = heads + 2, len(images)
    size = (PANEL * columns + 0.3, (PANEL + 0.42) * rows + 0.5)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    style = {"family": families("".join(one.name + one.answer for one in images)), "parse_math": False}
    for line, one in zip(axes, images, strict=True):
        plain = _rgb(one.picture)
        line[0].imshow(plain, interpolation="nearest")
        line[0].set_ylabel(short(one.name), fontsize=8, **style)
        line[0].set_xlabel(short(one.answer), fontsize=9, **style)
        for axis, heat in zip(line[1:], [*one.looks.heads, one.looks.rollout], strict=True):
            _heated(axis, plain, heat)
        for axis in line:
            axis.set(xticks=[], yticks=[])
    for number, axis in enumerate(axes[0, 1:-1], 1):
        axis.set_title(f"head {number}", fontsize=9)
    axes[0, -1].set_title("rollout", fontsize=9)
    layer = images[0].looks.layer
    figure.suptitle(f"which patches each head of layer {layer} looks at, and all layers together", fontsize=10)
    save(figure, path)


def _rgb(picture: np.ndarray) -> np.ndarray:
    return np.repeat(picture, 3, 2) if picture.shape[2] == 1 else picture


def _heated(axis: Axes, plain: np.ndarray, heat: np.ndarray) -> None:
    """Lay (G, G) shares over the image."""
    grey = plain.astype(float).mean(2) * DIM
    height, width = grey.shape
    axis.imshow(grey, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    top = float(heat.max())
    axis.imshow(heat, cmap=HEAT, vmin=0, vmax=top or 1, alpha=OPAQUE, extent=extent, interpolation="nearest")
    axis.set_xlabel(f"up to {top:.0%}", fontsize=8)
