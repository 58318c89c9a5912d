"""Exponents and crossings on data whose answer is known."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.growth import Cell, crossing, crossing_table, exponent_table, fit, growth, memory_table, time_table


def cell(side: str, length: int, dim: int = 11, **found: float | str | None) -> Cell:
    empty = Cell(side=side, length=length, dim=dim, heads=1, batch=1, operations=length * dim, steps=1)
    return replace(empty, **found)


@given(st.floats(-3, 3), st.floats(1e-6, 1e6), st.lists(st.integers(1, 10**5), min_size=3, max_size=9, unique=True))
def test_a_power_is_found(exponent: float, factor: float, xs: list[int]):
    found = fit(xs, [factor * x**exponent for x in xs])
    assert found.exponent == pytest.approx(exponent, abs=1e-5)
    assert found.residual == pytest.approx(0, abs=1e-6)
    assert (found.first, found.last) == (min(xs), max(xs))


def test_a_fit_by_hand():
    # logarithms 0, 1, 2 and 0, 1, 5: the line is 2.5 x - 0.5, off by 0.5, -1 and 0.5
    found = fit([1, math.e, math.e**2], [1, math.e, math.e**5])
    assert found.exponent == pytest.approx(2.5)
    assert found.residual == pytest.approx(math.sqrt(1.5 / 3))


@pytest.mark.parametrize(("xs", "ys"), [([1, 2], [1, 2]), ([1, 2, 3], [1, 2])])
def test_too_few_points_are_refused(xs: list[int], ys: list[int]):
    with pytest.raises(ValueError, match="a fit needs 3 points or more"):
        fit(xs, ys)


def test_the_upper_half_decides():
    """Overhead makes small cells equally slow; from 16 on, time is the square of the length."""
    cells = [cell("a", length, forward=max(16.0, length) ** 2) for length in (128, 2, 4, 8, 16, 32, 64)]
    found = growth(cells, "length", "forward", upper=True)
    assert found is not None
    assert (found.exponent, found.first, found.last) == (pytest.approx(2), 16, 128)
    whole = growth(cells, "length", "forward", upper=False)
    assert whole is not None
    assert whole.exponent < 1.5
    assert whole.residual > 0.3


def test_what_was_not_measured_is_left_out():
    cells = [cell("a", length, forward=float(length)) for length in (3, 5)]
    assert growth(cells, "length", "forward", upper=True) is None
    cells += [cell("a", 7, forward=None, skipped="too long"), cell("a", 11, forward=11.0)]
    found = growth(cells, "length", "forward", upper=True)
    assert found is not None
    assert (found.exponent, found.first, found.last) == (pytest.approx(1), 3, 11)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1, 1, 4], [2, 2, 2], 4),  # half at 2, twice at 8: equal in the middle of the logarithms
        ([1, 1, 1], [2, 2, 2], math.inf),
        ([3, 3, 3], [2, 2, 2], 0),
        ([3, 1, 4], [2, 2, 2], 4),  # dearer at first by overhead, which does not count
        ([1, 3, 1], [2, 2, 2], math.inf),
        ([1, 2, 4], [2, 2, 2], 2),  # equal is not dearer
    ],
)
def test_where_ours_becomes_dearer(ours: list[float], theirs: list[float], expected: float):
    assert crossing([1, 2, 8], ours, theirs) == pytest.approx(expected)


def test_tables_by_hand():
    cells = [
        cell("a", 3, forward=0.001234, backward=0.5, kept=2_000_000, peak=None),
        cell("b", 3, skipped="too long"),
        cell("a", 5, forward=2.0, backward=3.0, kept=3_500_000, peak=123_456_789),
        cell("b", 5, forward=9.0, backward=9.0, kept=1, peak=1),
    ]
    assert time_table(cells, 11).splitlines() == [
        "| length | a | b |",
        "|---:|---:|---:|",
        "| 3 | 1.23 + 500 | - |",
        "| 5 | 2,000 + 3,000 | 9,000 + 9,000 |",
    ]
    assert memory_table(cells, 11).splitlines()[2:] == ["| 3 | 2, ? | - |", "| 5 | 3.5, 123 | 1e-06, 1e-06 |"]
    assert crossing_table(cells, "a", ["b"]).splitlines()[2:] == [
        "| 11 | b | never, as measured | never, as measured |"
    ]
    assert crossing_table(cells[:2], "a", ["b"]).splitlines()[2:] == ["| 11 | b | - | - |"]


def test_the_table_of_exponents_names_the_range():
    cells = [cell("a", n, forward=n**2.0, backward=n**3.0, kept=7 * n, peak=n) for n in (2, 4, 8, 16, 32, 64)]
    assert exponent_table(cells).splitlines()[2:] == [
        "| 11 | a | 1.00 (0.00) | 2.00 (0.00) | 3.00 (0.00) | 1.00 (0.00) | 1.00 (0.00) | 16 to 64 |"
    ]
