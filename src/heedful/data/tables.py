"""The rows of a table: jsonl, csv, tsv and parquet, plain or packed as gz, xz or zst.

Everything streams. A row that is broken is a flaw, and reading goes on after it; what is wrong with the whole
file, so that no row after it can be trusted, is an error. The names of columns are in NFC whatever is done with
the text under them: a Mac and a Windows write one name differently. Knows nothing of what the columns mean.
"""

import csv
import json
import re
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from heedful.data.flaws import Flaw
from heedful.data.lines import CHUNK, MAX_LINE, Errors, chunks, lines, packing, reading
from heedful.errors import UserError

TABLES = (".jsonl", ".csv", ".tsv", ".parquet")

Row = tuple[int, dict[str, object]]
"""The line a row starts at, or for parquet the row's place from 1; and its values by column."""

Choose = Callable[[list[str]], Sequence[str]]
"""The columns that are wanted, of all there are."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def ending(file: Path) -> str:
    """How a file's name ends once it is unpacked, in small letters: ".csv" of reviews.CSV.gz."""
    return (Path(file.stem) if packing(file) else file).suffix.lower()


def kind(file: Path) -> tuple[str, str]:
    """How a file is read and how it is packed: (".csv", ".gz"). What is not known is plain text."""
    found = ending(file)
    return (found if found in TABLES else ".txt"), packing(file)


def is_table(file: Path) -> bool:
    """Whether a file's name says that it is a table. JSON as a whole is neither that nor text, hence refused."""
    if ending(file) == ".json":
        raise UserError(f"{file} is JSON as a whole; write one object a line and name it .jsonl")
    return kind(file)[0] in TABLES


def rows(
    file: Path, *, errors: Errors = "strict", normalise: bool = True, columns: Choose | None = None
) -> Iterator[Row | Flaw]:
    """The rows of a table. Without `normalise` the text is left as written, not brought to NFC.

    Parquet alone stores columns apart from each other, and asks `columns` which of them to read; the rows of the
    others are always whole.
    """
    match kind(file)[0]:
        case ".jsonl":
            return _jsonl(file, errors, normalise)
        case ".csv":
            fields = _csv(file, errors, normalise)
            return _under_header(file, fields, "put quotes around a field that holds a comma")
        case ".tsv":
            split = ((number, line.split("\t")) for number, line in lines(file, errors, normalise=normalise) if line)
            return _under_header(file, split, "write a tab inside a field as a space")
        case ".parquet":
            return _parquet(file, errors, normalise, columns or list)
    raise UserError(f"{file} is not a table; give a file that ends in {' '.join(TABLES)}")


def parse(text: str, way_out: str) -> object:
    """A JSON value in which no object has a key twice. Raises ValueError with a reason to show."""
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise ValueError(f"not valid JSON ({error.msg} at {line}{error.colno}); {way_out}") from error
    except _TwiceError:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error}); {way_out}") from error


def clean(row: dict[str, object], errors: Errors, normalise: bool) -> dict[str, object]:
    """A row whose text is as that of a plain file: escapes can hide what the bytes do not show.

    Raises ValueError with a reason to show.
    """
    try:
        return _object([(str(_clean(key, errors, True)), _clean(row[key], errors, normalise)) for key in row])
    except RecursionError as error:
        raise ValueError("lists within lists, too deep to read; write them flat") from error


def scalar(value: object) -> str | None:
    """One value as text, as JSON writes it; None for what is missing (null, NaN) and for lists and objects."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case int() | float() | Decimal() if value == value:
            return str(value)
    return None


def _clean(value: object, errors: Errors, normalise: bool) -> object:
    if isinstance(value, list):
        return [_clean(part, errors, normalise) for part in value]
    if isinstance(value, dict):
        return {_clean(key, errors, normalise): _clean(part, errors, normalise) for key, part in value.items()}
    if not isinstance(value, str):
        return value
    if "\0" in value or _SURROGATE.search(value):
        if errors == "strict":
            raise ValueError("a NUL or half a character; mend it or go on with --errors replace")
        value = _SURROGATE.sub("\ufffd", value.replace("\0", ""))
    return unicodedata.normalize("NFC", value) if normalise else value


class _TwiceError(ValueError):
    def __init__(self, key: str) -> None:
        super().__init__(f"the key {key!r} is there twice in one object; keep one of the two")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(next(key for key in keys if keys.count(key) > 1))
    return found


def _jsonl(file: Path, errors: Errors, normalise: bool) -> Iterator[Row | Flaw]:
    for number, line in lines(file, errors, normalise=normalise):
        if not line or line.isspace():
            continue
        where = f"{file}:{number}"
        try:
            row = parse(line, "write one object a line")
        except ValueError as error:
            yield Flaw(where, str(error))
            continue
        if isinstance(row, dict):
            yield _cleaned(where, number, row, errors, normalise)
        else:
            yield Flaw(where, f"{line:.40} is not an object; write one object a line")


def _csv(file: Path, errors: Errors, normalise: bool) -> Iterator[tuple[int, list[str]]]:
    # The limit is the interpreter's, hence never lowered.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))
    # Strict, since a quote left open would else swallow the rest of the file.
    found = csv.reader((line + "\n" for _, line in lines(file, errors, normalise=normalise)), strict=True)
    number = 1
    try:
        for fields in found:
            if fields:
                yield number, fields
            number = found.line_num + 1
    except csv.Error as error:
        way_out = "close each quote, and double those inside a field"
        raise UserError(f"{file}:{number}: not valid CSV ({error}); {way_out}") from error


def _under_header(file: Path, found: Iterator[tuple[int, list[str]]], way_out: str) -> Iterator[Row | Flaw]:
    first, header = next(found, (0, []))
    header = [unicodedata.normalize("NFC", column) for column in header]
    _check_unique(f"{file}:{first}", header)
    for number, fields in found:
        if len(fields) != len(header):
            count = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
            advice = way_out if len(fields) > len(header) else "fill in the missing ones"
            yield Flaw(f"{file}:{number}", f"{count} under {len(header)} columns; {advice}")
        else:
            yield number, dict(zip(header, fields, strict=True))


def _parquet(file: Path, errors: Errors, normalise: bool, columns: Choose) -> Iterator[Row | Flaw]:
    import pyarrow
    import pyarrow.parquet

    packed = bool(kind(file)[1])
    number = 0
    with reading(file), tempfile.TemporaryFile() if packed else file.open("rb") as source:
        if packed:  # parquet is read from its end, which a packed stream does not have at hand
            source.writelines(chunks(file))
            source.seek(0)
        try:
            table = pyarrow.parquet.ParquetFile(source, buffer_size=CHUNK)
            stored = table.schema_arrow.names
            names = [unicodedata.normalize("NFC", name) for name in stored]
            _check_unique(str(file), names)
            wanted = [stored[names.index(name)] for name in columns(names)]
            for batch in table.iter_batches(batch_size=256, columns=wanted, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield _cleaned(f"{file}:{number}", number, row, errors, normalise)
        except pyarrow.ArrowException as error:
            raise OSError(error) from error
        except UnicodeDecodeError as error:
            raise UserError(f"{file}: text after row {number} is not UTF-8; write the file again") from error


def _check_unique(where: str, columns: list[str]) -> None:
    if twice := [column for column in columns if columns.count(column) > 1]:
        raise UserError(f"{where}: the column {twice[0]!r} is there twice; rename one of the two")


def _cleaned(where: str, number: int, row: dict[str, object], errors: Errors, normalise: bool) -> Row | Flaw:
    try:
        return number, clean(row, errors, normalise)
    except ValueError as error:
        return Flaw(where, str(error))
