"""A translator: text in, text out. What searches is an engine; what takes text apart, the two vocabularies."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, overload

import numpy as np

from heedful.data.flaws import OR_SKIP, Flaw, sound
from heedful.data.parallel import PairExample
from heedful.data.sentencepiece import Vocabulary
from heedful.data.subwords import SPACE
from heedful.decode import Hypothesis, SearchOptions
from heedful.errors import UserError
from heedful.predict.reading import short
from heedful.predict.searching import Searcher, Sentence
from heedful.predict.texts import cut_told

SHOWN = 20
"""Characters that are named in a remark, at most."""


class Alignment(NamedTuple):
    """Which pieces of the source a translation's pieces looked at when they were written."""

    source: list[str]
    target: list[str]
    weights: np.ndarray
    """(pieces of the target, pieces of the source); each row sums to one. The last of both is the end."""
    source_words: list[int]
    """The word that each piece of the source belongs to, the end left out."""
    target_words: list[int]

    def words(self) -> list[tuple[int, int]]:
        """For each word of the translation the word of the source that it looked at most, counted from 0.

        Words are what stands between spaces, as in the text.
        """
        columns, rows = np.array(self.source_words, int), np.array(self.target_words, int)
        if not columns.size:
            return []
        inside = self.weights[: len(rows), : len(columns)]
        found = []
        for word in range(rows.max(initial=-1) + 1):
            looked = np.bincount(columns, inside[rows == word].sum(0))
            found.append((int(looked.argmax()), word))
        return found


class Translation(NamedTuple):
    """A translation, and how sure the model is of it."""

    text: str
    score: float
    """What translations are compared by: the log-probability after the penalties."""
    log_prob: float
    pieces: list[str]
    alignment: Alignment | None = None


EMPTY = Translation("", 0.0, 0.0, [])
"""Of an empty text."""
NOTHING = Translation("", -math.inf, -math.inf, [])
"""Where the options forbid every translation."""


class Asked(NamedTuple):
    """A source to translate: what the model reads, and the text it was."""

    sentence: Sentence
    text: str


class Given(NamedTuple):
    """A source and its given translation, as ids and as texts."""

    ids: tuple[list[int], list[int]]
    texts: tuple[str, str]


class TranslationReader:
    """Translates examples in one way; see `predict/reading.py`. An empty source has an empty translation."""

    def __init__(
        self, translator: "Translator", options: SearchOptions, *, prefix: str, align: bool, truncate: bool
    ) -> None:
        self.translator = translator
        self.options = options
        self.align = align
        self.truncate = truncate
        self.prefix = translator.prefix(prefix, options)
        self.cut = 0
        self.seen = 0
        self.unknown: dict[str, None] = {}
        """Characters that the model has never seen, in the order in which they came."""

    def prepare(self, examples: Sequence[PairExample]) -> list[Asked | Flaw]:
        """What the model reads for each example, or why it can't."""
        found = self.translator.source.encode([one.source for one in examples])
        return [self._ready(one, ids) for one, ids in zip(examples, found, strict=True)]

    def _ready(self, example: PairExample, ids: list[int]) -> Asked | Flaw:
        longest = self.translator.searcher.longest
        if len(ids) > longest:
            if not self.truncate:
                return _too_long(example.where, len(ids), longest)
            ids = ids[:longest]
            self.cut += 1
        if self.translator.source.unk in ids:
            self.unknown |= dict.fromkeys(self.translator.source.unknown(example.source))
        self.seen += 1
        return Asked(Sentence(ids, self.prefix, self.seen), example.source)

    def answer(self, prepared: Sequence[Asked], look: Callable[[], None] | None = None) -> list[list[Translation]]:
        """The best translations of each, the best first. Every few tokens there is a look, which may raise."""
        full = [one for one in prepared if one.sentence.ids]
        found = self.translator.searcher.search([one.sentence for one in full], self.options, look)
        pairs = [(one.sentence.ids, each.ids) for one, best in zip(full, found, strict=True) for each in best]
        tables = iter(self.translator.searcher.align(pairs)) if self.align else None
        answered = iter(
            [self._translation(one, each, tables) for each in best] or [NOTHING]
            for one, best in zip(full, found, strict=True)
        )
        return [next(answered) if one.sentence.ids else [EMPTY] for one in prepared]

    def _translation(self, one: Asked, found: Hypothesis, tables: Iterator[np.ndarray] | None) -> Translation:
        target = self.translator.target
        text = target.decode(found.ids)
        alignment = None
        if tables is not None:
            alignment = self.translator.alignment((one.sentence.ids, found.ids), (one.text, text), next(tables))
        return Translation(text, found.score, found.log_prob, target.pieces(found.ids), alignment)


