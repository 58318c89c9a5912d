"""Labelled files as what a head is trained on: inputs and targets, and the head that they ask for.

Shapes: n inputs, C outputs, T tokens of an input.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful.data import labelled, questions, tagged
from heedful.data.columns import Columns
from heedful.data.flaws import OR_SKIP, Flaw, sound
from heedful.data.heldout import apart, require_both
from heedful.data.inputs import (
    Input,
    answer_tokens,
    no_room,
    question_windows,
    text_inputs,
    too_long,
    word_windows,
)
from heedful.data.labelled import TextExample
from heedful.data.questions import QuestionExample
from heedful.data.sources import expand
from heedful.data.tagged import TagExample
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError
from heedful.models.heads import ANSWER_ENDS, Head
from heedful.runs.finetune_options import DataPart
from heedful.tasks.tagging import NOT_READ

WINDOWS = {"tag": (256, 4), "answer": (384, 3)}
"""Tokens of a window over a long text, and what part of it neighbours share."""
HELD_OUT, MOST_HELD_OUT = 0.1, 5000
FARTHEST = 1e5
"""Deviations that numbers may lie from zero: of a float's seven digits two are left then."""


class Scale(NamedTuple):
    """Where numbers lie, (C,) each: they are learned with mean 0 and deviation 1."""

    mean: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What is trained on."""

    inputs: list[Input]
    targets: np.ndarray | list[np.ndarray]
    """(n,) classes, (n, C) labels or numbers, (n, 2) tokens; or the tags of each input's tokens (T,)."""
    cut: int = 0
    """Texts of which only the beginning is read."""


def task_of(task: str, files: Sequence[Path], part: DataPart) -> str:
    """The kind of head that the data asks for: several labels a text make a classifier of another kind."""
    if task == "classify" and (part.many_labels or labelled.many_labels(files[0], part.columns)):
        return "multilabel"
    return task


def read(
    task: str, files: Sequence[Path], part: DataPart, *, required: bool = True, trained: Columns | None = None
) -> Iterator[Any | Flaw]:
    """The examples of all files, one after the other; from the columns named, or else as a model was trained."""
    columns = replace(part.columns, trained=trained)
    match task:
        case "classify" | "multilabel" | "regress":
            target: Any = {"classify": "label", "multilabel": "labels", "regress": "numbers"}[task]
            return chain.from_iterable(
                labelled.examples(
                    file,
                    columns,
                    target=target,
                    separator=part.separator,
                    errors=part.errors,
                    required=required,
                )
                for file in files
            )
        case "tag":
            return chain.from_iterable(tagged.examples(file, errors=part.errors, required=required) for file in files)
        case _:
            return chain.from_iterable(
                questions.examples(file, errors=part.errors, required=required) for file in files
            )


def files(names: Sequence[str]) -> list[Path]:
    """The files that names, folders and globs stand for; data in JSON as a whole is taken too."""
    return [path for name in names for path in ([Path(name)] if Path(name).is_file() else expand([name]))]


def one_file(name: str) -> Path:
    """The one file that a name stands for."""
    found = files([name])
    if len(found) != 1:
        raise UserError(f"{name} stands for {len(found)} files; name one")
    return found[0]


def split(examples: Sequence[Any], share: float | None) -> tuple[list[Any], list[Any]]:
    """Examples to train on and those held out, by content alone: whoever asks about one text stays on one side."""
    part = min(HELD_OUT, MOST_HELD_OUT / len(examples)) if share is None else share
    training, testing = apart(examples, [content(one) for one in examples], part)
    require_both(training, testing, part, "examples")
    return training, testing


def make_head(task: str, examples: Sequence[Any], part: DataPart, max_length: int) -> Head:
    """The head that the examples ask for, its labels in their order."""
    if task == "answer":
        length, overlap = window(task, part, max_length)
        empty = any(one.answers == () for one in examples)
        return Head(task=task, labels=ANSWER_ENDS, length=length, overlap=overlap, may_be_empty=empty)
    if task == "regress":
        count = len(examples[0].target)
        named = part.columns.label
        names = named if len(named) == count else tuple(f"number {n + 1}" for n in range(count))
        labels = ("score",) if not named and count == 1 else names
        return Head(task=task, labels=labels, length=part.length, pairs=reads_pairs(examples))
    found = set(chain.from_iterable(label_names(task, one) for one in examples))
    if task == "classify" and len(found) == 1:
        raise UserError(f"every example has the label {next(iter(found))!r}; a classifier needs two labels or more")
    if not found:
        raise UserError("no example has a label; there is nothing to learn")
    labels = tuple(sorted(found, key=_order))
    if task == "tag":
        _check_tags(found)
        length, overlap = window(task, part, max_length)
        return Head(task=task, labels=labels, length=length, overlap=overlap)
    return Head(task=task, labels=labels, length=part.length, pairs=reads_pairs(examples))


