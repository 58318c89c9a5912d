"""The blocks of encoder and decoder: attention, feed-forward, add & norm (Vaswani et al. 2017, section 3.1).

Input and output have the same shape, so that residuals add and blocks stack.

Shapes: B batch, T length, S source length, D width, H heads, K beams, N packed tokens.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn import fp8, kernels
from heedful.nn.attention import KeyValue, MultiHeadAttention
from heedful.nn.layout import Layout, chosen
from heedful.nn.locality import LocalityAttention
from heedful.nn.norm import Norm
from heedful.nn.positions import Rotation
from heedful.nn.stochastic_depth import StochasticDepth

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """activation(xW₁ + b₁)W₂ + b₂, for each token alone (section 3.3).

    Or gated, (activation(xW₁) ⊙ xV)W₂: GeGLU, if the activation is GELU (Shazeer 2020). W₁ and V are the halves of
    one matrix.
    """

    def __init__(self, dim: int, inner_dim: int, activation: str, *, gated: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.inner = nn.Linear(dim, 2 * inner_dim if gated else inner_dim, bias=bias)
        self.outer = nn.Linear(inner_dim, dim, bias=bias)
        self.activation = ACTIVATIONS[activation]
        self.gated = gated
        self.fp8: fp8.Scales | None = None
        """If there are any, training multiplies in 8 bits where it can."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        own_kernel = self.activation is F.gelu and kernels.half(x)  # they need Triton
        if own_kernel and self.fp8 is not None and self.training and (self.gated or self.inner.bias is not None):
            weights = self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias
            return fp8.feed_forward(x.flatten(0, -2), *weights, self.gated, self.fp8).view_as(x)
        if self.gated and own_kernel:
            from heedful.nn.gated_gelu import gated_gelu

            return self.outer(gated_gelu(self.inner(x).flatten(0, -2)).unflatten(0, x.shape[:-1]))
        if self.gated:
            inner, gate = self.inner(x).chunk(2, -1)
            return self.outer(self.activation(inner) * gate)
        if own_kernel and self.inner.bias is not None:
            from heedful.nn.bias_gelu import bias_gelu

            inner = F.linear(x, self.inner.weight)
            return self.outer(bias_gelu(inner.flatten(0, -2), self.inner.bias).view_as(inner))
        return self.outer(self.activation(self.inner(x)))


class EncoderLayer(nn.Module):
    """One block: norms after the residuals as published, or before the sublayers (pre-norm).

    With pre-norm, `normed` input, as embeddings are, goes to the attention as it is. For images, attention may be
    among others alone (`locality`), and samples may skip a branch while training (`stochastic_depth`).
    """

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
        pre_norm: bool = False,
        normed: bool = False,
        gated: bool = False,
        bias: bool = True,
        locality: bool = False,
        stochastic_depth: float = 0.0,
    ) -> None:
        super().__init__()
        attention = MultiHeadAttention(dim, heads, attention_dropout, bias=bias)
        self.attention = LocalityAttention(attention) if locality else attention
        skips = pre_norm and normed
        self.attention_norm = nn.Identity() if skips else Norm(dim, norm_eps, bias=bias)
        self.feed_forward = FeedForward(dim, ffn_dim, activation, gated=gated, bias=bias)
        self.feed_forward_norm = Norm(dim, norm_eps, bias=bias)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()  # a compiler would copy for nothing
        if stochastic_depth:
            self.dropout = nn.Sequential(self.dropout, StochasticDepth(stochastic_depth))
        self.pre_norm = pre_norm

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        explain: bool = False,
        rotation: Rotation | None = None,
        places: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) or (N, D) -> the same, and on request the attention weights (B, H, T, S).

        With places (M,), what becomes of those tokens alone: (M, D). All are looked at, but nothing further is
        computed for the others, as nobody will read it after the last layer.
        """
        mixed, weights = self.attention(self.reads(x), layout, explain, rotation, places)
        if places is not None:
            x = chosen(x, places)
        if self.pre_norm:
            x, normed = self.feed_forward_norm.with_sum(x, self.dropout(mixed))
            return x + self.dropout(self.feed_forward(normed)), weights
        assert isinstance(self.attention_norm, Norm)
        x = self.attention_norm.of_sum(x, self.dropout(mixed))
        return self.feed_forward_norm.of_sum(x, self.dropout(self.feed_forward(x))), weights

    def reads(self, x: Tensor) -> Tensor:
        """What the attention reads of the layer's input, for those who look into it: (B, T, D), the same."""
        return self.attention_norm(x) if self.pre_norm else x


