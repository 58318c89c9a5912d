"""How the tokens of a batch lie in memory: padded to a rectangle, or packed end to end.

Everything in a Transformer but attention treats each token alone, so only attention and the position
embedding ask for the layout. True in a mask means "may attend". A token's place is its number in the batch, row
after row.

Shapes: B batch, T longest length, D width, N tokens, M chosen tokens.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Padded(NamedTuple):
    """Tokens in a rectangle (B, T); the short rows are filled up."""

    mask: Tensor | None
    """(B, T), True at real tokens; None when every token is real."""

    def positions(self, ids: Tensor) -> Tensor:
        """The position of each token in its own sequence: (T,), or (N,) in a packed batch."""
        return torch.arange(ids.shape[-1], device=ids.device)

    def starts(self, hidden: Tensor) -> Tensor:
        """The place of each sequence's first token: (B, T, D) -> (B,)."""
        return torch.arange(0, hidden.shape[0] * hidden.shape[1], hidden.shape[1], device=hidden.device)

    def first(self, hidden: Tensor) -> Tensor:
        """The state of each sequence's first token: (B, T, D) -> (B, D)."""
        return hidden[:, 0]

    def mean(self, hidden: Tensor) -> Tensor:
        """The mean of each sequence's states: (B, T, D) -> (B, D)."""
        if self.mask is None:
            return hidden.mean(1)
        real = self.mask[..., None].to(hidden.dtype)
        return (hidden * real).sum(1) / real.sum(1)


class Packed(NamedTuple):
    """The tokens of all sequences end to end, (N,), without padding."""

    offsets: Tensor
    """(B + 1,) int32: where each sequence starts, and N."""
    longest: int
    """The longest sequence's length, known to the host so that no kernel waits for it."""
    slots: Tensor
    """(N,) int64: where each token lies in the rectangle (B * longest)."""

    @classmethod
    def from_offsets(cls, offsets: Tensor, longest: int, tokens: int) -> "Packed":
        """The layout of `tokens` tokens in sequences that start at the offsets."""
        sequences = torch.arange(len(offsets) - 1, device=offsets.device)
        rows = torch.repeat_interleave(sequences, offsets.diff(), output_size=tokens)
        columns = torch.arange(tokens, device=offsets.device) - offsets[:-1].long()[rows]
        return cls(offsets, longest, rows * longest + columns)

    def positions(self, _: Tensor) -> Tensor:
        """The position of each token in its own sequence: (N,)."""
        return self.slots % self.longest

    def starts(self, _: Tensor) -> Tensor:
        """The place of each sequence's first token, N where there is none: (B,)."""
        return self.offsets[:-1]

    def first(self, hidden: Tensor) -> Tensor:
        """The state of each sequence's first token: (N, D) -> (B, D)."""
        return hidden.index_select(0, self.offsets[:-1])

    def mean(self, hidden: Tensor) -> Tensor:
        """The mean of each sequence's states: (N, D) -> (B, D)."""
        return self.unpack(hidden).sum(1) / self.offsets.diff()[:, None]

    def mask(self) -> Tensor:
        """(B, longest), True at real tokens."""
        columns = torch.arange(self.longest, device=self.offsets.device)
        return columns < self.offsets.diff()[:, None]

    def unpack(self, x: Tensor) -> Tensor:
        """(N, ...) -> (B, longest, ...), zeros where there is no token."""
        rectangle = x.new_zeros((len(self.offsets) - 1) * self.longest, *x.shape[1:])
        return rectangle.index_copy(0, self.slots, x).view(-1, self.longest, *x.shape[1:])

    def pack(self, rectangle: Tensor) -> Tensor:
        """(B, longest, ...) -> (N, ...)."""
        return rectangle.flatten(0, 1).index_select(0, self.slots)


Layout = Padded | Packed


def chosen(x: Tensor, places: Tensor) -> Tensor:
    """Some tokens of a batch, each at most once: (..., D), (M,) -> (M, D).

    A place of N is no token: any vector stands for it, and its gradient goes nowhere.
    """
    return _Chosen.apply(x.flatten(0, -2), places)


class _Chosen(torch.autograd.Function):
    """Since no token is chosen twice, the gradient is a choice too, where indexing would have to add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.tokens = len(x)
        return x.index_select(0, places.clamp(max=len(x) - 1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        (gradient,), (places,) = gradients, ctx.saved_tensors
        own = torch.arange(len(places), dtype=places.dtype, device=places.device)
        rows = places.new_full((ctx.tokens + 1,), len(own))  # of the gradient, or of a row of zeros after it
        rows = rows.index_copy(0, places, own)[:-1]
        return torch.cat([gradient, gradient.new_zeros(1, gradient.shape[1])]).index_select(0, rows), None
