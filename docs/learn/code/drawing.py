"""Where the pictures go, and how they look."""

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

PICTURES = Path(__file__).parents[1] / "pictures"


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of so many inches, and its panels row by row."""
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
    return figure, list(axes.flat)


def numbered(axis: Axes, table: np.ndarray, most: float = 1.0, digits: int = 2) -> AxesImage:
    """A heat map from 0 to `most` with each number written into its cell."""
    image = axis.imshow(table, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        colour = "white" if value > 0.6 * most else "black"
        axis.text(column, row, f"{value:.{digits}f}", ha="center", va="center", fontsize=9, color=colour)
    return image


def save(figure: Figure, name: str) -> Path:
    """Write the picture of a page."""
    path = PICTURES / f"{name}.png"
    figure.savefig(path, dpi=90)
    plt.close(figure)
    return path
