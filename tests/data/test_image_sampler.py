"""The order of images: complete, seeded, resumable, shared out."""

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batch import ImageBatch
from heedful.data.image_sampler import ImageSampler, even_batch
from heedful.data.images import Images
from heedful.data.sampler import START, Position
from heedful.errors import UserError

Pairs = list[tuple[Position, ImageBatch]]


def numbered(count: int, batch: int, seed: int = 0, even: bool = False) -> ImageSampler:
    """Images of 2 by 3, all pixels of each its number; the classes are the last digits."""
    pixels = np.arange(count, dtype=np.uint8)[:, None, None, None].repeat(2, 1).repeat(3, 2)
    images = Images.of(pixels, np.arange(count) % 10, tuple("0123456789"))
    return ImageSampler(images=images, batch=batch, seed=seed, even=even)


def take(sampler: ImageSampler, count: int, position: Position = START) -> Pairs:
    return list(itertools.islice(sampler.stream(position), count))


def shown(batches: Iterable[ImageBatch]) -> list[list[int]]:
    return [batch.pixels[:, 0, 0, 0].tolist() for batch in batches]


def ids(pairs: Pairs) -> list[list[int]]:
    return shown(batch for _, batch in pairs)


@given(count=st.integers(1, 41), batch=st.integers(1, 11))
def test_an_epoch_has_every_image_once(count: int, batch: int):
    sampler = numbered(count, batch)
    assert sampler.batches == -(-count // batch)
    epoch = take(sampler, sampler.batches)
    assert sorted(itertools.chain(*ids(epoch))) == list(range(count))
    assert {len(one) for one in ids(epoch)[:-1]} <= {batch}


def test_labels_and_types():
    for _, batch in take(numbered(23, 5), 7):
        assert (batch.pixels.dtype, batch.labels.dtype, batch.numbers.dtype) == (np.uint8, np.int64, np.int64)
        assert batch.pixels.shape == (len(batch.labels), 2, 3, 1)
        assert (batch.labels == batch.pixels[:, 0, 0, 0] % 10).all()


def test_numbers_count_the_images_of_the_run():
    numbers = [batch.numbers.tolist() for _, batch in take(numbered(7, 3), 5)]
    assert numbers == [[0, 1, 2], [3, 4, 5], [6], [7, 8, 9], [10, 11, 12]]


@given(images=st.integers(1, 3000), batch=st.integers(1, 300))
def test_even_batches_leave_little_out(images: int, batch: int):
    size = even_batch(images, batch)
    assert batch // 2 <= size <= batch or size == images
    whole, left = divmod(images, size)
    assert left <= max(0.02 * images, whole - 1)
    assert size == batch or whole >= -(-images // batch)


@pytest.mark.parametrize(
    ("images", "batch", "expected"),
    [(108, 64, 54), (108, 100, 54), (60_000, 256, 256), (1618, 64, 64), (7, 64, 7), (128, 64, 64), (1, 1, 1)],
)
def test_even_batches_by_hand(images: int, batch: int, expected: int):
    assert even_batch(images, batch) == expected


def test_even_batches_leave_the_rest_for_another_epoch():
    sampler = numbered(7, 3, even=True)
    assert sampler.batches == 2
    found = take(sampler, 40)
    assert {len(one) for one in ids(found)} == {3}
    assert set(itertools.chain(*ids(found))) == set(range(7))
    numbers = list(itertools.chain(*(batch.numbers.tolist() for _, batch in found)))
    assert len(set(numbers)) == len(numbers)
    assert numbered(2, 3, even=True).batches == 1  # better a small one than none


def test_every_epoch_and_every_seed_has_its_own_order():
    orders = [
        tuple(itertools.chain(*ids(take(numbered(29, 5, seed), 6, Position(epoch, 0)))))
        for seed in (0, 1)
        for epoch in (0, 1, 2)
    ]
    assert len(set(orders)) == 6
    assert tuple(range(29)) not in orders


@given(count=st.integers(1, 11), batch=st.integers(1, 5), skipped=st.integers(0, 17), even=st.booleans())
def test_from_a_position_it_goes_on_as_if_it_had_never_stopped(count: int, batch: int, skipped: int, even: bool):
    sampler = numbered(count, batch, even=even)
    whole = take(sampler, skipped + 5)
    rest = take(sampler, 5, whole[skipped - 1][0] if skipped else START)
    assert [position for position, _ in rest] == [position for position, _ in whole[skipped:]]
    assert ids(rest) == ids(whole[skipped:])
    assert [batch.numbers.tolist() for _, batch in rest] == [batch.numbers.tolist() for _, batch in whole[skipped:]]


@given(count=st.integers(1, 23), batch=st.integers(1, 7), ranks=st.integers(1, 5))
def test_the_ranks_take_turns(count: int, batch: int, ranks: int):
    sampler = numbered(count, batch)
    alone = take(sampler, 3 * ranks)
    for rank in range(ranks):
        mine = list(itertools.islice(sampler.stream(START, rank, ranks), 3))
        assert ids(mine) == ids(alone)[rank::ranks]
        assert [position for position, _ in mine] == [position for position, _ in alone][ranks - 1 :: ranks]


def test_once_is_in_order():
    assert shown(numbered(7, 3, seed=5, even=True).once()) == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_part_of_the_images():
    whole = numbered(11, 4)
    part = ImageSampler(images=whole.images.part(np.array([10, 2, 5])), batch=2, seed=0)
    assert sorted(itertools.chain(*ids(take(part, 2)))) == [2, 5, 10]


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(UserError, match="a batch of 0 images"):
        numbered(7, 0)
