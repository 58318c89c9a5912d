"""How good a model is on a labelled file: metrics, classes, confusions, and the worst mistakes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len

from heedful.data.columns import Columns, refuse_named
from heedful.data.flaws import Flaw, told
from heedful.data.tagged import scheme
from heedful.durable import write_file
from heedful.errors import UserError
from heedful.metrics.answers import f1
from heedful.metrics.classification import Report
from heedful.metrics.regression import Numbers
from heedful.models.heads import Head
from heedful.predict.predictor import METHODS, Predictor
from heedful.predict.reading import answers
from heedful.predict.texts import cut_remark
from heedful.runs import dataset
from heedful.runs.evaluation import measure
from heedful.runs.finetune_options import DataPart
from heedful.runs.prediction import as_table
from heedful.wording import SHOWN, shortened

MOST_COLUMNS = 12
"""Labels beyond which a confusion matrix is drawn but not printed."""


class Mistake(NamedTuple):
    """An answer that was wrong."""

    where: str
    text: str
    truth: str
    answer: str
    confidence: float
    """The answer's probability; for numbers, how far off it was."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What there is to say of a model on a file."""

    head: Head
    report: Report | Numbers
    examples: list[Any]
    answers: list[Any]
    mistakes: list[Mistake]
    skipped: list[Flaw]
    cut: str | None = None
    """What to say of texts that were too long."""
    origin: str = ""
    """Where the examples were found, where that need not be what was named."""


def evaluate(
    predictor: Predictor, files: Sequence[Path], part: DataPart, *, worst: int = 5, trained: Columns | None = None
) -> Evaluation:
    """Ask the model about every example, and compare. Columns that are not named are those it was `trained` with."""
    head = predictor.head
    if head is None:
        raise UserError(
            f"{predictor.origin} has no head to evaluate; train one with `heedful finetune MODEL DATA --task TASK`"
        )
    refuse_named(part.columns, head.task)
    skipped: list[Flaw] = []
    examples, found = [], []
    items = dataset.known(head, dataset.read(head.task, files, _named(part, head), trained=trained))
    reader = predictor.reader(METHODS[head.task], truncate=part.truncate)
    for one in answers(reader, items):
        if isinstance(one, Flaw):
            if not part.skip_bad:
                raise UserError(str(one))
            skipped.append(one)
            continue
        examples.append(one[0])
        found.append(one[1])
    if not examples:
        why = f": {told(skipped)}" if skipped else ""
        raise UserError(f"{', '.join(map(str, files))} holds no examples to evaluate on{why}")
    mistakes = sorted(_mistakes(head, examples, found), key=lambda one: -one.confidence)[:worst]
    report = measure(head, examples, found)
    return Evaluation(
        head=head,
        report=report,
        examples=examples,
        answers=found,
        mistakes=mistakes,
        skipped=skipped,
        cut=cut_remark(reader),
    )


def _named(part: DataPart, head: Head) -> DataPart:
    """The columns of several numbers in the order of the model's, however they were named."""
    if head.task != "regress" or len(head.labels) == 1:
        return part
    ours = not part.label and not any(label.startswith("number ") for label in head.labels)
    return replace(part, label=head.labels) if ours or set(part.columns.label) == set(head.labels) else part


def has_confusion(predictor: Predictor) -> bool:
    """Whether the model takes one thing for another, of a few."""
    head = predictor.head
    return head is not None and (head.task == "classify" or (head.task == "tag" and scheme(head.labels) == "plain"))


def lines(result: Evaluation) -> list[str]:
    """The evaluation for people."""
    said = ["1 example" if len(result.examples) == 1 else f"{len(result.examples):,} examples"]
    if result.skipped:
        said.append(f"skipped {told(result.skipped)}")
    if result.cut:
        said.append(result.cut)
    return said + figures(result)


def figures(result: Evaluation) -> list[str]:
    """The scores, the classes, the confusions and the mistakes, each after an empty line."""
    scores = result.report.scores
    width = max(map(len, scores))
    said = ["", *(f"{name.replace('_', ' '):<{width}}  {_form(name, value)}" for name, value in scores.items())]
    if isinstance(result.report, Numbers) and len(result.report.targets) > 1:
        said += ["", *_table([["", *scores], *_targets(result.report)])]
    if result.report.classes:
        rows = [
            [one.label, *(f"{share:.1%}" for share in (one.precision, one.recall, one.f1)), f"{one.count:,}"]
            for one in result.report.classes
        ]
        said += ["", *_table([["", "precision", "recall", "F1", "count"], *rows])]
    matrix = result.report.confusion
    if matrix is not None and len(matrix) <= MOST_COLUMNS:
        rows = [[label, *map(str, row)] for label, row in zip(result.head.labels, matrix.tolist(), strict=True)]
        said += ["", "truth (down) taken for (across):", *_table([["", *result.head.labels], *rows])]
    if result.mistakes:
        said += ["", "worst mistakes:"]
        unit = "off by {:,.4g}" if result.head.task == "regress" else "{:.1%} sure"
        for one in result.mistakes:
            said.append(f"  {unit.format(one.confidence)}: {one.answer}, but it is {one.truth}  ({one.where})")
            said += [f"      {one.text}"] if one.text else []
    return said


