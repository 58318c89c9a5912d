"""The recurrent encoder-decoder with attention (Bahdanau et al. 2014, Luong et al. 2015).

An encoder reads the source token by token, a decoder writes the target. At each step the decoder's new state is the
query, as Luong has it: it scores the encoder's states, their mix is the attention value, and value and query joined
say which token follows. Knows ids, not text, and nothing of how the next one is chosen: a search does that, through
`start`, `step` and `keep`, which the Transformer has too.

Shapes: B batch, S source length, T target length, D width, E width of an embedding, L layers, K beams, V target
vocabulary, M sentences kept.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.errors import UserError
from heedful.models.transformer import SHARES
from heedful.nn.scores import SCORES, Score

SIZES: dict[str, tuple[int, int]] = {"tiny": (1, 128), "small": (2, 256), "base": (2, 512), "big": (4, 1024)}
"""Layers of each side, and width."""

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


@dataclass(frozen=True, kw_only=True)
class RnnConfig:
    """What decides the model's shape and its arithmetic."""

    vocab_size: int
    """Tokens of the source language, or of both."""
    target_vocab_size: int | None = None
    """Tokens of the target language where it has a vocabulary of its own."""
    layers: int = 2
    dim: int = 512
    embedding_dim: int | None = None
    """Width of the embeddings; as wide as the states if not said."""
    cell: str = "lstm"
    bidirectional: bool = True
    """Whether the encoder reads both ways, each with half the width."""
    score: str = "general"
    """How the decoder's state is compared with the encoder's."""
    dropout: float = 0.2
    share: str = "all"
    """Which tables are one: all three, target and output, or none."""
    input_feeding: bool = True
    """Whether a step also reads what the last one joined (Luong et al. 2015, section 3.3)."""
    max_length: int = 512
    """The longest source. Score location has a weight for each position; to the others it is a limit alone."""
    init_range: float = 0.1
    """All parameters start between minus and plus this."""
    pad: int = 0
    sos: int = 1
    """What a target starts with."""
    eos: int = 2

    def __post_init__(self) -> None:
        for name, known in (("cell", CELLS), ("score", SCORES), ("share", SHARES)):
            if getattr(self, name) not in known:
                raise UserError(f"{name} {getattr(self, name)!r} is not known; choose from {', '.join(known)}")
        for name in ("vocab_size", "target_vocab_size", "layers", "dim", "embedding_dim", "max_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} {value} must be at least 1")
        if self.bidirectional and self.dim % 2:
            choices = f"{self.dim - 1} or {self.dim + 1}" if self.dim > 1 else "2"
            raise UserError(f"dim {self.dim} cannot be halved for two directions; try dim {choices}")
        if not 0 <= self.dropout < 1:
            raise UserError(f"dropout {self.dropout} must be at least 0 and below 1")
        if not self.init_range > 0:
            raise UserError(f"init_range {self.init_range} must be above 0")
        if self.share == "all" and self.target_size != self.vocab_size:
            sizes = f"vocabularies of {self.vocab_size} and {self.target_size} tokens"
            raise UserError(f"{sizes} cannot share all tables; use share output or none")
        if self.share != "none" and self.embedding_size != self.dim:
            widths = f"embedding_dim {self.embedding_size} differs from dim {self.dim}"
            raise UserError(f"{widths}, but share {self.share} scores states by embeddings; use share none")
        self._check_ids()

    def _check_ids(self) -> None:
        ids = {"pad": self.pad, "sos": self.sos, "eos": self.eos}
        smallest = min(self.vocab_size, self.target_size)
        for name, value in ids.items():
            if not 0 <= value < smallest:
                raise UserError(f"{name} {value} is no token of a vocabulary of {smallest}; choose one below that")
        if len(set(ids.values())) < len(ids):
            same = ", ".join(f"{name} {value}" for name, value in ids.items())
            raise UserError(f"{same}: two are the same; give each a token of its own")

    @property
    def target_size(self) -> int:
        """Tokens of the target language."""
        return self.vocab_size if self.target_vocab_size is None else self.target_vocab_size

    @property
    def embedding_size(self) -> int:
        """Width of the embeddings."""
        return self.dim if self.embedding_dim is None else self.embedding_dim

    @classmethod
    def of_size(
        cls,
        size: str,
        *,
        vocab_size: int,
        target_vocab_size: int | None = None,
        **others: int | float | bool | str | None,
    ) -> "RnnConfig":
        """A size by its name; the other fields as the config's own."""
        if size not in SIZES:
            raise UserError(f"size {size!r} is not known; choose from {', '.join(SIZES)}")
        layers, dim = SIZES[size]
        sizes = {"vocab_size": vocab_size, "target_vocab_size": target_vocab_size, "layers": layers, "dim": dim}
        return cls(**sizes, **others)  # pyrefly: ignore


