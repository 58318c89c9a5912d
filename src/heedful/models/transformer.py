"""The Transformer (Vaswani et al. 2017): an encoder reads the source, a decoder writes the target token by token.

Knows ids, not text, and nothing of how the next token is chosen: `decode` does that, through `start`, `step` and
`keep`, which `models/rnn.py` has too.

Shapes: B batch, S source length, T target length, D width, H heads, K beams, V target vocabulary.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.nn.attention import KeyValue, MultiHeadAttention, added
from heedful.nn.layers import ACTIVATIONS, DecoderLayer, EncoderLayer, Moment
from heedful.nn.layout import Padded
from heedful.nn.norm import Norm
from heedful.nn.positions import sinusoidal

SIZES: dict[str, tuple[int, int, int, int]] = {
    "tiny": (4, 128, 4, 256),
    "small": (6, 512, 4, 1024),
    "base": (6, 512, 8, 2048),
    "big": (6, 1024, 16, 4096),
}
"""Layers of each side, width, heads and inner width: tiny as in Wu et al. 2021, base and big as in the paper."""

SHARES = ("all", "output", "none")
"""Which of the three tables are one: source, target and output; target and output; none of them."""

POST_NORM_GAINS = {"query": 0.5**0.5, "key": 0.5**0.5, "value": 0.5, "output": 0.5, "outer": 0.5}
"""How much smaller the matrices of sublayers start where norms come after the residuals."""

ROOM = 32
"""Positions that a decoder's past has room for at first; it doubles when they are full."""


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """What decides a Transformer's shape and its arithmetic."""

    vocab_size: int
    """Tokens of the source language, or of both."""
    target_vocab_size: int | None = None
    """Tokens of the target language where it has a vocabulary of its own."""
    encoder_layers: int = 6
    decoder_layers: int = 6
    dim: int = 512
    heads: int = 8
    ffn_dim: int = 2048
    activation: str = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    pre_norm: bool = False
    share: str = "all"
    """Which tables are one: all three, target and output, or none."""
    output_bias: bool = False
    """Whether the scores of the vocabulary have a bias, as those of Marian's models have."""
    max_length: int = 1024
    norm_eps: float = 1e-5
    pad: int = 0
    sos: int = 1
    """What a target starts with."""
    eos: int = 2

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise UserError(f"activation {self.activation!r} is not known; choose from {', '.join(ACTIVATIONS)}")
        if self.share not in SHARES:
            raise UserError(f"share {self.share!r} is not known; choose from {', '.join(SHARES)}")
        if self.share == "all" and self.target_vocab_size not in (None, self.vocab_size):
            raise UserError("two vocabularies can't share all tables; use share output or none")
        for name in ("vocab_size", "encoder_layers", "decoder_layers", "dim", "heads", "ffn_dim", "max_length"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} {getattr(self, name)} must be at least 1")

    @property
    def target_size(self) -> int:
        """Tokens of the target language."""
        return self.target_vocab_size or self.vocab_size

    @classmethod
    def of_size(cls, size: str, *, vocab_size: int, **others: int | float | bool | str | None) -> "TransformerConfig":
        """A size by its name."""
        if size not in SIZES:
            raise UserError(f"size {size!r} is not known; choose from {', '.join(SIZES)}")
        layers, dim, heads, ffn_dim = SIZES[size]
        shape = {"dim": dim, "heads": heads, "ffn_dim": ffn_dim}
        return cls(vocab_size=vocab_size, encoder_layers=layers, decoder_layers=layers, **shape, **others)  # pyrefly: ignore


class Memory(NamedTuple):
    """What the encoder makes of a source."""

    states: Tensor
    """(B, S, D)."""
    mask: Tensor
    """(B, S), True at real tokens."""


class Cache(NamedTuple):
    """All that a decoder needs to write the next token; one a batch."""

    memory: tuple[KeyValue, ...]
    """Of each layer, (B, H, S, D / H): computed once, shared by the beams."""
    memory_mask: Tensor
    """(B, 1, 1, S)."""
    past: tuple[Tensor, ...]
    """Keys and values of each layer, (room, B * K, 2, H, D / H); the first `length` positions are written."""
    owners: Tensor | None
    """(B * K, room): which beam wrote what each beam has at each position; None with one beam, its own writer."""
    length: int


