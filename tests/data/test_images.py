"""One array of images: parts, statistics, and a held-out part that has all classes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.images import Images, measure, split
from heedful.errors import UserError


def numbered(labels: list[int], classes: int = 3, channels: int = 3) -> Images:
    """Images of 2 by 5, all pixels of each its number."""
    pixels = np.arange(len(labels), dtype=np.uint8)[:, None, None, None].repeat(2, 1).repeat(5, 2).repeat(channels, 3)
    return Images.of(pixels, np.array(labels, np.int32), tuple("abcdefg"[:classes]))


def numbers(images: Images) -> list[int]:
    return images.take(np.arange(len(images)))[:, 0, 0, 0].tolist()


def test_what_an_array_says_of_itself():
    images = numbered([0, 1, 2, 0], channels=1)
    assert (len(images), images.height, images.width, images.channels) == (4, 2, 5, 1)
    assert images.labels.dtype == np.int64


def test_a_part_of_a_part_has_its_own_pixels_and_labels():
    part = numbered([0, 1, 2, 0, 1, 2, 2]).part(np.array([6, 4, 2, 0])).part(np.array([3, 1]))
    assert numbers(part) == [0, 4]
    assert part.labels.tolist() == [0, 1]
    assert [len(piece) for piece in numbered([0] * 7).pieces(3)] == [3, 3, 1]


@pytest.mark.parametrize(
    ("pixels", "labels", "told"),
    [
        (np.zeros((3, 2, 2, 1), np.int64), [0, 1, 0], "int64"),
        (np.zeros((3, 2, 2), np.uint8), [0, 1, 0], "(3, 2, 2)"),
        (np.zeros((3, 2, 2, 4), np.uint8), [0, 1, 0], "(3, 2, 2, 4)"),
        (np.zeros((3, 2, 2, 1), np.uint8), [0, 1], "3 images, but labels of shape (2,)"),
        (np.zeros((3, 2, 2, 1), np.uint8), [0, 2, 1], "label 2 has no name: there are 2 classes"),
        (np.zeros((3, 2, 2, 1), np.uint8), [0, -1, 1], "label -1 has no name"),
    ],
)
def test_what_is_refused(pixels: np.ndarray, labels: list[int], told: str):
    with pytest.raises(UserError) as error:
        Images.of(pixels, np.array(labels), ("a", "b"))
    assert told in str(error.value)


def test_the_mean_and_deviation_of_each_channel():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (1031, 3, 2, 3)).astype(np.uint8)
    pixels[..., 2] = 51
    images = Images.of(pixels, np.zeros(1031, int), ("a",))
    found = measure(images.part(np.arange(5, 1031)))
    expected = pixels[5:].reshape(-1, 3) / 255.0
    assert found.mean == pytest.approx(expected.mean(0).tolist(), abs=1e-12)
    assert found.mean[2] == pytest.approx(0.2)
    assert found.std[:2] == pytest.approx(expected.std(0)[:2].tolist(), abs=1e-12)
    assert found.std[2] == 1.0  # a channel that never changes is not blown up


def test_every_class_is_held_out_by_its_share():
    images = numbered([0] * 50 + [1] * 30 + [2] * 20)
    train, heldout = split(images, 0.2, seed=1)
    assert np.bincount(heldout.labels).tolist() == [10, 6, 4]
    assert np.bincount(train.labels).tolist() == [40, 24, 16]
    assert sorted(numbers(train) + numbers(heldout)) == list(range(100))
    assert numbers(heldout) != list(range(10)) + list(range(50, 56)) + list(range(80, 84))


def test_the_seed_alone_decides():
    images = numbered([0, 1, 2] * 30)
    assert numbers(split(images, 0.1, 7)[1]) == numbers(split(images, 0.1, 7)[1])
    assert numbers(split(images, 0.1, 7)[1]) != numbers(split(images, 0.1, 8)[1])


@settings(max_examples=50)
@given(labels=st.lists(st.integers(0, 2), min_size=4, max_size=60), share=st.floats(0.01, 0.99))
def test_no_class_is_lost(labels: list[int], share: float):
    """Four images of three classes: one of the classes has two."""
    train, heldout = split(numbered(labels), share, seed=3)
    assert sorted(numbers(train) + numbers(heldout)) == list(range(len(labels)))
    assert set(train.labels) == set(labels)
    assert set(heldout.labels) == {label for label in labels if labels.count(label) > 1}


def test_by_default_a_tenth_and_at_most_5000():
    pixels = np.zeros((60_000, 1, 1, 1), np.uint8)
    images = Images.of(pixels, np.arange(60_000) % 2, ("a", "b"))
    assert [len(part) for part in split(images)] == [55_000, 5_000]
    assert len(split(images.part(np.arange(300)))[1]) == 30


def test_splits_that_are_refused():
    with pytest.raises(UserError, match="2 images of 3 classes are too few"):
        split(numbered([0, 1]), 0.5)
    for share in (0.0, 1.0, -0.5):
        with pytest.raises(UserError, match="not between 0 and 1"):
            split(numbered([0, 0, 1, 1]), share)