def reads_pairs(examples: Sequence[TextExample]) -> bool:
    """Whether the examples are pairs of texts; all must be, or none."""
    kinds = Counter(one.pair is not None for one in examples)
    if len(kinds) > 1:
        raise UserError(
            "some files hold pairs of texts and others single texts; name the columns with --text and --pair"
        )
    return bool(kinds[True])


def label_names(task: str, example: Any) -> tuple[str, ...]:
    """The labels that an example holds."""
    if task == "tag":
        return example.tags or ()
    if task == "classify":
        return (example.target,)
    return example.target if task == "multilabel" else ()


def _check_tags(tags: set[str]) -> None:
    """Refuse spans that begin with I-, of which strict scoring would count none."""
    inner = sorted(tag for tag in tags if tag.startswith("I-") and f"B-{tag[2:]}" not in tags)
    if inner and not any(tag.startswith("B-") for tag in tags) and tagged.scheme(tags) != "plain":
        raise UserError(
            f"the tags have {inner[0]} but no B-{inner[0][2:]}: spans begin with B- here; "
            "convert them (this is IOB1, where only a span right behind another one does)"
        )


def window(task: str, part: DataPart, max_length: int) -> tuple[int, int]:
    """Length and overlap of the windows over long texts."""
    usual, shared = WINDOWS[task]
    length = min(part.length or usual, max_length)
    overlap = length // shared if part.overlap is None else part.overlap
    if overlap >= length // 2:
        raise UserError(
            f"overlap {overlap} is too much for windows of {length} tokens; use {length // shared} or less"
        )
    return length, overlap


def known(head: Head, items: Iterator[Any | Flaw]) -> Iterator[Any | Flaw]:
    """The same examples; those with a label that the head does not have are flawed."""
    for one in items:
        if not isinstance(one, Flaw):
            foreign = [name for name in label_names(head.task, one) if name not in head.labels]
            if foreign:
                listed = ", ".join(head.labels[:10]) + (", …" if len(head.labels) > 10 else "")
                problem = f"the label {foreign[0]!r} does not occur in the training data ({listed})"
                one = Flaw(one.where, f"{problem}; mend it, {OR_SKIP}")
            elif head.task == "regress" and one.target is not None and len(one.target) != len(head.labels):
                given = f"{len(head.labels)} ({', '.join(head.labels)})"
                problem = f"{len(one.target)} of the {given} numbers that the model gives; name each with --label"
                one = Flaw(one.where, problem)
        yield one


def scale(examples: Sequence[TextExample]) -> Scale:
    """Where the examples' numbers lie."""
    numbers = np.array([one.target for one in examples], np.float64)
    deviation = numbers.std(0)
    if not (deviation > 0).all():
        raise UserError(
            f"every example has the same number {numbers[0, int(deviation.argmin())]:g}; there is nothing to learn"
        )
    mean = numbers.mean(0)
    if (far := np.abs(mean) > FARTHEST * deviation).any():
        worst = int(far.argmax())
        raise UserError(
            f"the numbers lie {deviation[worst]:.3g} around {mean[worst]:.10g}, too close for numbers of that "
            "size to be told apart in single precision; subtract what they have in common"
        )
    return Scale(mean, deviation)


def prepare(
    head: Head,
    examples: Sequence[Any],
    tokenizer: Tokenizer,
    *,
    length: int,
    truncate: bool,
    scaling: Scale | None = None,
    bad: Callable[[Flaw], None],
) -> Dataset:
    """Inputs and targets. Texts that are too long, and questions that leave no room, go to `bad`."""
    match head.task:
        case "tag":
            return _tags(head, examples, tokenizer)
        case "answer":
            return _answers(head, examples, tokenizer, bad)
    return _texts(head, examples, tokenizer, length, truncate, scaling, bad)


def weights(head: Head, dataset: Dataset) -> np.ndarray:
    """(C,) what makes every class count the same in all; for several labels, as much there as not."""
    if head.task == "multilabel":
        there = np.asarray(dataset.targets).sum(0)
        without = np.maximum(len(dataset.inputs) - there, 1)  # what is everywhere must be learned too
        return (without / np.maximum(there, 1)).astype(np.float32)
    flat = np.concatenate(dataset.targets) if isinstance(dataset.targets, list) else dataset.targets
    counts = np.bincount(flat[flat != NOT_READ], minlength=len(head.labels))
    return (counts.sum() / (len(head.labels) * np.maximum(counts, 1))).astype(np.float32)


