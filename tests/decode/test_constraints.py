import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from heedful.decode.constraints import NEVER, block_ngrams, most_probable, only, penalise_repetition

B, K, V = 2, 3, 7


def log_probs(seed: int = 0) -> torch.Tensor:
    return torch.randn(B, K, V, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)


def test_what_was_written_is_less_probable_once_however_often():
    before = torch.tensor([[[-1.0, -2.0, -3.0, -0.5]]])
    after = penalise_repetition(before, torch.tensor([[[2, 0, 2]]]), 1.5)
    assert after.tolist() == [[[-1.5, -2.0, -4.5, -0.5]]]
    assert before.tolist() == [[[-1.0, -2.0, -3.0, -0.5]]]


def test_each_beam_is_penalised_for_its_own():
    written = torch.arange(B * K)[:, None].view(B, K, 1)
    before = log_probs()
    after = penalise_repetition(before, written, 2.0)
    changed = (after != before).nonzero().tolist()
    assert changed == [[row // K, row % K, row] for row in range(B * K)]


@pytest.mark.parametrize(
    ("written", "size", "banned"),
    [
        ([2, 3, 2], 2, {3}),
        ([2, 3, 2, 4, 2], 2, {3, 4}),
        ([2, 3, 2], 1, {2, 3}),
        ([2, 3, 4, 2, 3], 3, {4}),
        ([2, 3, 4, 2, 5], 3, set()),
        ([2, 2], 2, {2}),
        ([2], 2, set()),
        ([], 1, set()),
        ([2, 3], 3, set()),
    ],
)
def test_ngrams_by_hand(written: list[int], size: int, banned: set[int]):
    table = torch.tensor(written, dtype=torch.long).expand(1, 1, -1)
    after = block_ngrams(torch.zeros(1, 1, V), table, size)
    assert {token for token in range(V) if after[0, 0, token] == NEVER} == banned


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, V - 1), min_size=11, max_size=11), min_size=6, max_size=6), st.integers(1, 4))
def test_a_token_is_blocked_if_it_would_repeat_a_run(rows: list[list[int]], size: int):
    before = log_probs()
    after = block_ngrams(before, torch.tensor(rows).view(B, K, -1), size)
    for number, row in enumerate(rows):
        runs = {tuple(row[start : start + size]) for start in range(len(row) - size + 1)}
        for token in range(V):
            value = after[number // K, number % K, token]
            repeats = tuple([*row, token][-size:]) in runs
            assert value == (NEVER if repeats else before[number // K, number % K, token])


def test_only_one_token_for_each_sentence():
    before = log_probs()
    after = only(before, torch.tensor([5, 2]))
    assert_close(after[0, :, 5], before[0, :, 5])
    assert_close(after[1, :, 2], before[1, :, 2])
    assert (after > NEVER).sum() == B * K


PROBABILITIES = [0.3, 0.05, 0.4, 0.15, 0.1]


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [
        (0, 1.0, {0, 1, 2, 3, 4}),
        (1, 1.0, {2}),
        (3, 1.0, {0, 2, 3}),
        (99, 1.0, {0, 1, 2, 3, 4}),
        (0, 0.39, {2}),
        (0, 0.41, {0, 2}),  # the token that reaches the share counts
        (0, 0.69, {0, 2}),
        (0, 0.71, {0, 2, 3}),
        (0, 0.001, {2}),
        (2, 0.56, {2}),  # of the two that are left, the first has .4 / .7
        (2, 0.58, {0, 2}),
    ],
)
def test_the_most_probable_by_hand(top_k: int, top_p: float, kept: set[int]):
    before = torch.tensor(PROBABILITIES).log().expand(1, 1, -1)
    after = most_probable(before, top_k, top_p)
    assert {token for token in range(5) if after[0, 0, token] > -math.inf} == kept
    assert_close(after[0, 0, sorted(kept)], before[0, 0, sorted(kept)])
