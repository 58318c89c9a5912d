"""What goes into BERT's first layer: token + segment + position (Devlin et al. 2018, figure 2).

Shapes: B batch, T length, D width, N packed tokens.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn import kernels
from heedful.nn.layout import Layout
from heedful.nn.norm import Norm


class InputEmbedding(nn.Module):
    """The sum of three learned vectors a token, normalised: (B, T) -> (B, T, D), or (N,) -> (N, D).

    There is no table of positions for a `max_length` of 0, none of segments for 0 of those.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        max_length: int,
        segments: int,
        dropout: float,
        norm_eps: float,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, dim)
        self.positions = nn.Embedding(max_length, dim) if max_length else None
        self.segments = nn.Embedding(segments, dim) if segments else None
        self.norm = Norm(dim, norm_eps, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, segments: Tensor | None, layout: Layout) -> Tensor:
        """Without segments every token is of the first; without a table of them they make no difference."""
        return self.placed(self.tokens(ids), segments, layout)

    def placed(self, x: Tensor, segments: Tensor | None, layout: Layout) -> Tensor:
        """Tokens' own vectors with what their places add: (B, T, D) or (N, D), the same."""
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else _rows(self.segments.weight, segments))
        if self.positions is not None:
            x = x + _rows(self.positions.weight, layout.positions(x[..., 0]))
        return self.dropout(self.norm(x))


def _rows(table: Tensor, places: Tensor) -> Tensor:
    """Rows of a small table: (R, D), (...) -> (..., D)."""
    return _FewRows.apply(table, places) if kernels.half(table) else F.embedding(places, table)


class _FewRows(torch.autograd.Function):
    """The same, with its gradient as a product with a matrix of zeros and ones: to add up row by row, a GPU would
    have to sort the places first."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.rows = len(table)
        return F.embedding(places, table)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        (gradient,), (places,) = gradients, ctx.saved_tensors
        ones = places.flatten()[:, None] == torch.arange(ctx.rows, device=places.device)
        product = ones.bfloat16().mT @ gradient.flatten(0, -2).bfloat16()  # as the gradients of other matrices are
        return product.to(gradient.dtype), None
