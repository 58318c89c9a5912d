import math

import pytest
import torch

from heedful.nn.layout import Packed
from heedful.tasks.answering import span_term

THREE = math.log(3)
PACKED = Packed.from_offsets(torch.tensor([0, 3, 5], dtype=torch.int32), longest=3, tokens=5)
SCORES = torch.tensor([[0.0, 0.0], [THREE, 0.0], [0.0, THREE], [0.0, THREE], [THREE, 0.0]])
"""Sequences of three and of two tokens: starts at 1 and at 1, ends at 2 and at 0."""


def test_both_ends_by_hand():
    """Of three tokens shares of 3/5, 1/5, 1/5; of two 3/4 and 1/4: the padding has none."""
    term = span_term(SCORES, torch.tensor([[1, 2], [0, 0]]), PACKED)
    assert term.loss.item() == pytest.approx((2 * math.log(5 / 3) + math.log(4) + math.log(4 / 3)) / 2)
    assert (term.correct.item(), term.count) == (1, 2)


def test_one_end_right_is_not_right():
    assert span_term(SCORES, torch.tensor([[1, 1], [1, 1]]), PACKED).correct.item() == 0
    assert span_term(SCORES, torch.tensor([[1, 2], [1, 0]]), PACKED).correct.item() == 2


def test_the_ends_are_not_mixed_up():
    right = span_term(SCORES, torch.tensor([[1, 2], [1, 0]]), PACKED).loss.item()
    assert right == pytest.approx((2 * math.log(5 / 3) + 2 * math.log(4 / 3)) / 2)
    swapped = span_term(SCORES, torch.tensor([[2, 1], [0, 1]]), PACKED).loss.item()
    assert swapped == pytest.approx((2 * math.log(5) + 2 * math.log(4)) / 2)


def test_padding_never_wins():
    """Where all scores are far below nothing, which is what padding would have."""
    term = span_term(SCORES - 50, torch.tensor([[1, 2], [1, 0]]), PACKED)
    assert term.correct.item() == 2
    assert term.loss.item() == pytest.approx((2 * math.log(5 / 3) + 2 * math.log(4 / 3)) / 2, rel=1e-4)


def test_gradients_are_numbers_in_spite_of_the_padding():
    scores = SCORES.clone().requires_grad_()
    span_term(scores, torch.tensor([[1, 2], [0, 0]]), PACKED).loss.backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    # The shares less what is right, by half: each end of each sequence sums to nothing.
    assert scores.grad[0].tolist() == pytest.approx([0.1, 0.1])
    assert scores.grad[1].tolist() == pytest.approx([-0.2, 0.1])
    assert scores.grad[:3].sum().item() == pytest.approx(0.0, abs=1e-6)
