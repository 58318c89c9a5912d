"""A tag for every word, and the spans that tags like B-PER and I-PER make up.

A text is split into words as BERT does it, which is where words begin and where punctuation stands; who has words
already gives those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from heedful.data.flaws import Flaw
from heedful.data.inputs import WordWindow, characters, word_windows
from heedful.data.tagged import TagExample, scheme
from heedful.data.tokenizer import Tokenizer
from heedful.metrics.spans import spans
from heedful.predict.engine import Engine


class Entity(NamedTuple):
    """Neighbouring words that belong together."""

    label: str
    text: str
    start: int
    """First character in the text; for given words, the first word's number."""
    end: int
    """After the last character, or word."""
    probability: float
    """The mean of its words'."""


class Tagged(NamedTuple):
    """The tags of a text's words."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    entities: list[Entity]
    """For tags that mark spans (BIO, BIOES); else one for each word."""


class Sentence(NamedTuple):
    """Words, and the text that they stand in if there is one."""

    where: str
    words: tuple[str, ...]
    text: str | None = None
    places: tuple[tuple[int, int], ...] | None = None
    """The characters of each word in the text."""


class Windowed(NamedTuple):
    """A sentence and the windows that cover it."""

    sentence: Sentence
    windows: list[WordWindow]


def sentence(tokenizer: Tokenizer, text: str, where: str = "") -> Sentence:
    """A text's words as BERT splits them, each where it stands in the text."""
    (encoding,) = tokenizer.read([text])
    # By the number of its word, since the characters of pieces may lie apart or overlap: what the tokenizer leaves
    # out stands between them, and the letters of a Hangul syllable may be pieces of their own.
    places: dict[int | None, tuple[int, int]] = {}
    for word, (start, end) in zip(encoding.word_ids, characters(text, encoding.offsets).tolist(), strict=True):
        places[word] = (places.get(word, (start, end))[0], end)
    return Sentence(where, tuple(text[start:end] for start, end in places.values()), text, tuple(places.values()))


@dataclass(frozen=True, kw_only=True)
class Tags:
    """Tags for sentences of any length."""

    engine: Engine
    tokenizer: Tokenizer
    length: int
    """Tokens of a window."""
    overlap: int
    """Tokens that neighbouring windows share."""

    @cached_property
    def scheme(self) -> Literal["BIO", "BIOES", "plain"]:
        """How the model's tags mark spans."""
        assert self.engine.head is not None
        return scheme(self.engine.head.labels)

    def prepare(self, examples: Sequence[Sentence | TagExample]) -> list[Windowed | Flaw]:
        """The windows of each sentence; words may be given with tags, which are not looked at."""
        sentences = [one if isinstance(one, Sentence) else Sentence(one.where, tuple(one.words)) for one in examples]
        windows = iter(
            word_windows(self.tokenizer, [one.words for one in sentences if one.words], self.length, self.overlap)
        )
        return [
            Windowed(one, next(windows)) if one.words else Flaw(one.where, "the text is empty; write something in it")
            for one in sentences
        ]

    def answer(self, prepared: Sequence[Windowed]) -> list[Tagged]:
        """The most probable tag of each word."""
        assert self.engine.head is not None
        labels = self.engine.head.labels
        found = iter(self.engine.scores([window.input for one in prepared for window in one.windows]))
        tagged = []
        for one in prepared:
            chosen = np.zeros(len(one.sentence.words), np.int64)
            sure = np.zeros(len(chosen))
            for window in one.windows:
                scores = next(found)[window.firsts].astype(np.float64)
                powers = np.exp(scores - scores.max(-1, keepdims=True))
                chosen[window.words] = powers.argmax(-1)
                sure[window.words] = (powers / powers.sum(-1, keepdims=True)).max(-1)
            tags = [labels[number] for number in chosen]
            tagged.append(
                Tagged(list(one.sentence.words), tags, sure.tolist(), self._entities(one.sentence, tags, sure))
            )
        return tagged

    def _entities(self, one: Sentence, tags: list[str], sure: np.ndarray) -> list[Entity]:
        if self.scheme == "plain":
            found = [(tag, number, number + 1) for number, tag in enumerate(tags)]
        else:
            found = spans(tags, self.scheme, strict=False)
        entities = []
        for label, first, stop in found:
            probability = float(sure[first:stop].mean())
            if one.places is None or one.text is None:
                entities.append(Entity(label, " ".join(one.words[first:stop]), first, stop, probability))
            else:
                start, end = one.places[first][0], one.places[stop - 1][1]
                entities.append(Entity(label, one.text[start:end], start, end, probability))
        return entities
