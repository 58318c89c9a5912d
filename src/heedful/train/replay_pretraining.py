"""A pretraining step as a GPU likes it: one shape, compiled layers, recorded once and then replayed.

Batches are filled up to the same number of tokens by sequences of which nothing is asked, and to the same numbers of
sequences and masked words by some that are not there. So nothing is ever compiled or recorded twice, a step needs the
same memory from first to last, and adds in the same order wherever a run goes on; the host only has to copy the next
batch. Layers are compiled one at a time: they are all alike, so that compiling takes seconds and not minutes. See
`train/replay.py`.

Shapes: B sequences, N tokens, M masked tokens, D width.
"""

from collections.abc import Callable, Iterator
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


class Shape(NamedTuple):
    """Of all batches."""

    tokens: int
    sequences: int
    words: int
    """Masked ones."""
    length: int
    """Tokens of a sequence, at most."""

    @classmethod
    def of(cls, tokens: int, sequences: int, words: int, length: int) -> "Shape":
        """For batches that usually have up to so many sequences and words."""
        return cls(tokens, _roomy(sequences), _roomy(words), length)

    def fit(self, batch: PretrainingBatch) -> PretrainingBatch | None:
        """The batch in this shape; None if it has too much of something.

        Further sequences are empty, further masked words stand at N, where no token is, and are not asked.
        """
        full = filled(batch, self.tokens, self.length)
        if full is None or len(full.offsets) - 1 > self.sequences or len(batch.places) > self.words:
            return None
        return full._replace(
            offsets=_padded(full.offsets, self.sequences + 1, self.tokens),
            longest=self.length,
            places=_padded(batch.places, self.words, self.tokens),
            labels=_padded(batch.labels, self.words, IGNORED),
            unrelated=None if batch.unrelated is None else _padded(batch.unrelated, self.sequences, IGNORED),
        )


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
        self.words = torch.compile(_words, dynamic=False, **options)

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
    """The terms of batches that have or fit the shape; None for others, which are for somebody else.

    Without `recording`, layers are compiled but not recorded: gradients of several batches can then be added up.
    With `fp8_words`, products are in 8 bits, for a loss that is the mean over about so many words.
    """

    def __init__(
        self,
        model: BertForPretraining,
        shape: Shape,
        dtype: torch.dtype,
        *,
        recording: bool = True,
        fp8_words: float | None = None,
        backend: str = "inductor",
    ) -> None:
        self.model, self.shape, self.dtype = model, shape, dtype
        self.device = next(model.parameters()).device
        self.recording = recording
        self.options = compiler(backend)
        scales = None if fp8_words is None else Scales.of(fp8_words, self.device)
        for part in model.bert.layers.modules():
            if isinstance(part, (MultiHeadAttention, FeedForward)):
                part.fp8 = scales
        for part in (*model.bert.layers, *filter(None, [model.bert.final_norm])):
            part.compile(fullgraph=True, dynamic=False, **self.options)
        self.step: Callable[..., tuple[Tensor, ...]] | None = None

    def terms(self, batch: PretrainingBatch) -> dict[str, Term] | None:
        """As `tasks.pretraining.pretraining_terms`."""
        full = self.shape.fit(batch)
        if full is None:
            return None
        none = np.zeros(0, np.int64)
        pairs = (none, none) if full.unrelated is None else (full.segments, full.unrelated)
        arrays = (full.ids, full.offsets, full.places, full.labels, *pairs)
        ids, offsets, places, labels, segments, unrelated = (on_device(array, self.device) for array in arrays)
        layout = Packed.from_offsets(offsets, self.shape.length, self.shape.tokens)
        others = (segments, offsets, layout.slots, places, labels, unrelated)
        with quiet() if self.step is None else nullcontext():
            if self.step is None:  # before anything is embedded: its table may be a part of the recording
                self.step = self._prepared(others)
            found = self.step(self.model.bert.embeddings.tokens(ids), *others)
        terms = {"mlm": Term(found[0], found[1], len(batch.labels))}
        if batch.unrelated is not None:
            terms["nsp"] = Term(found[2], found[3], len(batch.unrelated))
        return terms

    def _prepared(self, others: tuple[Tensor, ...]) -> Callable[..., tuple[Tensor, ...]]:
        layers = _Layers(self.model, self.shape.length, self.dtype, self.options)
        if not self.recording:
            return layers
        x = torch.zeros(self.shape.tokens, self.model.config.dim, device=self.device).requires_grad_()
        return record(layers, (x, *(other.clone() for other in others)), torch.cuda.graph_pool_handle())


@contextmanager
def uncompiled() -> Iterator[None]:
    """Layers as they are written, for batches of any shape."""
    with torch.compiler.set_stance("force_eager"):
        yield


def _roomy(count: int) -> int:
    """A little more, for batches that have a little more, and a multiple of 8, which products like."""
    return -(-(count + max(2, count // 32)) // 8) * 8


def _padded(array: np.ndarray, length: int, value: int) -> np.ndarray:
    return np.concatenate([array, np.full(length - len(array), value, array.dtype)])
