"""A Transformer's step as a GPU likes it: recorded once a shape, then replayed as one piece (CUDA graphs).

Writing a token takes a hundred small kernels, and launching them takes longer than running them. A recording needs
fixed shapes and places: sentences, source lengths and the room for the past are rounded up to a few sizes, each with
buffers of its own, and what does not exist yet is masked. One batch at a time.

Shapes: B sentences, K beams, S source length, R room, V vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.decode import rounded
from heedful.decode.recorder import recorded
from heedful.models.transformer import ROOM, Cache, Memory, Transformer, gathered, inherited
from heedful.nn.attention import KeyValue
from heedful.nn.layers import Moment

SOURCE_STEP = 16
MOST_SHARE = 0.25
"""Of a GPU's memory: buffers of all recordings together. The least recently used are forgotten first."""


class Shape(NamedTuple):
    """What a recording is for."""

    sentences: int
    beams: int
    source: int
    room: int


class Under(NamedTuple):
    """A batch under way: where it is, how much of the recording is real, and how long it has become."""

    shape: Shape
    sentences: int
    source: int
    length: int


class _Recording:
    """Buffers, and the step that reads and writes them."""

    def __init__(self, model: Transformer, shape: Shape, pool: tuple[int, int] | None) -> None:
        config, new = model.config, model.positions.new_zeros
        width = config.dim // config.heads
        rows = shape.sentences * shape.beams
        memory = (shape.sentences, config.heads, shape.source, width)
        past = (shape.room, rows, 2, config.heads, width)
        self.model = model
        self.rows = torch.arange(rows, device=model.positions.device)
        self.cache = Cache(
            tuple(KeyValue(new(memory), new(memory)) for _ in range(config.decoder_layers)),
            new((shape.sentences, 1, 1, shape.source), dtype=torch.bool).fill_(True),
            tuple(new(past) for _ in range(config.decoder_layers)),
            new((rows, shape.room), dtype=torch.long) if shape.beams > 1 else None,
            0,
        )
        self.tokens = new((shape.sentences, shape.beams), dtype=torch.long)
        self.parents = new((shape.sentences, shape.beams), dtype=torch.long)
        self.place = new(1, dtype=torch.long)
        self.places = torch.arange(shape.room, device=model.positions.device)
        self.run = _warm(self.write, pool) if model.positions.is_cuda else self.write

    def write(self, explain: bool = False) -> tuple[Tensor, Tensor | None]:
        """The next token's scores, from what the buffers hold."""
        owners, lines = self.cache.owners, None
        if owners is not None:
            owners.copy_(inherited(owners, self.rows, self.place, self.parents))
            lines = (self.places * len(self.rows) + owners).flatten()
        moment = Moment(self.place, len(self.places), (self.places <= self.place)[None], lines)
        scores, weights = self.model.advance(self.cache, self.tokens, moment, explain)
        self.place.add_(1)
        return scores, weights


def _warm(
    write: Callable[[], tuple[Tensor, Tensor | None]], pool: tuple[int, int] | None
) -> Callable[[], tuple[Tensor, Tensor | None]]:
    """The work, done once so that everything it needs is ready, then recorded."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        write()
    torch.cuda.current_stream().wait_stream(aside)
    return recorded(write, pool)


class RecordedSteps:
    """`start`, `step` and `keep` of a Transformer that does not train; scores are valid until the next step."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.recordings: dict[Shape, _Recording] = {}
        self.pool = torch.cuda.graph_pool_handle() if model.positions.is_cuda else None
        memory = torch.cuda.get_device_properties().total_memory if model.positions.is_cuda else 16 << 30
        self.most = MOST_SHARE * memory

    def start(self, memory: Memory, beams: int) -> Under:
        """What `step` begins with."""
        sentences, source = memory.mask.shape
        shape = Shape(rounded(sentences), beams, -(-source // SOURCE_STEP) * SOURCE_STEP, ROOM)
        recording = self._recording(shape)
        for layer, new in zip(recording.cache.memory, self.model.memory_keys(memory), strict=True):
            for kept, part in zip(layer, new, strict=True):
                kept[:sentences, :, :source].copy_(part)
                kept[:, :, source:].zero_()
        mask = recording.cache.memory_mask
        mask.zero_()
        mask[:sentences, ..., :source].copy_(memory.mask[:, None, None])
        mask[sentences:, ..., 0] = True  # who is not real has something to look at
        for past in recording.cache.past:
            past.zero_()  # what an earlier batch left is masked, but what is no number would show all the same
        recording.place.zero_()
        return Under(shape, sentences, source, 0)

    def step(
        self, under: Under, tokens: Tensor, parents: Tensor | None = None, explain: bool = False
    ) -> tuple[Tensor, Under, Tensor | None]:
        """As the model's own."""
        if under.length == under.shape.room:
            everyone = torch.arange(under.sentences, device=tokens.device)
            under = self._move(under, everyone, under.shape._replace(room=2 * under.shape.room))
        recording = self._recording(under.shape)
        recording.tokens[: under.sentences].copy_(tokens)
        if parents is not None:
            recording.parents[: under.sentences].copy_(parents)
        elif under.shape.beams > 1:
            recording.parents.copy_(recording.rows[: under.shape.beams].expand_as(recording.parents))
        scores, weights = recording.write(explain=True) if explain else recording.run()
        under = under._replace(length=under.length + 1)
        if weights is not None:
            weights = weights[: under.sentences, :, : under.source]
        return scores[: under.sentences], under, weights

    def keep(self, under: Under, sentences: Tensor) -> Under:
        """The state of some of the sentences, in the smallest recording that they fit into."""
        return self._move(under, sentences, under.shape._replace(sentences=rounded(len(sentences))))

    def _move(self, under: Under, sentences: Tensor, shape: Shape) -> Under:
        old, new = self._recording(under.shape), self._recording(shape)
        count, length = len(sentences), under.length
        rows = (sentences[:, None] * shape.beams + old.rows[: shape.beams]).flatten()
        ones, others = old.cache, new.cache
        for one, other in zip(ones.memory, others.memory, strict=True):
            for part, kept in zip(one, other, strict=True):
                kept[:count] = part.index_select(0, sentences)
        others.memory_mask[:count] = ones.memory_mask.index_select(0, sentences)
        others.memory_mask[count:, ..., 0] = True
        owners = None if ones.owners is None else ones.owners[:, :length]
        for one, other in zip(ones.past, others.past, strict=True):
            other[:length, : len(rows)] = gathered(one[:length], owners, rows)
            other[length:].zero_()
        if others.owners is not None:
            others.owners.copy_(new.rows[:, None].expand_as(others.owners))
        new.place.copy_(old.place)
        return under._replace(shape=shape, sentences=count)

    def _recording(self, shape: Shape) -> _Recording:
        found = self.recordings.pop(shape, None)
        if found is None:
            needed = _bytes(self.model, shape)
            while self.recordings and needed + sum(_bytes(self.model, one) for one in self.recordings) > self.most:
                if len(self.recordings) == 1:  # from which a batch may be about to move
                    break
                del self.recordings[next(iter(self.recordings))]
            found = _Recording(self.model, shape, self.pool)
        self.recordings[shape] = found  # the latest is the last
        return found


def _bytes(model: Transformer, shape: Shape) -> int:
    """What a recording's buffers take."""
    rows, config = shape.sentences * shape.beams, model.config
    numbers = 2 * config.decoder_layers * config.dim * (shape.sentences * shape.source + rows * shape.room)
    return model.positions.element_size() * (numbers + rows * config.target_size)
