"""A tag for every word: the scores of its first piece count (Devlin et al. 2018, section 5.3).

Shapes: N tokens, C tags.
"""

import torch.nn.functional as F
from torch import Tensor

from heedful.tasks.term import Term

NOT_READ = -100
"""The target of tokens that are not the first piece of a word."""


def tag_term(scores: Tensor, tags: Tensor, count: int, weights: Tensor | None = None) -> Term:
    """(N, C) scores against (N,) tags, of which `count` are read."""
    loss = F.cross_entropy(scores, tags, weights, ignore_index=NOT_READ, reduction="sum")
    return Term(loss, (scores.detach().argmax(-1) == tags).sum(), count)
