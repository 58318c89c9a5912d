"""A Transformer's training step over sentence pairs, recorded once a shape and then replayed; see `train/replay.py`.

Shapes: B pairs, S source length, T target length, D width.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from heedful.data.batch import PairBatch
from heedful.models.transformer import Transformer
from heedful.nn.transfer import together
from heedful.tasks.term import Term
from heedful.tasks.translation import objective, twice
from heedful.train.replay import record

MOST_TOKENS = 16384
"""Larger batches keep a GPU busy by themselves, and their recordings would take much memory."""
MOST_LENGTH = 128
"""Of a batch that is recorded: those are few. Which batches are is a matter of their shape alone, so that a resumed
run does the same."""


class _Layers(nn.Module):
    """All but the embeddings of the inputs, whose gradient can't be recorded, up to the loss."""

    def __init__(self, model: Transformer, pad: int, smoothing: float, agreement: float, dtype: torch.dtype) -> None:
        super().__init__()
        # Its parameters are what a recording gives gradients to.
        tables = [model.target_table if model.projection is None else model.projection]
        self.parts = nn.ModuleList(
            [model.encoder, model.decoder, *filter(None, [model.encoder_norm, model.decoder_norm]), *tables]
        )
        self.bias = model.output_bias
        self.run = lambda x, mask, y: model.output(model.decode(y, model.encode_embedded(x, mask))[0])
        self.objective = partial(objective, pad=pad, smoothing=smoothing, agreement=agreement)
        self.low = dtype is not torch.float32

    def forward(self, x: Tensor, mask: Tensor, y: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        # The cache of cast weights would hold what the first recording cast for ever.
        with torch.autocast("cuda", torch.bfloat16, enabled=self.low, cache_enabled=False):
            return self.objective(self.run(x, mask, y).flatten(0, 1), labels.flatten())


class PairReplay:
    """The terms of small batches by replaying; None for other batches, which are for somebody else.

    A step is one batch: gradients lie where the recording put them, and its next replay writes over them.
    """

    def __init__(self, model: Transformer, smoothing: float, agreement: float, dtype: torch.dtype) -> None:
        self.model = model
        self.smoothing = smoothing
        self.agreement = agreement
        self.most = MOST_TOKENS // 2 if agreement else MOST_TOKENS  # agreeing pairs are read twice
        self.dtype = dtype
        self.recorded: dict[tuple[int, ...], Callable[..., tuple[Tensor, Tensor]]] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.device = next(model.parameters()).device

    def terms(self, batch: PairBatch) -> dict[str, Term] | None:
        """As `tasks.translation.translation_terms`."""
        shape = (*batch.source.shape, *batch.target.shape)
        if max(batch.source.shape[1], batch.target.shape[1] - 1) > MOST_LENGTH or batch.source.size > self.most:
            return None
        read = twice(batch) if self.agreement else batch
        source, target = together({"source": read.source, "target": read.target}, self.device).values()
        mask, labels = source != batch.pad, target[:, 1:].contiguous()
        if shape not in self.recorded:  # before anything is embedded: a table may be a part of the recording too
            layers = _Layers(self.model, batch.pad, self.smoothing, self.agreement, self.dtype)
            self.recorded[shape] = record(layers, self._samples(mask, labels), self.pool)
        x, y = self.model.embed_source(source), self.model.embed_target(target[:, :-1])
        loss, correct = self.recorded[shape](x, mask, y, labels)
        return {"token": Term(loss, correct, batch.predictions)}

    def _samples(self, mask: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        x, y = (torch.zeros(*ids.shape, self.model.config.dim, device=self.device) for ids in (mask, labels))
        return x.requires_grad_(), torch.ones_like(mask), y.requires_grad_(), torch.ones_like(labels)
