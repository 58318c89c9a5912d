"""Why scores are divided by √d: their variance and the softmax's entropy against the width.

    python docs/learn/code/scale.py

Shapes: N queries, S keys, D width.
"""

import math
from typing import NamedTuple

import torch
from drawing import panels, save

from heedful.nn.scores import dot, scaled

KEYS = 64
WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512)


class Spread(NamedTuple):
    """What random queries and keys of one width make of each other."""

    variance: float
    """Of the scores."""
    entropy: float
    """Of the weights, as a share of the most there can be: 1 is even, 0 is one-hot."""
    gradient: float
    """The mean size of what a weight's softmax passes back."""


def spread(width: int, *, divided: bool, queries: int = 512, keys: int = KEYS, seed: int = 0) -> Spread:
    """For queries and keys with entries of mean 0 and variance 1, as a norm would leave them."""
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(1, queries, width, generator=generator)
    key = torch.randn(1, keys, width, generator=generator)
    scores = (scaled if divided else dot)(query, key)[0]  # (N, S)
    weights = scores.softmax(-1)
    entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean() / math.log(keys)
    passed = (weights * (1 - weights)).sum(-1).mean()  # the diagonal of the softmax's Jacobian
    return Spread(float(scores.var()), float(entropy), float(passed))


def main() -> None:
    """Draw variance, entropy and gradient against the width."""
    figure, axes = panels(1, 3, 9.0, 2.8)
    for divided, label in ((False, "q·k"), (True, "q·k / √d")):
        found = [spread(width, divided=divided) for width in WIDTHS]
        for axis, values in zip(axes, zip(*found, strict=True), strict=True):
            axis.plot(WIDTHS, values, "o-", markersize=4, label=label)
        print(
            label,
            *(f"{width}: {one.variance:.2f} {one.entropy:.2f}" for width, one in zip(WIDTHS, found, strict=True)),
        )
    for axis, title in zip(
        axes, ("variance of scores", "entropy of weights", "gradient through softmax"), strict=True
    ):
        axis.set_xscale("log", base=2)
        axis.set_xlabel("d")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.25)
    axes[0].set_yscale("log")
    for axis in axes[1:]:
        axis.set_ylim(bottom=0)
    axes[0].legend()
    save(figure, "scale")


if __name__ == "__main__":
    main()
