import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as peer

from heedful.errors import UserError
from heedful.metrics.classification import PerClass, many, one_of

LETTERS = ["a", "b", "c", "d", "e"]


def test_one_of_three_by_hand():
    report = one_of(["a", "b", "c"], np.array([0, 0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 2, 2, 2]))
    assert report.confusion is not None
    assert report.confusion.tolist() == [[2, 1, 0], [0, 1, 1], [0, 0, 2]]
    assert report.classes == [
        PerClass("a", 1.0, pytest.approx(2 / 3), pytest.approx(4 / 5), 3),
        PerClass("b", 1 / 2, 1 / 2, 1 / 2, 2),
        PerClass("c", pytest.approx(2 / 3), 1.0, pytest.approx(4 / 5), 2),
    ]
    # Matthews of many labels: (right * n - sum of guessed * actual) over the two spreads
    matthews = (5 * 7 - (2 * 3 + 2 * 2 + 3 * 2)) / math.sqrt((49 - 17) * (49 - 17))
    assert report.scores == pytest.approx({"accuracy": 5 / 7, "macro_f1": 2.1 / 3, "matthews": matthews})


def test_of_two_labels_the_f1_of_the_second():
    scores = one_of(["no", "yes"], np.array([1, 1, 1, 0, 0]), np.array([1, 0, 0, 1, 0])).scores
    assert scores["f1"] == pytest.approx(2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    assert "f1" not in one_of(["no", "yes", "maybe"], np.array([1, 0]), np.array([1, 0])).scores


def test_a_label_that_never_occurs_is_listed_and_has_no_say():
    report = one_of(["a", "b", "c"], np.array([0, 2]), np.array([0, 2]))
    assert report.scores["macro_f1"] == 1.0
    assert report.classes[1] == PerClass("b", 0.0, 0.0, 0.0, 0)
    guessed_once = one_of(["a", "b", "c"], np.array([0, 2]), np.array([0, 1]))
    assert guessed_once.scores["macro_f1"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("truth", "predicted"), [([0, 0], [0, 0]), ([0, 1], [1, 1]), ([1, 1], [0, 1]), ([1], [0])])
def test_matthews_of_one_label_is_zero(truth: list[int], predicted: list[int]):
    assert one_of(["a", "b"], np.array(truth), np.array(predicted)).scores["matthews"] == 0.0


@given(st.data(), st.integers(1, 5))
def test_one_of_as_the_peer(data: st.DataObject, size: int):
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), min_size=1, max_size=23)
    )
    truth, predicted = np.array(pairs).T
    scores, classes, confusion = one_of(LETTERS[:size], truth, predicted)
    wanted = {
        "accuracy": peer.accuracy_score(truth, predicted),
        "macro_f1": peer.f1_score(truth, predicted, average="macro", zero_division=0),
        "matthews": peer.matthews_corrcoef(truth, predicted) if len({*truth, *predicted}) > 1 else 0.0,
    }
    if size == 2:
        wanted["f1"] = peer.f1_score(truth, predicted, zero_division=0)
    assert scores == pytest.approx(wanted)
    assert all(type(score) is float for score in scores.values())
    each = peer.precision_recall_fscore_support(truth, predicted, labels=range(size), zero_division=0)
    assert [c.label for c in classes] == LETTERS[:size]
    np.testing.assert_allclose([c[1:] for c in classes], np.array(each).T)
    if size > 1:  # the peer warns of a single label
        np.testing.assert_array_equal(confusion, peer.confusion_matrix(truth, predicted, labels=range(size)))


def test_many_by_hand():
    truth = np.array([[1, 0, 1], [1, 1, 0], [0, 0, 0], [0, 1, 0]], dtype=bool)
    predicted = np.array([[1, 0, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=bool)
    report = many(["a", "b", "c"], truth, predicted)
    assert report.confusion is None
    assert report.classes == [
        PerClass("a", pytest.approx(2 / 3), 1.0, pytest.approx(4 / 5), 2),
        PerClass("b", 1.0, 1 / 2, pytest.approx(2 / 3), 2),
        PerClass("c", 1 / 2, 1.0, pytest.approx(2 / 3), 1),
    ]
    macro = (4 / 5 + 2 / 3 + 2 / 3) / 3
    wanted = {"micro_f1": 2 * 4 / (6 + 5), "macro_f1": macro, "exact": 2 / 4, "accuracy": 9 / 12}
    assert report.scores == pytest.approx(wanted)


def test_many_counts_every_label_in_the_mean():
    assert many(["a", "b"], np.array([[True, False]]), np.array([[True, False]])).scores["macro_f1"] == 1 / 2


@given(st.data(), st.integers(1, 13), st.integers(2, 5))
def test_many_as_the_peer(data: st.DataObject, n: int, size: int):
    # the peer takes a single column for numbers of labels, so there are two here at least
    truth, predicted = (data.draw(arrays(bool, (n, size))) for _ in range(2))
    scores, classes, _ = many(LETTERS[:size], truth, predicted)
    wanted = {
        "micro_f1": peer.f1_score(truth, predicted, average="micro", zero_division=0),
        "macro_f1": peer.f1_score(truth, predicted, average="macro", zero_division=0),
        "exact": peer.accuracy_score(truth, predicted),
        "accuracy": 1 - peer.hamming_loss(truth, predicted),
    }
    assert scores == pytest.approx(wanted)
    assert all(type(score) is float for score in scores.values())
    each = peer.precision_recall_fscore_support(truth, predicted, zero_division=0)
    np.testing.assert_allclose([c[1:] for c in classes], np.array(each).T)


@given(arrays(bool, (7, 2)))
def test_one_label_of_many_is_a_yes_or_no(pairs: np.ndarray):
    truth, predicted = pairs.T
    alone = many(["yes"], truth[:, None], predicted[:, None])
    assert alone.classes == one_of(["no", "yes"], truth.astype(int), predicted.astype(int)).classes[1:]


def test_lists_are_taken_too():
    assert one_of(["a", "b"], [0, 1], [0, 0]).scores["accuracy"] == 1 / 2  # pyrefly: ignore
    assert many(["a", "b"], [[0, 1]], [[1, 1]]).scores["accuracy"] == 1 / 2  # pyrefly: ignore


def test_what_does_not_fit():
    two, three = np.array([0, 1]), np.array([0, 1, 1])
    with pytest.raises(ValueError, match=r"must have shape \(2,\); got \(2,\) and \(3,\)"):
        one_of(["a", "b"], two, three)
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\); got \(2, 2\) and \(2, 3\)"):
        many(["a", "b", "c"], np.zeros((2, 2), bool), np.zeros((2, 3), bool))
    with pytest.raises(ValueError, match="predicted must hold numbers of 2 labels; got 0 to 2"):
        one_of(["a", "b"], two, np.array([2, 0]))
    with pytest.raises(ValueError, match="truth must hold numbers of 2 labels; got -1 to 0"):
        one_of(["a", "b"], np.array([0, -1]), two)


def test_nothing_to_score():
    with pytest.raises(UserError, match="no examples to score"):
        one_of(["a", "b"], np.array([], dtype=int), np.array([], dtype=int))
    with pytest.raises(UserError, match="no examples to score"):
        many(["a", "b"], np.zeros((0, 2), bool), np.zeros((0, 2), bool))
