"""Stochastic depth (Huang et al. 2016): a sample skips whole residual branches while the model trains.

Shapes: B batch, T length, D width, L layers.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.errors import UserError


def depth_rates(most: float, layers: int) -> list[float]:
    """How often each layer is skipped: linearly more with depth, up to `most` in the last (section 3, equation 4)."""
    if not 0 <= most < 1:
        raise UserError(f"stochastic_depth {most} must be at least 0 and below 1")
    return [most * number / layers for number in range(1, layers + 1)]


class StochasticDepth(nn.Module):
    """A branch that is left out for some samples, and larger for the others, so that its mean stays what it is."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, branch: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D). Draws from torch's own generator, as dropout does; nothing when not training."""
        if not self.training or not self.rate:
            return branch
        return branch * F.dropout(branch.new_ones(len(branch), 1, 1), self.rate)

    def extra_repr(self) -> str:
        """The rate, where the module is printed."""
        return f"rate={self.rate}"
