"""BERT (Devlin et al. 2018): a Transformer encoder over `[CLS] A [SEP] B [SEP]`, and its two pretraining heads.

By default as published. The options that later encoders brought stand each for itself; with all of them together it
is a ModernBERT (Warner et al. 2024) whose layers all look at the whole input.

Knows ids, not text: what the numbers stand for is the tokenizer's business.

Shapes: B batch, T length, D width, H heads, L layers, V vocabulary, N packed tokens, M chosen tokens.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.nn.embeddings import InputEmbedding
from heedful.nn.layers import ACTIVATIONS, EncoderLayer
from heedful.nn.layout import Layout, Packed, Padded, chosen
from heedful.nn.norm import Norm
from heedful.nn.positions import Rotation, rotary

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

POSITIONS = ("learned", "rotary")
"""How a token says where it stands: by a vector added to its own, or by turning its queries and keys."""


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
    """Kinds of segments; with 0, nothing but `[SEP]` tells the two texts of a pair apart. 1 is a vector that all
    tokens share."""
    activation: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    norm_eps: float = 1e-12
    init_std: float = 0.02
    tied: bool = True
    """The MLM head scores with the token embeddings themselves."""
    pool: str = "cls"
    """What the pooler reads: the state of `[CLS]` as published, or the mean of all states."""
    pre_norm: bool = False
    """Norms before the sublayers, and one after the last layer. The first attention reads the embeddings, which are
    normalised already."""
    positions: str = "learned"
    rotary_base: float = 10000.0
    """The longest wavelength of rotary positions, over 2π."""
    gated: bool = False
    """The feed-forward layers multiply what the activation lets through with a gate: GeGLU, if that is GELU."""
    bias: bool = True
    """Biases in the layers' matrices, in norms, and in the matrix before the scores of words."""

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise UserError(f"activation {self.activation!r} is not known; choose from {', '.join(ACTIVATIONS)}")
        if self.pool not in POOLS:
            raise UserError(f"pool {self.pool!r} is not known; choose from {', '.join(POOLS)}")
        if self.positions not in POSITIONS:
            raise UserError(f"positions {self.positions!r} are not known; choose from {', '.join(POSITIONS)}")
        for name in ("vocab_size", "layers", "dim", "heads", "ffn_dim", "max_length"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} {getattr(self, name)} must be at least 1")
        if self.segments < 0:
            raise UserError(f"segments {self.segments} must not be negative")
        if not 1 <= self.rotary_base < math.inf:
            raise UserError(f"rotary_base {self.rotary_base} must be at least 1; 10000 is usual")
        if self.positions == "rotary" and self.dim // self.heads % 2:
            raise UserError(
                f"rotary positions turn pairs of numbers, but a head is {self.dim // self.heads} wide "
                f"(dim {self.dim}, heads {self.heads}); choose sizes that make it even"
            )

    @classmethod
    def of_size(
        cls,
        size: str,
        *,
        vocab_size: int,
        max_length: int = 512,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        gated: bool = False,
    ) -> "BertConfig":
        """A published size; the feed-forward layer is four times as wide as the model.

        A gate is a third matrix: with it the layer is two thirds as wide, in steps of 64, and has about as many
        parameters.
        """
        if size not in SIZES:
            raise UserError(f"size {size!r} is not known; choose from {', '.join(SIZES)}")
        layers, dim, heads = SIZES[size]
        return cls(
            vocab_size=vocab_size,
            layers=layers,
            dim=dim,
            heads=heads,
            ffn_dim=round(dim / 24) * 64 if gated else 4 * dim,
            max_length=max_length,
            dropout=dropout,
            attention_dropout=attention_dropout,
            gated=gated,
        )

    @property
    def published(self) -> bool:
        """Whether it is a BERT as published, whatever its sizes."""
        return not self.variations

    @property
    def modern(self) -> bool:
        """Whether it has all that makes a ModernBERT; then its heads are that model's too.

        What all tokens share may as well be a part of each, so one segment is as good as none.
        """
        return self.pre_norm and self.positions == "rotary" and self.gated and self.segments <= 1

    @property
    def variations(self) -> tuple[str, ...]:
        """How it differs from the published BERT, in words."""
        named = {
            "pre-norm": self.pre_norm,
            "rotary positions": self.positions == "rotary",
            "gated": self.gated,
            "no biases": not self.bias,
            "no segments": self.segments == 0,
        }
        return tuple(name for name, differs in named.items() if differs)


class BertOutput(NamedTuple):
    """What the encoder makes of a batch."""

    hidden: Tensor
    """(B, T, D), (N, D) for a packed batch, or (M, D) for chosen places."""
    pooled: Tensor | None
    """(B, D); None without a pooler."""
    weights: tuple[Tensor, ...] | None = None
    """On request: L times (B, H, T, T)."""


class PretrainingOutput(NamedTuple):
    """Scores before the softmax; None where the model lacks the head."""

    mlm_logits: Tensor | None
    """(B, T, V), (N, V), or (M, V) for chosen tokens."""
    nsp_logits: Tensor | None
    """(B, 2): first "B follows A", then "B is from elsewhere"."""


