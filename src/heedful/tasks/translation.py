"""The next token of a translation, given the source and all tokens before it (Vaswani et al. 2017, section 5.4).

Shapes: B pairs, S source length, T target length, D width, V target vocabulary, N tokens to write.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.batch import PairBatch
from heedful.models.rnn import Rnn
from heedful.models.transformer import Transformer
from heedful.tasks.scoring import on_device
from heedful.tasks.term import Term

Translating = Transformer | Rnn


def translation_counts(batch: PairBatch) -> dict[str, int]:
    """How many tokens the batch asks for."""
    return {"token": batch.predictions}


def translation_terms(
    model: Translating, batch: PairBatch, device: torch.device, smoothing: float = 0.0
) -> dict[str, Term]:
    """The sums over the tokens to write. Padding is not scored at all."""
    source = on_device(batch.source, device)
    states = model.states(source, source != batch.pad, on_device(batch.target[:, :-1], device))  # (B, T, D)
    labels = batch.target[:, 1:].ravel()
    real = np.flatnonzero(labels != batch.pad)
    scores = model.output(states.flatten(0, 1).index_select(0, on_device(real, device)))  # (N, V)
    loss, correct = smoothed(scores, on_device(labels[real], device), batch.pad, smoothing)
    return {"token": Term(loss, correct, len(real))}


def smoothed(scores: Tensor, labels: Tensor, pad: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy against labels that keep a little probability for all other tokens, and how many are right.

    (N, V) and (N,), of which those that are padding count for nothing.
    """
    loss = F.cross_entropy(scores.float(), labels, ignore_index=pad, label_smoothing=smoothing, reduction="sum")
    right = scores.detach().argmax(-1) == labels
    return loss, (right & (labels != pad)).sum()
