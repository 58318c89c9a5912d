"""Three ways to number positions, and what each is worth; and positions that turn queries and keys.

    python docs/learn/code/positions_compared.py

Shapes: T positions, D width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from drawing import panels, save
from torch import Tensor

from heedful.nn.positions import rotary, rotate, sinusoidal

LENGTH, DIM = 128, 64
PERIOD = 32
"""Of the single sine."""


def single_sine(length: int, dim: int) -> Tensor:
    """One sine and its cosine, again and again: (T, D)."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] * (2 * torch.pi / PERIOD)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1).repeat(1, dim // 2).float()


def sigmoid_ramp(length: int, dim: int) -> Tensor:
    """A number that grows with the position and stays below 1: (T, D). It flattens."""
    positions = torch.arange(length, dtype=torch.float64)[:, None] / 8
    return positions.sigmoid().repeat(1, dim).float()


ENCODINGS: dict[str, Callable[[int, int], Tensor]] = {
    "many frequencies": sinusoidal,
    "one sine": single_sine,
    "sigmoid": sigmoid_ramp,
}


def apart(encoding: Tensor) -> float:
    """How far the two positions that are most alike are from each other, for each entry: 0 if two collide."""
    distances = torch.cdist(encoding.double(), encoding.double()) / encoding.shape[1] ** 0.5
    return float(distances.fill_diagonal_(torch.inf).min())


def similarity(encoding: Tensor, place: int) -> Tensor:
    """The cosine of one position with each: (T,)."""
    return F.cosine_similarity(encoding[place][None], encoding, dim=-1)


def turned_product(distance: int, start: int, width: int = DIM) -> float:
    """The product of two equal vectors of ones, turned as positions `start` and `start + distance` are."""
    places = torch.tensor([start, start + distance])
    ones = torch.ones(2, 1, width) / width**0.5
    query, key = rotate(ones, rotary(places, width, 10000.0))[:, 0]
    return float(query @ key)


def main() -> None:
    """Draw the sinusoids, who is like whom, how far neighbours are apart, and what turning does."""
    figure, axes = panels(2, 2, 9.0, 5.6)
    values = sinusoidal(LENGTH, DIM).numpy()
    axes[0].imshow(values, aspect="auto", cmap="RdBu", vmin=-1, vmax=1, interpolation="nearest")
    axes[0].set(xlabel="dimension", ylabel="position", title="many frequencies")
    lengths = (8, 16, 32, 64, 128, 256, 512)
    for name, encode in ENCODINGS.items():
        axes[1].plot(similarity(encode(LENGTH, DIM), LENGTH // 2).numpy(), label=name)
        gaps = [apart(encode(length, DIM)) for length in lengths]
        axes[2].plot(lengths, [max(gap, 1e-17) for gap in gaps], "o-", markersize=4, label=name)
        print(name, *(f"{length}: {gap:.1e}" for length, gap in zip(lengths, gaps, strict=True)))
    axes[1].set(xlabel="position", title=f"similarity with position {LENGTH // 2}")
    axes[2].set(xlabel="length", title="the closest two positions", xscale="log", yscale="log", ylim=(1e-18, 3))
    axes[3].plot([turned_product(distance, start=0) for distance in range(LENGTH)])
    axes[3].set(xlabel="distance", title="rotary: query · key")
    axes[2].legend(fontsize=8, loc="lower left")
    for axis in axes[1:]:
        axis.grid(alpha=0.25)
    for axis in axes:
        axis.title.set_fontsize(10)
    save(figure, "positions")


if __name__ == "__main__":
    main()