class GivenReader:
    """Says how probable given translations are; see `predict/reading.py`."""

    def __init__(self, translator: "Translator", *, align: bool, truncate: bool) -> None:
        self.translator = translator
        self.align = align
        self.truncate = truncate
        self.cut = 0
        self.unknown: dict[str, None] = {}
        """Characters of either side that the model has never seen, in the order in which they came."""

    def prepare(self, examples: Sequence[PairExample]) -> list[Given | Flaw]:
        """What the model reads for each example, or why it can't."""
        ones = self.translator.source.encode([one.source for one in examples])
        twos = self.translator.target.encode([one.target or "" for one in examples])
        return [self._ready(*found) for found in zip(examples, ones, twos, strict=True)]

    def _ready(self, example: PairExample, source: list[int], target: list[int]) -> Given | Flaw:
        if bool(source) != bool(target):
            empty, full = ("translation", "source") if source else ("source", "translation")
            return Flaw(example.where, f"the {empty} is empty, but the {full} is not; fill it in, {OR_SKIP}")
        longest, length = self.translator.searcher.longest, max(len(source), len(target))
        if length > longest and not self.truncate:
            return _too_long(example.where, length, longest)
        self.cut += length > longest
        texts = example.source, example.target or ""
        sides = zip((self.translator.source, self.translator.target), (source, target), texts, strict=True)
        for vocabulary, ids, text in sides:
            if vocabulary.unk in ids:
                self.unknown |= dict.fromkeys(vocabulary.unknown(text))
        return Given((source[:longest], target[:longest]), texts)

    def answer(self, prepared: Sequence[Given]) -> list[list[Translation]]:
        """The given translation of each, its score the mean of its tokens."""
        full = [one for one in prepared if one.ids[0]]
        pairs = [one.ids for one in full]
        scores = self.translator.searcher.score(pairs)
        tables = self.translator.searcher.align(pairs) if self.align else [None] * len(pairs)
        answered = iter([self._scored(*found)] for found in zip(full, scores, tables, strict=True))
        return [next(answered) if one.ids[0] else [EMPTY] for one in prepared]

    def _scored(self, one: Given, log_probs: np.ndarray, table: np.ndarray | None) -> Translation:
        translator, (_, text), (_, ids) = self.translator, one.texts, one.ids
        alignment = None if table is None else translator.alignment(one.ids, one.texts, table)
        pieces = translator.target.pieces(ids)
        return Translation(text, float(log_probs.mean()), float(log_probs.sum()), pieces, alignment)