class Moment(NamedTuple):
    """Where a decoder stands that writes token by token, and where the past of each of its beams lies."""

    place: Tensor
    """(1,): the position of the new tokens."""
    span: int
    """Positions of the past that are looked at, the new one included."""
    mask: Tensor | None
    """(1, span), False at positions that are not written yet, or as `added` lays it out; None when all are."""
    lines: Tensor | None
    """(B * K * span,): which of the past's lines each beam sees, one position after the other; None when every beam
    has written its own."""


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward; each with residual and norm."""

    def __init__(
        self,
        dim: int,
        heads: int,
        ffn_dim: int,
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        norm_eps: float = 1e-5,
        pre_norm: bool = False,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(dim, heads, attention_dropout)
        self.attention_norm = Norm(dim, norm_eps)
        self.cross_attention = MultiHeadAttention(dim, heads, attention_dropout)
        self.cross_attention_norm = Norm(dim, norm_eps)
        self.feed_forward = FeedForward(dim, ffn_dim, activation)
        self.feed_forward_norm = Norm(dim, norm_eps)
        self.dropout = nn.Dropout(dropout)
        self.pre_norm = pre_norm

    def forward(
        self, x: Tensor, memory: KeyValue, memory_mask: Tensor | None, explain: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """A whole target at once: (B, T, D) -> (B, T, D), and on request the weights over the source (B, H, T, S)."""

        def masked(y: Tensor) -> Tensor:
            return self.attention.look_up(y, self.attention.keys(y), causal=True, explain=explain)[0]

        return self._sublayers(x, masked, memory, memory_mask, explain)

    def step(
        self,
        x: Tensor,
        past: Tensor,
        moment: Moment,
        memory: KeyValue,
        memory_mask: Tensor | None,
        explain: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The next token of each beam: (B, K, D) -> (B, K, D), and on request the weights (B, H, K, S).

        Writes keys and values into `past`, which has room for `moment.span` positions or more: (room, B * K, 2, H,
        width of a head). Beams that go on from another's past are told where it lies; nothing is moved. All beams of
        a sentence look at the same memory, as if they were the tokens of one target.
        """
        beams = x.shape[:2]

        def masked(y: Tensor) -> Tensor:
            query, *new = self.attention.project(y.flatten(0, 1))  # (B * K, H, width)
            for kept, part in zip(past.unbind(2), new, strict=True):
                kept.index_copy_(0, moment.place, part[None])
            return self.attention.mix(query[:, :, None], _seen(past, moment), moment.mask)[0].view(*beams, -1)

        return self._sublayers(x, masked, memory, memory_mask, explain)

    def reads(self, x: Tensor) -> Tensor:
        """What the masked self-attention reads of the layer's input: (B, T, D), the same."""
        return self.attention_norm(x) if self.pre_norm else x

    def asks(self, x: Tensor) -> Tensor:
        """What asks the encoder's output: the layer's input with what the masked self-attention adds to it."""
        read = self.reads(x)
        x = x + self.attention.look_up(read, self.attention.keys(read), causal=True, explain=True)[0]
        return self.cross_attention_norm(x) if self.pre_norm else self.attention_norm(x)

    def _sublayers(
        self,
        x: Tensor,
        masked: Callable[[Tensor], Tensor],
        memory: KeyValue,
        memory_mask: Tensor | None,
        explain: bool,
    ) -> tuple[Tensor, Tensor | None]:
        if self.pre_norm:
            x = x + self.dropout(masked(self.attention_norm(x)))
            found, weights = self.cross_attention.look_up(
                self.cross_attention_norm(x), memory, memory_mask, explain=explain
            )
            x = x + self.dropout(found)
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x))), weights
        x = self.attention_norm(x + self.dropout(masked(x)))
        found, weights = self.cross_attention.look_up(x, memory, memory_mask, explain=explain)
        x = self.cross_attention_norm(x + self.dropout(found))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x))), weights


def _seen(past: Tensor, moment: Moment) -> KeyValue:
    """What each beam sees of its past: (room, B * K, 2, H, width) -> twice (B * K, H, span, width)."""
    if moment.lines is None:
        return KeyValue(*past[: moment.span].permute(2, 1, 3, 0, 4))
    lines = past.flatten(0, 1).index_select(0, moment.lines)
    return KeyValue(*lines.unflatten(0, (-1, moment.span)).permute(2, 0, 3, 1, 4))
