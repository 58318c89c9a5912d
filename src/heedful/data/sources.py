"""Raw text as documents: txt, jsonl, csv, tsv and parquet, plain or packed as gz, xz or zst.

A document is a list of sentences in the order in which they were written. Everything streams: memory does not
grow with the files. What is wrong with a file is told with its name and line, and with what to do about it.
The module knows nothing of tokens or models, and remembers nothing between calls.
"""

import difflib
import glob
import os
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from heedful.data.columns import USUAL_TEXTS, usual
from heedful.data.flaws import sound
from heedful.data.lines import CHUNK, KEPT, PACKINGS, Errors, called, lines, reading
from heedful.data.sentences import split_sentences
from heedful.data.tables import TABLES, kind, rows
from heedful.errors import Missing, UserError

SUFFIXES = tuple(kind + packing for kind in (".txt", ".text", ".md", *TABLES) for packing in ("", *PACKINGS))
"""How the names end that a folder is searched for. A file given by name may end as it likes."""

MADE_HERE = ("heedful.toml", "tokenizer.json")
"""Names that tell a folder of ours, a model or prepared text, from a folder of texts; it is passed over."""

DOCUMENT_SENTENCES = 512
"""The most sentences of a document; more go on as a new one, so that a book streams too."""

PARAGRAPH = 300
"""A line of more characters is taken for a paragraph and split into sentences."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How text is read."""

    text: str | None = None
    """Column that holds the text, for tables. Found by itself when its name is usual."""
    errors: Errors = "strict"
    """What to do with bytes that are not UTF-8."""

    def __post_init__(self) -> None:
        if self.errors not in ("strict", "replace"):
            raise UserError(f"errors {self.errors!r} is not known; try strict or replace")


def expand(inputs: Sequence[str]) -> list[Path]:
    """The files that files, folders and globs name: each once, in the order given, a folder's sorted."""
    if not inputs or not all(inputs):
        raise UserError("no text was given, or an empty name; name a file, a folder or a glob")
    files: dict[Path, Path] = {}
    for given in inputs:
        for file in _expand(given):
            # Two ways to write one path are one file: text read twice would weigh double.
            files.setdefault(file.resolve(), file)
    return list(files.values())


def spool(stream: BinaryIO, folder: Path) -> Path:
    """Keep standard input as a file in `folder`, since the data path reads its input more than once."""
    file, aside = folder / KEPT, folder / ".stdin.tmp"  # what is cut short never has the name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as kept:
            shutil.copyfileobj(stream, kept, CHUNK)
        if aside.stat().st_size:
            return aside.replace(file)
        aside.unlink()
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}; choose a folder with room") from error
    raise UserError("standard input is empty; pipe text into it or name a file instead of -")


def documents(files: Iterable[Path], options: TextOptions) -> Iterator[list[str]]:
    """The documents of all files in order; each a non-empty list of non-empty sentences."""
    files = list(files)
    empty = True
    for file in files:
        table = kind(file)[0] in TABLES
        for document in _table_documents(file, options) if table else _text_documents(file, options):
            empty = False
            yield document
    if empty:
        names = ", ".join(map(called, files[:3])) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
        raise UserError(f"{names} {'holds' if len(files) == 1 else 'hold'} no text; give a file that does")


def _expand(given: str) -> list[Path]:
    path = Path(given)
    with reading(path):
        if path.is_file():
            if path.suffix.lower() == ".json":
                raise UserError(f"{given} is JSON as a whole; write one object a line and name it .jsonl")
            return [path]
        if path.is_dir():
            return _folder(path)
        if path.exists():
            raise UserError(f"{given} is no plain file, and text is read more than once; pipe it into - instead")
        if any(c in given for c in "*?["):
            # Path.glob takes no absolute pattern.
            names = sorted(glob.glob(given, recursive=True))  # noqa: PTH207
            if files := [file for name in names if (file := Path(name)).is_file() and not _made_here(file.parent)]:
                return files
            raise Missing(f"no file matches {given}; check the pattern and the folder it starts from")
        if not path.parent.is_dir():
            raise Missing(f"{given} does not exist, nor does the folder {path.parent}; check the path")
        if path.is_symlink():
            raise UserError(f"{given} is a link to a file that is not there; mend the link, or name the file")
        near = difflib.get_close_matches(path.name, [entry.name for entry in path.parent.iterdir()], n=1, cutoff=0.75)
    way_out = f"did you mean {path.parent / near[0]}?" if near else "name a file, a folder or a glob"
    raise Missing(f"{given} does not exist; {way_out}")


def _made_here(folder: Path) -> bool:
    return any((folder / name).is_file() for name in MADE_HERE)


def _folder(folder: Path) -> list[Path]:
    def fail(error: OSError) -> None:
        raise error  # os.walk would pass over a folder that it may not open

    found: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=fail):
        if _made_here(Path(parent)):
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        shown = (name for name in names if not name.startswith(".") and name.lower().endswith(SUFFIXES))
        found += [file for name in shown if (file := Path(parent, name)).is_file()]
    if not found:
        ends = f"{' '.join(SUFFIXES[:: len(PACKINGS) + 1])}, each with or without {' '.join(PACKINGS)}"
        raise UserError(f"{folder} holds no text; the files read end in {ends}")
    return sorted(found)


def _text_documents(file: Path, options: TextOptions) -> Iterator[list[str]]:
    document: list[str] = []
    for _, line in lines(file, options.errors):
        if sentences := _sentences(line):
            document += sentences
            while len(document) >= DOCUMENT_SENTENCES:
                yield document[:DOCUMENT_SENTENCES]
                del document[:DOCUMENT_SENTENCES]
        elif document:
            yield document
            document = []
    if document:
        yield document


def _table_documents(file: Path, options: TextOptions) -> Iterator[list[str]]:
    column = options.text and unicodedata.normalize("NFC", options.text)
    found = rows(file, errors=options.errors, columns=lambda names: [_text_column(str(file), names, column)])
    for number, row in sound(found):
        where = f"{file}:{number}"
        if column is None or column not in row:
            column = _text_column(where, list(row), column)
        text = row[column]
        if text is None:
            continue
        if not isinstance(text, str):
            raise UserError(f"{where}: {column} is {text!r:.40}, not text; choose another with --text COLUMN")
        sentences = [sentence for line in text.splitlines() for sentence in _sentences(line)]
        for start in range(0, len(sentences), DOCUMENT_SENTENCES):
            yield sentences[start : start + DOCUMENT_SENTENCES]


def _sentences(line: str) -> list[str]:
    line = " ".join(line.split())
    if len(line) > PARAGRAPH:
        return split_sentences(line)
    return [line] if line else []


def _text_column(where: str, names: list[str], wanted: str | None) -> str:
    column = usual(names, USUAL_TEXTS) if wanted is None else wanted
    if column is not None and column in names:
        return column
    missing = "no column is known to hold the text" if wanted is None else f"there is no column {wanted}"
    there = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    raise UserError(f"{where}: {missing}; name one with --text COLUMN, of: {there or 'none'}")