def as_json(result: Evaluation) -> dict[str, Any]:
    """The evaluation for programs."""
    matrix = result.report.confusion
    return {
        "examples": len(result.examples),
        "skipped": len(result.skipped),
        "scores": result.report.scores,
        **({"targets": result.report.targets} if isinstance(result.report, Numbers) else {}),
        "classes": [one._asdict() for one in result.report.classes],
        "labels": list(result.head.labels),
        "confusion": None if matrix is None else matrix.tolist(),
        "worst": [one._asdict() for one in result.mistakes],
    }


def write_predictions(result: Evaluation, path: Path) -> None:
    """One JSON object an example: where it stands, the truth, and what the model said."""
    rows = (
        {
            "where": example.where,
            "truth": _truth(result.head, example),
            **as_table(answer, result.head.task, every=True),
        }
        for example, answer in zip(result.examples, result.answers, strict=True)
    )
    write_file(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def _mistakes(head: Head, examples: Sequence[Any], found: Sequence[Any]) -> list[Mistake]:
    mistakes = []
    for example, answer in zip(examples, found, strict=True):
        match head.task:
            case "classify":
                if answer.label != example.target:
                    mistakes.append(_mistake(example, example.target, answer.label, answer.probability))
            case "multilabel":
                wrong = set(answer.labels) ^ set(example.target)
                if wrong:
                    sure = max(abs(answer.probabilities[label] - (label in example.target)) for label in wrong)
                    given, truth = (", ".join(sorted(one)) or "none" for one in (answer.labels, example.target))
                    mistakes.append(_mistake(example, truth, given, sure))
            case "regress":
                numbers = np.array(list(answer.values()))
                off = float(np.abs(numbers - example.target).max())
                given, truth = (", ".join(f"{n:,.6g}" for n in one) for one in (numbers, example.target))
                mistakes.append(_mistake(example, truth, given, off))
            case "tag":
                triples = zip(example.tags, answer.tags, answer.probabilities, strict=True)
                wrong = [(sure, n, one, two) for n, (one, two, sure) in enumerate(triples) if one != two]
                if wrong:
                    sure, place, truth, given = max(wrong)
                    mistakes.append(_mistake(example, f"{truth} at {example.words[place]!r}", given, sure))
            case _:
                golds = [one.text for one in example.answers or ()]
                if f1(golds, answer[0].text) == 0:
                    truth = repr(golds[0]) if golds else "no answer"
                    given = repr(answer[0].text) if answer[0].text else "no answer"
                    mistakes.append(_mistake(example, truth, given, answer[0].probability))
    return mistakes


def _mistake(example: Any, truth: str, answer: str, confidence: float) -> Mistake:
    if hasattr(example, "question"):
        text = example.question
    elif hasattr(example, "words"):
        text = " ".join(example.words)
    else:
        text = example.text if example.pair is None else f"{example.text} | {example.pair}"
    return Mistake(example.where, shortened(" ".join(text.split()), SHOWN), truth, answer, confidence)


def _truth(head: Head, example: Any) -> Any:
    if head.task == "tag":
        return list(example.tags)
    if head.task == "answer":
        return [one.text for one in example.answers or ()]
    if head.task == "regress":
        return dict(zip(head.labels, example.target, strict=True))
    return list(example.target) if head.task == "multilabel" else example.target


def _targets(report: Numbers) -> list[list[str]]:
    return [[name, *(_form(score, one[score]) for score in report.scores)] for name, one in report.targets.items()]


def _form(name: str, value: float) -> str:
    if name.endswith("count"):
        return f"{value:,.0f}"
    return f"{value:.4f}" if name in ("matthews", "pearson", "spearman", "r2", "rmse", "mae") else f"{value:.2%}"


def _table(rows: list[list[str]]) -> list[str]:
    """Columns under each other: names to the left, numbers to the right."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            _fill(cell, width, left=place == 0) for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _fill(cell: str, width: int, *, left: bool) -> str:
    """A cell as wide as its column, as a terminal counts: a letter of Hangul is as wide as two others."""
    gap = " " * (width - cell_len(cell))
    return cell + gap if left else gap + cell
