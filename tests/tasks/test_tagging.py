import math

import pytest
import torch

from heedful.tasks.tagging import NOT_READ, tag_term

THREE = math.log(3)
SCORES = torch.tensor([[0.0, 9.0], [THREE, 0.0], [THREE, 0.0], [0.0, 9.0], [0.0, THREE], [9.0, 0.0]])
TAGS = torch.tensor([NOT_READ, 0, 1, NOT_READ, 1, NOT_READ])


def test_only_first_pieces_count():
    term = tag_term(SCORES, TAGS, 3)
    assert term.loss.item() == pytest.approx(2 * math.log(4 / 3) + math.log(4))
    assert (term.correct.item(), term.count) == (2, 3)


def test_tags_may_weigh_differently():
    term = tag_term(SCORES, TAGS, 3, torch.tensor([0.5, 7.0]))
    assert term.loss.item() == pytest.approx(0.5 * math.log(4 / 3) + 7 * math.log(4) + 7 * math.log(4 / 3))


def test_what_is_not_read_gets_no_gradient():
    scores = SCORES.clone().requires_grad_()
    tag_term(scores, TAGS, 3).loss.backward()
    assert scores.grad is not None
    assert (scores.grad.abs().sum(1) > 0).tolist() == [False, True, True, False, True, False]


def test_nothing_to_read_is_nothing_and_not_no_number():
    term = tag_term(SCORES, torch.full((6,), NOT_READ), 0)
    assert (term.loss.item(), term.correct.item(), term.count) == (0.0, 0, 0)
