"""Whole words and how often they occur, out of the shards that `heedful prepare` writes.

A word is what the tokenizer's own lower-casing and splitting at spaces and punctuation leave whole. Shards of
WordPiece hold it in pieces, which are put together again; what was unknown to them has no pieces and is passed over.
Plain text becomes shards in which every frequent word is one piece. Either way the text stays on disk, and is read
piece by piece; sentences bound every window.

Shapes: N words, V words of the vocabulary.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from tokenizers import models, trainers

from heedful.data.shards import Split
from heedful.data.tokenizer import CONTINUES, SPECIAL, UNK, Tokenizer, pipeline
from heedful.errors import UserError

PIECE = 1 << 16
"""Tokens of text that are read at once, about: sentences stay whole."""
NOISE_POWER = 0.75
"""Of a word's frequency, when words are drawn as noise (Mikolov et al. 2013b, section 2.2)."""


class Lexicon(NamedTuple):
    """The words that are frequent enough, most frequent first."""

    words: tuple[str, ...]
    counts: np.ndarray
    """(V,) int64."""


class Stretch(NamedTuple):
    """Words that follow each other."""

    ids: np.ndarray
    """(N,) int32: places in the lexicon."""
    sentences: np.ndarray
    """(N,) int32: the sentence of each; only whether two are equal matters."""


class Windows(NamedTuple):
    """A stretch whose frequent words were thinned out, each that is left with a window of its own."""

    ids: np.ndarray
    sentences: np.ndarray
    reach: np.ndarray
    """(N,) uint8: words to either side that count as context."""


def train(sentences: Callable[[], Iterable[str]], min_count: int, *, cased: bool = False) -> Tokenizer:
    """A tokenizer to which every word that occurs often enough is one piece, and every other unknown."""
    backend = pipeline(models.WordLevel(unk_token=UNK), cased=cased)
    trainer = trainers.WordLevelTrainer(
        vocab_size=2**31 - 1, min_frequency=min_count, special_tokens=list(SPECIAL), show_progress=False
    )
    backend.train_from_iterator(sentences(), trainer)
    return Tokenizer(backend)


@dataclass(frozen=True, kw_only=True)
class Text:
    """The words of shards, to be read piece by piece."""

    split: Split
    tokenizer: Tokenizer
    lexicon: Lexicon
    keys: np.ndarray
    """(V,) uint64, sorted: what stands for each word."""
    ranks: np.ndarray
    """(V,) int32: the word's place in the lexicon."""
    starts: np.ndarray
    """The sentence that each piece of the text starts with, and the end."""

    @property
    def words(self) -> int:
        """All words of the text that are in the lexicon."""
        return int(self.lexicon.counts.sum())

    @property
    def pieces(self) -> int:
        """How many there are to read."""
        return len(self.starts) - 1

    def read(self, piece: int) -> Stretch:
        """The words of a piece; those that are not in the lexicon are left out, and their neighbours move up."""
        keys, _, _, sentences = _words(self.split, self.tokenizer, self.starts[piece], self.starts[piece + 1])
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known = self.keys[place] == keys
        return Stretch(self.ranks[place[known]], sentences[known].astype(np.int32))


