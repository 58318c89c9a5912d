"""How well labels were told apart: one label a text, or any number of them.

Knows nothing of how labels were predicted, nor of thresholds: it is given the choices that were made.

Shapes: n examples, C labels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heedful.errors import UserError


class PerClass(NamedTuple):
    """One label's scores, and how often it is the truth."""

    label: str
    precision: float
    recall: float
    f1: float
    count: int


class Report(NamedTuple):
    """Scores over everything by name, scores by label, and the (C, C) counts of truth (rows) against prediction."""

    scores: dict[str, float]
    classes: list[PerClass]
    confusion: np.ndarray | None


def one_of(labels: Sequence[str], truth: np.ndarray, predicted: np.ndarray) -> Report:
    """Score one label an example: truth and predicted are (n,) numbers of labels.

    `accuracy`, `macro_f1`, `matthews` (0 where only one label occurs), and of two labels the `f1` of the second.
    A label that occurs neither in the truth nor in the predictions has no say in `macro_f1`, as in scikit-learn:
    a small held-out set that lacks a rare label would otherwise look worse than it is.
    """
    truth, predicted = np.asarray(truth), np.asarray(predicted)
    _check(truth, predicted, (len(truth),))
    size = len(labels)
    for name, ids in (("truth", truth), ("predicted", predicted)):
        if ids.min() < 0 or ids.max() >= size:
            raise ValueError(f"{name} must hold numbers of {size} labels; got {ids.min()} to {ids.max()}")
    confusion = np.bincount(
        truth.astype(np.int64) * size + predicted.astype(np.int64), minlength=size * size
    ).reshape(size, size)
    right, guessed, actual = confusion.diagonal(), confusion.sum(0), confusion.sum(1)
    classes = per_class(labels, right, guessed, actual)
    scores = {
        "accuracy": float(right.sum() / len(truth)),
        "macro_f1": mean_f1([c for c, occurs in zip(classes, guessed + actual, strict=True) if occurs]),
        "matthews": _matthews(truth, predicted),
    }
    if size == 2:
        scores["f1"] = classes[1].f1
    return Report(scores, classes, confusion)


def many(labels: Sequence[str], truth: np.ndarray, predicted: np.ndarray) -> Report:
    """Score any number of labels an example: truth and predicted are (n, C), True where a label applies.

    `micro_f1` over all decisions, `macro_f1` over all labels, `exact` the share of examples with every label right,
    `accuracy` the share of single decisions that are right (flattering where labels are rare).
    """
    truth, predicted = np.asarray(truth, dtype=bool), np.asarray(predicted, dtype=bool)
    _check(truth, predicted, (len(truth), len(labels)))
    right, guessed, actual = (truth & predicted).sum(0), predicted.sum(0), truth.sum(0)
    classes = per_class(labels, right, guessed, actual)
    scores = {
        "micro_f1": precision_recall_f1(right.sum(), guessed.sum(), actual.sum())[2],
        "macro_f1": mean_f1(classes),
        "exact": float((truth == predicted).all(1).mean()),
        "accuracy": float((truth == predicted).mean()),
    }
    return Report(scores, classes, None)


def precision_recall_f1(right: float, guessed: float, actual: float) -> tuple[float, float, float]:
    """The three from counts: found and right, found at all, there to be found. Without a divisor, 0."""
    precision = float(right / guessed) if guessed else 0.0
    recall = float(right / actual) if actual else 0.0
    return precision, recall, float(2 * right / (guessed + actual)) if guessed + actual else 0.0


def per_class(
    labels: Sequence[str],
    right: Sequence[int] | np.ndarray,
    guessed: Sequence[int] | np.ndarray,
    actual: Sequence[int] | np.ndarray,
) -> list[PerClass]:
    """The same counts label by label."""
    counts = zip(labels, right, guessed, actual, strict=True)
    return [PerClass(label, *precision_recall_f1(r, g, a), int(a)) for label, r, g, a in counts]


def mean_f1(classes: Sequence[PerClass]) -> float:
    """The plain mean of the labels' F1, 0 where there are none."""
    return sum(c.f1 for c in classes) / len(classes) if classes else 0.0


def _matthews(truth: np.ndarray, predicted: np.ndarray) -> float:
    from sklearn.metrics import matthews_corrcoef

    if (truth == truth[0]).all():
        return 0.0  # nothing to correlate with; scikit-learn says the same, but warns where predictions agree
    return float(matthews_corrcoef(truth, predicted))


def _check(truth: np.ndarray, predicted: np.ndarray, shape: tuple[int, ...]) -> None:
    if truth.shape != shape or predicted.shape != shape:
        raise ValueError(f"truth and predicted must have shape {shape}; got {truth.shape} and {predicted.shape}")
    if not len(truth):
        raise UserError("there are no examples to score; give at least one")
