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

from heedful.models.transformer import ROOM, Cache, Memory, Transformer
from heedful.nn.attention import KeyValue
from heedful.nn.layers import Moment

SOURCE_STEP = 16
MOST_RECORDINGS = 32
"""Kept at a time: each has buffers of its own."""


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

    def __init__(self, model: Transformer, shape: Shape) -> None:
        device = model.positions.device
        rows = shape.sentences * shape.beams
        mask = torch.ones(shape.sentences, 1, 1, shape.source, dtype=torch.bool, device=device)
        self.model = model
        self.cache = Cache(_buffers(model, shape.sentences, shape.source), mask, _buffers(model, rows, shape.room), 0)
        self.tokens = torch.zeros(shape.sentences, shape.beams, dtype=torch.long, device=device)
        self.same = torch.arange(rows, device=device)
        self.rows = self.same.clone()
        self.place = torch.zeros(1, dtype=torch.long, device=device)
        self.places = torch.arange(shape.room, device=device)
        self.run = _recorded(self.write) if device.type == "cuda" else self.write

    def write(self, explain: bool = False) -> tuple[Tensor, Tensor | None]:
        """The next token's scores, from what the buffers hold."""
        moment = Moment(self.place, len(self.places), (self.places <= self.place)[None], self.rows)
        scores, weights = self.model.advance(self.cache, self.tokens, moment, explain)
        self.place.add_(1)
        return scores, weights

    def of_sentences(self) -> list[Tensor]:
        """What there is once a sentence: the memory."""
        return [*(part for layer in self.cache.memory for part in layer), self.cache.memory_mask]

    def of_beams(self) -> list[Tensor]:
        """What there is once a beam: the past."""
        return [part for layer in self.cache.past for part in layer]


def _buffers(model: Transformer, rows: int, length: int) -> tuple[KeyValue, ...]:
    config = model.config
    size = (rows, config.heads, length, config.dim // config.heads)
    new = model.positions.new_zeros
    return tuple(KeyValue(new(size), new(size)) for _ in range(config.decoder_layers))


def _recorded(write: Callable[[], tuple[Tensor, Tensor | None]]) -> Callable[[], tuple[Tensor, Tensor | None]]:
    # A training run forbids kernels that add in any order; these copy, and each place is written once.
    strict = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            write()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = write()
    finally:
        torch.use_deterministic_algorithms(strict)

    def replay() -> tuple[Tensor, Tensor | None]:
        graph.replay()
        return found

    return replay


class RecordedSteps:
    """`start`, `step` and `keep` of a Transformer that does not train; scores are valid until the next step."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.recordings: dict[Shape, _Recording] = {}

    def start(self, memory: Memory, beams: int) -> Under:
        """What `step` begins with."""
        if len(self.recordings) >= MOST_RECORDINGS:
            self.recordings.clear()
        sentences, source = memory.mask.shape
        shape = Shape(_rounded(sentences), beams, -(-source // SOURCE_STEP) * SOURCE_STEP, ROOM)
        recording = self._recording(shape)
        for layer, new in zip(recording.cache.memory, self.model.memory_keys(memory), strict=True):
            for kept, part in zip(layer, new, strict=True):
                kept[:sentences, :, :source].copy_(part)
                kept[:, :, source:].zero_()
        mask = recording.cache.memory_mask
        mask.zero_()
        mask[:sentences, ..., :source].copy_(memory.mask[:, None, None])
        mask[sentences:, ..., 0] = True  # who is not real has something to look at
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
        real = recording.same[: tokens.numel()].view_as(tokens)  # (B, K)
        rows = recording.rows[: tokens.numel()].view_as(tokens)
        if parents is None or not under.length:
            rows.copy_(real)
        else:
            torch.add(real[:, :1], parents, out=rows)
        scores, weights = recording.write(explain=True) if explain else recording.run()
        under = under._replace(length=under.length + 1)
        if weights is not None:
            weights = weights[: under.sentences, :, : under.source]
        return scores[: under.sentences], under, weights

    def keep(self, under: Under, sentences: Tensor) -> Under:
        """The state of some of the sentences, in the smallest recording that they fit into."""
        return self._move(under, sentences, under.shape._replace(sentences=_rounded(len(sentences))))

    def _move(self, under: Under, sentences: Tensor, shape: Shape) -> Under:
        old, new = self._recording(under.shape), self._recording(shape)
        count, length = len(sentences), under.length
        for one, other in zip(old.of_sentences(), new.of_sentences(), strict=True):
            other[:count] = one.index_select(0, sentences)
        new.cache.memory_mask[count:, ..., 0] = True
        rows = (sentences[:, None] * shape.beams + new.same[: shape.beams]).flatten()
        for one, other in zip(old.of_beams(), new.of_beams(), strict=True):
            other[: len(rows), :, :length] = one[:, :, :length].index_select(0, rows)
        new.place.copy_(old.place)
        return under._replace(shape=shape, sentences=count)

    def _recording(self, shape: Shape) -> _Recording:
        if shape not in self.recordings:
            self.recordings[shape] = _Recording(self.model, shape)
        return self.recordings[shape]


def _rounded(sentences: int) -> int:
    """At least so many, as a power of two."""
    return 1 << (sentences - 1).bit_length()
