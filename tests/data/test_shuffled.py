import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batch import LabelledBatch
from heedful.data.inputs import Input
from heedful.data.sampler import START, Position
from heedful.data.shuffled import Shuffled


def numbered(count: int, batch: int, seed: int = 3) -> Shuffled:
    """Input k has the one id k, and the target 100 + k."""
    inputs = [Input(np.array([number], np.int32), 1) for number in range(count)]
    return Shuffled(inputs=inputs, targets=np.arange(count) + 100, batch=batch, seed=seed)


def ids(batches: list[tuple[Position, LabelledBatch]]) -> list[list[int]]:
    return [batch.inputs.ids.tolist() for _, batch in batches]


def take(data: Shuffled, count: int, start: Position = START) -> list[tuple[Position, LabelledBatch]]:
    return list(itertools.islice(data.stream(start), count))


@pytest.mark.parametrize(
    ("count", "batch", "batches"), [(11, 4, 3), (12, 4, 3), (13, 4, 4), (3, 7, 1), (1, 1, 1), (5, 1, 5)]
)
def test_an_epoch_has_every_example_once_in_equal_batches(count: int, batch: int, batches: int):
    data = numbered(count, batch)
    assert data.batches == batches
    epoch = take(data, batches)
    assert sorted(itertools.chain(*ids(epoch))) == list(range(count))
    assert [len(one) for one in ids(epoch)[:-1]] == [batch] * (batches - 1)
    assert len(ids(epoch)[-1]) == count - batch * (batches - 1)


def test_targets_stay_with_their_inputs():
    for _, batch in take(numbered(11, 4), 7):
        assert (batch.targets == batch.inputs.ids + 100).all()


def test_rows_of_targets_stay_rows():
    data = numbered(5, 2)
    table = np.arange(15.0).reshape(5, 3)
    rows = Shuffled(inputs=data.inputs, targets=table, batch=2, seed=3)
    for _, batch in take(rows, 3):
        assert batch.targets.tolist() == table[batch.inputs.ids].tolist()
        assert batch.targets.shape == (len(batch.inputs.offsets) - 1, 3)


def test_a_target_for_every_token_is_packed_as_the_tokens_are():
    lengths = [2, 5, 3, 1, 7]
    inputs = [Input(np.full(length, number, np.int32), length) for number, length in enumerate(lengths)]
    tags = [10 * number + np.arange(length) for number, length in enumerate(lengths)]
    for _, batch in take(Shuffled(inputs=inputs, targets=tags, batch=2, seed=1), 6):
        places = np.concatenate([np.arange(length) for length in np.diff(batch.inputs.offsets)])
        assert batch.targets.tolist() == (10 * batch.inputs.ids + places).tolist()
        assert len(batch.targets) == len(batch.inputs.ids)


def test_every_epoch_and_every_seed_has_its_own_order():
    orders = [
        tuple(itertools.chain(*ids(take(numbered(29, 5, seed), 6, Position(epoch, 0)))))
        for seed in (0, 1, 2)
        for epoch in (0, 1, 2)
    ]
    assert len(set(orders)) == 9
    assert tuple(range(29)) not in orders


def test_the_order_does_not_depend_on_the_size_of_batches():
    whole, parts = take(numbered(13, 13), 2), take(numbered(13, 4), 8)
    assert list(itertools.chain(*ids(whole))) == list(itertools.chain(*ids(parts)))


def test_positions_count_on_through_the_epochs():
    positions = [position for position, _ in take(numbered(7, 3), 7)]
    assert positions == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 1)]


@given(count=st.integers(1, 11), batch=st.integers(1, 5), skipped=st.integers(0, 17), seed=st.integers(0, 2**63 - 1))
def test_from_a_position_it_goes_on_as_if_it_had_never_stopped(count: int, batch: int, skipped: int, seed: int):
    data = numbered(count, batch, seed)
    whole = take(data, skipped + 5)
    start = whole[skipped - 1][0] if skipped else START
    rest = take(data, 5, start)
    assert [position for position, _ in rest] == [position for position, _ in whole[skipped:]]
    assert ids(rest) == ids(whole[skipped:])


@given(count=st.integers(1, 41), batch=st.integers(1, 7), ranks=st.integers(1, 5))
def test_the_ranks_take_turns_across_epochs(count: int, batch: int, ranks: int):
    data = numbered(count, batch)
    rounds = 2 * data.batches + 1
    alone = take(data, rounds * ranks)
    for rank in range(ranks):
        mine = list(itertools.islice(data.stream(START, rank, ranks), rounds))
        assert ids(mine) == ids(alone)[rank::ranks]
        assert [position for position, _ in mine] == [position for position, _ in alone][ranks - 1 :: ranks]
        again = list(itertools.islice(data.stream(mine[0][0], rank, ranks), rounds - 1))
        assert ids(again) == ids(mine[1:])
