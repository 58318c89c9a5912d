from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.flaws import Flaw
from heedful.predict.reading import Pace, answers


class Squares:
    """Reads numbers; can't read negative ones. Remembers how many it was given at a time."""

    def __init__(self) -> None:
        self.prepared: list[int] = []
        self.answered: list[int] = []

    def prepare(self, examples: Sequence[int]) -> list[str | Flaw]:
        self.prepared.append(len(examples))
        return [Flaw(str(one), "negative") if one < 0 else f"{one}" for one in examples]

    def answer(self, prepared: Sequence[str]) -> list[int]:
        self.answered.append(len(prepared))
        return [int(one) ** 2 for one in prepared]


@given(
    items=st.lists(st.one_of(st.integers(-5, 20), st.builds(Flaw, st.text(max_size=2), st.just("broken")))),
    chunk=st.integers(1, 7),
)
def test_every_item_has_its_answer_or_its_flaw_in_its_place(items: list[int | Flaw], chunk: int):
    expected = [
        item if isinstance(item, Flaw) else Flaw(str(item), "negative") if item < 0 else (item, item * item)
        for item in items
    ]
    assert list(answers(Squares(), items, Pace(chunk))) == expected


def test_no_more_is_read_than_a_chunk_ahead():
    taken = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            taken.append(number)
            yield number
            number += 1

    reader = Squares()
    found = answers(reader, endless(), Pace(3))
    assert not taken
    assert next(found) == (0, 0)
    assert taken == [0, 1, 2]
    assert [next(found) for _ in range(2)] == [(1, 1), (2, 4)]
    assert taken == [0, 1, 2]
    assert next(found) == (3, 9)
    assert taken == [0, 1, 2, 3, 4, 5]
    assert reader.prepared == reader.answered == [3, 3]


def test_what_can_not_be_read_is_not_asked_about():
    reader = Squares()
    items = [2, -1, Flaw("row 3", "broken"), 5]
    assert list(answers(reader, items, Pace(10))) == [
        (2, 4),
        Flaw("-1", "negative"),
        Flaw("row 3", "broken"),
        (5, 25),
    ]
    assert (reader.prepared, reader.answered) == ([3], [2])


@pytest.mark.parametrize("items", [[], [Flaw("a", "b")], [-1]])
def test_nothing_to_answer(items: list[int | Flaw]):
    assert [isinstance(one, Flaw) for one in answers(Squares(), items, Pace(2))] == [True] * len(items)