class Transformer(nn.Module):
    """Encoder and decoder over scaled embeddings and sinusoidal positions (sections 3.1, 3.4, 3.5)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.vocab_size, config.dim)
        self.target_embedding = None if config.share == "all" else nn.Embedding(config.target_size, config.dim)
        self.projection: nn.Module | None = None
        if config.share == "none":
            self.projection = nn.Linear(config.dim, config.target_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.target_size)) if config.output_bias else None
        sizes = (config.dim, config.heads, config.ffn_dim)
        options = {
            "activation": config.activation,
            "dropout": config.dropout,
            "attention_dropout": config.attention_dropout,
            "norm_eps": config.norm_eps,
            "pre_norm": config.pre_norm,
        }
        self.encoder = nn.ModuleList(EncoderLayer(*sizes, **options) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes, **options) for _ in range(config.decoder_layers))
        # Without norms after the residuals, the last layer's output would be the only one that is never normed.
        self.encoder_norm = Norm(config.dim, config.norm_eps) if config.pre_norm else None
        self.decoder_norm = Norm(config.dim, config.norm_eps) if config.pre_norm else None
        self.dropout = nn.Dropout(config.dropout)
        self.positions: Tensor
        self.register_buffer("positions", sinusoidal(config.max_length, config.dim), persistent=False)

    @property
    def output_table(self) -> Tensor:
        """(V, D): what a state is compared with to score each token."""
        if self.projection is None:
            return self.target_table.weight
        assert isinstance(self.projection, nn.Linear)
        return self.projection.weight

    @property
    def target_table(self) -> nn.Embedding:
        """The vectors of the target's tokens."""
        return self.source_embedding if self.target_embedding is None else self.target_embedding

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """The scores of each token that follows one of the target: (B, S), (B, S), (B, T) -> (B, T, V)."""
        return self.output(self.states(source, mask, target))

    def states(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """What `output` scores: (B, T, D)."""
        return self.decode(self.embed_target(target), self.encode(source, mask))[0]

    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        """(B, S) and its mask, True at real tokens."""
        return self.encode_embedded(self.embed_source(source), mask)

    def embed_source(self, source: Tensor) -> Tensor:
        """(B, S) -> (B, S, D)."""
        return self._embed(self.source_embedding, source, self._first(source.shape[1]))

    def embed_target(self, target: Tensor) -> Tensor:
        """(B, T) -> (B, T, D)."""
        return self._embed(self.target_table, target, self._first(target.shape[1]))

    def encode_embedded(self, x: Tensor, mask: Tensor) -> Memory:
        """(B, S, D) and its mask."""
        layout = Padded(mask)
        for layer in self.encoder:
            x, _ = layer(x, layout)
        return Memory(x if self.encoder_norm is None else self.encoder_norm(x), mask)

    def decode(self, y: Tensor, memory: Memory, explain: bool = False) -> tuple[Tensor, list[Tensor]]:
        """A whole embedded target (B, T, D) -> (B, T, D); on request each layer's weights over the source."""
        mask = memory.mask[:, None, None]
        weights = []
        for layer, keys in zip(self.decoder, self.memory_keys(memory), strict=True):
            y, seen = layer(y, keys, mask, explain)
            if seen is not None:
                weights.append(seen)
        return y if self.decoder_norm is None else self.decoder_norm(y), weights

    def output(self, states: Tensor) -> Tensor:
        """The scores of the vocabulary: (..., D) -> (..., V)."""
        if self.projection is None:
            return F.linear(states, self.target_table.weight, self.output_bias)
        scores = self.projection(states)
        return scores if self.output_bias is None else scores + self.output_bias

    def start(self, memory: Memory, beams: int) -> Cache:
        """What `step` begins with."""
        rows, heads = len(memory.states) * beams, self.config.heads
        new = memory.states.new_zeros
        past = tuple(new((ROOM, rows, 2, heads, self.config.dim // heads)) for _ in self.decoder)
        owners = None if beams == 1 else new((rows, ROOM), dtype=torch.long)
        return Cache(self.memory_keys(memory), memory.mask[:, None, None], past, owners, 0)

    def memory_keys(self, memory: Memory) -> tuple[KeyValue, ...]:
        """What each decoder layer looks up in the encoder's output: (B, H, S, D / H) twice."""
        return tuple(_cross(layer).keys(memory.states) for layer in self.decoder)

    def step(
        self, cache: Cache, tokens: Tensor, parents: Tensor | None = None, explain: bool = False
    ) -> tuple[Tensor, Cache, Tensor | None]:
        """One token more: beams' last tokens (B, K) -> scores (B, K, V), and on request weights (B, K, S).

        Beam k of a sentence continues its old beam `parents[b, k]`. The cache is used up: use the one returned.
        """
        cache = _with_room(cache)
        span = cache.length + 1
        place = torch.full((1,), cache.length, device=tokens.device)
        lines, owners = None, cache.owners
        if owners is not None:
            rows = torch.arange(tokens.numel(), device=tokens.device)
            owners = inherited(owners, rows, place, parents)
            lines = (torch.arange(span, device=tokens.device) * len(rows) + owners[:, :span]).flatten()
        scores, weights = self.advance(cache, tokens, Moment(place, span, None, lines), explain)
        return scores, cache._replace(owners=owners, length=span), weights

    def advance(
        self, cache: Cache, tokens: Tensor, moment: Moment, explain: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """The work of `step`, at a moment whose place only the device knows."""
        y = self._embed(self.target_table, tokens, self.positions.index_select(0, moment.place))  # (B, K, D)
        if moment.mask is not None:
            moment = moment._replace(mask=added(moment.mask, y.dtype))
        source_mask, weights = added(cache.memory_mask, y.dtype), None
        for number, layer in enumerate(self.decoder):
            assert isinstance(layer, DecoderLayer)
            wanted = explain and number == self.aligning_layer
            mask = cache.memory_mask if wanted else source_mask
            y, seen = layer.step(y, cache.past[number], moment, cache.memory[number], mask, wanted)
            weights = weights if seen is None else seen.mean(1)  # (B, K, S)
        return self.output(y if self.decoder_norm is None else self.decoder_norm(y)), weights

    def keep(self, cache: Cache, sentences: Tensor) -> Cache:
        """The cache of some of the sentences (M,)."""
        beams = cache.past[0].shape[1] // len(cache.memory_mask)
        rows = (sentences[:, None] * beams + torch.arange(beams, device=sentences.device)).flatten()
        return Cache(
            tuple(KeyValue(*(part.index_select(0, sentences) for part in layer)) for layer in cache.memory),
            cache.memory_mask.index_select(0, sentences),
            tuple(gathered(layer, cache.owners, rows) for layer in cache.past),
            None if cache.owners is None else _own(len(rows), cache.owners),
            cache.length,
        )

    def align(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """How much each target token, when it was written, looked at each of the source: (B, T, S)."""
        _, weights = self.decode(self.embed_target(target), self.encode(source, mask), explain=True)
        return weights[self.aligning_layer].mean(1)

    @property
    def aligning_layer(self) -> int:
        """The decoder layer whose attention says best what translates what: the last but one."""
        return max(0, len(self.decoder) - 2)

    def _embed(self, table: nn.Embedding, ids: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(table(ids) * math.sqrt(self.config.dim) + positions)

    def _first(self, length: int) -> Tensor:
        if length > self.config.max_length:
            raise UserError(f"a sequence of {length} tokens is beyond the model's {self.config.max_length} positions")
        return self.positions[:length]


def _cross(layer: nn.Module) -> MultiHeadAttention:
    assert isinstance(layer, DecoderLayer)
    return layer.cross_attention


def inherited(owners: Tensor, rows: Tensor, place: Tensor, parents: Tensor | None) -> Tensor:
    """Who wrote each beam's past (B * K, room) once it goes on from its parent (B, K) and writes at a place."""
    if parents is not None:
        first = rows.view_as(parents)[:, :1]  # of each sentence
        owners = owners.index_select(0, (first + parents).flatten())
    return owners.index_copy(1, place, rows[:, None])


def gathered(past: Tensor, owners: Tensor | None, rows: Tensor) -> Tensor:
    """The past of some of the beams, each with lines of its own: (room, B * K, …) -> (room, M, …)."""
    if owners is None:
        return past.index_select(1, rows)
    room, total = past.shape[:2]
    lines = torch.arange(room, device=past.device)[:, None] * total + owners.index_select(0, rows).T  # (room, M)
    return past.flatten(0, 1).index_select(0, lines.flatten()).view(room, len(rows), *past.shape[2:])


def _own(rows: int, owners: Tensor) -> Tensor:
    """Everybody has written their own past."""
    return torch.arange(rows, device=owners.device)[:, None].repeat(1, owners.shape[1])


def _with_room(cache: Cache) -> Cache:
    """The same cache with room for one more position."""
    room = len(cache.past[0])
    if cache.length < room:
        return cache
    past = tuple(torch.cat([layer, torch.zeros_like(layer)]) for layer in cache.past)
    return cache._replace(past=past, owners=None if cache.owners is None else F.pad(cache.owners, (0, room)))


def initialise(model: Transformer, generator: torch.Generator) -> None:
    """Matrices as Glorot and Bengio draw them, embeddings with variance 1/D, norms at one, biases at zero.

    With norms after the residuals, what the sublayers add starts smaller (compare DeepNet, Wang et al. 2022, section
    3.3), and queries match keys less: with high learning rates such a model else stays at guessing frequent words.
    """
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            if "embedding" in name or name.startswith("projection"):
                parameter.normal_(0.0, model.config.dim**-0.5, generator=generator)
            elif parameter.dim() > 1:
                gain = 1.0 if model.config.pre_norm else POST_NORM_GAINS.get(name.split(".")[-2], 1.0)
                nn.init.xavier_uniform_(parameter, gain, generator=generator)
            else:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
