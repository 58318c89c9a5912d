"""BPE-dropout (Provilkov et al. 2020, section 3), reproducible: each epoch sees words taken apart in other ways.

The dropout inside `tokenizers` cannot be seeded. Here each distinct word is taken apart several times beforehand,
and an epoch only picks, for each word of each text, one of the ways. Knows nothing of batches.

Shapes: R rows (one way of one word each), L symbols in a row, W words in all texts.
"""

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from heedful.data.subwords import Subwords
from heedful.errors import UserError

_NEVER = np.iinfo(np.int32).max  # the rank of a pair that no merge joins
_LONGEST = 64  # pieces; a longer word, as a script without spaces may have it, is taken apart in blocks
_TEXTS = 10_000  # texts encoded at a time: each piece of them takes some hundred bytes
_CELLS = 1 << 20  # symbols merged at a time
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Dropout:
    """Texts whose words are taken apart anew in each epoch, a merge being left out with probability `rate`."""

    def __init__(
        self, subwords: Subwords, rate: float, texts: Sequence[str], *, variants: int = 16, seed: int
    ) -> None:
        """Draw the ways to take words apart: `variants` of them, but for rare words only four times as many as
        the word is seen."""
        if subwords.kind != "bpe":
            raise UserError(
                f"BPE-dropout needs a vocabulary of the kind bpe, not {subwords.kind}; train one, or drop it"
            )
        if not 0 <= rate < 1:
            raise UserError(f"the BPE-dropout {rate} is not at least 0 and less than 1; try 0.1")
        if variants < 1:
            raise UserError(f"{variants} ways to take a word apart are too few; give at least 1")
        self.seed = seed
        merges = _Merges(subwords)
        whole, self._word, self._ends = _words(subwords, texts, _LONGEST if rate else None)
        words = [merges.symbols(word) for word in whole]
        seen = np.bincount(self._word, minlength=len(words))
        self._ways = np.minimum(variants, 4 * seen) if rate else np.ones(len(words), np.int64)  # of each word
        self._first = np.zeros(len(words), np.int64)  # of the ways of each word, among all
        pool, lengths, rows = [], [], 0
        for group in _by_length(words, self._ways):
            ways = self._ways[group]
            self._first[group] = rows + np.cumsum(ways) - ways
            symbols = np.stack([words[word] for word in group])
            way = np.arange(ways.sum()) - np.repeat(np.cumsum(ways) - ways, ways)
            keys = np.array([_key(seed, words[word].tobytes()) for word in group], np.uint64)
            keys = _mixed(np.repeat(keys, ways) + way.astype(np.uint64) * _GOLDEN)
            merged = merges.apply(np.repeat(symbols, ways, axis=0), rate, keys)  # (R, L)
            pool.append(merged[merged >= 0])
            lengths.append((merged >= 0).sum(1))
            rows += len(merged)
        self._pool = np.concatenate([np.zeros(0, np.int32), *pool])
        self._lengths = np.concatenate([np.zeros(0, np.int64), *lengths])
        self._starts = np.cumsum(self._lengths) - self._lengths

    def encode(self, epoch: int) -> list[np.ndarray]:
        """The ids of each text in an epoch, without special tokens; a function of the seed and the epoch alone."""
        generator = np.random.default_rng([self.seed, epoch])
        way = self._first[self._word] + generator.integers(0, self._ways[self._word])  # (W,)
        lengths = self._lengths[way]
        ends = np.cumsum(lengths)
        shift = self._starts[way] - (ends - lengths)
        ids = self._pool[np.arange(lengths.sum()) + np.repeat(shift, lengths)]
        bounds = np.concatenate([[0], ends])[self._ends].tolist()
        return [ids[start:end] for start, end in pairwise([0, *bounds])]


