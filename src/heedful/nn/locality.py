"""Locality self-attention (Lee et al. 2021, "Vision Transformer for Small-Size Datasets").

Two things keep the weights of a model with few images from being all alike. A token does not look at itself, which
it is most similar to: the softmax is among the others. And the temperature of that softmax is learnt, for each head,
starting from the usual one.

Shapes: B batch, T length, D width, H heads.
"""

import torch
from torch import Tensor, nn

from heedful.nn.attention import KeyValue, MultiHeadAttention
from heedful.nn.layout import Layout, Padded
from heedful.nn.positions import Rotation


def others(length: int, device: torch.device | None = None) -> Tensor:
    """(T, T), True where a token may look: everywhere but at itself."""
    return ~torch.eye(length, dtype=torch.bool, device=device)


class LocalityAttention(nn.Module):
    """An encoder's self-attention, sharpened and among others."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention
        self.sharpness = nn.Parameter(torch.ones(attention.heads))
        """By how much scores are larger than usual: one over the temperature, in units of the usual one."""

    def forward(
        self,
        x: Tensor,
        layout: Layout,
        explain: bool = False,
        rotation: Rotation | None = None,
        places: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Every token's mix of the others: (B, T, D) -> (B, T, D), and on request the weights (B, H, T, T)."""
        assert isinstance(layout, Padded), "images are never packed"
        assert rotation is None, "images have learned positions"
        assert places is None, "all patches are read"
        query, key, value = (part.transpose(1, 2) for part in self.attention.project(x))  # (B, H, T, width)
        mask = others(x.shape[1], x.device)
        if layout.mask is not None:
            mask = mask & layout.mask[:, None, None]
        query = query * self.sharpness.to(query.dtype)[:, None, None]
        return self.attention.mix(query, KeyValue(key, value), mask, explain=explain)

    def join(self) -> None:
        """As the attention's."""
        self.attention.join()
