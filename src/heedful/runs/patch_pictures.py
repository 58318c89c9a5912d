"""Pictures of which patches a classifier of images looks at.

Shapes: H height, W width, C channels, A heads, G patches a side.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np

from heedful.predict.looking import Looks
from heedful.runs import fonts
from heedful.runs.pictures import check_format, save, short

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

PANEL = 1.7
"""Inches of one."""
COLOUR, OPAQUE = (1.0, 0.42, 0.0), 0.85
"""Of what is looked at, and how much of the image it covers at most."""


class Drawn(NamedTuple):
    """An image, what it is taken for, and where the model looked."""

    name: str
    answer: str
    picture: np.ndarray
    """(H, W, C) bytes, as the model reads them."""
    looks: Looks


def draw(images: Sequence[Drawn], path: Path) -> str | None:
    """Draw a row for each image: the image, where each head of the layer looks, and the rollout over all layers.

    The more orange a patch, the more of the attention it gets. Each panel has its own scale, whose top is written
    under it. A rollout differs little from patch to patch, so its scale begins at its smallest share. What there is
    to say of letters that could not be drawn.
    """
    check_format(path)
    heads = len(images[0].looks.heads)
    columns, rows = heads + 2, len(images)
    size = (PANEL * columns + 0.3, (PANEL + 0.2) * rows + 0.4)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    families, lacking = fonts.choose("".join(short(text) for one in images for text in (one.name, one.answer)))
    style = {"family": families, "parse_math": False}
    for line, one in zip(axes, images, strict=True):
        plain = _rgb(one.picture)
        line[0].imshow(plain, interpolation="nearest")
        line[0].set_ylabel(short(one.name), fontsize=8, **style)
        line[0].set_xlabel(short(one.answer), fontsize=9, **style)
        for axis, heat in zip(line[1:-1], one.looks.heads, strict=True):
            _heated(axis, plain, heat, 0.0)
            axis.set_xlabel(f"up to {heat.max():.0%}", fontsize=8)
        through = one.looks.rollout
        _heated(line[-1], plain, through, float(through.min()))
        line[-1].set_xlabel(f"{through.min():.1%} to {through.max():.1%}", fontsize=8)
        for axis in line:
            axis.set(xticks=[], yticks=[])
    for number, axis in enumerate(axes[0, 1:-1], 1):
        axis.set_title(f"head {number}", fontsize=9)
    axes[0, -1].set_title("rollout", fontsize=9)
    layer = images[0].looks.layer
    figure.suptitle(f"which patches each head of layer {layer} looks at, and all layers together", fontsize=10)
    save(figure, path)
    return fonts.lacks(lacking)


def _rgb(picture: np.ndarray) -> np.ndarray:
    return np.repeat(picture, 3, 2) if picture.shape[2] == 1 else picture


def _heated(axis: Axes, plain: np.ndarray, heat: np.ndarray, bottom: float) -> None:
    """Lay (G, G) shares over the image, which loses its colours: those left are the shares'."""
    grey = plain.astype(float).mean(2)
    height, width = grey.shape
    axis.imshow(grey, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    cover = np.empty((*heat.shape, 4))
    cover[..., :3], cover[..., 3] = COLOUR, OPAQUE * (heat - bottom) / ((heat.max() - bottom) or 1.0)
    axis.imshow(cover, extent=(-0.5, width - 0.5, height - 0.5, -0.5), interpolation="nearest")
