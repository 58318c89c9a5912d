"""Learned positions of patches in a grid, and what they are in a grid of another size (Dosovitskiy et al. 2020,
section 3.2).

A model that was trained on one size of image reads another: the table, seen as an image with a channel for each
number, is resized.

Shapes: N patches, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def resized(table: Tensor, grid: tuple[int, int], side: int) -> Tensor:
    """The positions of a square grid of that side in another grid: (1 + N, D) or (N, D) -> the same with its N.

    What stands before the patches, the position of `[CLS]`, stays. Bicubic, as in transformers.
    """
    if grid == (side, side):
        return table
    before, square = table[: -side * side], table[-side * side :]
    channels = square.float().T.unflatten(1, (side, side))[None]  # (1, D, side, side)
    bent = F.interpolate(channels, size=grid, mode="bicubic", align_corners=False)
    return torch.cat([before, bent[0].flatten(1).T.to(table.dtype)])
