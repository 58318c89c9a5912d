"""Questions about a text, with the answers as places in it: SQuAD's JSON, or the same in jsonl and parquet.

The text is left as written, since answers are found by counting its characters. Questions that cannot be used are
flaws, in their place. Knows nothing of tokens.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from heedful.data.flaws import OR_SKIP, Flaw, shown
from heedful.data.lines import Errors, chunks
from heedful.data.tables import clean, ending, parse, rows, scalar
from heedful.errors import UserError

FIELDS = ("id", "question", "context", "answers", "is_impossible")
"""What is read of a question; all but the question and its context may be left out."""

_SHAPE = '{"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, "question": …, "answers": …}]}]}]}'


class Answer(NamedTuple):
    """An answer, and the place in the context of its first character."""

    text: str
    start: int


class QuestionExample(NamedTuple):
    """A question about a context."""

    where: str
    """File and question, for messages."""
    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] | None
    """None: not known. Empty: the context does not tell."""


def examples(file: Path, *, errors: Errors = "strict", required: bool = True) -> Iterator[QuestionExample | Flaw]:
    """The questions of a file. If answers are `required` no id may be there twice; else None stands for a lack."""
    match ending(file):
        case ".json":
            asked = _squad(file, errors)
        case ".jsonl" | ".parquet":
            asked = _table(file, errors)
        case _:
            raise UserError(f"{file} holds no questions; give SQuAD's .json, or .jsonl or .parquet with one a row")
    seen: set[str] = set()
    for item in asked:
        if isinstance(item, Flaw):
            yield item
            continue
        where, key, fields = item
        try:
            if required:  # to score by them; who only asks may ask twice, and without end
                if key in seen:
                    raise ValueError(f"the id {key!r} is there twice; give each question its own")
                seen.add(key)
            context, question = _text(fields, "context"), _text(fields, "question")
            yield QuestionExample(where, key, question, context, _answers(fields, context, required))
        except ValueError as error:
            yield Flaw(where, f"{error}, {OR_SKIP}")


_Asked = tuple[str, str, dict[str, object]]
"""Where a question is, its id, and its fields: those of the question and its context."""


def _table(file: Path, errors: Errors) -> Iterator[_Asked | Flaw]:
    def wanted(names: list[str]) -> list[str]:
        if missing := [name for name in ("question", "context") if name not in names]:
            raise UserError(f"{file}: there is no column {missing[0]!r}; the columns read are {', '.join(FIELDS)}")
        return [name for name in names if name in FIELDS]

    for item in rows(file, errors=errors, normalise=False, columns=wanted):
        if isinstance(item, Flaw):
            yield item
        else:
            number, row = item
            yield f"{file}:{number}", scalar(row.get("id")) or str(number), row


def _squad(file: Path, errors: Errors) -> Iterator[_Asked | Flaw]:
    number = 0
    for article in _list(file, _load(file, errors), "data"):
        for paragraph in _list(file, article, "paragraphs"):
            for fields in _list(file, paragraph, "qas"):
                number += 1
                if not isinstance(fields, dict):
                    raise _misshapen(file, f"question {number} is {shown(fields)}")
                asked = {name: fields[name] for name in FIELDS if name in fields}
                try:
                    asked = clean({**asked, "context": paragraph.get("context")}, errors, normalise=False)
                except ValueError as error:
                    yield Flaw(f"{file}: question {number} of the file", f"{error}, {OR_SKIP}")
                    continue
                key = scalar(asked.get("id")) or str(number)
                yield f"{file}: question {key}", key, asked


def _load(file: Path, errors: Errors) -> object:
    data = b"".join(chunks(file)).removeprefix(b"\xef\xbb\xbf")
    try:
        return parse(data.decode(errors=errors), "fetch or write it again")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{file}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; "
            "convert the file (iconv -f CP949 -t UTF-8, or from what else it is in) or go on with --errors replace"
        ) from error
    except ValueError as error:
        raise UserError(f"{file}: {error}") from error


def _list(file: Path, value: object, key: str) -> list:
    if not isinstance(value, dict):
        raise _misshapen(file, f"what should hold {key!r} is {shown(value)}")
    if not isinstance(value.get(key), list):
        raise _misshapen(file, f"there is no list {key!r} in {shown(value)}")
    return value[key]


def _misshapen(file: Path, problem: str) -> UserError:
    return UserError(f"{file}: {problem}; write {_SHAPE}, or a row for each question and name it .jsonl")


def _text(fields: dict[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise ValueError(f"the {name} is missing; write it as {name!r}")
    if not isinstance(value, str):
        raise ValueError(f"the {name} is {shown(value)}, not text; write it as text")
    if not value or value.isspace():
        raise ValueError(f"the {name} is empty; fill it in")
    return value


def _answers(fields: dict[str, object], context: str, required: bool) -> tuple[Answer, ...] | None:
    impossible = fields.get("is_impossible") is True
    found = fields.get("answers")
    if found is None:
        if impossible:
            return ()
        if required:
            raise ValueError("the answers are missing; write [] where there is none in the context")
        return None
    answers = tuple(_answer(text, start, context) for text, start in _pairs(found))
    if impossible and answers:
        raise ValueError(f"is_impossible is true, yet {shown(answers[0].text)} is an answer; keep one of the two")
    return answers


def _pairs(found: object) -> list[tuple[object, object]]:
    """Texts and starts, from one object of two lists or from a list of objects."""
    if isinstance(found, dict):
        texts, starts = found.get("text"), found.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list):
            if len(texts) != len(starts):
                raise ValueError(f"{len(texts)} answers with {len(starts)} starts; write one for each")
            return list(zip(texts, starts, strict=True))
    elif isinstance(found, list) and all(isinstance(answer, dict) for answer in found):
        return [(answer.get("text"), answer.get("answer_start")) for answer in found]
    raise ValueError(f'the answers are {shown(found)}; write a list of {{"text": …, "answer_start": …}}')


def _answer(text: object, start: object, context: str) -> Answer:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"an answer's text is {shown(text)}; write what stands in the context, or no answer at all")
    if not isinstance(start, int) or isinstance(start, bool):
        raise ValueError(f"the answer_start of {shown(text)} is {shown(start)}; count the characters before it")
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    first = context.find(text)
    there = f"where {shown(context[start : start + 30])} stands" if 0 <= start < len(context) else "which is outside"
    if first < 0:
        hint = "; it is not in the context at all, mend it"
    elif first == context.rfind(text):
        hint = f"; it is at {first}: write that"
    else:
        hint = "; count the characters before it"
    raise ValueError(f"the answer {shown(text)} is not at {start}, {there}{hint}")
