"""Layer normalisation (Ba et al. 2016) that leaves the type of its input alone.

Shapes: D width.
"""

import torch
from torch import Tensor, nn


class Norm(nn.LayerNorm):
    """Each vector of width D, with mean 0 and variance 1 before weight and bias.

    Autocast would give back single precision, and every residual after it would be twice as large in memory. Here
    half precision stays half; what is between is computed in single precision.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """(..., D) -> (..., D)."""
        if not torch.is_autocast_enabled(input.device.type):
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            return super().forward(input.float()).to(input.dtype)
