"""A translator: text in, text out. What searches is an engine; what takes text apart, the two vocabularies."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, Protocol, overload

import numpy as np

from heedful.data.flaws import OR_SKIP, Flaw, sound
from heedful.data.parallel import PairExample
from heedful.data.subwords import SPACE
from heedful.decode import Hypothesis, SearchOptions
from heedful.errors import UserError
from heedful.predict.searching import Searcher, Sentence


class Pieces(Protocol):
    """Text to ids and back, of one language or of both."""

    pad: int
    sos: int
    eos: int
    unk: int

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without marks."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces of ids as they are written."""
        ...

    def unknown(self, text: str) -> list[str]:
        """The characters of a text that are not known."""
        ...


class Alignment(NamedTuple):
    """Which pieces of the source a translation's pieces looked at when they were written."""

    source: list[str]
    target: list[str]
    weights: np.ndarray
    """(pieces of the target, pieces of the source); each row sums to one. The last of both is the end."""

    def words(self) -> list[tuple[int, int]]:
        """For each word of the translation the word of the source that it looked at most, counted from 0.

        Words are what stands between spaces, as in the text.
        """
        columns, rows = _words(self.source), _words(self.target)
        found = []
        for word in range(max(rows, default=-1) + 1):
            looked = self.weights[[place for place, of in enumerate(rows) if of == word]].sum(0)
            shares = [
                sum(looked[place] for place, of in enumerate(columns) if of == one)
                for one in range(max(columns, default=-1) + 1)
            ]
            if shares:
                found.append((int(np.argmax(shares)), word))
        return found


class Translation(NamedTuple):
    """A translation, and how sure the model is of it."""

    text: str
    score: float
    """What translations are compared by: the log-probability divided by the length penalty."""
    log_prob: float
    pieces: list[str]
    alignment: Alignment | None = None


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
        self.unknown: dict[str, None] = {}
        """Characters that the model has never seen, in the order in which they came."""

    def prepare(self, examples: Sequence[PairExample]) -> list[Sentence | Flaw]:
        """What the model reads for each example, or why it can't."""
        found = self.translator.source.encode([one.source for one in examples])
        return [self._ready(one, ids) for one, ids in zip(examples, found, strict=True)]

    def _ready(self, example: PairExample, ids: list[int]) -> Sentence | Flaw:
        longest = self.translator.searcher.longest
        if len(ids) > longest:
            if not self.truncate:
                problem = f"{len(ids):,} tokens are beyond the model's {longest:,}; split it, cut it with --truncate"
                return Flaw(example.where, f"{problem}, {OR_SKIP}")
            ids = ids[:longest]
            self.cut += 1
        if self.translator.source.unk in ids:
            self.unknown |= dict.fromkeys(self.translator.source.unknown(example.source))
        return Sentence(ids, self.prefix)

    def answer(self, prepared: Sequence[Sentence]) -> list[list[Translation]]:
        """The best translations of each, the best first."""
        full = [one for one in prepared if one.ids]
        found = self.translator.searcher.search(full, self.options)
        pairs = [(one.ids, each.ids) for one, best in zip(full, found, strict=True) for each in best]
        tables = iter(self.translator.searcher.align(pairs)) if self.align else None
        answered = iter(
            [self._translation(one, each, tables) for each in best] for one, best in zip(full, found, strict=True)
        )
        return [next(answered) if one.ids else [Translation("", 0.0, 0.0, [])] for one in prepared]

    def _translation(self, one: Sentence, found: Hypothesis, tables: Iterator[np.ndarray] | None) -> Translation:
        source, target = self.translator.source, self.translator.target
        alignment = None
        if tables is not None:
            ends = (source.pieces([*one.ids, source.eos]), target.pieces([*found.ids, target.eos]))
            alignment = Alignment(*ends, next(tables))
        return Translation(target.decode(found.ids), found.score, found.log_prob, target.pieces(found.ids), alignment)


class Translator:
    """A model folder, or several that decide together, ready to translate."""

    def __init__(self, searcher: Searcher, source: Pieces, target: Pieces, origin: str = "the model") -> None:
        self.searcher = searcher
        self.source = source
        self.target = target
        self.origin = origin

    @overload
    def translate(self, texts: str, **options: Any) -> Translation: ...
    @overload
    def translate(self, texts: Sequence[str], **options: Any) -> list[Translation]: ...

    def translate(self, texts: str | Sequence[str], **options: Any) -> Translation | list[Translation]:
        """The best translation of a text, or of each of several; see `n_best` for the options."""
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
        if options is None:
            unknown = set(search) - {field.name for field in fields(SearchOptions)}
            if unknown:
                raise UserError(f"{sorted(unknown)[0]!r} is no option of a search; help(heedful.SearchOptions)")
            options = SearchOptions(**search)
        reader = self.reader(options, prefix=prefix, align=align, truncate=truncate)
        examples = [PairExample(_short(text), " ".join(text.split()), None) for text in texts]
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

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[Translation]:
        """How probable given translations are."""
        if len(sources) != len(targets):
            raise UserError(f"{len(sources):,} sources but {len(targets):,} translations; give one for each")
        ones, twos = self.source.encode(sources), self.target.encode(targets)
        for text, ids in zip([*sources, *targets], [*ones, *twos], strict=True):
            if len(ids) > self.searcher.longest:
                raise UserError(
                    f"{_short(text)}: {len(ids):,} tokens are beyond the model's {self.searcher.longest:,}"
                )
        found = self.searcher.score(list(zip(ones, twos, strict=True)))
        return [
            Translation(target, float(each.mean()), float(each.sum()), self.target.pieces(ids))
            for target, ids, each in zip(targets, twos, found, strict=True)
        ]

    def prefix(self, text: str, options: SearchOptions) -> list[int]:
        """How every translation must begin, as ids."""
        if not text.strip():
            return []
        ids = self.target.encode([text])[0]
        if self.target.unk in ids:
            strange = " ".join(self.target.unknown(text))
            raise UserError(f"no translation can begin with {_short(text)}: the model can't write {strange}")
        most = min(options.max_length or self.searcher.longest, self.searcher.longest)
        if len(ids) > most:
            raise UserError(
                f"no translation can begin with {_short(text)}: it may have {most} tokens, this has {len(ids)}"
            )
        return ids


def _words(pieces: Sequence[str]) -> list[int]:
    """The word that each piece belongs to; the end, the last piece, to none."""
    found, word = [], -1
    for piece in pieces[:-1]:
        word += piece.startswith(SPACE) or word < 0
        found.append(word)
    return found


def _short(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else text[: most - 1] + "…")
