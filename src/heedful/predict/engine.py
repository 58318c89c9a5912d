"""What computes: inputs in, arrays out, in the order in which they came. Knows nothing of text.

Inputs are batched by length inside. A torch model reads them packed, without padding; see `predict/onnx.py` for the
other engine, which gives the same arrays.

Shapes: T tokens of an input, C outputs, D width.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from heedful.data.batch import InputBatch, collate
from heedful.data.inputs import Input
from heedful.errors import UserError
from heedful.formats.huggingface import Model
from heedful.models.bert import Bert
from heedful.models.heads import BertForTask, Head
from heedful.nn.layout import Packed
from heedful.tasks.scoring import layout, on_device

BATCH_TOKENS = {"cpu": 2048, "cuda": 65536}
"""The most tokens of a batch: few enough to stay in a CPU's cache, many enough to keep a GPU busy."""

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


class TorchEngine:
    """A torch module, put at rest (no dropout), where its weights are."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.head = model.head if isinstance(model, BertForTask) else None
        self.encoder: Bert = model if isinstance(model, Bert) else model.bert
        self.max_length = model.config.max_length
        self.vocab_size = model.config.vocab_size

    def scores(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        """What the head says of each input: (C,), or (T, C) where it reads every token."""
        model = self.model
        assert isinstance(model, BertForTask)

        def run(batch: InputBatch, ids: Tensor, segments: Tensor | None, packed: Packed) -> list[np.ndarray]:
            scores = model(ids, segments, packed=packed).float().cpu().numpy()
            return list(scores) if model.head.reads_sequence else np.split(scores, batch.offsets[1:-1])

        return self._each(inputs, run)

    def vectors(self, inputs: Sequence[Input], pool: Pool) -> np.ndarray:
        """One vector an input, (inputs, D): the state of `[CLS]`, or the mean of all states."""

        def run(_: InputBatch, ids: Tensor, segments: Tensor | None, packed: Packed) -> list[np.ndarray]:
            hidden = self.encoder(ids, segments, packed=packed).hidden.float()
            return list((packed.mean(hidden) if pool == "mean" else packed.first(hidden)).cpu().numpy())

        return np.array(self._each(inputs, run), np.float32).reshape(len(inputs), self.model.config.dim)

    @torch.inference_mode()
    def _each(
        self,
        inputs: Sequence[Input],
        run: Callable[[InputBatch, Tensor, Tensor | None, Packed], list[np.ndarray]],
    ) -> list[np.ndarray]:
        self.model.eval()
        weight = next(self.model.parameters())
        device, half = weight.device, weight.dtype is torch.float16
        found: list[np.ndarray] = [np.empty(0)] * len(inputs)
        for chosen in by_length([len(one.ids) for one in inputs], BATCH_TOKENS.get(device.type, BATCH_TOKENS["cpu"])):
            batch = collate([inputs[number] for number in chosen])
            packed = layout(batch, device)
            segments = None
            if batch.segments.any():
                if self.encoder.config.segments == 1:
                    raise UserError("the model has one segment, so it can't read pairs of texts; give single texts")
                segments = on_device(batch.segments, device)
            answers = run(batch, on_device(batch.ids, device), segments, packed)
            if half:
                check_range(all(np.isfinite(one).all() for one in answers))
            for number, answer in zip(chosen, answers, strict=True):
                found[number] = answer
        return found


def check_range(fits: bool) -> None:
    """Refuse what fp16 can't express: its largest number is 65,504."""
    if not fits:
        raise UserError("the numbers inside this model are too large for fp16; use --precision bf16 or fp32")


def by_length(lengths: Sequence[int], most_tokens: int, *, padded: bool = False) -> Iterator[list[int]]:
    """Which inputs go together: neighbours in length, longest first, up to so many tokens.

    With `padded`, every input of a batch counts as much as its longest.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    batch: list[int] = []
    tokens = 0
    for number in order:
        more = lengths[batch[0]] if padded and batch else lengths[number]
        if batch and tokens + more > most_tokens:
            yield batch
            batch, tokens, more = [], 0, lengths[number]
        batch.append(number)
        tokens += more
    if batch:
        yield batch
