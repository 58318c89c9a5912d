from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.decode import SearchOptions
from heedful.errors import UserError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam": 0}, "beam 0 must be at least 1; 1 is greedy search"),
        ({"n_best": 0}, "n_best 0 must be at least 1"),
        ({"n_best": 0, "sample": True}, "n_best 0 must be at least 1"),
        ({"n_best": 7}, "n_best 7 is more than the 5 beams; use a beam of 7"),
        ({"penalty": "length"}, "penalty 'length' is not known; choose from average, gnmt, none"),
        ({"length_penalty": float("nan")}, "length_penalty nan must be a finite number"),
        ({"coverage_penalty": float("nan")}, "coverage_penalty nan must be a finite number"),
        ({"max_ratio": float("inf")}, "max_ratio inf must be a finite number"),
        ({"min_ratio": float("nan")}, "min_ratio nan must be a finite number"),
        ({"temperature": float("inf")}, "temperature inf must be a finite number"),
        ({"top_p": float("nan")}, "top_p nan must be a finite number"),
        ({"length_penalty": 10.5}, "length_penalty 10.5 must be between -10 and 10; 1 is usual"),
        ({"length_penalty": -11.0}, "length_penalty -11.0 must be between -10 and 10; 1 is usual"),
        ({"coverage_penalty": -0.5}, "coverage_penalty -0.5 must not be negative"),
        ({"min_length": -1}, "min_length -1 must not be negative"),
        ({"min_ratio": -0.1}, "min_ratio -0.1 must not be negative"),
        ({"block_ngrams": -3}, "block_ngrams -3 must not be negative"),
        ({"top_k": -1}, "top_k -1 must not be negative"),
        ({"max_ratio": 0.0}, "max_ratio 0.0 must be above 0"),
        ({"max_ratio": 1e308}, "max_ratio 1e+308 must be at most 1000"),
        ({"coverage_penalty": 11.0}, "coverage_penalty 11.0 must be at most 10"),
        ({"temperature": 0.5}, "temperature is for draws; ask for those too (--sample), or leave it out"),
        ({"top_k": 3}, "top_k is for draws; ask for those too (--sample), or leave it out"),
        ({"top_p": 0.5}, "top_p is for draws; ask for those too (--sample), or leave it out"),
        (
            {"beam": 7, "sample": True},
            "beam is for beam search, which draws do without; leave it out, or --sample",
        ),
        (
            {"coverage_penalty": 5.0, "sample": True},
            "coverage_penalty is for beam search, which draws do without; leave it out, or --sample",
        ),
        (
            {"early": True, "sample": True},
            "early is for beam search, which draws do without; leave it out, or --sample",
        ),
        ({"max_length": 0}, "max_length 0 must be at least 1"),
        ({"min_length": 11, "max_length": 7}, "min_length 11 is more than max_length 7"),
        ({"min_ratio": 2.0, "max_ratio": 1.5}, "min_ratio 2.0 is more than max_ratio 1.5"),
        ({"repetition_penalty": 0.9}, "repetition_penalty 0.9 must be at least 1, which is none"),
        ({"temperature": 0.0}, "temperature 0.0 must be at least 0.001; top_k 1 always takes the most probable"),
        ({"top_p": 0.0}, "top_p 0.0 must be above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p 1.1 must be above 0 and at most 1"),
        ({"seed": -1}, "seed -1 must lie between 0 and 2^63"),
        ({"seed": 2**63}, "seed 9223372036854775808 must lie between 0 and 2^63"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(changes: dict[str, Any], message: str):
    with pytest.raises(UserError) as caught:
        SearchOptions(**changes)
    assert str(caught.value) == message


def test_draws_may_be_more_than_beams():
    assert SearchOptions(n_best=7, sample=True).width == 7
    assert SearchOptions(beam=3, n_best=2).width == 3


@pytest.mark.parametrize(
    ("changes", "source", "most", "limits"),
    [
        ({}, 7, 1000, (0, 31)),  # three times the source, and ten
        ({}, 7, 23, (0, 23)),
        ({"max_length": 5}, 7, 23, (0, 5)),
        ({"max_ratio": 0.5}, 7, 1000, (0, 14)),  # 3.5 is rounded to the even 4
        ({"min_length": 3}, 7, 1000, (3, 31)),
        ({"min_ratio": 0.6}, 7, 1000, (4, 31)),
        ({"min_ratio": 0.6, "min_length": 5}, 7, 1000, (5, 31)),
        ({"min_length": 50}, 7, 1000, (31, 31)),  # what is too long gives way to what is possible
    ],
)
def test_limits_by_hand(changes: dict[str, Any], source: int, most: int, limits: tuple[int, int]):
    assert SearchOptions(**changes).limits(source, most) == limits


@given(
    st.integers(1, 500),
    st.integers(1, 500),
    st.integers(0, 99),
    st.integers(99, 200),
    st.floats(0, 2),
    st.floats(2, 5),
)
def test_there_is_always_room(source: int, most: int, fewest: int, longest: int, least: float, largest: float):
    options = SearchOptions(min_length=fewest, max_length=longest, min_ratio=least, max_ratio=largest)
    lower, upper = options.limits(source, most)
    assert 0 <= lower <= upper <= most
    assert upper >= 1
