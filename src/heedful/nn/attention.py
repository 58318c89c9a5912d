"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, section 3.2).

Two paths give the same answer. The fast one never writes the weights down; the explaining one returns them
and reads like the formula. Knows nothing of what the tokens mean or where they come from.

Shapes: B batch, T target length, S source length, D width, H heads, K width of a head, N packed tokens.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.nn import fp8, kernels
from heedful.nn.layout import Layout, Packed, Padded, chosen
from heedful.nn.positions import Rotation, rotate


def explained_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ/√K)V, and the weights: (B, H, T, K), (B, H, S, K) twice -> (B, H, T, K), (B, H, T, S).

    Dividing by √K keeps the scores' variance at 1 whatever the width; without it the softmax of a wide head
    is nearly one-hot and passes no gradient. A token that may attend to nothing gets zeros.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # (B, H, T, S)
    if mask is None:
        weights = scores.softmax(-1)
    else:
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1).masked_fill(~mask, 0.0)
    return weights @ value, weights


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """(T, T), True where a token may look: at itself and what stands before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What a mask adds to the scores: nothing, or minus infinity. Made once where many layers share a mask."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -math.inf)


def packed_attention(query: Tensor, key: Tensor, value: Tensor, layout: Packed, dropout: float) -> Tensor:
    """Attention inside each packed sequence: three times (N, H, K) -> (N, H, K).

    Half precision on a GPU runs on the ragged batch as it lies. Elsewhere no such kernel exists: the
    sequences are laid out in a rectangle for this one operation, which is a small part of a layer's work.
    """
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and dropout == 0.0:
        from torch.nn.attention.varlen import varlen_attn  # takes seconds, which only a GPU makes up for

        out = varlen_attn(query, key, value, layout.offsets, layout.offsets, layout.longest, layout.longest)
        assert isinstance(out, Tensor)
        return out
    query, key, value = (layout.unpack(x).transpose(1, 2) for x in (query, key, value))  # (B, H, T, K)
    mask = layout.mask()[:, None, None]  # (B, 1, 1, S)
    out = F.scaled_dot_product_attention(query, key, value, mask, dropout_p=dropout)
    return layout.pack(out.transpose(1, 2))


class KeyValue(NamedTuple):
    """What can be looked up: (B, H, S, K) both."""

    key: Tensor
    value: Tensor


class ShortSequences(NamedTuple):
    """What the kernel for short sequences is told besides queries, keys and values; see `nn/short_attention.py`."""

    offsets: Tensor
    longest: int
    dropout: float
    seed: Tensor | None
    cos: Tensor | None
    sin: Tensor | None


class MultiHeadAttention(nn.Module):
    """Attention by several heads at once, joined by a linear layer (section 3.2.2), in its three uses.

    `forward` is an encoder's self-attention. A decoder's two look something up that `keys` has prepared: of itself,
    where the future is hidden, or of the encoder's output.
    """

    def __init__(self, dim: int, heads: int, dropout: float = 0.0, *, bias: bool = True) -> None:
        super().__init__()
        if dim % heads:
            below, above = dim // heads * heads, (dim // heads + 1) * heads
            choices = f"{below} or {above}" if below else f"{above}"
            raise UserError(f"dim {dim} is not divisible by heads {heads}; try dim {choices}")
        self.heads = heads
        self.width = dim // heads
        self.dropout = dropout
        self.query = nn.Linear(dim, dim, bias=bias)
        self.key = nn.Linear(dim, dim, bias=bias)
        self.value = nn.Linear(dim, dim, bias=bias)
        self.output = nn.Linear(dim, dim, bias=bias)
        self.joined: nn.Module | None = None
        self.fp8: fp8.Scales | None = None
        """If there are any, training multiplies in 8 bits where it can."""

    def join(self) -> None:
        """Lay query, key and value out as one matrix: fewer and larger products. For a model that trains no more."""
        parts = (self.query, self.key, self.value)
        bias = self.query.bias is not None
        joined = nn.Linear(self.query.in_features, 3 * self.query.out_features, bias=bias, device="meta")
        joined.weight = nn.Parameter(torch.cat([part.weight.detach() for part in parts]), requires_grad=False)
        if bias:
            joined.bias = nn.Parameter(torch.cat([part.bias.detach() for part in parts]), requires_grad=False)
        self.joined = joined

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What tokens ask, what they answer to and what they say: (..., D) -> three times (..., H, K)."""
        parts = (
            [part(x) for part in (self.query, self.key, self.value)]
            if self.joined is None
            else self.joined(x).chunk(3, -1)
        )
        query, key, value = (part.unflatten(-1, (self.heads, -1)) for part in parts)
        return query, key, value

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        explain: bool = False,
        rotation: Rotation | None = None,
        places: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Every token's mix of all tokens of its sequence, and on request the weights (B, H, T, S).

        With a rotation, queries and keys say where they stand. With places (M,), the mixes of those tokens alone:
        (M, D).
        """
        if isinstance(layout, Packed) and not explain and kernels.short(x, layout.longest, self.width):
            how = self._how(x, layout.offsets, layout.longest, rotation)
            if self.fp8 is not None and self.training and places is None:
                output = self.output.weight, self.output.bias
                return fp8.attention(x, *self._together(), *output, self.fp8, self.heads, *how), None
            return self._joined(self._mix_short(x, how), places), None
        whole = isinstance(layout, Padded) and layout.mask is None and rotation is None
        if whole and not explain and kernels.short(x, x.shape[1], self.width):  # nothing is padded: it is packed too
            batch, length, _ = x.shape
            offsets = torch.arange(0, batch * length + 1, length, dtype=torch.int32, device=x.device)
            mixed = self._mix_short(x.flatten(0, 1), self._how(x, offsets, length, None))
            return self._joined(mixed.unflatten(0, (batch, length)), places), None
        query, key, value = self.project(x)  # (B, T, H, K) or (N, H, K)
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        weights = None
        if explain:
            mixed, weights = self._explain(query, key, value, layout)
        elif isinstance(layout, Packed):
            mixed = packed_attention(query, key, value, layout, self.dropout if self.training else 0.0)
        else:
            mask = None if layout.mask is None else layout.mask[:, None, None]  # (B, 1, 1, S)
            mixed = F.scaled_dot_product_attention(
                query.transpose(1, 2),
                key.transpose(1, 2),
                value.transpose(1, 2),
                mask,
                dropout_p=self.dropout if self.training else 0.0,
            ).transpose(1, 2)
        return self._joined(mixed, places), weights

    def _joined(self, mixed: Tensor, places: Tensor | None) -> Tensor:
        """What the heads say together: (..., H, K) -> (..., D), or (M, D)."""
        mixed = mixed.flatten(-2)
        return self.output(mixed if places is None else chosen(mixed, places))

    def _mix_short(self, x: Tensor, how: "ShortSequences") -> Tensor:
        """Every token's mix of its short sequence, on a GPU: (N, D) -> (N, H, K)."""
        from heedful.nn.short_attention import short_attention  # needs Triton

        return short_attention(F.linear(x, *self._together()).unflatten(-1, (3, self.heads, -1)), *how)

    def _how(self, x: Tensor, offsets: Tensor, longest: int, rotation: Rotation | None) -> "ShortSequences":
        """How the tokens are mixed; the seed is drawn anew."""
        cos, sin = (None, None) if rotation is None else (part.squeeze(1) for part in rotation)  # (N, K / 2)
        dropout = self.dropout if self.training else 0.0
        seed = torch.randint(2**31 - 1, (1,), device=x.device) if dropout else None
        return ShortSequences(offsets, longest, dropout, seed, cos, sin)

    def _together(self) -> tuple[Tensor, Tensor | None]:
        """Query, key and value as one matrix (3D, D), and their biases (3D,)."""
        if isinstance(self.joined, nn.Linear):
            return self.joined.weight, self.joined.bias
        parts = (self.query, self.key, self.value)
        bias = None if self.query.bias is None else torch.cat([part.bias for part in parts])
        return torch.cat([part.weight for part in parts]), bias

    def keys(self, x: Tensor) -> KeyValue:
        """What tokens offer to be looked up: (B, S, D) -> (B, H, S, K) twice."""
        key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for project in (self.key, self.value)
        )
        return KeyValue(key, value)

    def look_up(
        self, x: Tensor, seen: KeyValue, mask: Tensor | None = None, *, causal: bool = False, explain: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """Every token's mix of what is seen: (B, T, D) -> (B, T, D), and on request the weights (B, H, T, S).

        The mask (B, 1, 1 or T, S) says where a token may look; `causal`, that it may not look behind itself.
        """
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)
        return self.mix(query, seen, mask, causal=causal, explain=explain)

    def mix(
        self,
        query: Tensor,
        seen: KeyValue,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        explain: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The same with queries at hand: (B, H, T, K) -> (B, T, D). Masks may be `added` ones, if not to explain."""
        weights = None
        if explain:
            if causal:
                mask = causal_mask(query.shape[-2], query.device)
            mixed, weights = explained_attention(query, seen.key, seen.value, mask)
        else:
            dropout = self.dropout if self.training else 0.0
            mixed = F.scaled_dot_product_attention(
                query, seen.key, seen.value, mask, dropout_p=dropout, is_causal=causal
            )
        return self.output(mixed.transpose(1, 2).flatten(-2)), weights

    def _explain(self, query: Tensor, key: Tensor, value: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        packed = isinstance(layout, Packed)
        mask = layout.mask() if isinstance(layout, Packed) else layout.mask
        if isinstance(layout, Packed):
            query, key, value = (layout.unpack(x) for x in (query, key, value))
        mixed, weights = explained_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            None if mask is None else mask[:, None, None],
        )
        mixed = mixed.transpose(1, 2)
        return layout.pack(mixed) if packed else mixed, weights
