"""The words nearest to a word, or to a sum of words, by the cosine of their vectors.

Shapes: V words, D width.
"""

import difflib
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heedful.errors import UserError
from heedful.formats.word2vec import WordVectors

MOST_SPELLINGS = 3


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
    count: int = 10,
) -> list[list[Near]]:
    """The nearest words to each word, itself left out; with others added to it and taken away (king - man + woman).

    Every vector is made of length 1 first, as usual for such sums (Mikolov et al. 2013c).
    """
    if not words:
        raise UserError("there is no word to look for; name one")
    if count < 1:
        raise UserError(f"count {count} must be at least 1")
    places = {word: number for number, word in enumerate(vectors.words)}
    unit = unit_rows(vectors.matrix)  # (V, D)
    around = [find(places, word) for word in (*plus, *minus)]
    signs = np.array([1.0] * len(plus) + [-1.0] * len(minus), np.float32)
    found = []
    for place in (find(places, word) for word in words):
        query = unit[place] + signs @ unit[around] if around else unit[place]
        found.append(ranked(vectors.words, unit @ unit_rows(query[None])[0], {place, *around}, count))
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
    near = difflib.get_close_matches(typed.lower(), places, n=MOST_SPELLINGS, cutoff=0.7)
    hint = (
        f"did you mean {' or '.join(near)}?" if near else "it was too rare in the text, or is spelled otherwise there"
    )
    raise UserError(f"{word!r} is not among the {len(places):,} words; {hint}")


def unit_rows(matrix: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row of zeros stays."""
    length = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(length > 0, length, 1.0)
