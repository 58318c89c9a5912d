"""What computes: inputs in, arrays out, in the order in which they came. Knows nothing of text.

Inputs are batched by length inside. A torch model reads them packed, without padding; see `predict/onnx.py` for the
other engine, which gives the same arrays.

Shapes: T tokens of an input, C outputs, D width.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from heedful.data.batch import InputBatch, collate
from heedful.data.inputs import Input, Inputs
from heedful.errors import UserError
from heedful.formats.huggingface import Model
from heedful.models.bert import Bert
from heedful.models.heads import BertForTask, Head
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.gpus import current
from heedful.nn.kernels import HALF
from heedful.nn.layout import Packed
from heedful.nn.transfer import on_device
from heedful.predict.packed import twin_of
from heedful.tasks.scoring import layout

BATCH_TOKENS = {"cpu": 2048, "cuda": 65536}
"""The most tokens of a batch: few enough to stay in a CPU's cache, many enough to keep a GPU busy."""
AHEAD = 8
"""Batches that wait for a GPU, so that it never waits for the host."""

Pool = Literal["cls", "mean"]


class Engine(Protocol):
    """A model that computes."""

    head: Head | None
    max_length: int
    vocab_size: int

    def scores(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        """What the head says of each input: (C,), or (T, C) where it reads every token."""
        ...

    def vectors(self, inputs: Sequence[Input], pool: Pool) -> np.ndarray:
        """One vector an input, (inputs, D): the state of `[CLS]`, or the mean of all states."""
        ...

    def states(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        """The last state of every token, (T, D) an input."""
        ...


class TorchEngine:
    """A torch module, put at rest (no dropout), where its weights are.

    Weights in half precision are those of a model that trains no more, since training keeps them in full: on a GPU a
    twin with joined matrices computes in its place.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.head = model.head if isinstance(model, BertForTask) else None
        self.encoder: Bert = model if isinstance(model, Bert) else model.bert
        self.max_length = model.config.max_length
        self.vocab_size = model.config.vocab_size
        weight = next(model.parameters())
        self._turn = Lock()
        self._reads = joined(model) if weight.is_cuda and weight.dtype in HALF else model

    @property
    def on_gpu(self) -> bool:
        """Whether it computes by itself, while the host does something else."""
        return next(self._reads.parameters()).is_cuda

    def scores(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        """What the head says of each input: (C,), or (T, C) where it reads every token."""
        model = self._reads
        assert isinstance(model, BertForTask)

        def run(ids: Tensor, segments: Tensor | None, packed: Packed) -> Tensor:
            return model(ids, segments, packed=packed)

        answers: list[np.ndarray] = [np.empty(0)] * len(inputs)
        for batch in self._each(inputs, run):
            found = batch.found()
            each = found if model.head.reads_sequence else np.split(found, batch.offsets[1:-1])
            for number, answer in zip(batch.chosen, each, strict=True):
                answers[number] = answer
        return answers

    def vectors(self, inputs: Sequence[Input], pool: Pool) -> np.ndarray:
        """One vector an input, (inputs, D): the state of `[CLS]`, or the mean of all states."""
        model = self._reads
        encoder: Bert = model if isinstance(model, Bert) else model.bert

        def run(ids: Tensor, segments: Tensor | None, packed: Packed) -> Tensor:
            hidden = encoder(ids, segments, packed=packed).hidden
            return packed.mean(hidden.float()) if pool == "mean" else packed.first(hidden)

        vectors = np.empty((len(inputs), model.config.dim), np.float32)
        for batch in self._each(inputs, run):
            vectors[batch.chosen] = batch.found()
        return vectors

    def states(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        """The last state of every token, (T, D) an input."""
        model = self._reads
        encoder: Bert = model if isinstance(model, Bert) else model.bert

        def run(ids: Tensor, segments: Tensor | None, packed: Packed) -> Tensor:
            return encoder(ids, segments, packed=packed).hidden

        states: list[np.ndarray] = [np.empty(0)] * len(inputs)
        for batch in self._each(inputs, run):
            for number, each in zip(batch.chosen, np.split(batch.found(), batch.offsets[1:-1]), strict=True):
                states[number] = each
        return states

    def _each(
        self, inputs: Sequence[Input], run: Callable[[Tensor, Tensor | None, Packed], Tensor]
    ) -> Iterator["Launched"]:
        """What `run` makes of every batch. A GPU has some batches before it all the time."""
        self._reads.eval()
        device = next(self._reads.parameters()).device
        room = BATCH_TOKENS.get(device.type, BATCH_TOKENS["cpu"])
        ahead = AHEAD if device.type == "cuda" else 0
        launched: deque[Launched] = deque()
        many = Inputs.of(inputs)
        for chosen in by_length(many.lengths, room):
            launched.append(self._launch(chosen, collate(many.take(chosen)), device, run))
            if len(launched) > ahead:
                yield launched.popleft()
        yield from launched

    @torch.inference_mode()
    def _launch(
        self,
        chosen: list[int],
        batch: InputBatch,
        device: torch.device,
        run: Callable[[Tensor, Tensor | None, Packed], Tensor],
    ) -> "Launched":
        if not batch.segments.any():
            segments = None
        elif self.encoder.config.segments == 1:
            raise UserError("the model has one segment, so it can't read pairs of texts; give single texts")
        else:
            segments = batch.segments
        with self._launching(device):
            there = None if segments is None else on_device(segments, device)
            found = run(on_device(batch.ids, device), there, layout(batch, device))
            host = found.float().to("cpu", non_blocking=True)
            done = None
            if device.type == "cuda":
                done = torch.cuda.Event(blocking=True)
                done.record()
        half = next(self._reads.parameters()).dtype is torch.float16
        return Launched(chosen, batch.offsets, host, done, half)

    @contextmanager
    def _launching(self, device: torch.device) -> Iterator[None]:
        """On a GPU threads take turns, or each would need memory for a batch."""
        if device.type != "cuda":
            yield
            return
        with self._turn, current(device):
            yield


class Launched(NamedTuple):
    """A batch that a GPU may still be busy with."""

    chosen: list[int]
    """Which of the inputs it holds."""
    offsets: np.ndarray
    """Where the tokens of each begin, and their end."""
    host: Tensor
    """Where the answers will be, a row for each input or for each token: a GPU writes them there by itself."""
    done: torch.cuda.Event | None
    half: bool
    """Whether fp16 may have been too narrow for it."""

    def found(self) -> np.ndarray:
        """The answers, once they are there."""
        if self.done is not None:
            self.done.synchronize()
        found = self.host.numpy()
        if self.half:
            check_range(bool(np.isfinite(found).all()))
        return found


def joined(model: Model) -> Model:
    """The same model as its weights are now: query, key and value are one matrix, everything else is shared."""
    twin = twin_of(model)
    for module in twin.modules():
        if isinstance(module, MultiHeadAttention):
            module.join()
    return twin


def check_range(fits: bool) -> None:
    """Refuse what fp16 can't express: its largest number is 65,504."""
    if not fits:
        raise UserError("the numbers inside this model are too large for fp16; use --precision bf16 or fp32")


def by_length(lengths: Sequence[int] | np.ndarray, most_tokens: int, *, padded: bool = False) -> Iterator[list[int]]:
    """Which inputs go together: neighbours in length, longest first, up to so many tokens.

    With `padded`, every input of a batch counts as much as its longest.
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    ordered = np.asarray(lengths, np.int64)[order]
    ends = np.cumsum(ordered)
    first = 0
    while first < len(order):
        if padded:
            end = first + most_tokens // max(int(ordered[first]), 1)
        else:
            end = int(np.searchsorted(ends, ends[first] - ordered[first] + most_tokens, side="right"))
        end = max(end, first + 1)
        yield order[first:end].tolist()
        first = end
