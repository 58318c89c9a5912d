"""One attention at work on one text: what it is given, its weights, and what one token does in one head of it.

There are two kinds: the scaled dot products of a Transformer (Vaswani et al. 2017, section 3.2) and the five scores
of a recurrent model (`nn/scores.py`). The weights are those of the explaining path. Knows nothing of its layer.

Shapes: T rows that look, S columns that are looked at, D width, H heads, K width of a head.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.nn.attention import MultiHeadAttention, explained_attention
from heedful.nn.positions import Rotation, rotate
from heedful.nn.scores import Score


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """Where a token looks, and what it gets from there."""

    weights: np.ndarray
    """(S,)"""
    output: np.ndarray
    """(K,)"""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One token in one head, step by step."""

    query: np.ndarray
    """(K,)"""
    keys: np.ndarray
    """(S, K)"""
    values: np.ndarray
    """(S, K)"""
    products: np.ndarray
    """(S,): of the query with each key; of an RNN that does not multiply them, the scores."""
    scaled: np.ndarray
    """(S,): what goes into the softmax."""
    mask: np.ndarray
    """(S,), True where the token may look."""
    mixed: Mixed
    unscaled: Mixed | None
    """Without the scale; None where there is none."""
    unmasked: Mixed | None
    """Without the mask, everything else as it is; None where it hides nothing."""

    @property
    def width(self) -> int:
        """Of the head."""
        return len(self.query)


@dataclass(frozen=True, kw_only=True)
class DotProduct:
    """Attention by several heads, and what goes into it."""

    attention: MultiHeadAttention
    asking: Tensor
    """(T, D): what queries are made of."""
    asked: Tensor
    """(S, D): what keys and values are made of."""
    mask: Tensor
    """(T, S), True where a token may look."""
    rotation: Rotation | None = None

    @property
    def heads(self) -> int:
        """How many there are."""
        return self.attention.heads

    @property
    def nbytes(self) -> int:
        """What it takes to remember it."""
        return self.asking.nbytes + self.asked.nbytes + self.mask.nbytes

    @torch.inference_mode()
    def projected(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (H, T, K), keys and values (H, S, K)."""
        attention = self.attention
        pairs = ((attention.query, self.asking), (attention.key, self.asked), (attention.value, self.asked))
        query, key, value = (linear(x).unflatten(-1, (attention.heads, -1)) for linear, x in pairs)
        if self.rotation is not None:
            query, key = rotate(query, self.rotation), rotate(key, self.rotation)
        return query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)

    @torch.inference_mode()
    def weights(self) -> np.ndarray:
        """Of all heads: (H, T, S)."""
        return array(explained_attention(*self.projected(), self.mask)[1])

    @torch.inference_mode()
    def look(self, head: int, row: int) -> Look:
        """What one token does in one head."""
        query, key, value = (part[head] for part in self.projected())
        output, weights = explained_attention(query, key, value, self.mask)
        products, mask, values = array(query[row] @ key.T), array(self.mask[row]), array(value)
        scaled = products / math.sqrt(len(query[row]))
        return Look(
            query=array(query[row]),
            keys=array(key),
            values=values,
            products=products,
            scaled=scaled,
            mask=mask,
            mixed=Mixed(weights=array(weights[row]), output=array(output[row])),
            unscaled=mixed(products, mask, values),
            unmasked=None if mask.all() else mixed(scaled, np.ones_like(mask), values),
        )


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The attention of a recurrent model, whose one head is as wide as the model."""

    score: Score
    asking: Tensor
    """(T, D): the decoder's states."""
    asked: Tensor
    """(S, D): the encoder's states, prepared for scoring."""
    values: Tensor
    """(S, D): the encoder's states."""
    mask: Tensor
    """(T, S), True where a token may look."""
    heads: int = 1

    @property
    def nbytes(self) -> int:
        """What it takes to remember it."""
        return self.asking.nbytes + self.asked.nbytes + self.values.nbytes + self.mask.nbytes

    @torch.inference_mode()
    def scores(self) -> Tensor:
        """(T, S), before the softmax."""
        return self.score.score(self.asking[None], self.asked[None])[0]

    @torch.inference_mode()
    def weights(self) -> np.ndarray:
        """(1, T, S)."""
        scores = self.scores().masked_fill(~self.mask, -math.inf)
        return array(scores.softmax(-1).masked_fill(~self.mask, 0.0))[None]

    def look(self, head: int, row: int) -> Look:
        """What one token does; there is one head."""
        assert head == 0, "a recurrent model has one"
        query, keys, values, mask = (
            array(part) for part in (self.asking[row], self.asked, self.values, self.mask[row])
        )
        scaled = array(self.scores()[row])
        by_products = self.score.kind in ("dot", "scaled", "general")
        products = keys @ query if by_products else scaled
        weights = self.weights()[0, row]
        return Look(
            query=query,
            keys=keys,
            values=values,
            products=products,
            scaled=scaled,
            mask=mask,
            mixed=Mixed(weights=weights, output=weights @ values),
            unscaled=mixed(products, mask, values) if self.score.kind == "scaled" else None,
            unmasked=None if mask.all() else mixed(scaled, np.ones_like(mask), values),
        )


Site = DotProduct | Scored


def mixed(scores: np.ndarray, mask: np.ndarray, values: np.ndarray) -> Mixed:
    """The softmax of scores (S,) where one may look, and the mix of values (S, K) by it."""
    shifted = np.where(mask, scores.astype(np.float64), -np.inf)
    powers = np.exp(shifted - shifted.max())
    weights = powers / powers.sum()
    return Mixed(weights=weights.astype(np.float32), output=(weights @ values).astype(np.float32))


def array(tensor: Tensor) -> np.ndarray:
    """Numbers that the model has computed, on the host and in single precision; what is true or false stays so."""
    tensor = tensor.detach()
    return (tensor if tensor.dtype is torch.bool else tensor.float()).cpu().numpy()
