"""Shifted patch tokenization (Lee et al. 2021, "Vision Transformer for Small-Size Datasets").

A patch sees beyond its own edges: the image and four copies of it, each moved by half a patch towards a corner, are
cut together. Neighbouring tokens then share pixels, which a model with few images need not learn to bring together.

Shapes: B batch, C channels, H height, W width, P side of a patch, N patches, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.norm import Norm
from heedful.nn.patches import cut

COPIES = 5
"""The image itself and four that are moved."""


def with_shifts(pixels: Tensor, by: int) -> Tensor:
    """The image, and what it is moved left-up, right-up, left-down and right-down: (B, C, H, W) -> (B, 5C, H, W).

    Zeros come in where nothing was.
    """
    height, width = pixels.shape[-2:]
    padded = F.pad(pixels, (by, by, by, by))
    corners = [padded[..., top : top + height, left : left + width] for top in (2 * by, 0) for left in (2 * by, 0)]
    return torch.cat([pixels, *corners], 1)


class ShiftedPatchEmbedding(nn.Module):
    """Each patch of the five images as one vector: normalised, since it has five times as many numbers, and
    projected."""

    def __init__(self, channels: int, side: int, dim: int, norm_eps: float) -> None:
        super().__init__()
        self.side = side
        numbers = COPIES * channels * side * side
        self.norm = Norm(numbers, norm_eps)
        self.projection = nn.Linear(numbers, dim)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, N, D)."""
        shifted = with_shifts(pixels, max(1, self.side // 2))
        return self.projection(self.norm(cut(shifted, self.side)))
