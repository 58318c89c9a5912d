import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import UserError
from heedful.train.loop import Plan
from heedful.train.schedule import SCHEDULES, between, cosine, inverse_root, linear, seconds, trapezoid

shares = st.floats(0, 1)


@pytest.mark.parametrize(
    ("progress", "warmup", "expected"),
    [
        (0.0, 0.2, 0.0),
        (0.05, 0.2, 0.25),
        (0.2, 0.2, 1.0),
        (0.6, 0.2, 0.5),
        (1.0, 0.2, 0.0),
        (1.5, 0.2, 0.0),
        (0.0, 0.0, 1.0),
        (0.25, 0.0, 0.75),
        (0.25, 1.0, 0.25),
        (1.0, 1.0, 1.0),
    ],
)
def test_up_in_a_straight_line_then_down(progress: float, warmup: float, expected: float):
    assert linear(progress, warmup) == pytest.approx(expected)


@given(shares, shares)
def test_the_rate_is_a_share(progress: float, warmup: float):
    assert 0.0 <= linear(progress, warmup) <= 1.0


@given(shares, shares, st.floats(0, 0.99))
def test_the_rate_never_falls_before_the_peak_nor_rises_after_it(one: float, other: float, warmup: float):
    early, late = sorted((one, other))
    if late < warmup:
        assert linear(early, warmup) <= linear(late, warmup)
    elif early >= warmup:
        assert linear(early, warmup) >= linear(late, warmup)


@pytest.mark.parametrize(
    ("progress", "warmup", "expected"),
    [
        (0.0, 0.2, 0.0),
        (0.05, 0.2, 0.25),
        (0.2, 0.2, 1.0),
        (0.8, 0.2, 0.5),
        (1.0, 0.04, 0.2),
        (0.0, 0.0, 1.0),
        (1, 1, 1),
    ],
)
def test_up_in_a_straight_line_then_down_with_the_root(progress: float, warmup: float, expected: float):
    assert inverse_root(progress, warmup) == pytest.approx(expected)


@given(st.integers(1, 100_000), st.integers(1, 20_000), st.sampled_from([128, 512, 1024]))
def test_the_root_is_the_papers_formula_up_to_its_peak(step: int, warmup: int, dim: int):
    """Vaswani et al. 2017, equation 3; their peak is the rate at the end of the warm-up."""
    paper = dim**-0.5 * min(step**-0.5, step * warmup**-1.5)
    peak = dim**-0.5 * warmup**-0.5
    steps = 100_000
    assert peak * inverse_root(step / steps, warmup / steps) == pytest.approx(paper)


@given(shares, shares)
def test_the_root_is_a_share_and_never_nothing_after_the_warm_up(progress: float, warmup: float):
    share = inverse_root(progress, warmup)
    assert 0.0 <= share <= 1.0
    assert share > 0.0 or progress < warmup or warmup == 0.0


@pytest.mark.parametrize(
    ("progress", "warmup", "expected"),
    [
        (0.0, 0.2, 0.0),
        (0.05, 0.2, 0.25),
        (0.2, 0.2, 1.0),
        (0.6, 0.2, 0.5),
        (0.2 + 0.8 / 3, 0.2, 0.75),  # half of 1 + cos 60°
        (1.0, 0.2, 0.0),
        (1.5, 0.2, 0.0),
        (0.0, 0.0, 1.0),
        (0.5, 0.0, 0.5),
        (0.25, 1.0, 0.25),
        (1.0, 1.0, 1.0),
    ],
)
def test_up_in_a_straight_line_then_down_along_a_wave(progress: float, warmup: float, expected: float):
    assert cosine(progress, warmup) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("progress", "warmup", "decay", "expected"),
    [
        (0.0, 0.2, 0.4, 0.0),
        (0.05, 0.2, 0.4, 0.25),
        (0.2, 0.2, 0.4, 1.0),
        (0.6, 0.2, 0.4, 1.0),
        (0.7, 0.2, 0.4, 0.75),
        (1.0, 0.2, 0.4, 0.0),
        (1.5, 0.2, 0.4, 0.0),
        (0.0, 0.0, 0.5, 1.0),
        (0.75, 0.0, 0.5, 0.5),
        (0.5, 0.8, 0.8, 0.625),  # they cross in the middle
        (0.25, 0.5, 1.0, 0.5),
        (1.0, 0.5, 0.0, 1.0),
    ],
)
def test_up_flat_and_down(progress: float, warmup: float, decay: float, expected: float):
    assert trapezoid(progress, warmup, decay) == pytest.approx(expected)


