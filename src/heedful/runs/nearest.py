"""The words nearest to a word, or to a sum of words, by the cosine of their vectors.

Shapes: V words, D width.
"""

import difflib
import re
import unicodedata
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from heedful.errors import UserError
from heedful.formats.word2vec import WordVectors

MOST_SPELLINGS = 3
SHORTEST = 4
"""Letters that two words must share to be taken for akin."""
NOTHING = 1e-5
"""The length of a sum of words below which they cancel out, but for rounding."""


class Near(NamedTuple):
    """A word, and how near it is."""

    word: str
    similarity: float


def nearest(
    vectors: WordVectors,
    words: Sequence[str],
    *,
    plus: Sequence[str] = (),
    minus: Sequence[str] = (),
    top: int = 10,
) -> list[list[Near]]:
    """The nearest words to each word, itself left out; with others added to it and taken away (king - man + woman).

    Every vector is made of length 1 first, as usual for such sums (Mikolov et al. 2013c).
    """
    if not words:
        raise UserError("there is no word to look for; name one")
    if top < 1:
        raise UserError(f"--top {top} must be at least 1")
    places = {word: number for number, word in enumerate(vectors.words)}
    unit = unit_rows(vectors.matrix)  # (V, D)
    around = [find(places, word) for word in (*plus, *minus)]
    signs = np.array([1.0] * len(plus) + [-1.0] * len(minus), np.float32)
    found = []
    for place in (find(places, word) for word in words):
        query = unit[place] + signs @ unit[around] if around else unit[place]
        if np.linalg.norm(query) < NOTHING:
            raise UserError(_nothing(vectors.words[place], plus, minus))
        found.append(ranked(vectors.words, unit @ unit_rows(query[None])[0], {place, *around}, top))
    return found


def ranked(words: Sequence[str], similarities: np.ndarray, without: set[int], count: int) -> list[Near]:
    """The words with the highest similarities (V,), but for some; of equals, the first."""
    order = np.argsort(-similarities, kind="stable")[: count + len(without)]
    left = [place for place in order.tolist() if place not in without][:count]
    return [Near(words[place], round(float(similarities[place]), 6)) for place in left]


def find(places: dict[str, int], word: str) -> int:
    """The place of a word as it is typed, in NFC as files are read, or else in lower case."""
    typed = unicodedata.normalize("NFC", word)
    for spelling in (typed, typed.lower()):
        if spelling in places:
            return places[spelling]
    if len(parts := typed.split()) != 1:
        several = f"{len(parts)} words, and a vector is of one; give them one by one: {' '.join(parts)}"
        raise UserError(f"{word!r} is {several if parts else 'no word; give one'}")
    near = difflib.get_close_matches(typed.lower(), places, n=MOST_SPELLINGS, cutoff=0.7) or _akin(typed, places)
    hint = (
        f"did you mean {' or '.join(near)}?"
        if near
        else "it is not in their text, or too rare; more text, or train-vectors with a smaller --min-count, may help"
    )
    raise UserError(f"{word!r} is not among the {len(places):,} words; {hint}")


def _akin(word: str, places: Collection[str]) -> list[str]:
    """Other forms of a word: what is left without signs, then words of which one begins or ends with the other, as
    ferry and ferryman do; the longest first.
    """
    plain = word.lower()
    bare = [part for part in re.findall(r"[^\W_]+", plain) if part in places]
    found = []
    for other in places:
        short, long = sorted((plain, other.lower()), key=len)
        if len(short) >= SHORTEST and (long.startswith(short) or long.endswith(short)):
            found.append((-len(short), len(long), other))
    return list(dict.fromkeys([*bare, *(other for *_, other in sorted(found))]))[:MOST_SPELLINGS]


def _nothing(word: str, plus: Sequence[str], minus: Sequence[str]) -> str:
    """Why there is no direction to look in."""
    if not plus and not minus:
        return f"the vector of {word!r} is all zeros, so nothing is near it; choose another word"
    asked = "".join([word, *(f" - {other}" for other in minus), *(f" + {other}" for other in plus)])
    return f"{asked} leaves nothing to look near; take away or add other words"


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row of zeros stays."""
    length = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(length > 0, length, 1.0)
