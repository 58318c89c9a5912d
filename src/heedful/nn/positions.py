"""Where a token stands, as numbers a model can use (Vaswani et al. 2017, section 3.5).

Shapes: T length, D width.
"""

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