class Translator:
    """A model folder, or several that decide together, ready to translate."""

    def __init__(self, searcher: Searcher, source: Vocabulary, target: Vocabulary, origin: str = "the model") -> None:
        self.searcher = searcher
        self.source = source
        self.target = target
        self.origin = origin

    @overload
    def translate(self, texts: str, **options: Any) -> Translation: ...
    @overload
    def translate(self, texts: Sequence[str], **options: Any) -> list[Translation]: ...

    def translate(self, texts: str | Sequence[str], **options: Any) -> Translation | list[Translation]:
        """The best translation of a text, or of each of several.

        `options` are the fields of `heedful.SearchOptions` (beam, length_penalty, max_length, …) and:
        prefix: how every translation must begin;
        align: which pieces of the source each piece looked at, as `alignment`;
        truncate: cut texts that are too long, where else they are an error.
        """
        if not isinstance(texts, (str, Sequence)):
            raise UserError(f"{texts!r:.60} is neither a text nor a list of them")
        found = self.n_best([texts] if isinstance(texts, str) else texts, **options)
        return found[0][0] if isinstance(texts, str) else [best[0] for best in found]

    def n_best(
        self,
        texts: Sequence[str],
        *,
        prefix: str = "",
        align: bool = False,
        truncate: bool = False,
        options: SearchOptions | None = None,
        **search: Any,
    ) -> list[list[Translation]]:
        """The best translations of each text; `search` are the fields of `SearchOptions`: beam, n_best, …"""
        _several(texts)
        if options is None:
            unknown = set(search) - {field.name for field in fields(SearchOptions)}
            if unknown:
                raise UserError(f"{sorted(unknown)[0]!r} is no option of a search; help(heedful.SearchOptions)")
            options = SearchOptions(**search)
        elif search:
            raise UserError(f"{sorted(search)[0]!r} stands beside options, which has it too; give one of them")
        reader = self.reader(options, prefix=prefix, align=align, truncate=truncate)
        examples = [PairExample(short(text), text, None) for text in map(_text, texts)]
        return reader.answer(list(sound(reader.prepare(examples))))

    def reader(
        self,
        options: SearchOptions | None = None,
        *,
        prefix: str = "",
        align: bool = False,
        truncate: bool = False,
    ) -> TranslationReader:
        """What translates examples in one way."""
        return TranslationReader(self, options or SearchOptions(), prefix=prefix, align=align, truncate=truncate)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, align: bool = False, truncate: bool = False
    ) -> list[Translation]:
        """How probable given translations are: `log_prob`, and `score`, the mean of their tokens and ends."""
        _several(sources)
        _several(targets)
        if len(sources) != len(targets):
            raise UserError(f"{len(sources):,} sources but {len(targets):,} translations; give one for each")
        reader = self.given(align=align, truncate=truncate)
        pairs = zip(map(_text, sources), map(_text, targets), strict=True)
        examples = [PairExample(short(source), source, target) for source, target in pairs]
        return [best[0] for best in reader.answer(list(sound(reader.prepare(examples))))]

    def given(self, *, align: bool = False, truncate: bool = False) -> GivenReader:
        """What scores examples that have a translation."""
        return GivenReader(self, align=align, truncate=truncate)

    def alignment(
        self, ids: tuple[Sequence[int], Sequence[int]], texts: tuple[str, str], weights: np.ndarray
    ) -> Alignment:
        """What a table of weights says of a source and its translation."""
        source, target = self.source, self.target
        return Alignment(
            source.pieces([*ids[0], source.eos]),
            target.pieces([*ids[1], target.eos]),
            weights,
            _words(source, ids[0], texts[0]),
            _words(target, ids[1], texts[1]),
        )

    def prefix(self, text: str, options: SearchOptions) -> list[int]:
        """How every translation must begin, as ids."""
        if not text.strip():
            return []
        ids = self.target.encode([text])[0]
        if self.target.unk in ids:
            strange = " ".join(self.target.unknown(text))
            raise UserError(f"no translation can begin with {short(text)}: the model can't write {strange}")
        most = min(options.max_length or self.searcher.longest, self.searcher.longest)
        if len(ids) > most:
            raise UserError(
                f"no translation can begin with {short(text)}: it may have {most} tokens, this has {len(ids)}"
            )
        return ids


def _words(vocabulary: Vocabulary, ids: Sequence[int], text: str) -> list[int]:
    """The word of a text that each of its ids belongs to: no piece is part of two.

    What was written by the model, or cut, need not be what the text is taken apart into. Then spaces decide.
    """
    words = vocabulary.encode(text.split())
    if [number for word in words for number in word] == list(ids):
        return [place for place, word in enumerate(words) for _ in word]
    found, word, begins = [], -1, True
    for piece in vocabulary.pieces(ids):
        begins = begins or piece.startswith(SPACE)
        if piece.strip(SPACE) and begins:
            word, begins = word + 1, False
        found.append(word + begins)  # a space alone belongs to what follows
    return [min(place, max(word, 0)) for place in found]


def _too_long(where: str, length: int, longest: int) -> Flaw:
    problem = f"{length:,} tokens are beyond the model's {longest:,}; split it, cut it with --truncate"
    return Flaw(where, f"{problem}, {OR_SKIP}")


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise UserError(f"{text!r:.60} is not a text; give a text, or a list of them")
    return " ".join(text.split())


def _several(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise UserError(f"{short(texts)} is one text; give a list of texts")


def remarks(reader: TranslationReader | GivenReader, noun: str) -> Iterator[str]:
    """What to say of texts that were not read as they are."""
    if reader.cut:
        yield cut_told(reader.cut, noun)
    if reader.unknown:
        strange, source = list(reader.unknown), reader.translator.source
        shown = " ".join(strange[:SHOWN]) + (" …" if len(strange) > SHOWN else "")
        yield f"never seen: {shown}; the model reads {source.pieces([source.unk])[0]} there"
