"""How well spans of words were found: tags to spans, and spans to scores.

BIO: B-X begins a span of X, I-X goes on with it, O is outside. BIOES: E-X ends a span, S-X is one of a single word;
L and U are other names of E and S. Knows nothing of letters or tokens: a tag belongs to whatever the caller counts.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Literal

import numpy as np

from heedful.errors import UserError
from heedful.metrics.classification import Report, mean_f1, one_of, per_class, precision_recall_f1

Scheme = Literal["BIO", "BIOES"]
PREFIXES: dict[str, dict[str, str]] = {
    "BIO": {"B": "B", "I": "I"},
    "BIOES": {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"},
}
"""What a tag may begin with, and what it means."""


def spans(tags: Sequence[str], scheme: Scheme, strict: bool = True) -> list[tuple[str, int, int]]:
    """The spans that tags mean, in order: (label, start, stop), stop excluded.

    Strict, only well-formed spans count: each begins with B or S, goes on with its own label and, in BIOES, is ended
    by E. Otherwise a span begins where its first tag stands, whatever that is, and ends where it can't go on: what a
    reader would make of a model's slightly broken output.
    """
    return _strict(tags, scheme) if strict else _lenient(tags, scheme)


def span_report(truth: list[list[str]], predicted: list[list[str]], scheme: Scheme) -> Report:
    """Score the well-formed spans of sentences: right is a span whose label, start and stop all are.

    `f1`, `precision`, `recall` over all spans, `macro_f1` over the labels of spans that occur on either side, and
    `accuracy` over single tags, O included. The numbers are those of seqeval in its strict mode.
    """
    actual_tags, guessed_tags = _flat(truth, predicted)
    right, guessed, actual = Counter[str](), Counter[str](), Counter[str]()
    for true_tags, tags in zip(truth, predicted, strict=True):
        there, found = _strict(true_tags, scheme), _strict(tags, scheme)
        actual.update(label for label, _, _ in there)
        guessed.update(label for label, _, _ in found)
        right.update(label for label, _, _ in set(there).intersection(found))
    labels = sorted(actual.keys() | guessed.keys())
    counts = [[count[label] for label in labels] for count in (right, guessed, actual)]
    classes = per_class(labels, *counts)
    precision, recall, f1 = precision_recall_f1(*map(sum, counts))
    same = sum(map(str.__eq__, actual_tags, guessed_tags))
    scores = {
        "f1": f1,
        "precision": precision,
        "recall": recall,
        "macro_f1": mean_f1(classes),
        "accuracy": same / len(actual_tags),
    }
    return Report(scores, classes, None)


def tag_report(truth: list[list[str]], predicted: list[list[str]], labels: Sequence[str]) -> Report:
    """Score tags that stand for themselves, such as parts of speech: `accuracy` and `macro_f1` over all words."""
    actual, guessed = _flat(truth, predicted)
    numbers = {label: number for number, label in enumerate(labels)}
    unknown = sorted(({*actual} | {*guessed}) - numbers.keys())
    if unknown:
        raise UserError(f"tag {unknown[0]!r} is not one of the {len(numbers)} labels; name it among them")
    scores, classes, confusion = one_of(
        labels, np.array([numbers[tag] for tag in actual]), np.array([numbers[tag] for tag in guessed])
    )
    return Report({name: scores[name] for name in ("accuracy", "macro_f1")}, classes, confusion)


def _strict(tags: Sequence[str], scheme: Scheme) -> list[tuple[str, int, int]]:
    found = []
    ends_itself = scheme == "BIO"  # a span of BIO ends where it can't go on, one of BIOES must say so
    inside: str | None = None
    start = 0
    for at, tag in enumerate(tags):
        prefix, label = _read(tag, scheme)
        if prefix == "I" and label == inside:
            continue
        if inside is not None and ends_itself:
            found.append((inside, start, at))
        if prefix == "S":
            found.append((label, at, at + 1))
        elif prefix == "E" and label == inside:
            found.append((label, start, at + 1))
        inside, start = (label, at) if prefix == "B" else (None, at)
    if inside is not None and ends_itself:
        found.append((inside, start, len(tags)))
    return found


def _lenient(tags: Sequence[str], scheme: Scheme) -> list[tuple[str, int, int]]:
    found = []
    inside: str | None = None
    start = 0
    for at, tag in enumerate(tags):
        prefix, label = _read(tag, scheme)
        if inside is not None and (prefix not in "IE" or label != inside):
            found.append((inside, start, at))
            inside = None
        if prefix == "O":
            continue
        if inside is None:
            inside, start = label, at
        if prefix in "ES":
            found.append((label, start, at + 1))
            inside = None
    if inside is not None:
        found.append((inside, start, len(tags)))
    return found


@cache
def _read(tag: str, scheme: Scheme) -> tuple[str, str]:
    """What a tag says to do, and its label: `_` where spans are of one kind and have no name."""
    if tag == "O":
        return "O", ""
    prefix = PREFIXES[scheme].get(tag[:1])
    if prefix is None or tag[1:2] not in ("", "-"):
        begins = ", ".join(f"{letter}-" for letter in PREFIXES[scheme])
        raise UserError(f"tag {tag!r} is not of the scheme {scheme}; write O, or a label after one of {begins}")
    return prefix, tag[2:] or "_"


def _flat(truth: list[list[str]], predicted: list[list[str]]) -> tuple[list[str], list[str]]:
    lengths, others = [*map(len, truth)], [*map(len, predicted)]
    if lengths != others:
        where = next((i for i, (a, b) in enumerate(zip(lengths, others, strict=False)) if a != b), None)
        if where is None:
            raise ValueError(f"truth and predicted must be as many sentences; got {len(lengths)} and {len(others)}")
        raise ValueError(f"sentence {where} has {lengths[where]} tags in truth and {others[where]} in predicted")
    if not any(lengths):
        raise UserError("there are no tags to score; give at least one sentence")
    return [*chain.from_iterable(truth)], [*chain.from_iterable(predicted)]