class Transform(nn.Module):
    """What stands between a state and the scores of words: a linear layer, the activation, a norm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.norm = Norm(config.dim, config.norm_eps, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return self.norm(self.activation(self.dense(x)))


class Bert(nn.Module):
    """The encoder."""

    def __init__(self, config: BertConfig, pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = InputEmbedding(
            config.vocab_size,
            config.dim,
            0 if config.positions == "rotary" else config.max_length,
            config.segments,
            config.dropout,
            config.norm_eps,
            bias=config.bias,
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
                pre_norm=config.pre_norm,
                normed=number == 0,
                gated=config.gated,
                bias=config.bias,
            )
            for number in range(config.layers)
        )
        self.final_norm = Norm(config.dim, config.norm_eps, bias=config.bias) if config.pre_norm else None
        self.pooler: Transform | nn.Linear | None = None
        if pooler:
            self.pooler = Transform(config) if config.modern else nn.Linear(config.dim, config.dim)

    def forward(
        self,
        ids: Tensor,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        packed: Packed | None = None,
        explain: bool = False,
        places: Tensor | None = None,
    ) -> BertOutput:
        """A padded batch (B, T) with its mask, True at real tokens; or a packed one (N,) with its layout.

        With places (M,) in the batch, each at most once and never a sequence's first, the states there alone.
        """
        layout: Layout = packed or Padded(None if mask is None else mask.bool())
        longest = packed.longest if packed else ids.shape[-1]
        if longest > self.config.max_length:
            raise UserError(
                f"a sequence of {longest} tokens is beyond the model's {self.config.max_length} positions"
            )
        return self.encode(self.embeddings(ids, segments, layout), layout, explain, places)

    def encode(self, x: Tensor, layout: Layout, explain: bool = False, places: Tensor | None = None) -> BertOutput:
        """What the layers make of embedded tokens: (B, T, D) or (N, D)."""
        if places is None or (self.pooler is not None and self.config.pool == "mean"):
            hidden, weights = self.states(x, layout, explain)
            states = hidden if places is None else chosen(hidden, places)
            return BertOutput(states, self.pool(hidden, layout), weights)
        if self.pooler is None:
            hidden, weights = self.states(x, layout, explain, places)
            return BertOutput(hidden, None, weights)
        hidden, weights = self.states(x, layout, explain, torch.cat([places, layout.starts(x)]))
        return BertOutput(hidden[: len(places)], self._pooled(hidden[len(places) :]), weights)

    def states(
        self, x: Tensor, layout: Layout, explain: bool = False, places: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """The same without what the pooler makes of it."""
        rotation = self.rotation(x, layout)  # once for all layers
        weights = []
        for number, layer in enumerate(self.layers, 1):
            x, layer_weights = layer(x, layout, explain, rotation, places if number == len(self.layers) else None)
            weights.append(layer_weights)
        if self.final_norm is not None:
            x = self.final_norm(x)
        return x, tuple(weights) if explain else None

    def rotation(self, x: Tensor, layout: Layout) -> Rotation | None:
        """How far queries and keys of embedded tokens are turned; None where positions are added."""
        config = self.config
        if config.positions != "rotary":
            return None
        return rotary(layout.positions(x[..., 0]), config.dim // config.heads, config.rotary_base)

    def pool(self, hidden: Tensor, layout: Layout) -> Tensor | None:
        """One vector a sequence, (B, D); None without a pooler."""
        if self.pooler is None:
            return None
        return self._pooled(layout.mean(hidden) if self.config.pool == "mean" else layout.first(hidden))

    def _pooled(self, read: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        assert self.pooler is not None
        pooled = self.pooler(read)
        return pooled if self.config.modern else torch.tanh(pooled)


class MlmHead(nn.Module):
    """Scores the vocabulary for a token's final state; the scoring matrix is the token embedding."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = Transform(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.decoder = None if config.tied else nn.Parameter(torch.zeros(config.vocab_size, config.dim))

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """(..., D) and (V, D) -> (..., V)."""
        table = embedding if self.decoder is None else self.decoder
        return F.linear(self.transform(hidden), table, self.bias)


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
        places: Tensor | None = None,
    ) -> PretrainingOutput:
        """As the encoder; with places (M,) in the batch, words are scored there only.

        Each place at most once, and never a sequence's first, or gradients are wrong.
        """
        hidden, pooled, _ = self.bert(ids, segments, mask, packed=packed, places=places)
        mlm_logits = nsp_logits = None
        if self.mlm is not None:
            mlm_logits = self.words(hidden)
        if self.nsp is not None:
            nsp_logits = self.nsp(pooled)
        return PretrainingOutput(mlm_logits, nsp_logits)

    def words(self, hidden: Tensor) -> Tensor:
        """The scores of words for final states: (..., D) -> (..., V)."""
        assert self.mlm is not None
        return self.mlm(hidden, self.bert.embeddings.tokens.weight)


OUTER = ("attention.output.weight", "feed_forward.outer.weight")
"""The matrices whose products are added to the residual stream."""


def initialise(model: nn.Module, std: float, generator: torch.Generator, depth: int | None = None) -> None:
    """Weights from a normal distribution, norms at one, everything else at zero (as the paper's code does).

    With `depth`, the number of layers, the last matrix of each sublayer starts smaller by √(2 depth), so that the
    residual stream is no larger after many layers than after few (Radford et al. 2019, section 2.3).
    """
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            if parameter.dim() > 1:
                smaller = math.sqrt(2 * depth) if depth and name.endswith(OUTER) else 1.0
                parameter.normal_(0.0, std / smaller, generator=generator)
            else:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
