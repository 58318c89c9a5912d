"""Where a token stands, as numbers a model can use: sinusoids (Vaswani et al. 2017, section 3.5), or angles by which
queries and keys are turned (Su et al. 2021).

Shapes: T length, D width, H heads, K width of a head, N packed tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor


def sinusoidal(length: int, dim: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(the same): (T, D).

    Bounded whatever the length, unique because the frequencies are many, and near positions are alike.
    """
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    frequencies = 10000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = positions * frequencies  # (T, ceil(D / 2))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :dim].float()


class Rotation(NamedTuple):
    """How far the pairs of a head's numbers are turned at each position: (T or N, 1, K / 2) both, the same for every
    head and layer."""

    cos: Tensor
    sin: Tensor


def rotary(positions: Tensor, width: int, base: float) -> Rotation:
    """The angles pos / base^(2i/K) for heads that are `width` wide: positions (T,) or (N,).

    In single precision whatever the model computes in: bf16 could not tell position 256 from 257.
    """
    frequencies = 1.0 / base ** (torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width)
    angles = positions.float()[:, None, None] * frequencies  # (T, 1, K / 2)
    return Rotation(angles.cos(), angles.sin())


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Queries or keys turned by their positions: (..., T, H, K) or (N, H, K), the same.

    Number i of a head makes a pair with number i + K/2. The product of a turned query and a turned key depends on
    their distance alone.
    """
    left, right = x.float().chunk(2, -1)
    turned = torch.cat([left * rotation.cos - right * rotation.sin, right * rotation.cos + left * rotation.sin], -1)
    return turned.to(x.dtype)
