"""How the tokens of a batch lie in memory: padded to a rectangle, or packed end to end.

Everything in a Transformer but attention treats each token alone, so only attention and the position
embedding ask for the layout. True in a mask means "may attend".

Shapes: B batch, T longest length, N packed tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Padded(NamedTuple):
    """Tokens in a rectangle (B, T); the short rows are filled up."""

    mask: Tensor | None
    """(B, T), True at real tokens; None when every token is real."""

    def positions(self, ids: Tensor) -> Tensor:
        """The position of each token in its own sequence: (T,), or (N,) in a packed batch."""
        return torch.arange(ids.shape[-1], device=ids.device)

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
