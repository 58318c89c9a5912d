"""Batches, packed: the tokens of all sequences end to end, without padding.

Shapes: B sequences, N tokens, M masked tokens.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heedful.data.inputs import Input


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


class InputBatch(NamedTuple):
    """Sequences to read."""

    ids: np.ndarray
    """(N,) int64."""
    segments: np.ndarray
    """(N,) int64: 0 in the first segment, 1 in the second."""
    offsets: np.ndarray
    """(B + 1,) int32: where each sequence starts, and N."""
    longest: int


class LabelledBatch(NamedTuple):
    """Sequences to read, and what is to be found out about them."""

    inputs: InputBatch
    targets: np.ndarray
    """(B,) classes, (B, C) numbers, (B, 2) tokens or (N,) tags."""


def collate(inputs: Sequence[Input]) -> InputBatch:
    """Inputs, end to end."""
    lengths = np.array([len(one.ids) for one in inputs])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return InputBatch(
        np.concatenate([one.ids for one in inputs]).astype(np.int64),
        (places >= np.repeat([one.second for one in inputs], lengths)).astype(np.int64),
        offsets.astype(np.int32),
        int(lengths.max()),
    )
