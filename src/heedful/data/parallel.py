"""Sentences and their translations: two aligned files, or two columns of a table.

The text is in NFC, and each run of white space is one space. Pairs that cannot be used are flaws, in their place.
Knows nothing of tokens, and not which languages these are.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from heedful.data.columns import usual
from heedful.data.flaws import OR_SKIP, Flaw, shown
from heedful.data.lines import Errors, lines
from heedful.data.standard_input import arriving
from heedful.data.tables import TABLES, is_table, kind, rows
from heedful.errors import UserError

USUAL_SIDES = (("source", "target"), ("src", "tgt"), ("src", "trg"), ("input", "output"), ("원문", "번역문"))

_NESTED = "translation"
"""The column in which Hugging Face's data keeps all languages: {"translation": {"en": "…", "de": "…"}}."""
_SHOWN = 20


class PairExample(NamedTuple):
    """A sentence, with its translation where one is read."""

    where: str
    """File and line, for messages; of aligned files the source's."""
    source: str
    target: str | None


class Sides(NamedTuple):
    """The columns to read."""

    source: str
    target: str | None
    """None where there is none, or it is not read."""


def aligned(source: Path, target: Path, *, errors: Errors = "strict") -> Iterator[PairExample | Flaw]:
    """The pairs of two files, in which a line of one is the translation of the same line of the other.

    Lines that are empty in both are passed over.
    """
    for file in (source, target):
        if is_table(file):
            raise UserError(f"{file} is a table, not lines of text; give one table with both sides as columns")
    left, right = lines(source, errors), lines(target, errors)
    for number, (one, other) in enumerate(zip_longest(left, right), 1):
        if one is None or other is None:
            more = number + sum(1 for _ in (right if one is None else left))
            raise UserError(_uneven(source, target, *((number - 1, more) if one is None else (more, number - 1))))
        pair = PairExample(f"{source}:{number}", _spaced(one[1]), _spaced(other[1]))
        if pair.source and pair.target:
            yield pair
        elif pair.target:
            problem = f"the source is empty, but its target {target}:{number} is not; fill it in"
            yield Flaw(pair.where, f"{problem}, {OR_SKIP}")
        elif pair.source:
            problem = f"the target {target}:{number} is empty, but its source is not; fill it in"
            yield Flaw(pair.where, f"{problem}, {OR_SKIP}")


def table(
    file: Path, source: str | None, target: str | None, *, errors: Errors = "strict", required: bool = True
) -> Iterator[PairExample | Flaw]:
    """The pairs of a table, from the columns named, or else found by `sides`.

    Rows in which both texts are empty are passed over. If targets are not `required`, None stands for one that is
    empty or not there.
    """
    for item in _rows(file, source, target, errors, required):
        if isinstance(item, Flaw):
            yield item
            continue
        where, row, found = item
        try:
            first = _text(row, found.source, "source")
            second = _target(row, found.target, required)
            if not first and not second:
                continue
            for text, side, column in ((first, "source", found.source), (second, "target", found.target)):
                if text == "":
                    raise ValueError(f"the {side} is empty (column {column!r}); fill it in")
        except ValueError as error:
            yield Flaw(where, f"{error}, {OR_SKIP}")
        else:
            yield PairExample(where, first, second)


def sources(file: Path | None, column: str | None, *, errors: Errors = "strict") -> Iterator[PairExample | Flaw]:
    """What is to be translated: a table's column, a text's lines or, without a file, those of standard input.

    What is empty is among them, so that the answers can stand at the same lines.
    """
    if file is not None and is_table(file):
        yield from _sources_of_table(file, column, errors)
        return
    if column is not None:
        name = "standard input" if file is None else file
        raise UserError(
            f"{name} is not a table, hence has no column {column!r}; leave out --source, "
            f"or give a file that ends in {' '.join(TABLES)}"
        )
    if file is not None:
        for number, line in lines(file, errors):
            yield PairExample(f"{file}:{number}", _spaced(line), None)
        return
    for item in arriving(errors):
        if isinstance(item, Flaw):
            yield item
        else:
            where, line = item
            yield PairExample(where, _spaced(unicodedata.normalize("NFC", line)), None)