@given(shares, st.floats(0, 0.9))
def test_a_trapezoid_without_a_top_is_the_triangle(progress: float, warmup: float):
    assert trapezoid(progress, warmup, 1 - warmup) == pytest.approx(linear(progress, warmup))


@given(shares, shares, st.floats(0, 0.9), st.floats(0.01, 1))
def test_what_falls_falls_to_nothing_and_never_leaves_its_range(
    one: float, other: float, warmup: float, decay: float
):
    early, late = sorted((one, other))
    for name in ("linear", "cosine", "trapezoid"):
        schedule = SCHEDULES[name]
        assert schedule(1.0, warmup, decay) == 0.0
        assert 0.0 <= schedule(early, warmup, decay) <= 1.0
        if early >= warmup:
            assert schedule(early, warmup, decay) >= schedule(late, warmup, decay)


def test_between_two_numbers():
    assert [between(share, 0.3, 0.15) for share in (0.0, 0.2, 1.0, 7.0)] == pytest.approx([0.3, 0.27, 0.15, 0.15])
    assert between(0.5, 0.15, 0.25) == pytest.approx(0.2)


def test_a_plan_follows_the_schedule_that_it_names():
    """The rate of a step is that of its middle."""
    rates = {}
    for name in SCHEDULES:
        plan = Plan(
            steps=10,
            budget=None,
            lr=2.0,
            warmup=0.25,
            accumulation=1,
            clip=1.0,
            seed=0,
            evaluations=1,
            checkpoint_steps=1,
            checkpoint_seconds=None,
            schedule=name,
            decay=0.1,
        )
        rates[name] = [plan.rate(step, 0.0) for step in (0, 1, 4, 9)]
    assert rates["linear"] == pytest.approx([0.4, 1.2, 2 * 0.55 / 0.75, 2 * 0.05 / 0.75])
    wave = [2 * (0.5 + 0.5 * math.cos(math.pi * share / 0.75)) for share in (0.2, 0.7)]
    assert rates["cosine"] == pytest.approx([0.4, 1.2, *wave])
    assert rates["trapezoid"] == pytest.approx([0.4, 1.2, 2.0, 1.0])
    assert rates["inverse-root"] == pytest.approx([0.4, 1.2, 2 * (0.25 / 0.45) ** 0.5, 2 * (0.25 / 0.95) ** 0.5])


@pytest.mark.parametrize(
    ("written", "expected"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), (" 2h3m5s ", 7385), ("1.5m", 90), ("0h7s", 7), ("0.25s", 0.25)],
)
def test_a_duration_is_read_as_people_write_it(written: str, expected: float):
    assert seconds(written) == expected


@given(st.integers(0, 99), st.integers(0, 999), st.integers(1, 999))
def test_the_parts_of_a_duration_add_up(hours: int, minutes: int, rest: int):
    assert seconds(f"{hours}h{minutes}m{rest}s") == 3600 * hours + 60 * minutes + rest


@pytest.mark.parametrize("written", ["", "10", "m", "5x", "30m1h", "-5m", "1 h", "1h 30m", "soon", "1e3s"])
def test_what_is_no_duration_is_a_users_mistake(written: str):
    with pytest.raises(UserError, match="is not a duration; write it like 90s, 10m or 1h30m"):
        seconds(written)


@pytest.mark.parametrize("written", ["0s", "0h0m", "0.0m"])
def test_no_time_at_all_is_a_users_mistake(written: str):
    with pytest.raises(UserError, match="no time at all"):
        seconds(written)
