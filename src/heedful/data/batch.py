"""A batch for pretraining, packed: the tokens of all sequences end to end, without padding.

Shapes: B sequences, N tokens, M masked tokens.
"""

from typing import NamedTuple

import numpy as np


class PretrainingBatch(NamedTuple):
    """Corrupted tokens, and what the model has to find out about them."""

    ids: np.ndarray
    """(N,) int64, after corruption."""
    segments: np.ndarray
    """(N,) int64: 0 in `[CLS] A [SEP]`, 1 in `B [SEP]`."""
    offsets: np.ndarray
    """(B + 1,) int32: where each sequence starts, and N."""
    longest: int
    positions: np.ndarray
    """(M,) int64: the tokens to predict."""
    labels: np.ndarray
    """(M,) int64: what stood there."""
    unrelated: np.ndarray | None
    """(B,) int64: 1 where B is from another document, 0 where it follows A; None without pairs."""
