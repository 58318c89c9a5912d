"""Word vectors that know no context, to stand beside what a model makes of a word.

Shapes: V words, D width.
"""

import unicodedata

from heedful.formats.word2vec import WordVectors
from heedful.runs.nearest import Near, ranked, unit_rows


class Neighbourhood:
    """Word vectors, made ready to be asked again and again."""

    def __init__(self, vectors: WordVectors) -> None:
        self.words = vectors.words
        self._places = {word: number for number, word in enumerate(vectors.words)}
        self._unit = unit_rows(vectors.matrix)  # (V, D)

    def near(self, word: str, count: int) -> list[Near] | None:
        """The nearest words to a word, as it is typed or in lower case; None where it has no vector."""
        typed = unicodedata.normalize("NFC", word)
        place = next((self._places[one] for one in (typed, typed.lower()) if one in self._places), None)
        if place is None:
            return None
        return ranked(self.words, self._unit @ self._unit[place], {place}, count)
