"""Batches: packed, with the tokens of all sequences end to end and no padding; pairs in two rectangles; images.

Shapes: B sequences or images, N tokens, M masked tokens, S source length, T target length, H height, W width,
C channels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heedful.data.inputs import Input, Inputs


class PretrainingBatch(NamedTuple):
    """Corrupted tokens, and what the model has to find out about them."""

    ids: np.ndarray
    """(N,) int64, after corruption."""
    segments: np.ndarray
    """(N,) int64: 0 in `[CLS] A [SEP]`, 1 in `B [SEP]`."""
    offsets: np.ndarray
    """(B + 1,) int32: where each sequence starts, and N."""
    longest: int
    places: np.ndarray
    """(M,) int64: the tokens to predict, never a sequence's first."""
    labels: np.ndarray
    """(M,) int64: what stood there."""
    unrelated: np.ndarray | None
    """(B,) int64: 1 where B is from another document, 0 where it follows A; None without pairs."""


def filled(batch: PretrainingBatch, tokens: int, length: int) -> PretrainingBatch | None:
    """The batch with exactly so many tokens: further sequences, of which nothing is asked, fill it up.

    They have at most `length` tokens. None if there are too many already.
    """
    missing = tokens - len(batch.ids)
    if missing < 0:
        return None
    if not missing:
        return batch
    filling = np.zeros(missing, np.int64)
    starts = np.arange(len(batch.ids), tokens, length, dtype=np.int32)
    return batch._replace(
        ids=np.concatenate([batch.ids, filling]),
        segments=np.concatenate([batch.segments, filling]),
        offsets=np.concatenate([batch.offsets[:-1], starts, [np.int32(tokens)]]),
        longest=max(batch.longest, min(missing, length)),
    )


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
    many = Inputs.of(inputs)
    lengths = many.lengths
    second = np.repeat(many.offsets[:-1] + many.seconds, lengths)  # (N,) where that of the token's input begins
    return InputBatch(
        many.ids.astype(np.int64),
        (np.arange(len(many.ids)) >= second).astype(np.int64),
        many.offsets.astype(np.int32),
        int(lengths.max()),
    )


class PairBatch(NamedTuple):
    """Sentence pairs in two rectangles, filled up with the padding id."""

    source: np.ndarray
    """(B, S) int64, each row ending with the end."""
    target: np.ndarray
    """(B, T + 1) int64, each row from start to end: all but the last are read, all but the first are written."""
    pad: int

    @property
    def predictions(self) -> int:
        """Target tokens to write, the ends among them."""
        return int((self.target[:, 1:] != self.pad).sum())

    @property
    def tokens(self) -> int:
        """Real tokens of both sides."""
        return int((self.source != self.pad).sum()) + self.predictions


class ImageBatch(NamedTuple):
    """Images, and the class of each."""

    pixels: np.ndarray
    """(B, H, W, C) uint8."""
    labels: np.ndarray
    """(B,) int64."""
    numbers: np.ndarray
    """(B,) int64: how many images the run had seen before each one. With the seed, they tell all that is drawn."""