class Memory(NamedTuple):
    """What the encoder makes of a source."""

    states: Tensor
    """(B, S, D)."""
    mask: Tensor
    """(B, S), True at real tokens."""
    final: tuple[Tensor, ...]
    """The decoder's first state: (L, B, D), of an LSTM twice."""


class RnnState(NamedTuple):
    """All that the decoder needs to write the next token. The first three are one a sentence, shared by its beams."""

    keys: Tensor
    """(B, S, D), prepared for scoring."""
    values: Tensor
    """(B, S, D)."""
    mask: Tensor
    """(B, S)."""
    hidden: tuple[Tensor, ...]
    """(L, B, K, D), of an LSTM twice."""
    joined: Tensor | None
    """(B, K, D): what the last step joined; None without input feeding."""


class Rnn(nn.Module):
    """Encoder, attention and decoder."""

    def __init__(self, config: RnnConfig) -> None:
        super().__init__()
        self.config = config
        dim, wide = config.dim, config.embedding_size
        self.source_embedding = nn.Embedding(config.vocab_size, wide)
        self.target_embedding = None if config.share == "all" else nn.Embedding(config.target_size, wide)
        self.projection = nn.Linear(dim, config.target_size, bias=False) if config.share == "none" else None
        cell = CELLS[config.cell]
        between = config.dropout if config.layers > 1 else 0.0
        self.encoder = cell(
            wide,
            dim // 2 if config.bidirectional else dim,
            config.layers,
            batch_first=True,
            dropout=between,
            bidirectional=config.bidirectional,
        )
        parts = 2 if config.cell == "lstm" else 1
        self.bridges = nn.ModuleList(nn.Linear(dim, dim) for _ in range(parts * config.layers))
        fed = wide + dim if config.input_feeding else wide
        self.decoder = cell(fed, dim, config.layers, batch_first=True, dropout=between)
        self.score = Score(config.score, dim, dim, config.max_length)
        self.join = nn.Linear(2 * dim, dim, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    @property
    def target_table(self) -> nn.Embedding:
        """The vectors of the target's tokens."""
        return self.source_embedding if self.target_embedding is None else self.target_embedding

    def forward(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """The scores of each token that follows one of the target: (B, S), (B, S), (B, T) -> (B, T, V)."""
        return self.output(self.states(source, mask, target))

    def states(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """What `output` scores: (B, T, D)."""
        return self._follow(source, mask, target)[0]

    def align(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """How much the choice of each token that follows one of the target looks at each of the source: (B, T, S)."""
        return self._follow(source, mask, target)[1]

    def output(self, joined: Tensor) -> Tensor:
        """The scores of the vocabulary: (..., D) -> (..., V)."""
        return F.linear(joined, (self.target_table if self.projection is None else self.projection).weight)

    def encode(self, source: Tensor, mask: Tensor) -> Memory:
        """(B, S) and its mask, True at real tokens, all of which come before any padding."""
        mask = mask.bool()
        # The host waits here: packing needs the lengths. A source of nothing is read as one token, never attended to.
        lengths = mask.sum(1).clamp(min=1).cpu()
        embedded = self.dropout(self.source_embedding(source))  # (B, S, E)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        packed_states, last = self.encoder(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=source.shape[1])
        ends = [end for part in _parts(last) for end in self._both_ways(part)]
        first = torch.stack([torch.tanh(bridge(end)) for bridge, end in zip(self.bridges, ends, strict=True)])
        return Memory(states, mask, first.split(self.config.layers))

    def start(self, memory: Memory, beams: int) -> RnnState:
        """What `step` begins with: every beam of a sentence in the same state."""
        hidden = tuple(part[:, :, None].expand(-1, -1, beams, -1) for part in memory.final)
        joined = memory.states.new_zeros(len(memory.states), beams, self.config.dim)
        keys = self.score.prepare(memory.states)
        return RnnState(keys, memory.states, memory.mask, hidden, joined if self.config.input_feeding else None)

    def step(
        self, state: RnnState, tokens: Tensor, parents: Tensor | None = None, explain: bool = False
    ) -> tuple[Tensor, RnnState, Tensor | None]:
        """One token more: beams' last tokens (B, K) -> scores (B, K, V), and on request weights (B, K, S).

        Beam k of a sentence continues its old beam `parents[b, k]`; without parents, each beam continues itself.
        """
        if parents is not None:
            state = _reorder(state, parents)
        joined, state, weights = self._advance(state, self.dropout(self.target_table(tokens)))
        return self.output(joined), state, weights if explain else None

    def keep(self, state: RnnState, sentences: Tensor) -> RnnState:
        """The state of some of the sentences (M,)."""
        return RnnState(
            state.keys.index_select(0, sentences),
            state.values.index_select(0, sentences),
            state.mask.index_select(0, sentences),
            tuple(part.index_select(1, sentences) for part in state.hidden),
            None if state.joined is None else state.joined.index_select(0, sentences),
        )

    def attend(self, query: Tensor, state: RnnState) -> tuple[Tensor, Tensor]:
        """tanh(W[a; q]) with the attention value a, and the weights: (B, T, D) -> (B, T, D), (B, T, S).

        The queries of one sentence are its target positions or its beams: nothing here tells them apart.
        """
        padding = ~state.mask[:, None]  # (B, 1, S)
        scores = self.score.score(query, state.keys).masked_fill(padding, -torch.inf)  # (B, T, S)
        weights = scores.softmax(-1).masked_fill(padding, 0.0)
        value = weights.to(state.values.dtype) @ state.values  # (B, T, D)
        return self.dropout(torch.tanh(self.join(torch.cat([value, query], -1)))), weights

    def _follow(self, source: Tensor, mask: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """What the decoder joins, and where it looks, when it is told every token before: (B, T, D), (B, T, S)."""
        state = self.start(self.encode(source, mask), beams=1)
        embedded = self.dropout(self.target_table(target))  # (B, T, E)
        if not self.config.input_feeding:
            # No step reads what the last one joined, hence all queries are known before the first is asked.
            query, _ = self._recur(embedded, state.hidden)
            return self.attend(query, state)
        steps = []
        for token in embedded.split(1, dim=1):  # (B, 1, E): one beam
            joined, state, weights = self._advance(state, token)
            steps.append((joined, weights))
        joined, weights = (torch.cat(part, 1) for part in zip(*steps, strict=True))
        return joined, weights

    def _advance(self, state: RnnState, embedded: Tensor) -> tuple[Tensor, RnnState, Tensor]:
        """One step of every beam: (B, K, E) -> joined (B, K, D) and weights (B, K, S)."""
        x = embedded if state.joined is None else torch.cat([embedded, state.joined], -1)
        query, hidden = self._recur(x.flatten(0, 1)[:, None], state.hidden)  # (B * K, 1, D)
        joined, weights = self.attend(query.view(*embedded.shape[:2], -1), state)
        return joined, state._replace(hidden=hidden, joined=None if state.joined is None else joined), weights

    def _recur(self, x: Tensor, hidden: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The decoder's cells over (B * K, T, ·): top states (B * K, T, D), and the state after the last."""
        shape = hidden[0].shape[1:3]
        flat = tuple(part.flatten(1, 2).contiguous() for part in hidden)  # (L, B * K, D)
        top, last = self.decoder(x, flat if len(flat) > 1 else flat[0])
        return top, tuple(part.unflatten(1, shape) for part in _parts(last))

    def _both_ways(self, ends: Tensor) -> Tensor:
        """The ends of a layer's directions side by side: (L or 2L, B, ·) -> (L, B, D)."""
        return ends.unflatten(0, (self.config.layers, -1)).transpose(1, 2).flatten(2)


def _parts(state: Tensor | tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """A GRU's state is a tensor, an LSTM's is two."""
    return (state,) if isinstance(state, Tensor) else state


def _reorder(state: RnnState, parents: Tensor) -> RnnState:
    """Each beam in the state of its parent; what belongs to the sentence stays as it is."""
    sentences, beams = state.hidden[0].shape[1:3]
    first = torch.arange(sentences, device=parents.device)[:, None] * beams
    rows = (first + parents).flatten()
    hidden = (part.flatten(1, 2).index_select(1, rows).unflatten(1, parents.shape) for part in state.hidden)
    joined = state.joined
    if joined is not None:
        joined = joined.flatten(0, 1).index_select(0, rows).unflatten(0, parents.shape)
    return state._replace(hidden=tuple(hidden), joined=joined)


def initialise(model: Rnn, config: RnnConfig, generator: torch.Generator) -> None:
    """Every parameter from one uniform distribution (Luong et al. 2015, section 4.1)."""
    for parameter in model.parameters():
        with torch.no_grad():
            parameter.uniform_(-config.init_range, config.init_range, generator=generator)
