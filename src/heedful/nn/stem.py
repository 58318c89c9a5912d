"""A convolutional stem (Xiao et al. 2021, "Early Convolutions Help Transformers See Better").

In place of one large stride, several small ones: 3 x 3 convolutions that halve the image until a place stands for a
patch, then a projection. Training gets steadier and needs fewer epochs. The paper normalises over the batch; here
each image is normalised by itself, so that its answer never depends on its neighbours.

Shapes: B batch, C channels, H height, W width, P side of a patch, N patches, D width.
"""

from itertools import pairwise

from torch import Tensor, nn

from heedful.errors import UserError


def halvings(side: int) -> int:
    """How often an image is halved until a place stands for a patch of that side."""
    if side < 2 or side & (side - 1):
        raise UserError(f"a convolutional stem halves the image, so patch_size {side} must be one of 2, 4, 8, 16 …")
    return side.bit_length() - 1


class ConvolutionalStem(nn.Module):
    """The image as a grid of vectors; channels double with every halving and end at the model's width."""

    def __init__(self, channels: int, side: int, dim: int) -> None:
        super().__init__()
        count = halvings(side)
        widths = [channels, *(max(1, dim >> count - number) for number in range(1, count + 1))]
        self.stages = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.GroupNorm(1, after), nn.ReLU()
            )
            for before, after in pairwise(widths)
        )
        self.projection = nn.Linear(widths[-1], dim)  # a 1 x 1 convolution

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, N, D)."""
        for stage in self.stages:
            pixels = stage(pixels)
        return self.projection(pixels.flatten(2).transpose(1, 2))
