"""Which tokens make up each pretraining example of an epoch: pairs for next-sentence prediction, or singles.

An example is made of contiguous ranges of the shards' tokens, so a whole epoch is a small table of numbers,
planned for all documents at once. Follows BERT's own procedure: sentences fill the length, one example in
ten is short on purpose, a pair that is too long loses tokens of its longer half at either end.

Shapes: E examples, S sentences, C documents.
"""

from typing import NamedTuple

import numpy as np

from heedful.errors import UserError

SHORT = 0.1
"""The share of examples with a random shorter length."""
SAMPLED, SENTENCES = 2000, 50
"""Documents of a corpus, and sentences of each from its beginning, that show what pairs it gives."""


class Examples(NamedTuple):
    """Ranges of tokens, each (E,) int64. A single sequence has an empty B."""

    a_start: np.ndarray
    a_stop: np.ndarray
    b_start: np.ndarray
    b_stop: np.ndarray
    unrelated: np.ndarray
    """1 where B is from another document, 0 where it follows A."""

    def take(self, index: np.ndarray | slice) -> "Examples":
        """Some of the examples."""
        return Examples(*(column[index] for column in self))


def plan_pairs(sentences: np.ndarray, documents: np.ndarray, length: int, rng: np.random.Generator) -> Examples:
    """Pairs of at most length - 3 tokens ([CLS] and two [SEP] come on top), half of them true successors.

    `sentences` (S + 1,) are token offsets, `documents` (C + 1,) sentence offsets. Documents advance side by
    side, each round making one pair of every document that has sentences left. What a pair with a foreign B
    leaves of its document comes in the next round. Where a single sentence is left, B can only be foreign;
    the other pairs make up for it beforehand, so that the halves stay halves as far as the documents allow.
    """
    if len(documents) < 3:
        raise UserError(
            "next-sentence prediction needs at least two documents; separate documents by a blank line, "
            "or train without it (--no-nsp)"
        )
    if documents[-1] == len(documents) - 1:
        raise UserError(
            "next-sentence prediction needs documents of two sentences or more, and every document here is a "
            "single one; train without it (--no-nsp)"
        )
    room = length - 3
    count = len(documents) - 1
    position = documents[:-1].copy()  # the next sentence of each document
    rounds: list[Examples] = []
    lead = 0  # true pairs, less the others
    while len(active := np.flatnonzero(position < documents[1:])):
        first, end = position[active], documents[active + 1]
        target = _targets(len(active), room, rng)
        chunk_end = np.clip(np.searchsorted(sentences, sentences[first] + target), first + 1, end)
        a_end = first + rng.integers(1, np.maximum(chunk_end - first, 2))
        lonely, lonely_if_true = end - a_end == 1, end - chunk_end == 1  # what is left will need a foreign B
        without = lead - len(active) - int(lonely.sum())
        follows = _choose(chunk_end - first >= 2, without, 2 + lonely - lonely_if_true, rng)

        other = rng.integers(count - 1, size=len(active))
        other += other >= active
        begin, other_end = documents[other], documents[other + 1]
        begin = rng.integers(begin, other_end)
        b_target = np.maximum(target - (sentences[a_end] - sentences[first]), 1)
        b_end = np.clip(np.searchsorted(sentences, sentences[begin] + b_target), begin + 1, other_end)

        chunk = Examples(
            sentences[first],
            sentences[a_end],
            sentences[np.where(follows, a_end, begin)],
            sentences[np.where(follows, chunk_end, b_end)],
            (~follows).astype(np.int64),
        )
        rounds.append(_truncated(chunk, room, rng))
        position[active] = np.where(follows, chunk_end, a_end)
        lead += 2 * int(follows.sum()) - len(active)
    return Examples(*(np.concatenate(columns) for columns in zip(*rounds, strict=True)))


def true_share(sentences: np.ndarray, documents: np.ndarray, length: int) -> float:
    """The share of true successors among the pairs of some documents.

    Less than half where most documents are single sentences, or sentences leave no room for the next one.
    """
    chosen = np.linspace(0, len(documents) - 2, min(SAMPLED, len(documents) - 1)).astype(np.int64)
    first = documents[chosen]
    sizes = np.minimum(documents[chosen + 1] - first, SENTENCES)
    ends = np.cumsum(sizes)
    if len(sizes) < 2 or ends[-1] == len(sizes):
        return 0.0
    which = np.arange(ends[-1]) + np.repeat(first - (ends - sizes), sizes)
    lengths = sentences[which + 1] - sentences[which]
    some = np.cumsum([0, *lengths]), np.cumsum([0, *sizes])
    return 1 - float(plan_pairs(*some, length, np.random.default_rng(0)).unrelated.mean())


def plan_singles(sentences: np.ndarray, documents: np.ndarray, length: int, rng: np.random.Generator) -> Examples:
    """Full sequences of at most length - 2 tokens; every token of every document is in exactly one.

    Whole sentences of one document fill a sequence; a sentence that is too long goes on in the next one.
    """
    room = length - 2
    stop = sentences[documents[1:]]
    position = sentences[documents[:-1]].copy()  # the next token of each document
    rounds: list[Examples] = []
    while len(active := np.flatnonzero(position < stop)):
        first = position[active]
        latest = np.minimum(first + _targets(len(active), room, rng), stop[active])
        whole = sentences[np.searchsorted(sentences, latest, side="right") - 1]  # the last sentence that fits
        end = np.where(whole > first, whole, latest)
        nothing = np.zeros_like(first)
        rounds.append(Examples(first, end, nothing, nothing, nothing))
        position[active] = end
    return Examples(*(np.concatenate(columns) for columns in zip(*rounds, strict=True)))


def _targets(count: int, room: int, rng: np.random.Generator) -> np.ndarray:
    short = rng.random(count) < SHORT
    return np.where(short, rng.integers(min(2, room), room + 1, size=count), room)


def _choose(eligible: np.ndarray, lead: int, gains: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many of the eligible as bring the lead, to which each adds its gain, closest to zero."""
    candidates = rng.permutation(np.flatnonzero(eligible))
    leads = lead + np.cumsum(np.concatenate([[0], gains[candidates]]))
    chosen = np.zeros(len(eligible), bool)
    chosen[candidates[: np.argmin(np.abs(leads))]] = True
    return chosen


def _truncated(pairs: Examples, room: int, rng: np.random.Generator) -> Examples:
    """Take tokens from the longer half, one by one at either end, until the pair fits."""
    a, b = pairs.a_stop - pairs.a_start, pairs.b_stop - pairs.b_start
    excess = np.maximum(a + b - room, 0)
    uneven = np.minimum(excess, np.abs(a - b))  # until the halves are equal, the longer one pays alone
    rest = excess - uneven
    a_cut = np.where(a > b, uneven, 0) + rest // 2
    b_cut = np.where(a > b, 0, uneven) + (rest + 1) // 2
    a_front, b_front = rng.binomial(a_cut, 0.5), rng.binomial(b_cut, 0.5)
    return Examples(
        pairs.a_start + a_front,
        pairs.a_stop - (a_cut - a_front),
        pairs.b_start + b_front,
        pairs.b_stop - (b_cut - b_front),
        pairs.unrelated,
    )
