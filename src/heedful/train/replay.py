"""A model's forward and backward passes, recorded once a shape and then replayed as one piece (CUDA graphs).

With small models and batches a GPU waits for the next kernel to be launched, not for arithmetic. A recording needs
fixed shapes, so batches are padded to one of a few lengths; what that adds in arithmetic costs less than the
launches did.

Shapes: B sequences, T padded length, N tokens, C outputs.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data.batch import InputBatch
from heedful.models.heads import BertForTask
from heedful.nn.layout import Padded
from heedful.nn.transfer import together

MOST_TOKENS = 8192
"""Larger batches keep a GPU busy by themselves."""
SHAPES = 64
"""The most that a layer is compiled for. The compiler's own limit, 8, is soon reached where batches are small and
sequences of all lengths, and would end the run."""


class _Layers(nn.Module):
    """All but the embeddings, whose gradient can't be recorded; one of these is recorded for each shape."""

    def __init__(self, model: BertForTask, dtype: torch.dtype) -> None:
        super().__init__()
        # Its parameters are what a recording gives gradients to: those of the model but for the embeddings.
        owners = (model, model.bert)
        self.parts = nn.ModuleList(
            part for owner in owners for name, part in owner.named_children() if name not in ("bert", "embeddings")
        )
        self.scores = lambda x, mask: model.score(model.encode(x, Padded(mask)))
        self.low = dtype is not torch.float32

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        # The cache of cast weights would hold what the first recording cast for ever.
        with torch.autocast("cuda", torch.bfloat16, enabled=self.low, cache_enabled=False):
            return self.scores(x, mask).float()


class Replay:
    """Scores of full batches by replaying; None for other batches, which are for somebody else."""

    def __init__(self, model: BertForTask, batch: int, dtype: torch.dtype) -> None:
        self.model = model
        self.batch = batch
        self.dtype = dtype
        self.recorded: dict[int, Callable[[Tensor, Tensor], Tensor]] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.device = next(model.parameters()).device

    def score(self, inputs: InputBatch) -> Tensor | None:
        """(B, C), or (N, C) for a head that reads every token."""
        length = min(padded_length(inputs.longest), self.model.config.max_length)
        sequences = len(inputs.offsets) - 1
        if sequences != self.batch or sequences * length > MOST_TOKENS:
            return None
        rows = np.repeat(np.arange(sequences), np.diff(inputs.offsets))
        slots = rows * length + np.arange(len(inputs.ids)) - inputs.offsets[rows]  # (N,)
        table = np.zeros((3, sequences * length), np.int64)
        table[:, slots] = np.stack([inputs.ids, inputs.segments, np.ones_like(inputs.ids)])
        there = together({"table": table, "slots": slots}, self.device)
        ids, segments, mask = there["table"].view(3, sequences, length)
        mask = mask.bool()
        x = self.model.bert.embeddings(ids, segments, Padded(mask))
        scores = self._recording(length, x)(x, mask)
        if self.model.head.reads_sequence:
            return scores
        return scores.flatten(0, 1).index_select(0, there["slots"])

    def _recording(self, length: int, x: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        if length not in self.recorded:
            sample = torch.zeros_like(x).requires_grad_(x.requires_grad)
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=self.device)
            self.recorded[length] = record(_Layers(self.model, self.dtype), (sample, mask), self.pool)
        return self.recorded[length]


def record(module: nn.Module, samples: tuple[Tensor, ...], pool: tuple[int, int]) -> Callable[..., Any]:
    """The module, whose passes over tensors like the samples are replayed from now on."""
    # A recording is made on a stream of its own, and tables that it shares with other work keep it: said aloud, but
    # harmless, since both streams wait for each other.
    torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
    # Recording draws dropout of its own; a resumed run records at another step and must not notice.
    with torch.random.fork_rng([samples[0].device]), torch.autocast("cuda", enabled=False):
        torch.cuda.make_graphed_callables(module, samples, pool=pool)  # pyrefly: ignore (in place)
    return module


def compiler(backend: str = "inductor") -> dict[str, Any]:
    """How steps are compiled: kernels are chosen by rule, not by a race that another may win tomorrow."""
    from torch import _dynamo as dynamo  # takes seconds, which only those who compile should wait for

    dynamo.config.recompile_limit = max(dynamo.config.recompile_limit, SHAPES)
    return {"backend": backend, **({"options": {"deterministic": True}} if backend == "inductor" else {})}


@contextmanager
def quiet() -> Iterator[None]:
    """The compiler warns of its own doings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def padded_length(longest: int) -> int:
    """One of a few lengths, at least this one."""
    step = 16 if longest <= 128 else 64
    return -(-longest // step) * step
