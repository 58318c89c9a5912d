"""A pretraining step as a GPU likes it: one shape, compiled layers, recorded once and then replayed.

Batches are filled up to the same number of tokens by a last sequence that nothing is asked about; how many sequences
and how many masked words there are is rounded up, and what is too much is ignored. So nothing is ever compiled or
recorded twice, and the host only has to copy the next batch. Layers are compiled one at a time: they are all alike,
so that compiling takes seconds and not minutes. See `train/replay.py`.

Shapes: B sequences, N tokens, M masked tokens, D width.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data.batch import PretrainingBatch, filled
from heedful.models.bert import BertForPretraining
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.fp8 import Scales
from heedful.nn.layers import FeedForward
from heedful.nn.layout import Packed
from heedful.nn.transfer import on_device
from heedful.tasks.pretraining import IGNORED, judged
from heedful.tasks.term import Term
from heedful.train.replay import compiler, quiet, record


class Rounded(NamedTuple):
    """A batch of a usual shape."""

    batch: PretrainingBatch
    offsets: np.ndarray
    """(B + 1,), further sequences being empty."""
    places: np.ndarray
    """(M,), further ones being N, which is no token."""
    labels: np.ndarray
    unrelated: np.ndarray


class _Layers(nn.Module):
    """All from the tokens' own vectors, whose table has a gradient that can't be recorded, up to the losses."""

    def __init__(self, model: BertForPretraining, length: int, dtype: torch.dtype, options: dict[str, Any]) -> None:
        super().__init__()
        assert model.mlm is not None
        owners = (model.bert, model.bert.embeddings)
        inner = [part for owner in owners for name, part in owner.named_children() if name not in OUTSIDE]
        tables = [model.bert.embeddings.tokens] if model.config.tied else []
        self.parts = nn.ModuleList([*inner, model.mlm, *filter(None, [model.nsp]), *tables])
        self.model = [model]  # in a list, so that its other tables are not among the recorded parameters
        self.length = length
        self.dtype = dtype
        self.placed = torch.compile(_placed, dynamic=False, **options)
        # One compilation for any number of masked words, which changes with the masking rate.
        self.words = torch.compile(_words, dynamic=True, **options)

    def forward(
        self,
        x: Tensor,
        segments: Tensor,
        offsets: Tensor,
        slots: Tensor,
        places: Tensor,
        labels: Tensor,
        unrelated: Tensor,
    ) -> tuple[Tensor, ...]:
        (model,) = self.model
        low = self.dtype is not torch.float32
        # The cache of cast weights would hold what the first recording cast for ever.
        with torch.autocast(x.device.type, torch.bfloat16, enabled=low, cache_enabled=False):
            layout = Packed(offsets, self.length, slots)
            x = self.placed(model, x, segments, layout, self.dtype)
            hidden, pooled, _ = model.bert.encode(x, layout, places=places)
            terms = self.words(model, hidden, labels)
            if model.nsp is not None:
                assert pooled is not None
                terms += judged(model.nsp(pooled), unrelated)
        return terms


OUTSIDE = ("embeddings", "tokens")
"""Parts of a model that stay outside of a recording, or belong to it by way of another."""


def _placed(model: BertForPretraining, x: Tensor, segments: Tensor, layout: Packed, dtype: torch.dtype) -> Tensor:
    """What goes into the first layer, from the tokens' own vectors: (N, D), and (N,) or nothing -> (N, D)."""
    return model.bert.embeddings.placed(x, segments if len(segments) else None, layout).to(dtype)


