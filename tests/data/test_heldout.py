from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.heldout import apart, held_out


def test_a_document_is_always_on_the_same_side():
    documents = [[f"sentence {number}", "and another"] for number in range(2000)]
    small, large = ([held_out(one, share) for one in documents] for share in (0.1, 0.3))
    assert 150 < sum(small) < 250
    assert 550 < sum(large) < 650
    assert all(more for less, more in zip(small, large, strict=True) if less)


@given(st.lists(st.integers(0, 30).map(str), max_size=60), st.floats(0.01, 0.99))
def test_nothing_that_is_left_would_come_nearer_to_the_share(contents: list[str], share: float):
    items = list(enumerate(contents))
    kept, held = apart(items, contents, share)
    assert sorted(kept + held) == items
    assert kept == sorted(kept)
    assert held == sorted(held)
    left, out = Counter(content for _, content in kept), Counter(content for _, content in held)
    assert not left.keys() & out.keys()
    wanted = share * len(items)
    if wanted < 0.5 or len({*contents}) < 2:
        assert not held
        return
    assert held
    assert kept
    missed = abs(len(held) - wanted)
    if len(left) > 1:
        assert all(abs(len(held) + more - wanted) >= missed for more in left.values())


@pytest.mark.parametrize("seed", range(20))
def test_a_text_that_is_most_of_all_is_not_held_out(seed: int):
    contents = [f"often {seed}"] * 90 + [f"once {seed} {number}" for number in range(10)]
    _, held = apart(contents, contents, 0.1)
    assert held == contents[90:]


def test_the_order_does_not_matter_and_more_items_move_few():
    some, more = ([f"text {number}" for number in range(count)] for count in (1000, 1100))
    _, held = apart(some, some, 0.1)
    assert len(held) == 100
    assert set(apart(some[::-1], some[::-1], 0.1)[1]) == set(held)
    _, later = apart(more, more, 0.1)
    assert len(later) == 110
    assert len(set(held) - set(later)) < 10


@pytest.mark.parametrize(
    ("count", "share", "held"), [(4, 0.1, 0), (5, 0.1, 1), (120, 0.1, 12), (3, 0.9, 2), (1, 0.9, 0)]
)
def test_few(count: int, share: float, held: int):
    items = [str(number) for number in range(count)]
    assert [len(side) for side in apart(items, items, share)] == [count - held, held]
