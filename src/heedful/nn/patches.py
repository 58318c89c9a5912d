"""An image as a sequence of tokens: cut into squares, each projected to the model's width (Dosovitskiy et al. 2020,
section 3.1).

A convolution whose stride is its size does the same. Here it is one product: nothing overlaps, so cutting moves
numbers and computes none.

Shapes: B batch, C channels, H height, W width, P side of a patch, N patches, D width.
"""

from torch import Tensor, nn


def cut(pixels: Tensor, side: int) -> Tensor:
    """The patches row by row, each flat, channel after channel: (B, C, H, W) -> (B, N, C * P * P)."""
    squares = pixels.unflatten(3, (-1, side)).unflatten(2, (-1, side))  # (B, C, rows, P, columns, P)
    return squares.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class PatchEmbedding(nn.Module):
    """Each patch as one vector."""

    def __init__(self, channels: int, side: int, dim: int) -> None:
        super().__init__()
        self.side = side
        self.projection = nn.Linear(channels * side * side, dim)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, N, D)."""
        return self.projection(cut(pixels, self.side))
