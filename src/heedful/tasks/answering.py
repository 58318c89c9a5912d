"""Where an answer starts and ends: each end is one choice among the tokens (Devlin et al. 2018, section 4.2).

Where the window holds no answer, `[CLS]` is right (section 4.3).

Shapes: B sequences, N tokens, T longest length.
"""

import math

import torch.nn.functional as F
from torch import Tensor

from heedful.nn.layout import Packed
from heedful.tasks.term import Term


def span_term(scores: Tensor, ends: Tensor, packed: Packed) -> Term:
    """(N, 2) scores against (B, 2) first and last tokens of the answers: the mean of both ends' losses."""
    padding = ~packed.mask()[..., None]  # (B, T, 1)
    spread = packed.unpack(scores).masked_fill(padding, -math.inf)  # (B, T, 2)
    loss = F.cross_entropy(spread.transpose(1, 2).flatten(0, 1), ends.flatten(), reduction="sum") / 2
    correct = (spread.detach().argmax(1) == ends).all(-1).sum()
    return Term(loss, correct, len(ends))
