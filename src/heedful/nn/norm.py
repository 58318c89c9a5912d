"""Layer normalisation (Ba et al. 2016) that leaves the type of its input alone.

Shapes: D width.
"""

import torch
from torch import Tensor, nn

from heedful.nn import kernels


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

    def of_sum(self, x: Tensor, y: Tensor) -> Tensor:
        """The norm of x + y: (..., D) twice -> (..., D)."""
        if self._at_rest(x, y):
            from heedful.nn.add_norm import add_norm  # needs Triton

            return add_norm(x, y, self.weight, self.bias, self.eps)
        return self(x + y)

    def with_sum(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """x + y, and its norm: (..., D) twice -> the same."""
        if self._at_rest(x, y):
            from heedful.nn.add_norm import add_then_norm  # needs Triton

            return add_then_norm(x, y, self.weight, self.bias, self.eps)
        x = x + y
        return x, self(x)

    def _at_rest(self, x: Tensor, y: Tensor) -> bool:
        """Whether one kernel can do both: half precision on a GPU, no gradients, and no compiler that joins them."""
        if torch.compiler.is_compiling() or not kernels.half(x):
            return False
        trains = torch.is_grad_enabled() and any(one.requires_grad for one in (x, y, self.weight))
        return not trains and x.dtype == y.dtype and x.dtype in kernels.HALF
