"""Stochastic depth (Huang et al. 2016): a sample skips whole residual branches while the model trains.

Shapes: B batch, T length, D width, L layers.
"""

import torch
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
        # A tensor, so that layers which differ in nothing else are compiled once; and a real one, since a model that
        # is made without memory, to be read from a file, would not find it there.
        self.register_buffer("left", torch.tensor(1.0 - rate, device="cpu"), persistent=False)

    def forward(self, branch: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D). Draws from torch's own generator, as dropout does; nothing when not training."""
        if not self.training:
            return branch
        drawn = torch.rand(len(branch), 1, 1, device=branch.device)
        return branch * torch.where(drawn < self.left, 1 / self.left, 0.0).to(branch.dtype)

    def extra_repr(self) -> str:
        """The rate, where the module is printed."""
        return f"rate={self.rate}"
