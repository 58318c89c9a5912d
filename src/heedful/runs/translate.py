"""What a model makes of a file in another language, line by line, in the order of the file and in constant memory."""

import json
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from heedful.data import parallel
from heedful.data.flaws import Flaw, reason, told
from heedful.data.lines import Errors, lines
from heedful.data.parallel import PairExample
from heedful.decode import SearchOptions
from heedful.errors import UserError
from heedful.predict.reading import Pace, answers
from heedful.predict.translator import (
    EMPTY,
    Alignment,
    GivenReader,
    Translation,
    TranslationReader,
    Translator,
    remarks,
)
from heedful.runs.prediction import Skipped, of_standard_input, whole_file


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How a file is read, and what is written of each translation."""

    options: SearchOptions
    prefix: str = ""
    column: str | None = None
    """Of the sources, where the file is a table."""
    given: Path | None = None
    """The translations, where they are only to be scored."""
    errors: Errors = "strict"
    truncate: bool = False
    skip_bad: bool = False
    alignments: bool = False
    score: bool = False
    json: bool = False

    def __post_init__(self) -> None:
        if self.given is not None and (self.options != SearchOptions() or self.prefix):
            raise UserError("--given scores translations that are there; leave out what a search is told")


def translate(translator: Translator, source: Path | None, out: Path | None, wanted: Wanted) -> str | None:
    """Translate a file, or standard input; what there is to say of it in the end."""
    items = parallel.sources(source, wanted.column, errors=wanted.errors)
    pace = Pace() if source else of_standard_input()
    if wanted.given is None:
        reader = translator.reader(
            wanted.options, prefix=wanted.prefix, align=wanted.alignments, truncate=wanted.truncate
        )
        found = answers(reader, items, pace)
    else:
        reader = translator.given(align=wanted.alignments, truncate=wanted.truncate)
        found = answers(reader, _joined(items, wanted.given, wanted.errors), pace)
    read, skipped = 0, Skipped()
    with nullcontext(sys.stdout) if out is None else whole_file(out) as file:
        for read, one in enumerate(found, 1):
            if isinstance(one, Flaw):
                if not wanted.skip_bad:
                    raise UserError(str(one))
                skipped.add(one)
            for line in _json(one) if wanted.json else _plain(one, read, wanted):
                file.write(line + "\n")
            if read % pace.chunk == 0:
                file.flush()
        file.flush()
        if not read and source is not None:
            raise UserError(f"{source} holds nothing to translate; give a file that does")
    return "; ".join(_remarks(reader, skipped, read)) or None


def _joined(sources: Iterable[PairExample | Flaw], given: Path, errors: Errors) -> Iterator[PairExample | Flaw]:
    """The sources with the translations that a file has for them, line by line."""
    if parallel.is_table(given):
        raise UserError(f"{given} is a table; --given takes a file with one translation a line")
    for number, (one, line) in enumerate(zip_longest(sources, lines(given, errors)), 1):
        if one is None or line is None:
            more, fewer = ("sources", "translations") if line is None else ("translations", "sources")
            raise UserError(
                f"there are more {more} than {fewer}: {given} must have one line for each source, but "
                f"number {number:,} {'is missing' if line is None else 'is one too many'}"
            )
        yield one if isinstance(one, Flaw) else one._replace(target=" ".join(line[1].split()))


def _json(one: tuple[PairExample, list[Translation]] | Flaw) -> Iterator[str]:
    if isinstance(one, Flaw):
        yield json.dumps({"error": reason(one)}, ensure_ascii=False)
        return
    example, best = one
    table = {"source": example.source, "translations": [as_table(each) for each in best]}
    yield json.dumps(table, ensure_ascii=False)


def as_table(translation: Translation) -> dict[str, Any]:
    """A translation as JSON knows it."""
    table: dict[str, Any] = {
        "text": translation.text,
        "score": _finite(translation.score),
        "log_prob": _finite(translation.log_prob),
    }
    if translation.alignment is not None:
        table["alignment"] = {
            "source": translation.alignment.source,
            "target": translation.alignment.target,
            "weights": [[round(float(weight), 4) for weight in row] for row in translation.alignment.weights],
            "words": translation.alignment.words(),
        }
    return table


def _plain(one: tuple[PairExample, list[Translation]] | Flaw, number: int, wanted: Wanted) -> Iterator[str]:
    """One line a translation: the source's number and its rank, the score, the text, the alignment."""
    best = [EMPTY] if isinstance(one, Flaw) else one[1]
    for rank, each in enumerate(best, 1):
        score, text = f"{each.score:.6g}", " ".join(each.text.split())
        if wanted.given is not None:
            text = f"{each.log_prob:.6g}"
        if isinstance(one, Flaw) or (wanted.given is not None and not each.text):
            score = text = ""
        fields = [str(number), str(rank)] if wanted.options.n_best > 1 else []
        fields += [score] if wanted.score else []
        fields.append(text)
        fields += [links(each.alignment)] if wanted.alignments else []
        yield "\t".join(fields)


def links(alignment: Alignment | None) -> str:
    """Which words belong together, as 0-0 1-2: source and target, counted from 0."""
    return "" if alignment is None else " ".join(f"{one}-{two}" for one, two in alignment.words())


def _remarks(reader: TranslationReader | GivenReader, skipped: Skipped, read: int) -> Iterator[str]:
    if skipped.first is not None:
        yield f"no translation of {told([skipped.first], skipped.count)}"
    yield from remarks(reader, "text")
    if not read:
        yield "there was nothing to read"


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
