"""How well numbers were predicted.

Knows nothing of units: errors are in whatever unit the numbers have, so the mean error of targets of different size
is mostly that of the largest. Correlations and r2 have no unit.

Shapes: n examples, K targets.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heedful.errors import UserError
from heedful.metrics.classification import PerClass


class Numbers(NamedTuple):
    """A report like that of labels, without labels: the mean scores, and each target's own by its name."""

    scores: dict[str, float]
    classes: list[PerClass]
    confusion: None
    targets: dict[str, dict[str, float]]


def numbers(names: Sequence[str], truth: np.ndarray, predicted: np.ndarray) -> Numbers:
    """Score (n, K) numbers: `pearson`, `spearman`, `rmse`, `mae`, `r2`, each target's and their mean over targets."""
    truth, predicted = np.asarray(truth, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    shape = (len(truth), len(names))
    if truth.shape != shape or predicted.shape != shape:
        raise ValueError(f"truth and predicted must have shape {shape}; got {truth.shape} and {predicted.shape}")
    if not truth.size:
        raise UserError("there are no numbers to score; give at least one")
    for what, values, way_out in (
        ("the truth", truth, "mend the file"),
        ("the predictions", predicted, "training diverged, try a lower learning rate"),
    ):
        if not np.isfinite(values).all():
            raise UserError(f"{what} of {len(truth)} examples hold nan or inf, not numbers alone; {way_out}")
    targets = {name: _target(truth[:, k], predicted[:, k]) for k, name in enumerate(names)}
    columns = list(targets.values())
    scores = {score: sum(column[score] for column in columns) / len(columns) for score in columns[0]}
    return Numbers(scores, [], None, targets)


def _target(truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    from scipy.stats import rankdata  # scikit-learn stands on scipy
    from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

    return {
        "pearson": _correlation(truth, predicted),
        "spearman": _correlation(rankdata(truth), rankdata(predicted)),
        "rmse": float(root_mean_squared_error(truth, predicted)),
        "mae": float(mean_absolute_error(truth, predicted)),
        # one example has no variance to explain: scikit-learn warns and gives nan
        "r2": float(r2_score(truth, predicted)) if len(truth) > 1 else 0.0,
    }


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's; 0 where a side is constant, for what never moves goes along with nothing."""
    # asked of the values themselves: less its rounded mean, a constant column is noise and not zeros
    if a.min() == a.max() or b.min() == b.max():
        return 0.0
    a, b = _centred(a), _centred(b)
    return float(np.clip(a @ b / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def _centred(values: np.ndarray) -> np.ndarray:
    """Less the mean, and scaled so that squares of tiny or huge numbers stay in range."""
    values = values - values.mean()
    return values / np.abs(values).max()
