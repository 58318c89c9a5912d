"""How measurements grow: exponents, crossings, tables and pictures of cells. Knows nothing of what was measured."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")

from matplotlib import pyplot as plt

LEAST = 3
"""Points of a fit; with fewer its residual would say nothing."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One layer at one length and width; of the whole batch."""

    side: str
    length: int
    dim: int
    heads: int
    batch: int
    operations: int
    """Of the forward pass, by formula."""
    steps: int
    """That must follow one another, by formula."""
    forward: float | None = None
    """Seconds."""
    backward: float | None = None
    """Seconds."""
    kept: int | None = None
    """Bytes that wait for the backward pass."""
    peak: int | None = None
    """Bytes at once."""
    rounds: int = 0
    """Timings behind the medians."""
    skipped: str | None = None
    """Why there are no figures."""

    @property
    def seconds(self) -> float | None:
        """Both passes."""
        return None if self.forward is None or self.backward is None else self.forward + self.backward


class Fit(NamedTuple):
    """y = factor · x^exponent."""

    exponent: float
    residual: float
    """Root of the mean squared distance of log y: 0.05 is about five per cent."""
    first: int
    last: int
    """The range of x."""


def fit(xs: Sequence[float], ys: Sequence[float]) -> Fit:
    """The straight line through the logarithms that has the least squared distance."""
    if len(xs) < LEAST or len(xs) != len(ys):
        raise ValueError(f"a fit needs {LEAST} points or more, each with an x and a y; got {len(xs)} and {len(ys)}")
    x, y = np.log(xs), np.log(ys)
    exponent, offset = np.polyfit(x, y, 1)
    residual = math.sqrt(np.mean((y - exponent * x - offset) ** 2))
    return Fit(float(exponent), residual, int(min(xs)), int(max(xs)))


def growth(cells: Sequence[Cell], along: str, what: str, *, upper: bool) -> Fit | None:
    """How `what` grows along length or dim, over the upper half of the points or all of them; None if too few."""
    points = sorted((getattr(cell, along), value) for cell in cells if (value := getattr(cell, what)))
    if upper:
        points = points[-max(LEAST, math.ceil(len(points) / 2)) :]
    return fit(*zip(*points, strict=True)) if len(points) >= LEAST else None