def _words(model: BertForPretraining, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """What the head for words says of masked tokens: the sum of losses, and how many it has right."""
    return judged(model.words(hidden), labels)


class PretrainingReplay:
    """The terms of full batches; None for other batches, which are for somebody else.

    Without `recording`, layers are compiled but not recorded: gradients of several batches can then be added up.
    With `fp8_words`, products are in 8 bits, for a loss that is the mean over about so many words.
    """

    def __init__(
        self,
        model: BertForPretraining,
        tokens: int,
        length: int,
        dtype: torch.dtype,
        *,
        recording: bool = True,
        fp8_words: float | None = None,
        backend: str = "inductor",
    ) -> None:
        self.model, self.tokens, self.length, self.dtype = model, tokens, length, dtype
        self.device = next(model.parameters()).device
        self.recording = recording
        self.options = compiler(backend)
        scales = None if fp8_words is None else Scales.of(fp8_words, self.device)
        for part in model.bert.layers.modules():
            if isinstance(part, (MultiHeadAttention, FeedForward)):
                part.fp8 = scales
        *layers, last = model.bert.layers
        for part in layers:
            part.compile(fullgraph=True, dynamic=False, **self.options)
        for part in (last, *filter(None, [model.bert.final_norm])):  # which end with the masked words alone
            part.compile(fullgraph=True, dynamic=True, **self.options)
        self.recorded: dict[tuple[int, ...], Any] = {}
        self.pool = torch.cuda.graph_pool_handle() if recording else None

    def terms(self, batch: PretrainingBatch) -> dict[str, Term] | None:
        """As `tasks.pretraining.pretraining_terms`."""
        rounded = self._rounded(batch)
        if rounded is None:
            return None
        shape = (len(rounded.offsets), len(rounded.labels))
        arrays = (rounded.places, rounded.labels, rounded.unrelated)
        offsets, places, labels, unrelated = (on_device(array, self.device) for array in (rounded.offsets, *arrays))
        layout = Packed.from_offsets(offsets, self.length, self.tokens)
        ids = on_device(rounded.batch.ids, self.device)
        segments = on_device(rounded.batch.segments[: None if batch.unrelated is not None else 0], self.device)
        others = (segments, offsets, layout.slots, places, labels, unrelated)
        with nullcontext() if shape in self.recorded else quiet():
            if shape not in self.recorded:  # before anything is embedded: its table may be a part of the recording
                self.recorded[shape] = self._prepared(others)
            found = self.recorded[shape](self.model.bert.embeddings.tokens(ids), *others)
        terms = {"mlm": Term(found[0], found[1], len(batch.labels))}
        if batch.unrelated is not None:
            terms["nsp"] = Term(found[2], found[3], len(batch.unrelated))
        return terms

    def _prepared(self, others: tuple[Tensor, ...]) -> Any:
        layers = _Layers(self.model, self.length, self.dtype, self.options)
        if not self.recording:
            return layers
        assert self.pool is not None
        x = torch.zeros(self.tokens, self.model.config.dim, device=self.device).requires_grad_()
        return record(layers, (x, *(other.clone() for other in others)), self.pool)

    def _rounded(self, batch: PretrainingBatch) -> Rounded | None:
        """The batch in a usual shape; None if it is too small, as the last of an epoch is."""
        full = filled(batch, self.tokens, self.length)
        if full is None:
            return None
        least = self.tokens // self.length + 1  # as many as full ones are, nearly always
        sequences = _up(max(least, len(full.offsets) - 1), 4)
        unrelated = np.zeros(0, np.int64) if batch.unrelated is None else batch.unrelated
        return Rounded(
            full,
            _padded(full.offsets, sequences + 1, self.tokens),
            _padded(batch.places, words := _up(len(batch.places), 8), self.tokens),
            _padded(batch.labels, words, IGNORED),
            _padded(unrelated, sequences, IGNORED),
        )


@contextmanager
def uncompiled() -> Iterator[None]:
    """Layers as they are written, for batches of any shape."""
    with torch.compiler.set_stance("force_eager"):
        yield


def _up(count: int, parts: int) -> int:
    """At least so many, as one of a few numbers: `parts` of them up to each power of two."""
    step = max(1, (1 << count.bit_length() >> 1) // parts)
    return -(-count // step) * step


def _padded(array: np.ndarray, length: int, value: int) -> np.ndarray:
    return np.concatenate([array, np.full(length - len(array), value, array.dtype)])
