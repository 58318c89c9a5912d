"""What an objective says of a batch: sums and a count, so that batches and ranks add up exactly."""

from typing import NamedTuple

from torch import Tensor


class Term(NamedTuple):
    """One objective's sums over a batch; divided by the count only when every batch and rank is in."""

    loss: Tensor
    correct: Tensor
    count: int