def _texts(
    head: Head,
    examples: Sequence[TextExample],
    tokenizer: Tokenizer,
    length: int,
    truncate: bool,
    scaling: Scale | None,
    bad: Callable[[Flaw], None],
) -> Dataset:
    seconds = [one.pair or "" for one in examples] if head.pairs else None
    inputs, kept, cut = [], [], 0
    found, counts = text_inputs(tokenizer, [one.text for one in examples], seconds, length)
    for example, one, tokens in zip(examples, found, counts.tolist(), strict=True):
        if tokens > length and not truncate:
            bad(too_long(example.where, tokens, length))
            continue
        cut += tokens > length
        inputs.append(one)
        kept.append(example)
    return Dataset(inputs=inputs, targets=targets(head, kept, scaling), cut=cut)


def targets(head: Head, examples: Sequence[TextExample], scaling: Scale | None = None) -> np.ndarray:
    """(n,) classes, or (n, C) labels of 0 and 1 or numbers."""
    if head.task == "regress":
        numbers = np.array([one.target for one in examples], np.float64).reshape(len(examples), len(head.labels))
        if scaling is not None:
            numbers = (numbers - scaling.mean) / scaling.deviation
        return numbers.astype(np.float32)
    number = {label: place for place, label in enumerate(head.labels)}
    if head.task == "classify":
        return np.array([number[str(one.target)] for one in examples], np.int64)
    table = np.zeros((len(examples), len(head.labels)), np.float32)
    for row, one in enumerate(examples):
        table[row, [number[str(label)] for label in one.target or ()]] = 1.0
    return table


def _tags(head: Head, examples: Sequence[TagExample], tokenizer: Tokenizer) -> Dataset:
    assert head.length is not None
    assert head.overlap is not None
    number = {label: place for place, label in enumerate(head.labels)}
    inputs: list[Input] = []
    wanted: list[np.ndarray] = []
    windows = word_windows(tokenizer, [one.words for one in examples], head.length, head.overlap)
    for example, found in zip(examples, windows, strict=True):
        tags = np.array([number[tag] for tag in example.tags or ()])
        for one in found:
            target = np.full(len(one.input.ids), NOT_READ)
            target[one.firsts] = tags[one.words]
            inputs.append(one.input)
            wanted.append(target)
    return Dataset(inputs=inputs, targets=wanted)


def _answers(
    head: Head, examples: Sequence[QuestionExample], tokenizer: Tokenizer, bad: Callable[[Flaw], None]
) -> Dataset:
    assert head.length is not None
    assert head.overlap is not None
    inputs: list[Input] = []
    ends: list[tuple[int, int]] = []
    asked = [one.question for one in examples], [one.context for one in examples]
    for example, windows in zip(
        examples, question_windows(tokenizer, *asked, head.length, head.overlap), strict=True
    ):
        if not windows:
            bad(no_room(example.where, head.length))
        # Several people answered; the first is as good as any.
        answer = example.answers[0] if example.answers else None
        for one in windows:
            inputs.append(one.input)
            ends.append(
                (0, 0) if answer is None else answer_tokens(one, answer.start, answer.start + len(answer.text))
            )
    return Dataset(inputs=inputs, targets=np.array(ends, np.int64).reshape(len(ends), 2))


def content(example: Any) -> str:
    """What an example is about: its first text, its words, its context."""
    if isinstance(example, TagExample):
        return " ".join(example.words)
    return example.context if isinstance(example, QuestionExample) else example.text


def whole(example: Any) -> tuple[str | None, ...]:
    """All that is asked: both texts of a pair, the question with its context."""
    if isinstance(example, QuestionExample):
        return example.question, example.context
    return (content(example), example.pair if isinstance(example, TextExample) else None)


def _order(label: str) -> tuple[int, int, str]:
    """Numbers by size, then everything else by its letters; no two alike, so that the order is always the same."""
    return (0, int(label), label) if re.fullmatch(r"-?[0-9]{1,18}", label) else (1, 0, label)


def all_sound(items: Iterator[Any | Flaw], part: DataPart, skipped: list[Flaw]) -> list[Any]:
    """Every example; with --skip-bad, but for the flawed ones."""
    return list(sound(items, part.skip_bad, skipped))
