"""The encoder block: attention, add & norm, feed-forward, add & norm (Vaswani et al. 2017, section 3.1).

Input and output have the same shape, so that residuals add and blocks stack.

Shapes: B batch, T length, D width, N packed tokens.
"""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layout import Layout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """activation(xW₁ + b₁)W₂ + b₂, for each token alone (section 3.3)."""

    def __init__(self, dim: int, inner_dim: int, activation: str) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, inner_dim)
        self.outer = nn.Linear(inner_dim, dim)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.outer(self.activation(self.inner(x)))


class EncoderLayer(nn.Module):
    """One block, norms after the residuals as published."""

    def __init__(
        self,
        dim: int,
        heads: int,
        ffn_dim: int,
        *,
        activation: str = "gelu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        norm_eps: float = 1e-12,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(dim, heads, attention_dropout)
        self.attention_norm = nn.LayerNorm(dim, norm_eps)
        self.feed_forward = FeedForward(dim, ffn_dim, activation)
        self.feed_forward_norm = nn.LayerNorm(dim, norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, layout: Layout, explain: bool = False) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) or (N, D) -> the same, and on request the attention weights (B, H, T, S)."""
        mixed, weights = self.attention(x, layout, explain)
        x = self.attention_norm(x + self.dropout(mixed))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x, weights
