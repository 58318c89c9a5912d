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
from heedful.nn.transfer import on_device
from heedful.tasks.term import Term

Translating = Transformer | Rnn


def translation_counts(batch: PairBatch) -> dict[str, int]:
    """How many tokens the batch asks for."""
    return {"token": batch.predictions}


def translation_terms(
    model: Translating, batch: PairBatch, device: torch.device, smoothing: float = 0.0, agreement: float = 0.0
) -> dict[str, Term]:
    """The sums over the tokens to write. Padding is not scored at all."""
    if agreement:
        batch = twice(batch)
    source = on_device(batch.source, device)
    states = model.states(source, source != batch.pad, on_device(batch.target[:, :-1], device))  # (B, T, D)
    labels = batch.target[:, 1:].ravel()
    real = np.flatnonzero(labels != batch.pad)
    scores = model.output(states.flatten(0, 1).index_select(0, on_device(real, device)))  # (N, V)
    loss, correct = objective(scores, on_device(labels[real], device), batch.pad, smoothing, agreement)
    return {"token": Term(loss, correct, len(real) // 2 if agreement else len(real))}


def twice(batch: PairBatch) -> PairBatch:
    """The same pairs two times: dropout makes them two readings, which should agree."""
    return PairBatch(np.concatenate([batch.source] * 2), np.concatenate([batch.target] * 2), batch.pad)


def objective(
    scores: Tensor, labels: Tensor, pad: int, smoothing: float, agreement: float = 0.0
) -> tuple[Tensor, Tensor]:
    """What is minimised, and how many tokens are right: (N, V) and (N,), of which padding counts for nothing.

    Cross-entropy against labels that keep a little probability for all other tokens. With `agreement`, the second
    half is the first once more under another dropout, and the two must not differ (R-Drop, Liang et al. 2021): the
    mean of both readings' losses, and as its share of the divergence between them what the paper calls alpha.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # half precision is too coarse for sums
    log_probs = scores.log_softmax(-1)
    real = labels != pad
    right = ((log_probs.detach().argmax(-1) == labels) & real).sum()
    loss = (1.0 - smoothing) * F.nll_loss(log_probs, labels, ignore_index=pad, reduction="sum")
    if smoothing:
        loss = loss - smoothing * log_probs.mean(-1).masked_fill(~real, 0.0).sum()
    if not agreement:
        return loss, right
    one, other = log_probs.chunk(2)
    # KL one way and the other: the sum over the vocabulary of (p - q)(log p - log q).
    apart = ((one.exp() - other.exp()) * (one - other)).sum(-1)
    apart = apart.masked_fill(~real.chunk(2)[0], 0.0).sum()
    return loss / 2 + agreement / 4 * apart, right // 2
