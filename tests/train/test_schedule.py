import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import UserError
from heedful.train.schedule import linear, seconds

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