class _Merges:
    """The merges of a vocabulary as arrays, in their order."""

    def __init__(self, subwords: Subwords) -> None:
        model = json.loads(subwords.backend.to_str())["model"]
        ids, merges = model["vocab"], model["merges"]
        self._base = np.int64(len(ids))
        self._symbols = {subwords.unk: [subwords.unk]}
        for piece, number in ids.items():
            self._symbols.setdefault(number, [ids.get(character, subwords.unk) for character in piece])
        pairs = np.array([ids[left] * len(ids) + ids[right] for left, right in merges], np.int64)
        self._rank = np.argsort(pairs, kind="stable").astype(np.int32)
        self._pairs = pairs[self._rank]
        self._joined = np.array([ids[left + right] for left, right in merges], np.int32)

    def symbols(self, whole: bytes) -> np.ndarray:
        """What merging starts from: the characters of a word, which is given as the ids of its pieces."""
        ids = np.frombuffer(whole, np.int32).tolist()
        return np.array([symbol for number in ids for symbol in self._symbols[number]], np.int32)

    def rank(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """When each pair would be merged; the lowest goes first."""
        if not len(self._pairs):
            return np.full(left.shape, _NEVER, np.int32)
        pairs = left * self._base + right
        at = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        return np.where(self._pairs[at] == pairs, self._rank[at], _NEVER)

    def apply(self, symbols: np.ndarray, rate: float, keys: np.ndarray) -> np.ndarray:
        """The rows merged; -1 fills up what became shorter.

        In each step each pair is left out with probability `rate`, the first of the others is merged, and a row
        for which none is left is done: algorithm 1 of the paper, for all rows at a time.
        """
        done = np.full_like(symbols, -1)
        rows = np.arange(len(symbols))
        ranks = self.rank(symbols[:, :-1], symbols[:, 1:])  # (R, L - 1)
        for step in range(symbols.shape[1]):
            kept = np.where(_dropped(keys, step, ranks.shape[1], rate), _NEVER, ranks) if rate else ranks
            kept = np.pad(kept, ((0, 0), (0, 1)), constant_values=_NEVER)  # a row of one symbol has no pair
            at = kept.argmin(1)
            going = kept[np.arange(len(rows)), at] < _NEVER
            done[rows[~going], : symbols.shape[1]] = symbols[~going]
            rows, symbols, ranks, keys, at = rows[going], symbols[going], ranks[going], keys[going], at[going]
            if not len(rows):
                break
            row = np.arange(len(rows))
            joined = self._joined[ranks[row, at]]
            symbols = _without(symbols, at + 1)
            symbols[row, at] = joined
            ranks = _without(ranks, at)
            for place in (at - 1, at):
                some = (place >= 0) & (place < ranks.shape[1])
                there, where = row[some], place[some]
                ranks[there, where] = self.rank(symbols[there, where], symbols[there, where + 1])
        return done


def _without(table: np.ndarray, column: np.ndarray) -> np.ndarray:
    """A table less one cell of each row."""
    kept = np.ones(table.shape, bool)
    kept[np.arange(len(table)), column] = False
    return table[kept].reshape(len(table), -1)


def _words(
    subwords: Subwords, texts: Sequence[str], longest: int | None
) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """The distinct words as bytes of ids, the word at each place, and the place where each text ends.

    A word is told by its pieces without dropout, which are quicker to get at than its characters.
    """
    known: dict[bytes, int] = {}
    places: list[int] = []
    ends: list[int] = []
    for start in range(0, len(texts), _TEXTS):
        for encoding in subwords.backend.encode_batch(texts[start : start + _TEXTS], add_special_tokens=False):
            data = array("i", encoding.ids).tobytes()
            left, before = 0, 0
            for right, word in enumerate([*encoding.word_ids, None]):
                if right > left and (word != before or right - left == longest):
                    places.append(known.setdefault(data[4 * left : 4 * right], len(known)))
                    left = right
                before = word
            ends.append(len(places))
    return list(known), np.array(places, np.int64), np.array(ends, np.int64)


def _by_length(words: list[np.ndarray], ways: np.ndarray) -> Iterator[np.ndarray]:
    """The numbers of words of one length each, as many as are merged at a time."""
    lengths = np.array([len(word) for word in words], np.int64)
    for length in np.unique(lengths):
        group = np.flatnonzero(lengths == length)
        filled = np.cumsum(ways[group] * length) // _CELLS
        yield from np.split(group, np.flatnonzero(np.diff(filled)) + 1)


def _key(seed: int, word: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed} ".encode() + word, digest_size=8).digest(), "little")


def _dropped(keys: np.ndarray, step: int, pairs: int, rate: float) -> np.ndarray:
    """(R, pairs) True with probability `rate`, as the key of the row, the step and the place say."""
    place = np.arange(pairs, dtype=np.uint64) + (np.uint64(step) << np.uint64(32))
    return _mixed(keys[:, None] + place * _GOLDEN) >> np.uint64(11) < np.uint64(rate * 2**53)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Numbers without any pattern from numbers with one: the last step of SplitMix64 (Steele et al. 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
