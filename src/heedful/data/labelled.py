"""Texts and pairs of texts, with what they are labelled: one class, several, or numbers.

The text is left as written; labels are names, hence in NFC. Rows that cannot be used are flaws, in their place.
Knows nothing of tokens, and not which labels there are in all.
"""

import math
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Literal, NamedTuple

from heedful.data.columns import Columns, Found, find
from heedful.data.flaws import OR_SKIP, Flaw, shown
from heedful.data.lines import Errors, lines
from heedful.data.standard_input import arriving
from heedful.data.tables import TABLES, is_table, kind, rows, scalar
from heedful.errors import UserError

Target = str | tuple[str, ...] | tuple[float, ...] | None


class TextExample(NamedTuple):
    """A text or a pair, with its label where labels are read."""

    where: str
    """File and row, for messages."""
    text: str
    pair: str | None
    target: Target = None


def examples(
    file: Path,
    columns: Columns,
    *,
    target: Literal["label", "labels", "numbers", None],
    separator: str = ",",
    errors: Errors = "strict",
    required: bool = True,
) -> Iterator[TextExample | Flaw]:
    """The rows of a table; or, where no labels are required, the lines of a text.

    A target is one label as text, several as a tuple, a tuple of numbers, or not read at all. Several labels in a
    text are split at `separator`. If they are not `required`, None stands for a label that is not there.
    """
    _check(columns, target, separator)
    if is_table(file):
        yield from _table(file, columns, target, separator, errors, required)
    elif target is None or not required:
        for number, line in lines(file, errors, normalise=False):
            yield _line(f"{file}:{number}", line)
    else:
        raise UserError(f"{file} is not a table, hence has no labels; give a file that ends in {' '.join(TABLES)}")


def many_labels(file: Path, columns: Columns) -> bool:
    """Whether a label is a list, by the first row that has one."""
    if not is_table(file):
        return False
    for item in rows(file, errors="replace"):
        if not isinstance(item, Flaw):
            try:
                label = find(str(file), list(item[1]), columns, labelled="if there").label
            except UserError:  # to be told by whoever reads the file next
                continue
            if label and (value := item[1][label[0]]) is not None:
                return isinstance(value, list)
    return False


def texts(source: Path | None, columns: Columns, *, errors: Errors = "strict") -> Iterator[TextExample | Flaw]:
    """The texts of a file, without labels; or, without a file, the lines of standard input as they arrive."""
    if source is not None:
        return examples(source, columns, target=None, errors=errors)
    return (item if isinstance(item, Flaw) else _line(*item) for item in arriving(errors))


def _check(columns: Columns, target: str | None, separator: str) -> None:
    if not separator:
        raise UserError("the separator of labels is empty; give the character between two labels, such as ,")
    if target in ("label", "labels") and len(columns.label) > 1:
        named = ", ".join(columns.label)
        raise UserError(f"--label names {len(columns.label)} columns ({named}); several are for numbers, name one")


def _table(
    file: Path, columns: Columns, target: str | None, separator: str, errors: Errors, required: bool
) -> Iterator[TextExample | Flaw]:
    labelled = "no" if target is None else "yes" if required else "if there"
    free = kind(file)[0] == ".jsonl"  # each row names its own columns
    found: Found | None = None
    width: int | None = None

    def wanted(names: list[str]) -> list[str]:
        text, pair, label = find(str(file), names, columns, labelled=labelled)
        return [name for name in (text, pair, *label) if name is not None]

    for item in rows(file, errors=errors, normalise=False, columns=wanted):
        if isinstance(item, Flaw):
            yield item
            continue
        number, row = item
        where = f"{file}:{number}"
        if found is None or (free and labelled == "if there" and not found.label):
            try:
                found = find(where if free else str(file), list(row), columns, labelled=labelled)
            except UserError as error:
                if not free:
                    raise
                yield Flaw(where, str(error).removeprefix(f"{where}: "))
                continue
        try:
            text = _text(row, found.text, "text")
            pair = None if found.pair is None else _text(row, found.pair, "second text")
            value = _target(row, found.label, target, separator, required)
            if target == "numbers" and value is not None:
                width = len(value) if width is None else width
                if len(value) != width:
                    raise ValueError(f"{_numbers(len(value))} in a row, {width} in the first; write as many in each")
        except ValueError as error:
            yield Flaw(where, f"{error}, {OR_SKIP}")
        else:
            yield TextExample(where, text, pair, value)


def _line(where: str, line: str) -> TextExample | Flaw:
    if not line or line.isspace():
        return Flaw(where, f"the text is empty; fill it in, {OR_SKIP}")
    return TextExample(where, line, None)


def _text(row: dict[str, object], column: str, name: str) -> str:
    value = row.get(column)
    text = scalar(value)
    if text is None:
        if value is None or isinstance(value, float):
            raise ValueError(f"the {name} is missing (column {column!r}); fill it in")
        raise ValueError(f"the {name} (column {column!r}) is {shown(value)}, not text; write it as text")
    if not text or text.isspace():
        raise ValueError(f"the {name} is empty (column {column!r}); fill it in")
    return text


def _target(
    row: dict[str, object], columns: tuple[str, ...], target: str | None, separator: str, required: bool
) -> Target:
    if target is None or not columns:
        return None
    values = [row.get(column) for column in columns]
    if any(_missing(value, target) for value in values):
        if not required:
            return None
        raise ValueError(f"the label is missing (column {', '.join(map(repr, columns))}); fill it in")
    if target == "label":
        return _label(values[0])
    return _labels(values[0], separator) if target == "labels" else _tuple_of_numbers(values)


def _missing(value: object, target: str) -> bool:
    if isinstance(value, str) and target != "labels":  # an empty text is an empty set of labels
        return not value or value.isspace()
    return value is None or (isinstance(value, float | Decimal) and math.isnan(value) and target != "numbers")


def _label(value: object) -> str:
    if isinstance(value, list):
        raise ValueError(f"the label is a list, {shown(value)}; read several labels with --many-labels")
    label = scalar(value)
    if label is None:
        raise ValueError(f"the label is {shown(value)}, not a name; write it as text")
    return unicodedata.normalize("NFC", label.strip())


def _labels(value: object, separator: str) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else value.split(separator) if isinstance(value, str) else [value]
    labels = [scalar(part) for part in parts]
    if None in labels:
        wrong = parts[labels.index(None)]
        raise ValueError(f"a label is {shown(wrong)}, not a name; write each as text")
    stripped = (unicodedata.normalize("NFC", label.strip()) for label in labels if label is not None)
    return tuple(dict.fromkeys(label for label in stripped if label))


def _tuple_of_numbers(values: list[object]) -> tuple[float, ...]:
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    if not values:
        raise ValueError("the list of numbers is empty; fill it in")
    return tuple(map(_number, values))


def _number(value: object) -> float:
    number = math.nan
    # Python reads 1_000 as a number; nobody's data means it so.
    if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool) and "_" not in str(value):
        with suppress(ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the label is {shown(value)}, not a finite number; write one")
    return number


def _numbers(count: int) -> str:
    return "1 number" if count == 1 else f"{count} numbers"
