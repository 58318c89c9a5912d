"""What a sequence's scores should be: one class, any number of labels, or numbers.

Shapes: B sequences, C outputs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.tasks.term import Term


def class_term(scores: Tensor, classes: Tensor, weights: Tensor | None = None) -> Term:
    """(B, C) scores against (B,) classes; with weights (C,), rare classes may count more."""
    loss = F.cross_entropy(scores, classes, weights, reduction="sum")
    return Term(loss, (scores.detach().argmax(-1) == classes).sum(), len(classes))


def labels_term(scores: Tensor, truth: Tensor, weights: Tensor | None = None) -> Term:
    """(B, C) scores against (B, C) truths of 0 and 1; with weights (C,), a label that is there may count more."""
    loss = F.binary_cross_entropy_with_logits(scores, truth, pos_weight=weights, reduction="sum") / scores.shape[1]
    correct = ((scores.detach() > 0) == (truth > 0.5)).all(-1).sum()
    return Term(loss, correct, len(truth))


def numbers_term(scores: Tensor, numbers: Tensor) -> Term:
    """(B, C) scores against (B, C) numbers: squared error. There is no right or wrong to count."""
    loss = F.mse_loss(scores, numbers, reduction="sum") / scores.shape[1]
    return Term(loss, torch.zeros((), device=scores.device), len(numbers))
