import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batch import InputBatch, collate
from heedful.data.inputs import Input


def an_input(ids: list[int], second: int | None = None) -> Input:
    return Input(np.array(ids, np.int32), len(ids) if second is None else second)


def parts(batch: InputBatch, name: str) -> list[list[int]]:
    """A field of the batch, sequence by sequence."""
    return [part.tolist() for part in np.split(getattr(batch, name), batch.offsets[1:-1])]


def test_three_inputs_by_hand():
    batch = collate([an_input([2, 7, 3, 11, 3], 3), an_input([2, 3]), an_input([2, 5, 3, 3], 3)])
    assert batch.ids.tolist() == [2, 7, 3, 11, 3, 2, 3, 2, 5, 3, 3]
    assert batch.segments.tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1]
    assert batch.offsets.tolist() == [0, 5, 7, 11]
    assert batch.longest == 5


def test_the_kinds_of_numbers_are_those_that_torch_wants():
    batch = collate([an_input([2, 7, 3])])
    assert (batch.ids.dtype, batch.segments.dtype, batch.offsets.dtype) == (np.int64, np.int64, np.int32)
    assert type(batch.longest) is int


@pytest.mark.parametrize(("second", "expected"), [(0, [1, 1, 1]), (1, [0, 1, 1]), (3, [0, 0, 0])])
def test_the_second_segment_begins_where_it_says(second: int, expected: list[int]):
    before = an_input([2, 3])
    assert parts(collate([before, an_input([2, 7, 3], second)]), "segments") == [[0, 0], expected]


@given(
    st.lists(
        st.lists(st.integers(0, 30521), min_size=1, max_size=13).flatmap(
            lambda ids: st.integers(0, len(ids)).map(lambda second: (ids, second))
        ),
        min_size=1,
        max_size=7,
    )
)
def test_any_inputs_come_apart_again(given_inputs: list[tuple[list[int], int]]):
    batch = collate([an_input(ids, second) for ids, second in given_inputs])
    assert parts(batch, "ids") == [ids for ids, _ in given_inputs]
    assert [row.count(0) for row in parts(batch, "segments")] == [second for _, second in given_inputs]
    assert all(row == sorted(row) for row in parts(batch, "segments"))
    assert batch.longest == max(len(ids) for ids, _ in given_inputs)
    assert batch.offsets[-1] == len(batch.ids)
