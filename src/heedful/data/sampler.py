"""The order of the data: seeded, resumable, split by rank, filled to a token budget.

The stream of batches is a function of the seed alone; where the masking rate changes over a run, of that too.
Every rank walks the whole stream and makes only its own batches, so that the tokens of an epoch are seen once
however many ranks there are, and a position is two numbers.

Shapes: B sequences, N tokens, M masked tokens.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import NamedTuple, TypeVar

import numpy as np

from heedful.data.batch import PretrainingBatch
from heedful.data.examples import Examples, plan_pairs, plan_singles
from heedful.data.masking import mask_tokens, wanted
from heedful.data.shards import Split
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError

Batch = TypeVar("Batch")


class Position(NamedTuple):
    """A place in the stream of batches."""

    epoch: int
    batch: int


START = Position(0, 0)
ENOUGH = 50
"""Batches by which others are known."""


def in_turns(
    stream: Iterator[tuple[Position, Callable[[], Batch]]], rank: int, ranks: int
) -> Iterator[tuple[Position, Batch]]:
    """The batches that a rank makes of an endless stream, each with the position after it and its peers'.

    The ranks take turns: whoever starts at the same position gets the batches in between.
    """
    while True:
        turn = [next(stream) for _ in range(ranks)]
        yield turn[-1][0], turn[rank][1]()


def check_batch_tokens(tokens: int, length: int) -> None:
    """Refuse batches that can't hold one sequence."""
    if tokens < length:
        raise UserError(
            f"--batch-tokens {tokens} is less than one sequence of {length}; try {32 * length}, or a shorter --length"
        )


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Pretraining batches of one split."""

    split: Split
    tokenizer: Tokenizer
    length: int
    batch_tokens: int
    """No batch has more."""
    nsp: bool
    mask_rate: float
    whole_words: bool
    seed: int

    def __post_init__(self) -> None:
        check_batch_tokens(self.batch_tokens, self.length)

    def stream(
        self,
        position: Position = START,
        rank: int = 0,
        ranks: int = 1,
        mask_rate: Callable[[int], float] | None = None,
    ) -> Iterator[tuple[Position, PretrainingBatch]]:
        """Batches from the position on, without end, each with the position after it and its peers'.

        `mask_rate` gives the rate of a rank's first batch of this stream (0), of its second (1), and so on; without
        it, it is always the same.
        """
        rates = (self.mask_rate if mask_rate is None else mask_rate(number // ranks) for number in count())
        return in_turns(self._all(position, rates), rank, ranks)

    def _all(
        self, position: Position, rates: Iterator[float]
    ) -> Iterator[tuple[Position, Callable[[], PretrainingBatch]]]:
        """The position after each batch, and how the batch is made."""
        while True:
            examples, bounds = self.epoch(position.epoch)
            for batch in range(position.batch, len(bounds) - 1):
                chosen = examples.take(slice(bounds[batch], bounds[batch + 1]))
                made = partial(self._batch, chosen, position.epoch, batch, next(rates))
                yield Position(position.epoch, batch + 1), made
            position = Position(position.epoch + 1, 0)

    def once(self, most_tokens: int | None = None) -> Iterator[PretrainingBatch]:
        """The batches of epoch 0, all or until there were most_tokens: for evaluation, the same every time."""
        examples, bounds = self.epoch(0)
        tokens = 0
        for batch in range(len(bounds) - 1):
            made = self._batch(examples.take(slice(bounds[batch], bounds[batch + 1])), 0, batch, self.mask_rate)
            yield made
            tokens += len(made.ids)
            if most_tokens is not None and tokens >= most_tokens:
                return

    def epoch(self, epoch: int) -> tuple[Examples, np.ndarray]:
        """An epoch's examples in their order, and the bounds of its batches among them."""
        rng = np.random.default_rng([self.seed, epoch])
        plan = plan_pairs if self.nsp else plan_singles
        examples = plan(self.split.sentences, self.split.documents, self.length, rng)
        examples = examples.take(rng.permutation(len(examples.a_start)))
        ends = np.cumsum(self._lengths(examples))
        bounds = [0]
        while bounds[-1] < len(ends):
            before = ends[bounds[-1] - 1] if bounds[-1] else 0
            bounds.append(int(np.searchsorted(ends, before + self.batch_tokens, side="right")))
        return examples, np.array(bounds)

    def most(self, mask_rate: float) -> tuple[int, int]:
        """The most sequences and masked tokens that a batch of the first epochs has; others differ a little.

        With those sequences that fill it up to `batch_tokens`, were they of the whole length.
        """
        sequences: list[int] = []
        words: list[int] = []
        for epoch in count():
            examples, bounds = self.epoch(epoch)
            lengths = self._lengths(examples)
            missing = self.batch_tokens - np.add.reduceat(lengths, bounds[:-1])
            sequences += (np.diff(bounds) + -(-missing // self.length)).tolist()
            words += np.add.reduceat(wanted(mask_rate, lengths - self._special), bounds[:-1]).tolist()
            if len(words) >= ENOUGH:
                break
        excess = 1.0
        if self.whole_words:  # which can't be cut off where the rate is met
            some = islice(self.stream(mask_rate=lambda _: mask_rate), ENOUGH)
            excess = max(len(batch.places) / asked for (_, batch), asked in zip(some, words, strict=False))
        return max(sequences), math.ceil(excess * max(words))

    def _lengths(self, examples: Examples) -> np.ndarray:
        return examples.a_stop - examples.a_start + examples.b_stop - examples.b_start + self._special

    @property
    def _special(self) -> int:
        """How many tokens of a sequence are [CLS] or [SEP]."""
        return 3 if self.nsp else 2

    def _batch(self, examples: Examples, epoch: int, batch: int, mask_rate: float) -> PretrainingBatch:
        clean, segments, sequences, offsets = self._packed(examples)
        ids, places, labels = mask_tokens(
            clean,
            sequences,
            special=self.tokenizer.special,
            mask_id=self.tokenizer.mask,
            rng=np.random.default_rng([self.seed, epoch, batch + 1]),  # with a zero it would be the epoch's own
            rate=mask_rate,
            continues=self.tokenizer.continues if self.whole_words else None,
        )
        return PretrainingBatch(
            ids=ids,
            segments=segments,
            offsets=offsets.astype(np.int32),
            longest=int(np.diff(offsets).max()),
            places=places,
            labels=labels,
            unrelated=examples.unrelated if self.nsp else None,
        )

    def _packed(self, examples: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """[CLS] A [SEP], for pairs B [SEP] too: ids, segments and sequences (N,), offsets (B + 1,)."""
        lengths = self._lengths(examples)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        sequences = np.repeat(np.arange(len(lengths)), lengths)
        column = np.arange(offsets[-1]) - offsets[sequences]  # the place in its own sequence
        a_length = examples.a_stop - examples.a_start
        first_sep = (1 + a_length)[sequences]
        in_b = column > first_sep
        source = np.where(
            in_b,
            examples.b_start[sequences] + column - first_sep - 1,
            examples.a_start[sequences] + column - 1,
        )
        last = column == (lengths - 1)[sequences]
        is_text = (column > 0) & (column != first_sep) & ~last
        ids = np.where(column == 0, self.tokenizer.cls, self.tokenizer.sep)
        ids[is_text] = self.split.tokens[source[is_text]]
        return ids.astype(np.int64), in_b.astype(np.int64), sequences, offsets
