"""The sums by hand: one class, several labels, numbers."""

import math

import pytest
import torch

from heedful.tasks.classification import class_term, labels_term, numbers_term

THREE = math.log(3)
SCORES = torch.tensor([[THREE, 0.0, 0.0], [0.0, THREE, 0.0], [0.0, 0.0, THREE], [THREE, 0.0, 0.0]])
"""Shares of 3/5 for one class and of 1/5 for the other two."""
CLASSES = torch.tensor([0, 1, 0, 2])


def test_classes_by_hand():
    term = class_term(SCORES, CLASSES)
    assert term.loss.item() == pytest.approx(2 * math.log(5 / 3) + 2 * math.log(5))
    assert (term.correct.item(), term.count) == (2, 4)


def test_weighted_classes_by_hand():
    term = class_term(SCORES, CLASSES, torch.tensor([1.0, 2.0, 7.0]))
    assert term.loss.item() == pytest.approx(math.log(5 / 3) + 2 * math.log(5 / 3) + math.log(5) + 7 * math.log(5))
    assert (term.correct.item(), term.count) == (2, 4)  # what is right is right, whatever it weighs


def test_labels_by_hand():
    """Probabilities of 3/4 and 1/2; the mean over the labels is taken, so that their number does not matter."""
    scores = torch.tensor([[THREE, 0.0, -THREE], [THREE, -THREE, 0.1]])
    truth = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 1.0]])
    term = labels_term(scores, truth)
    first = math.log(4 / 3) + math.log(2) + math.log(4)
    second = 2 * math.log(4 / 3) + math.log(1 + math.exp(-0.1))
    assert term.loss.item() == pytest.approx((first + second) / 3)
    assert (term.correct.item(), term.count) == (1, 2)  # all labels, or it is not right


def test_a_label_that_is_there_may_weigh_more():
    scores = torch.tensor([[THREE, 0.0], [0.0, -THREE]])
    truth = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    term = labels_term(scores, truth, torch.tensor([5.0, 3.0]))
    there = 5 * math.log(4 / 3) + 5 * math.log(2) + 3 * math.log(4)
    assert term.loss.item() == pytest.approx((there + math.log(2)) / 2)


def test_no_label_at_all_can_be_right():
    term = labels_term(torch.tensor([[-1.0, -2.0], [-1.0, 2.0]]), torch.zeros(2, 2))
    assert term.correct.item() == 1


def test_numbers_by_hand():
    term = numbers_term(
        torch.tensor([[1.0, 5.0], [2.0, 2.0], [0.0, 0.0]]), torch.tensor([[3.0, 5.0], [2.0, -1.0], [0.0, 7.0]])
    )
    assert term.loss.item() == pytest.approx((4 + 9 + 49) / 2)
    assert (term.correct.item(), term.count) == (0, 3)


def test_one_number_is_not_spread_over_the_others():
    """(B, 1) against (B, 1), where a slip would compare every score with every number."""
    term = numbers_term(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[1.0], [2.0], [5.0]]))
    assert term.loss.item() == 4.0


@pytest.mark.parametrize(
    "term",
    [
        lambda scores: class_term(scores, CLASSES),
        lambda scores: labels_term(scores, torch.eye(4)[:, :3]),
        lambda scores: numbers_term(scores, torch.eye(4)[:, :3]),
    ],
    ids=["class", "labels", "numbers"],
)
def test_halves_add_up_to_the_whole_and_gradients_flow(term):
    scores = SCORES.clone().requires_grad_()
    whole = term(scores)
    whole.loss.backward()
    assert scores.grad is not None
    assert (scores.grad.abs().sum(1) > 0).all()
    assert not whole.correct.requires_grad
