import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from sklearn import metrics as peer

from heedful.errors import UserError
from heedful.metrics.regression import numbers

UP = np.array([1.0, 2.0, 3.0, 4.0])
MIXED = np.array([1.0, 3.0, 2.0, 6.0])


def column(values: np.ndarray) -> np.ndarray:
    return values[:, None]


def test_one_target_by_hand():
    report = numbers(["score"], column(UP), column(MIXED))
    # deviations -1.5 -0.5 0.5 1.5 and -2 0 -1 3: product 7, squares 5 and 14; ranks 1 2 3 4 and 1 3 2 4
    wanted = {
        "pearson": 7 / np.sqrt(5 * 14),
        "spearman": 1 - 6 * 2 / (4 * 15),
        "rmse": np.sqrt(6 / 4),
        "mae": 1.0,
        "r2": 1 - 6 / 5,
    }
    assert report.scores == pytest.approx(wanted)
    assert report.targets == {"score": report.scores}
    assert report.classes == []
    assert report.confusion is None


def test_several_targets_and_their_mean():
    both = numbers(["first", "second"], np.stack([UP, UP], 1), np.stack([MIXED, -UP], 1))
    assert both.targets["first"] == numbers(["first"], column(UP), column(MIXED)).scores
    assert both.targets["second"]["pearson"] == pytest.approx(-1)
    assert both.targets["second"]["mae"] == 5.0
    assert both.scores["mae"] == 3.0
    assert both.scores.keys() == both.targets["first"].keys()
    for name, score in both.scores.items():
        assert score == pytest.approx((both.targets["first"][name] + both.targets["second"][name]) / 2)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e-300, -1e9, 3.3])
def test_what_never_moves_correlates_with_nothing(constant: float):
    still = np.full(7, constant)
    moving = np.arange(7.0)
    for truth, predicted in ((still, moving), (moving, still), (still, still)):
        scores = numbers(["x"], column(truth), column(predicted)).scores
        assert scores["pearson"] == scores["spearman"] == 0.0
        assert all(np.isfinite(score) for score in scores.values())


def test_a_single_example():
    scores = numbers(["x"], np.array([[2.0]]), np.array([[5.0]])).scores
    assert scores == {"pearson": 0.0, "spearman": 0.0, "rmse": 3.0, "mae": 3.0, "r2": 0.0}


@pytest.mark.parametrize("scale", [1e-200, 1e-5, 1e100])
def test_correlation_has_no_unit(scale: float):
    scores = numbers(["x"], column(UP * scale), column(MIXED)).scores
    assert scores["pearson"] == pytest.approx(7 / np.sqrt(5 * 14))
    assert scores["spearman"] == pytest.approx(0.8)


@given(st.data(), st.integers(2, 23))
def test_as_the_peers(data: st.DataObject, n: int):
    # quarters: ties are common, and nothing is nearly constant, of which the peer warns
    quarters = arrays(np.float64, n, elements=st.integers(-40, 40).map(lambda i: i / 4))
    truth, predicted = data.draw(quarters), data.draw(quarters)
    assume(np.ptp(truth) > 0)
    assume(np.ptp(predicted) > 0)
    wanted = {
        "pearson": stats.pearsonr(truth, predicted).statistic,
        "spearman": stats.spearmanr(truth, predicted).statistic,
        "rmse": peer.root_mean_squared_error(truth, predicted),
        "mae": peer.mean_absolute_error(truth, predicted),
        "r2": peer.r2_score(truth, predicted),
    }
    scores = numbers(["x"], column(truth), column(predicted)).scores
    assert scores == pytest.approx(wanted, abs=1e-12)
    assert all(type(score) is float for score in scores.values())


@given(arrays(np.float32, (7, 2), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_correlations_stay_in_bounds(pairs: np.ndarray):
    scores = numbers(["x"], pairs[:, :1], pairs[:, 1:]).scores
    assert -1 <= scores["pearson"] <= 1
    assert -1 <= scores["spearman"] <= 1


def test_rounding_does_not_lead_out_of_bounds():
    truth = np.array([0.0, 0.1, 0.0, 0.3, 1.6])  # unbounded, the correlation with its tenth is 1.0000000000000002
    assert numbers(["x"], column(truth), column(truth * 0.1)).scores["pearson"] == 1.0


def test_what_can_not_be_scored():
    with pytest.raises(ValueError, match=r"must have shape \(4, 1\); got \(4, 1\) and \(4,\)"):
        numbers(["x"], column(UP), UP)
    with pytest.raises(UserError, match="no numbers to score"):
        numbers(["x"], np.zeros((0, 1)), np.zeros((0, 1)))
    with pytest.raises(UserError, match=r"the predictions of 4 examples hold nan or inf.*lower learning rate"):
        numbers(["x"], column(UP), column(np.array([1, 2, np.nan, 4])))
    with pytest.raises(UserError, match=r"the truth of 4 examples hold nan or inf.*mend the file"):
        numbers(["x"], column(np.array([1, 2, np.inf, 4])), column(UP))