def sides(names: Sequence[str], source: str | None, target: str | None, *, required: bool = True) -> Sides:
    """The columns of source and target: those named, or else of usual names, or else the first and second of two.

    Raises ValueError with a reason to show. Without `required` there may be no target.
    """
    for flag, name in (("--source", source), ("--target", target)):
        if name is not None and name not in names:
            raise ValueError(f"there is no column {name!r} among {_list(names)}; name one with {flag} COLUMN")
    if source is not None and source == target:
        raise ValueError(f"{source!r} is named by --source and by --target; name two different columns")
    if source is None and target is None:
        # Together first: many tables have a column "source" that tells where a row was found.
        for pair in USUAL_SIDES:
            first, second = (usual(names, (name,)) for name in pair)
            if first is not None and second is not None:
                return Sides(first, second)
    source = source or usual([name for name in names if name != target], [first for first, _ in USUAL_SIDES])
    target = target or usual([name for name in names if name != source], [second for _, second in USUAL_SIDES])
    rest = [name for name in names if name not in (source, target)]
    if len(names) == 2 or (len(names) == 1 and not required):
        source = rest.pop(0) if source is None and rest else source
        target = rest.pop(0) if target is None and rest else target
    if source is None or (target is None and required):
        what = "source and target" if required else "the source"
        way_out = "them with --source and --target" if required else "it with --source"
        raise ValueError(f"{what} cannot be told among the columns {_list(names)}; name {way_out}")
    return Sides(source, target)


def _rows(
    file: Path, source: str | None, target: str | None, errors: Errors, required: bool
) -> Iterator[tuple[str, Mapping[str, object], Sides] | Flaw]:
    """Where each row is, its values, and which of them to read."""
    is_table(file)  # which refuses JSON as a whole
    free = kind(file)[0] == ".jsonl"  # each row names its own columns
    source, target = (name and unicodedata.normalize("NFC", name) for name in (source, target))
    found: Sides | None = None

    def wanted(names: list[str]) -> list[str]:
        if _NESTED in names:  # whether it holds the languages, only its values tell
            return names
        try:
            chosen = sides(names, source, target, required=required)
        except ValueError as error:
            raise UserError(f"{file}: {error}") from error
        return [name for name in chosen if name is not None]

    for item in rows(file, errors=errors, columns=wanted):
        if isinstance(item, Flaw):
            yield item
            continue
        number, row = item
        where = f"{file}:{number}"
        nested = row.get(_NESTED)
        values = {str(name): value for name, value in nested.items()} if isinstance(nested, dict) else row
        if found is None or (free and found.target is None):
            # A row of jsonl may leave out a target that is named but not required.
            left_out = free and not required and target is not None and target not in values
            try:
                names, asked = list(values), None if left_out else target
                found = sides(names, found.source if found else source, asked, required=required)
            except ValueError as error:
                if not free:
                    raise UserError(f"{file}: {error}") from error
                yield Flaw(where, f"{error}, {OR_SKIP}")
                continue
            found = found._replace(target=None) if left_out else found
        yield where, values, found


def _sources_of_table(file: Path, column: str | None, errors: Errors) -> Iterator[PairExample | Flaw]:
    for item in _rows(file, column, None, errors, required=False):
        if isinstance(item, Flaw):
            yield item
            continue
        where, row, found = item
        try:
            yield PairExample(where, _text(row, found.source, "source"), None)
        except ValueError as error:
            yield Flaw(where, f"{error}, {OR_SKIP}")


def _target(row: Mapping[str, object], column: str | None, required: bool) -> str | None:
    if not required and (column is None or row.get(column) is None):
        return None
    assert column is not None
    text = _text(row, column, "target")
    return text if text or required else None


def _text(row: Mapping[str, object], column: str, side: str) -> str:
    value = row.get(column)
    if value is None:
        raise ValueError(f"the {side} is missing (column {column!r}); fill it in")
    if not isinstance(value, str):
        raise ValueError(f"the {side} (column {column!r}) is {shown(value)}, not text; write it as text")
    return _spaced(value)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _uneven(source: Path, target: Path, first: int, second: int) -> str:
    count = "1 line" if first == 1 else f"{first:,} lines"
    rule = "line by line one must be the translation of the other"
    return f"{source} has {count} but {target} has {second:,}: {rule}; align them again"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "") or "none"
