"""Sentences as words with a tag each: CoNLL's columns, or lists in jsonl and parquet.

Words are left as written; tags are names, hence in NFC. Sentences that cannot be used are flaws, in their place.
Knows nothing of tokens within a word, and not which tags may follow each other.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from heedful.data.columns import usual
from heedful.data.flaws import OR_SKIP, Flaw, shown
from heedful.data.lines import Errors, lines
from heedful.data.tables import is_table, kind, rows, scalar
from heedful.errors import UserError

USUAL_WORDS = ("tokens", "words")
USUAL_TAGS = ("tags", "ner_tags", "labels", "pos_tags")

_SPAN_TAG = re.compile(r"O|([BIESLU])-.+", re.DOTALL)


class TagExample(NamedTuple):
    """A sentence, with its tags where there are any."""

    where: str
    """File and the line or row that it starts at, for messages."""
    words: tuple[str, ...]
    tags: tuple[str, ...] | None


def examples(file: Path, *, errors: Errors = "strict", required: bool = True) -> Iterator[TagExample | Flaw]:
    """The sentences of a file. If tags are not `required`, None stands for tags that are not there."""
    if is_table(file) and kind(file)[0] in (".jsonl", ".parquet"):
        return _table(file, errors, required)
    if kind(file)[0] == ".csv":
        raise UserError(f"{file} is a table; words with tags come as CoNLL (a word, a tab, its tag) or as jsonl")
    return _conll(file, errors, required)


def scheme(tags: Iterable[str]) -> Literal["BIO", "BIOES", "plain"]:
    """How tags mark spans, by all that there are: the letters L and U of BILOU are E and S by another name."""
    found = [_SPAN_TAG.fullmatch(tag) for tag in set(tags)]
    letters = {match[1] for match in found if match} - {None}
    if None in found or not letters:
        return "plain"
    return "BIO" if letters <= {"B", "I"} else "BIOES"


def _conll(file: Path, errors: Errors, required: bool) -> Iterator[TagExample | Flaw]:
    """Token and tag are the first and the last column, blank lines end a sentence."""
    words: list[str] = []
    tags: list[str] = []
    start, broken = 0, False  # the sentence's first line, and whether it was given up
    width, tabs = 0, False  # the columns of the file so far, and whether tabs part them

    def sentence() -> Iterator[TagExample]:
        if words and not broken:
            yield TagExample(f"{file}:{start}", tuple(words), tuple(tags) if width > 1 else None)
        words.clear()
        tags.clear()

    for number, line in lines(file, errors, normalise=False):
        if not line or line.isspace() or line.split(maxsplit=1)[0] == "-DOCSTART-":
            yield from sentence()
            broken = False
            continue
        fields = _fields(line, tabs)
        if broken or _is_comment(line, fields, width, tabs, inside=bool(words)):
            continue
        problem = _problem(fields, width, required)
        if problem:
            yield Flaw(f"{file}:{number}", f"{problem}, {OR_SKIP}")
            broken = True
            continue
        tabs = tabs or "\t" in line
        width = len(fields)
        start = start if words else number
        words.append(fields[0].strip())
        tags.append(unicodedata.normalize("NFC", fields[-1].strip()))
    yield from sentence()


def _fields(line: str, tabs: bool) -> list[str]:
    """The columns of a line. Where tabs part them a token may hold spaces."""
    return line.split("\t") if tabs or "\t" in line else [field for field in line.split(" ") if field]


def _is_comment(line: str, fields: list[str], width: int, tabs: bool, *, inside: bool) -> bool:
    """Whether a line is of the kind `# text = …`, and not the token `#` with its tag."""
    if not line.startswith("# ") or "\t" in line:
        return False
    if tabs:
        return True
    # Parted by spaces, the two look alike: a comment stands before a sentence and has other columns than a token.
    tagged = len(fields) == width if width else len(fields) == 2 and _SPAN_TAG.fullmatch(fields[-1]) is not None
    return not inside and not tagged


def _problem(fields: list[str], width: int, required: bool) -> str | None:
    if required and len(fields) == 1:
        return f"{shown(fields[0])} has no tag; write token and tag, parted by a tab"
    if width and len(fields) != width:
        return f"{_columns(len(fields))}, where the lines before have {width}; write as many in each line"
    if not fields[0].strip():
        return "the token is empty; write token and tag, parted by a tab"
    if not fields[-1].strip():
        return f"the tag of {shown(fields[0])} is empty; write token and tag, parted by a tab"
    return None


def _table(file: Path, errors: Errors, required: bool) -> Iterator[TagExample | Flaw]:
    def wanted(names: list[str]) -> list[str]:
        try:
            return [name for name in _columns_of(names, required) if name is not None]
        except ValueError as error:
            raise UserError(f"{file}: {error}") from error

    for item in rows(file, errors=errors, normalise=False, columns=wanted):
        if isinstance(item, Flaw):
            yield item
            continue
        number, row = item
        where = f"{file}:{number}"
        try:
            words, tags = _columns_of(list(row), required)
            yield _example(where, row[words], None if tags is None else row[tags], required)
        except ValueError as error:
            yield Flaw(where, f"{error}, {OR_SKIP}")


def _columns_of(names: list[str], required: bool) -> tuple[str, str | None]:
    words, tags = usual(names, USUAL_WORDS), usual(names, USUAL_TAGS)
    if words is None:
        raise ValueError(f"there is no column of tokens; call it {' or '.join(USUAL_WORDS)}")
    if tags is None and required:
        raise ValueError(f"there is no column of tags; call it {', '.join(USUAL_TAGS[:-1])} or {USUAL_TAGS[-1]}")
    return words, tags


def _example(where: str, words: object, tags: object, required: bool) -> TagExample:
    if not isinstance(words, list):
        raise ValueError(f"the tokens are {shown(words)}, not a list; write a list of texts")
    if not words:
        raise ValueError("there are no tokens; write at least one")
    for place, word in enumerate(words, 1):
        if not isinstance(word, str):
            raise ValueError(f"token {place} is {shown(word)}, not text; write it as text")
        if not word or word.isspace():
            raise ValueError(f"token {place} is empty or a blank; leave it out, and its tag")
    if tags is None:
        if required:
            raise ValueError("the tags are missing; write one for each token")
        return TagExample(where, tuple(words), None)
    if not isinstance(tags, list):
        raise ValueError(f"the tags are {shown(tags)}, not a list; write a list of texts")
    if len(tags) != len(words):
        raise ValueError(f"{_count(tags, 'tag')} for {_count(words, 'token')}; write one for each")
    named = tuple(unicodedata.normalize("NFC", (scalar(tag) or "").strip()) for tag in tags)
    if "" in named:
        place = named.index("")
        raise ValueError(f"tag {place + 1} is {shown(tags[place])}, not a name; write it as text")
    return TagExample(where, tuple(words), named)


def _columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


def _count(items: list[object], noun: str) -> str:
    return f"{len(items)} {noun}" + ("" if len(items) == 1 else "s")
