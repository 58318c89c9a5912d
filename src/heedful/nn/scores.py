"""How well a key answers a query: the five score functions of attention in recurrent models.

Concat is Bahdanau et al. 2014 (appendix A.1.2); dot, general and location are Luong et al. 2015 (section 3.1); the
scaled dot is Vaswani et al. 2017 (section 3.2.1). Masks, softmax and values are the business of whoever asks.

Shapes: B batch, T queries, S keys, Q width of a query, D width of a key, A width at which the two are added.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.errors import UserError

SCORES = ("dot", "scaled", "general", "concat", "location")


def dot(query: Tensor, keys: Tensor) -> Tensor:
    """qᵀk: (B, T, D), (B, S, D) -> (B, T, S)."""
    return query @ keys.transpose(-2, -1)


def scaled(query: Tensor, keys: Tensor) -> Tensor:
    """qᵀk/√D: (B, T, D), (B, S, D) -> (B, T, S)."""
    return dot(query, keys) / math.sqrt(query.shape[-1])


def general(query: Tensor, projected: Tensor) -> Tensor:
    """qᵀWk, of keys that are Wk already: (B, T, Q), (B, S, Q) -> (B, T, S)."""
    return dot(query, projected)


def concat(query: Tensor, projected: Tensor, weight: Tensor, vector: Tensor) -> Tensor:
    """vᵀtanh(W[q; k]): (B, T, Q), (B, S, A), (A, Q), (A,) -> (B, T, S).

    W[q; k] is W_q q + W_k k, so that neither half is multiplied once a pair; the keys are W_k k already.
    """
    query = F.linear(query, weight)  # (B, T, A)
    return torch.tanh(query[:, :, None] + projected[:, None]) @ vector  # through (B, T, S, A)


def location(query: Tensor, weight: Tensor, length: int) -> Tensor:
    """The first S rows of Wq: (B, T, Q), (longest, Q) -> (B, T, S). What the keys say plays no part."""
    return F.linear(query, weight[:length])


class Score(nn.Module):
    """One of the five, with its parameters. What a step asks again and again is computed once, by `prepare`."""

    def __init__(self, kind: str, dim_query: int, dim_key: int, max_length: int) -> None:
        super().__init__()
        if kind not in SCORES:
            raise UserError(f"score {kind!r} is not known; choose from {', '.join(SCORES)}")
        if kind in ("dot", "scaled") and dim_query != dim_key:
            widths = f"queries of width {dim_query} and keys of width {dim_key}"
            raise UserError(f"score {kind!r} cannot multiply {widths}; make them equal or choose general")
        self.kind = kind
        self.max_length = max_length
        if kind in ("general", "concat"):
            self.keys = nn.Linear(dim_key, dim_query, bias=False)
        if kind == "concat":
            self.query = nn.Linear(dim_query, dim_query, bias=False)
            self.vector = nn.Linear(dim_query, 1, bias=False)
        if kind == "location":
            self.positions = nn.Linear(dim_query, max_length, bias=False)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """(B, T, Q), (B, S, D) -> (B, T, S)."""
        return self.score(query, self.prepare(keys))

    def prepare(self, keys: Tensor) -> Tensor:
        """The part that no query changes: (B, S, D) -> (B, S, Q) or, where there is none, the keys themselves."""
        if self.kind == "location" and keys.shape[1] > self.max_length:
            length = f"a source of {keys.shape[1]} tokens is beyond the {self.max_length} that score 'location' knows"
            raise UserError(f"{length}; shorten it, or train with a larger max_length or another score")
        return self.keys(keys) if self.kind in ("general", "concat") else keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """(B, T, Q) and prepared keys of S positions -> (B, T, S)."""
        match self.kind:
            case "dot":
                return dot(query, prepared)
            case "scaled":
                return scaled(query, prepared)
            case "general":
                return general(query, prepared)
            case "concat":
                return concat(query, prepared, self.query.weight, self.vector.weight[0])
            case _:
                return location(query, self.positions.weight, prepared.shape[1])