def read(split: Split, tokenizer: Tokenizer, min_count: int) -> Text:
    """Count the words; those that occur less than min_count times are as if they were not there."""
    if len(split.sentences) < 2:
        raise UserError("the text has no sentences to learn words from; give more text")
    starts = _starts(split.sentences)
    keys, counts, firsts, lengths = (np.empty(0, dtype) for dtype in (np.uint64, np.int64, np.int64, np.int64))
    for first, last in pairwise(starts):
        some, places, sizes, _ = _words(split, tokenizer, first, last)
        new, where, number = np.unique(some, return_index=True, return_counts=True)
        keys, where_all, inverse = np.unique(np.concatenate([keys, new]), return_index=True, return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([counts, number]), len(keys)).astype(np.int64)
        firsts = np.concatenate([firsts, places[where]])[where_all]  # the earliest, since the old ones stand before
        lengths = np.concatenate([lengths, sizes[where]])[where_all]
    frequent = np.flatnonzero(counts >= min_count)
    if len(frequent) < 2:
        raise UserError(
            f"{len(frequent)} {'word occurs' if len(frequent) == 1 else 'words occur'} {min_count} times or more, "
            "too few to learn from; give more text, "
            "or a smaller --min-count"
        )
    spelled = [_spell(split, tokenizer, firsts[one], lengths[one]) for one in frequent]
    order = sorted(range(len(frequent)), key=lambda one: (-counts[frequent[one]], spelled[one]))
    ranks = np.empty(len(frequent), np.int32)
    ranks[order] = np.arange(len(frequent))
    lexicon = Lexicon(tuple(spelled[one] for one in order), counts[frequent[order]])
    return Text(
        split=split, tokenizer=tokenizer, lexicon=lexicon, keys=keys[frequent], ranks=ranks, starts=np.array(starts)
    )


def keep_rates(counts: np.ndarray, subsample: float) -> np.ndarray:
    """(V,) The chance that an occurrence of a word is kept.

    Mikolov et al. 2013b, section 2.3, with the formula of their code, which keeps a little more than the paper's: a
    word whose share of the text is f stays with √(t/f) + t/f, for the threshold t. With t = 0 everything stays.
    """
    if not subsample:
        return np.ones(len(counts))
    ratio = subsample * counts.sum() / counts
    return np.minimum(1.0, np.sqrt(ratio) + ratio)


def noise(counts: np.ndarray) -> np.ndarray:
    """(V,) The chances to be drawn as noise, added up."""
    added = np.cumsum(counts.astype(np.float64) ** NOISE_POWER)
    return added / added[-1]


def windows(stretch: Stretch, keep: np.ndarray, window: int, random: np.random.Generator) -> Windows:
    """Thin out a stretch, and give each word that is left a window of 1 to `window` words to either side.

    So near words count more than far ones (Mikolov et al. 2013a, section 3.2).
    """
    kept = random.random(len(stretch.ids), np.float32) < keep[stretch.ids]
    ids, sentences = stretch.ids[kept], stretch.sentences[kept]
    return Windows(ids, sentences, random.integers(1, window + 1, len(ids)).astype(np.uint8))


def _starts(sentences: np.ndarray) -> list[int]:
    """Cut after the sentence in which a piece is full."""
    total = int(sentences[-1])
    cuts = np.searchsorted(sentences, np.arange(PIECE, total, PIECE))
    return sorted({0, *cuts.tolist(), len(sentences) - 1})


def _words(
    split: Split, tokenizer: Tokenizer, first: int, last: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each word of some sentences: what stands for it, its first token, its tokens, and its sentence.

    What stands for it is a number made of its pieces, in 64 bits: that two of a million words share one has a chance
    of less than one in ten million.
    """
    bounds = np.asarray(split.sentences[first : last + 1])
    tokens = np.asarray(split.tokens[bounds[0] : bounds[-1]])
    begins = ~tokenizer.continues[tokens]
    begins[(bounds[:-1] - bounds[0])] = True
    starts = np.flatnonzero(begins)
    sizes = np.diff(np.append(starts, len(tokens)))
    place = np.arange(len(tokens)) - np.repeat(starts, sizes)
    keys = np.add.reduceat(_mixed(tokens.astype(np.uint64) << np.uint64(16) | place.astype(np.uint64)), starts)
    known = tokens[starts] != tokenizer.unk
    of = np.repeat(np.arange(first, last), np.diff(bounds))[starts]
    return keys[known], starts[known] + bounds[0], sizes[known], of[known]


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Numbers that look random, a different one for each: splitmix64 (Steele et al. 2014)."""
    mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(31)


def _spell(split: Split, tokenizer: Tokenizer, start: int, size: int) -> str:
    first, *rest = (tokenizer.vocabulary[token] for token in split.tokens[start : start + size])
    return first + "".join(piece.removeprefix(CONTINUES) for piece in rest)
