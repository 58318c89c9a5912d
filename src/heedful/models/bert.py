"""BERT (Devlin et al. 2018): a Transformer encoder over `[CLS] A [SEP] B [SEP]`, and its two pretraining heads.

Knows ids, not text: what the numbers stand for is the tokenizer's business.

Shapes: B batch, T length, D width, H heads, L layers, V vocabulary, N packed tokens, M chosen positions.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.nn.embeddings import InputEmbedding
from heedful.nn.layers import ACTIVATIONS, EncoderLayer
from heedful.nn.layout import Layout, Packed, Padded

SIZES: dict[str, tuple[int, int, int]] = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
"""Layers, width and heads of the published sizes."""

POOLS = ("cls", "mean")
"""How a sequence's states become one vector."""


@dataclass(frozen=True, kw_only=True)
class BertConfig:
    """What decides a BERT's shape and its arithmetic."""

    vocab_size: int
    layers: int = 12
    dim: int = 768
    heads: int = 12
    ffn_dim: int = 3072
    max_length: int = 512
    segments: int = 2
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_eps: float = 1e-12
    init_std: float = 0.02
    tied: bool = True
    """The MLM head scores with the token embeddings themselves."""
    pool: str = "cls"
    """What the pooler reads: the state of `[CLS]` as published, or the mean of all states."""

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise UserError(f"activation {self.activation!r} is not known; choose from {', '.join(ACTIVATIONS)}")
        if self.pool not in POOLS:
            raise UserError(f"pool {self.pool!r} is not known; choose from {', '.join(POOLS)}")
        for name in ("vocab_size", "layers", "dim", "heads", "ffn_dim", "max_length", "segments"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} {getattr(self, name)} must be at least 1")

    @classmethod
    def of_size(
        cls,
        size: str,
        *,
        vocab_size: int,
        max_length: int = 512,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
    ) -> "BertConfig":
        """A published size; the feed-forward layer is four times as wide as the model."""
        if size not in SIZES:
            raise UserError(f"size {size!r} is not known; choose from {', '.join(SIZES)}")
        layers, dim, heads = SIZES[size]
        return cls(
            vocab_size=vocab_size,
            layers=layers,
            dim=dim,
            heads=heads,
            ffn_dim=4 * dim,
            max_length=max_length,
            dropout=dropout,
            attention_dropout=attention_dropout,
        )


class BertOutput(NamedTuple):
    """What the encoder makes of a batch."""

    hidden: Tensor
    """(B, T, D), or (N, D) for a packed batch."""
    pooled: Tensor | None
    """(B, D); None without a pooler."""
    weights: tuple[Tensor, ...] | None = None
    """On request: L times (B, H, T, T)."""


class PretrainingOutput(NamedTuple):
    """Scores before the softmax; None where the model lacks the head."""

    mlm_logits: Tensor | None
    """(B, T, V), (N, V), or (M, V) for chosen positions."""
    nsp_logits: Tensor | None
    """(B, 2): first "B follows A", then "B is from elsewhere"."""


class Bert(nn.Module):
    """The encoder."""

    def __init__(self, config: BertConfig, pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = InputEmbedding(
            config.vocab_size, config.dim, config.max_length, config.segments, config.dropout, config.norm_eps
        )
        self.layers = nn.ModuleList(
            EncoderLayer(
                config.dim,
                config.heads,
                config.ffn_dim,
                activation=config.activation,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                norm_eps=config.norm_eps,
            )
            for _ in range(config.layers)
        )
        self.pooler = nn.Linear(config.dim, config.dim) if pooler else None

    def forward(
        self,
        ids: Tensor,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        packed: Packed | None = None,
        explain: bool = False,
    ) -> BertOutput:
        """A padded batch (B, T) with its mask, True at real tokens; or a packed one (N,) with its layout."""
        layout: Layout = packed or Padded(None if mask is None else mask.bool())
        longest = packed.longest if packed else ids.shape[-1]
        if longest > self.config.max_length:
            raise UserError(
                f"a sequence of {longest} tokens is beyond the model's {self.config.max_length} positions"
            )
        return self.encode(self.embeddings(ids, segments, layout), layout, explain)

    def encode(self, x: Tensor, layout: Layout, explain: bool = False) -> BertOutput:
        """What the layers make of embedded tokens: (B, T, D) or (N, D)."""
        weights = []
        for layer in self.layers:
            x, layer_weights = layer(x, layout, explain)
            weights.append(layer_weights)
        pooled = None
        if self.pooler is not None:
            pooled = torch.tanh(self.pooler(layout.mean(x) if self.config.pool == "mean" else layout.first(x)))
        return BertOutput(x, pooled, tuple(weights) if explain else None)


class MlmHead(nn.Module):
    """Scores the vocabulary for a token's final state; the scoring matrix is the token embedding."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.dim, config.dim)
        self.norm = nn.LayerNorm(config.dim, config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.decoder = None if config.tied else nn.Parameter(torch.zeros(config.vocab_size, config.dim))
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """(..., D) and (V, D) -> (..., V)."""
        x = self.norm(self.activation(self.dense(hidden)))
        return F.linear(x, embedding if self.decoder is None else self.decoder, self.bias)


class BertForPretraining(nn.Module):
    """The encoder with the heads for masked words and for next sentences, or with one of them."""

    def __init__(self, config: BertConfig, *, mlm: bool = True, nsp: bool = True, pooler: bool | None = None) -> None:
        super().__init__()
        self.bert = Bert(config, nsp if pooler is None else pooler)
        self.mlm = MlmHead(config) if mlm else None
        self.nsp = nn.Linear(config.dim, 2) if nsp else None

    @property
    def config(self) -> BertConfig:
        """The encoder's."""
        return self.bert.config

    def forward(
        self,
        ids: Tensor,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        packed: Packed | None = None,
        positions: Tensor | None = None,
    ) -> PretrainingOutput:
        """As the encoder; with positions (M,) of the flattened batch, words are scored there only."""
        hidden, pooled, _ = self.bert(ids, segments, mask, packed=packed)
        mlm_logits = nsp_logits = None
        if self.mlm is not None:
            if positions is not None:
                hidden = hidden.flatten(0, -2).index_select(0, positions)  # (M, D)
            mlm_logits = self.mlm(hidden, self.bert.embeddings.tokens.weight)
        if self.nsp is not None:
            nsp_logits = self.nsp(pooled)
        return PretrainingOutput(mlm_logits, nsp_logits)


def initialise(model: nn.Module, std: float, generator: torch.Generator) -> None:
    """Weights from a normal distribution, norms at one, everything else at zero (as the paper's code does)."""
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            if parameter.dim() > 1:
                parameter.normal_(0.0, std, generator=generator)
            else:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