def crossing(lengths: Sequence[int], ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The length from which ours costs more at all longer ones, between two of them by a straight line of logarithms.

    Infinity where ours never does, 0 where it always did.
    """
    ratios = [math.log(one / two) for one, two in zip(ours, theirs, strict=True)]
    above = len(ratios)
    while above and ratios[above - 1] > 0:
        above -= 1
    if above == len(ratios):
        return math.inf
    if above == 0:
        return 0.0
    share = -ratios[above - 1] / (ratios[above] - ratios[above - 1])
    return lengths[above - 1] * (lengths[above] / lengths[above - 1]) ** share


def time_table(cells: Sequence[Cell], dim: int) -> str:
    """Forward + backward in milliseconds."""
    return _table(cells, dim, lambda cell: f"{_number(cell.forward, 1e3)} + {_number(cell.backward, 1e3)}")


def memory_table(cells: Sequence[Cell], dim: int) -> str:
    """Kept and peak in MB."""
    return _table(cells, dim, lambda cell: f"{_number(cell.kept, 1e-6)}, {_number(cell.peak, 1e-6)}")


def _table(cells: Sequence[Cell], dim: int, told: Callable[[Cell], str]) -> str:
    """Lengths downwards, sides from left to right."""
    sides = list(dict.fromkeys(cell.side for cell in cells))
    lines = [f"| length | {' | '.join(sides)} |", "|---:|" + "---:|" * len(sides)]
    for length in sorted({cell.length for cell in cells}):
        row = {cell.side: cell for cell in cells if (cell.length, cell.dim) == (length, dim)}
        said = ("-" if row[side].skipped else told(row[side]) for side in sides)
        lines.append(f"| {length:,} | {' | '.join(said)} |")
    return "\n".join(lines)


WHATS = ("operations", "forward", "backward", "kept", "peak")


def exponent_table(cells: Sequence[Cell]) -> str:
    """Exponents of n for each width, over the upper half of the lengths, residuals in brackets."""
    lines = [f"| width | | {' | '.join(WHATS)} | lengths |", "|---:|---|" + "---:|" * (len(WHATS) + 1)]
    for dim in sorted({cell.dim for cell in cells}):
        for side in dict.fromkeys(cell.side for cell in cells):
            mine = [cell for cell in cells if (cell.side, cell.dim) == (side, dim) and not cell.skipped]
            lines.append(f"| {dim} | {side} | {_fits(mine, 'length', upper=True)} |")
    return "\n".join(lines)


def width_table(cells: Sequence[Cell]) -> str:
    """Exponents of d at the longest length that was measured everywhere, over all widths."""
    whole = {cell.length for cell in cells} - {cell.length for cell in cells if cell.skipped}
    if not whole:
        return "no length was measured everywhere"
    lines = [f"| length | | {' | '.join(WHATS)} | widths |", "|---:|---|" + "---:|" * (len(WHATS) + 1)]
    for side in dict.fromkeys(cell.side for cell in cells):
        mine = [cell for cell in cells if (cell.side, cell.length) == (side, max(whole))]
        lines.append(f"| {max(whole):,} | {side} | {_fits(mine, 'dim', upper=False)} |")
    return "\n".join(lines)


def _fits(cells: Sequence[Cell], along: str, *, upper: bool) -> str:
    fits = [growth(cells, along, what, upper=upper) for what in WHATS]
    told = ["-" if one is None else f"{one.exponent:.2f} ({one.residual:.2f})" for one in fits]
    span = "-" if fits[0] is None else f"{fits[0].first:,} to {fits[0].last:,}"
    return " | ".join([*told, span])


def crossing_table(cells: Sequence[Cell], ours: str, theirs: Sequence[str]) -> str:
    """From which length ours costs more: in operations, and in time of both passes."""
    lines = [f"| width | {ours} against | operations | time |", "|---:|---|---:|---:|"]
    for dim in sorted({cell.dim for cell in cells}):
        for other in theirs:
            told = (_crossed(cells, ours, other, dim, what) for what in ("operations", "seconds"))
            lines.append(f"| {dim} | {other} | {' | '.join(told)} |")
    return "\n".join(lines)


def _crossed(cells: Sequence[Cell], ours: str, theirs: str, dim: int, what: str) -> str:
    one, two = (_line(cells, side, dim, what) for side in (ours, theirs))
    lengths = sorted(one.keys() & two.keys())
    if not lengths:
        return "-"
    found = crossing(lengths, [one[length] for length in lengths], [two[length] for length in lengths])
    return "never, as measured" if found == math.inf else f"{found:,.0f}" if found else "everywhere"


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Time above and kept memory below against length, a column a width, all axes logarithmic."""
    dims = sorted({cell.dim for cell in cells})
    sides = list(dict.fromkeys(cell.side for cell in cells))
    rows = (("seconds", 1e3, "forward + backward, ms"), ("kept", 1e-6, "kept for backward, MB"))
    figure, axes = plt.subplots(
        2,
        len(dims),
        figsize=(1.2 + 3.2 * len(dims), 6.4),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey="row",
    )
    for column, dim in enumerate(dims):
        for row, (what, scale, label) in enumerate(rows):
            axis = axes[row, column]
            for side, marker in zip(sides, "osD^", strict=False):
                line = _line(cells, side, dim, what)
                values = [scale * line[length] for length in sorted(line)]
                axis.loglog(sorted(line), values, marker=marker, markersize=4, label=side, alpha=0.8)
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(lambda length, _: f"{length:,.0f}")
            axis.grid(alpha=0.3)
            axis.set(ylabel=label if not column else "", xlabel="length" if row else "")
        axes[0, column].set_title(f"width {dim}")
    axes[0, 0].legend(fontsize=8)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _line(cells: Sequence[Cell], side: str, dim: int, what: str) -> dict[int, float]:
    """What was measured of a side, by length."""
    mine = [cell for cell in cells if (cell.side, cell.dim) == (side, dim) and not cell.skipped]
    return {cell.length: value for cell in mine if (value := getattr(cell, what))}


def _number(value: float | None, scale: float) -> str:
    """Three digits that count, or all before the point."""
    if value is None:
        return "?"
    scaled = value * scale
    return f"{scaled:,.0f}" if scaled >= 100 else f"{scaled:.3g}"
