"""Which columns of a table hold the text, its pair and the label.

Those named by the user, or else those that a model was trained with, or else those of usual names.

Pure: knows names alone, nothing of files or values.
"""

import difflib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from heedful.errors import UserError

USUAL_TEXTS = (
    *("text", "sentence", "content", "document", "body", "review", "comment", "title", "paragraph"),
    *("텍스트", "문장", "본문", "내용"),
)
USUAL_PAIRS = (
    *(("sentence1", "sentence2"), ("text1", "text2"), ("text_a", "text_b"), ("premise", "hypothesis")),
    *(("question1", "question2"), ("question", "sentence"), ("question", "passage")),
    *(("query", "passage"), ("query", "text"), ("문장1", "문장2"), ("전제", "가설")),
)
USUAL_LABELS = (
    *("label", "labels", "class", "category", "target", "gold_label", "sentiment", "topic"),
    *("score", "rating", "stars", "similarity", "y"),
    *("라벨", "레이블", "분류", "점수", "감정"),
)

FIXED = {"tag": "tokens and tags", "answer": "question, context and answers"}
"""Of tasks whose columns can't be named, what they are called."""

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns that the user named, in NFC as tables have them.

    Those left out are as in training where the table has them, or else found when their names are usual.
    """

    text: str | None = None
    """Column that holds the text."""
    pair: str | None = None
    """Column that holds the second text of a pair."""
    label: tuple[str, ...] = ()
    """Column that holds the label; several for several numbers."""
    trained: "Columns | None" = None
    """Those that were named when the model was trained."""

    def __post_init__(self) -> None:
        for field in ("text", "pair"):
            name = getattr(self, field)
            object.__setattr__(self, field, name and unicodedata.normalize("NFC", name))
        object.__setattr__(self, "label", tuple(unicodedata.normalize("NFC", name) for name in self.label))


class Found(NamedTuple):
    """The columns to read."""

    text: str
    pair: str | None
    label: tuple[str, ...]
    """Empty where labels are not read, or are not there."""


def find(where: str, names: Sequence[str], asked: Columns, *, labelled: Literal["no", "if there", "yes"]) -> Found:
    """The columns of a table at `where` whose columns are called `names`. No column is two things at once."""
    asked = _as_trained(names, asked)
    _check_asked(where, names, asked if labelled != "no" else replace(asked, label=()))
    text, pair = _texts(where, [name for name in names if name not in asked.label], asked)
    if labelled == "no" or asked.label:
        return Found(text, pair, asked.label if labelled != "no" else ())
    label = usual([name for name in names if name not in (text, pair)], USUAL_LABELS)
    if label is None and labelled == "yes":
        raise UserError(_unknown(where, "label", names))
    return Found(text, pair, () if label is None else (label,))


def refuse_named(asked: Columns, task: str) -> None:
    """Refuse columns that were named for a task that reads others whatever is said."""
    given = [
        flag for flag, name in (("--text", asked.text), ("--pair", asked.pair), ("--label", asked.label)) if name
    ]
    if given and task in FIXED:
        raise UserError(f"to {task}, the columns read are those called {FIXED[task]}; leave {given[0]} out")


def usual(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The column whose name, in whatever case, comes first among those `known`."""
    folded = _folded(names)
    return next((folded[name] for name in known if name in folded), None)


def _as_trained(names: Sequence[str], asked: Columns) -> Columns:
    """The same with what was named in training, where the table has it and the user named nothing in its place."""
    trained = asked.trained
    if trained is None:
        return asked
    free = [name for name in names if name not in (asked.text, asked.pair, *asked.label)]
    # A text and its pair belong together: half of what was named before may not fit what is named now.
    if asked.text is None and asked.pair is None and {trained.text, trained.pair} - {None} <= set(free):
        asked = replace(asked, text=trained.text, pair=trained.pair)
    if not asked.label and set(trained.label) <= set(free):
        asked = replace(asked, label=trained.label)
    return asked


def _check_asked(where: str, names: Sequence[str], asked: Columns) -> None:
    flags: dict[str, str] = {}
    for flag, name in [("--text", asked.text), ("--pair", asked.pair), *(("--label", name) for name in asked.label)]:
        if name is None:
            continue
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}? The columns are: " if near else f"name one with {flag} COLUMN, of: "
            raise UserError(f"{where}: there is no column {name!r}; {hint}{_list(names)}")
        if name in flags:
            raise UserError(f"{where}: {name!r} is named by {flags[name]} and by {flag}; name two different columns")
        flags[name] = flag


def _texts(where: str, names: Sequence[str], asked: Columns) -> tuple[str, str | None]:
    if asked.text is not None:
        return asked.text, asked.pair
    folded = _folded(names)
    for first, second in USUAL_PAIRS:
        # A second half that the user named says which first half belongs to it.
        if first in folded and second in folded and asked.pair in (None, folded[second]):
            return folded[first], folded[second]
    text = usual([name for name in names if name != asked.pair], USUAL_TEXTS)
    if text is None:
        raise UserError(_unknown(where, "text", names))
    return text, asked.pair


def _folded(names: Sequence[str]) -> dict[str, str]:
    """Names by their lower case; the first one where only the case differs."""
    return {name.casefold(): name for name in reversed(names)}


def _unknown(where: str, what: str, names: Sequence[str]) -> str:
    return f"{where}: no column is known to hold the {what}; name it with --{what} COLUMN, of: {_list(names)}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "") or "none"
