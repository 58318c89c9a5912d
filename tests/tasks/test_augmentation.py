"""What is drawn for images, and that it is drawn again alike."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.augmentation import STRONG, Augmentation
from heedful.nn.pixels import Pixels
from heedful.nn.rand_augment import OPERATIONS
from heedful.nn.transfer import together
from heedful.tasks import augmentation
from heedful.tasks.augmentation import cutmix_boxes, draw_numbers, draws, erasing_boxes, zoom_boxes

GREY, RGB = Pixels(mean=(0.4,), std=(0.25,)), Pixels(mean=(0.2, 0.4, 0.6), std=(0.5, 0.25, 0.1))


def images(count: int = 31, channels: int = 3, size: int = 16) -> torch.Tensor:
    rng = np.random.default_rng(0)
    return torch.from_numpy(rng.integers(1, 256, (count, channels, size, size)).astype(np.uint8))


def changed(pixels: torch.Tensor, how: Augmentation, read_as: Pixels, rng: np.random.Generator) -> torch.Tensor:
    drawn = draw_numbers(how, read_as, pixels.shape, rng)
    return augmentation.changed(pixels, together(drawn.numbers, pixels.device), drawn.counts)


def erased(pixels: torch.Tensor, how: Augmentation, rng: np.random.Generator) -> torch.Tensor:
    drawn = draw_numbers(how, GREY, pixels.shape, rng)
    return augmentation.erased(pixels, together(drawn.numbers, pixels.device), drawn.seed)


def mixed(
    pixels: torch.Tensor, how: Augmentation, rng: np.random.Generator
) -> tuple[torch.Tensor, augmentation.Mixture | None]:
    return augmentation.mixed(pixels, together(draw_numbers(how, GREY, pixels.shape, rng).numbers, pixels.device))


def test_the_same_draws_make_the_same_images():
    for how in (STRONG, Augmentation(zoom=0.3, flip=True, fill="mean")):
        first, again, other = (changed(images(), how, RGB, draws(5, number)) for number in (62, 62, 93))
        assert first.equal(again)
        assert not first.equal(other)
        assert (first.dtype, first.shape) == (torch.uint8, images().shape)


def test_what_is_drawn_stays_the_same():
    """A run that was begun with another version goes on as it would have."""
    drawn = draw_numbers(replace(STRONG, zoom=0.5, flip=True), RGB, (7, 3, 16, 16), draws(5, 62))
    numbers = drawn.numbers
    assert numbers["zoom"][0].tolist() == pytest.approx([1.68, 2.1895, 1.185, 1.8507, 0.37, 0.0204, 0.8932], abs=1e-4)
    assert numbers["moves"].tolist() == [[1, -2, 0, 2, 1, 2, -2], [-2, 0, -1, -2, -1, 1, -2]]
    assert np.flatnonzero(numbers["flipped"]).tolist() == [1, 4, 5]
    assert numbers["orders"][:, 0].tolist() == [[1, 3, 5, 4, 6, 2, 0], [1, 2, 5, 6, 4, 0, 3]]
    assert drawn.counts[1] == [0, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1]
    assert (numbers["strengths"] > 0).astype(int).tolist() == [[1, 1, 0, 1, 1, 0, 0], [0, 1, 0, 0, 0, 1, 1]]
    assert drawn.seed == 1425717936403133888
    assert numbers["partners"].tolist() == [0, 1, 4, 6, 2, 5, 3]
    assert numbers["cut"][:3].tolist() == [[5, 1, 0, 0], [-7, 4, 14, 14], [2, 4, 14, 14]]
    assert numbers["share"].tolist() == pytest.approx([0.9978, 1.0, 1.0, 0.9749, 0.5006, 1.0, 1.0], abs=1e-4)


def test_draws_are_told_apart_by_seed_and_number():
    found = {float(draws(seed, number).random()) for seed in (0, 1, 2) for number in (0, 1, 32)}
    assert len(found) == 9
    assert float(np.random.default_rng([0, 0]).random()) not in found  # the order of an epoch


def test_none_changes_nothing():
    assert changed(images(), Augmentation(), RGB, draws(0, 0)).equal(images())


def test_a_crop_moves_by_at_most_its_share():
    """A single white pixel in the middle of 16: it moves by up to 2 each way, and all moves occur."""
    pixels = torch.zeros(500, 1, 16, 16, dtype=torch.uint8)
    pixels[:, :, 8, 8] = 255
    found = changed(pixels, Augmentation(crop=0.125), GREY, draws(0, 0)).nonzero()
    assert len(found) == 500
    assert set(map(tuple, (found[:, 2:] - 8).tolist())) == {(y, x) for y in range(-2, 3) for x in range(-2, 3)}


@pytest.mark.parametrize(("fill", "expected"), [("black", 0), ("mean", 102)])
def test_what_comes_in_has_its_colour(fill, expected: int):
    pixels = torch.full((50, 1, 16, 16), 255, dtype=torch.uint8)
    found = changed(pixels, Augmentation(crop=0.25, fill=fill), GREY, draws(0, 0))
    assert set(found.unique().tolist()) == {expected, 255}


def test_half_are_flipped():
    pixels = images(1000, 1, 4)
    found = changed(pixels, Augmentation(flip=True), GREY, draws(0, 0))
    same = (found == pixels).flatten(1).all(1)
    assert (found == pixels.flip(3)).flatten(1).all(1).equal(~same)
    assert 430 < same.sum() < 570


def test_every_operation_is_drawn_and_grey_images_get_no_colour(monkeypatch: pytest.MonkeyPatch):
    drawn: list[list[int]] = []
    orders: list[tuple[int, ...]] = []
    strengths: list[torch.Tensor] = []

    def note(
        pixels: torch.Tensor, order: torch.Tensor, counts: list[int], strength: torch.Tensor, fill: torch.Tensor
    ) -> torch.Tensor:
        drawn.append(counts)
        orders.append(tuple(order[0].tolist()))
        strengths.append(strength)
        return pixels

    monkeypatch.setattr(augmentation.rand_augment, "apply", note)
    how = Augmentation(rand_augment=3, magnitude=7.0)
    for channels, read_as in ((1, GREY), (3, RGB)):
        changed(images(400, channels, 2), how, read_as, draws(0, 0))
        assert len(drawn) == len(set(orders)) == 3
        assert np.flatnonzero(np.sum(drawn, 0)).tolist() == list(range(len(OPERATIONS) - (channels == 1)))
        drawn.clear()
        orders.clear()
    assert torch.cat(strengths).abs().unique().tolist() == pytest.approx([0.7])
    assert 0.4 < (torch.cat(strengths) > 0).float().mean() < 0.6


def test_erased_images_have_a_rectangle_of_noise():
    pixels = torch.full((400, 3, 16, 16), 9.0)
    found = erased(pixels, Augmentation(erasing=0.25), draws(0, 0))
    gone = found != 9.0
    touched = gone.flatten(1).any(1)
    assert 70 < touched.sum() < 130
    assert found.equal(erased(pixels, Augmentation(erasing=0.25), draws(0, 0)))
    for one in gone[touched]:
        rows, columns = one[0].any(1), one[0].any(0)
        assert one.equal((rows[:, None] & columns).expand(3, -1, -1))
        assert 0.01 <= one[0].float().mean() <= 0.36
    noise = found[gone]
    assert abs(float(noise.mean())) < 0.05
    assert abs(float(noise.std()) - 1.0) < 0.05
    assert erased(pixels, Augmentation(), draws(0, 0)) is pixels


@given(height=st.integers(1, 40), width=st.integers(1, 40), least=st.floats(0.01, 1.0), seed=st.integers(0, 2**32))
def test_boxes_lie_in_the_image(height: int, width: int, least: float, seed: int):
    rng = np.random.default_rng(seed)
    for boxes in (zoom_boxes(rng, 19, height, width, least).T, erasing_boxes(rng, 19, height, width, 1.0)):
        assert boxes.shape == (19, 4)
        assert (boxes[:, :2] >= 0).all()
        assert (boxes[:, 2:] > 0).all()
        assert (boxes[:, 0] + boxes[:, 2] <= height + 1e-4).all()
        assert (boxes[:, 1] + boxes[:, 3] <= width + 1e-4).all()


def test_every_pixel_may_be_erased():
    boxes = erasing_boxes(np.random.default_rng(0), 3000, 7, 5, 1.0)
    assert {0, 6} <= set(boxes[:, 0])
    assert (boxes[:, 0] + boxes[:, 2]).max() == 7
    small = boxes[(boxes[:, 2] == 1) & (boxes[:, 3] == 1)]
    assert set(map(tuple, small[:, :2].tolist())) == {(y, x) for y in range(7) for x in range(5)}


def test_a_zoom_keeps_the_least_share():
    top, left, tall, wide = zoom_boxes(np.random.default_rng(0), 2000, 20, 20, 0.5)
    share = tall * wide / 400
    assert 0.4999 < share.min() < 0.51
    assert share.max() > 0.95
    assert 0.7 < (tall / wide).min() < 0.8
    assert 1.25 < (tall / wide).max() < 1.4
    assert (top.max(), left.max()) > (3.0, 3.0)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (29, 37), (37, 29), (11, 53), (53, 11), (1, 7)])
@pytest.mark.parametrize("least", [0.05, 0.5, 0.8, 0.95, 1.0])
def test_no_zoom_cuts_out_less_than_promised(height: int, width: int, least: float):
    _, _, tall, wide = zoom_boxes(np.random.default_rng(0), 3001, height, width, least)
    share, ratio = tall * wide / (height * width), tall / wide
    assert share.min() > least - 1e-5
    assert share.max() < 1 + 1e-5
    usual = (ratio > 3 / 4 - 1e-5) & (ratio < 4 / 3 + 1e-5)
    # What is none of the usual ratios has a whole side of the image: a box of its share can't be nearer to them.
    whole = wide if height > width else tall
    assert (usual | (whole > min(height, width) - 1e-4)).all()
    if height == width:
        assert usual.all()


@pytest.mark.parametrize(("height", "width"), [(32, 32), (29, 37)])
def test_boxes_are_drawn_over_all_that_fits(height: int, width: int):
    """Tall ones and wide ones alike, and every share."""
    _, _, tall, wide = zoom_boxes(np.random.default_rng(0), 3001, height, width, 0.5)
    share, ratio = tall * wide / (height * width), tall / wide
    assert abs(float(share.mean()) - 0.75) < 0.02
    small = share < 0.55
    assert ratio[small].min() < 0.78
    assert ratio[small].max() > 1.2
    if height == width:
        assert abs(float(np.log(ratio).mean())) < 0.01


def test_a_cut_leaves_its_share_unless_the_rim_is_in_the_way():
    boxes = cutmix_boxes(np.random.default_rng(0), np.array([1.0, 0.75, 0.0]), 20, 12)
    assert boxes[:, 2:].tolist() == [[0, 0], [10, 6], [20, 12]]
    many = cutmix_boxes(np.random.default_rng(0), np.full(3000, 0.75), 20, 12)
    middles = many[:, :2] + many[:, 2:] // 2
    assert set(middles[:, 0]) == set(range(20))
    assert set(middles[:, 1]) == set(range(12))


def classes_of(pixels: torch.Tensor) -> torch.Tensor:
    """How much of each of B flat images, whose pixels are their number, is in each: (B, B)."""
    return torch.stack([(pixels == number).float().mean((1, 2, 3)) for number in range(len(pixels))], 1)


def test_cutmix_labels_say_what_is_in_the_image():
    pixels = torch.arange(29.0).view(29, 1, 1, 1).expand(29, 1, 8, 8)
    found, mixture = mixed(pixels, Augmentation(cutmix=1.0), draws(0, 0))
    assert mixture is not None
    torch.testing.assert_close(mixture.targets(torch.arange(29), 29), classes_of(found))
    assert (mixture.share < 1).sum() > 20


def test_mixup_labels_say_what_is_in_the_image():
    """Of images that are one-hot in their channels, the mixture is the target."""
    pixels = torch.eye(29).view(29, 29, 1, 1)
    found, mixture = mixed(pixels, Augmentation(mixup=0.8), draws(0, 0))
    assert mixture is not None
    torch.testing.assert_close(mixture.targets(torch.arange(29), 29), found.view(29, 29))
    assert len(mixture.share.unique()) > 20  # each image has its own


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_both_take_half_and_the_rest_stays(share: float):
    pixels = torch.arange(1000.0).view(1000, 1, 1, 1).expand(1000, 1, 8, 8)
    found, mixture = mixed(pixels, Augmentation(mixup=0.8, cutmix=1.0, mixed=share), draws(0, 0))
    assert mixture is not None
    same = (found == pixels).flatten(1).all(1)
    kinds = torch.tensor([len(one.unique()) for one in found])
    cut, laid = kinds == 2, ~same & (kinds == 1)
    assert 0.3 * share < laid.float().mean() < 0.6 * share
    assert 0.3 * share < cut.float().mean() < 0.6 * share
    assert (mixture.share[laid] < 1).all()
    partners = mixture.partners.float()
    expected = mixture.share * torch.arange(1000.0) + (1 - mixture.share) * partners
    torch.testing.assert_close(found.mean((1, 2, 3)), expected)


def test_nothing_is_mixed_unless_it_is_said():
    pixels = images().float()
    assert mixed(pixels, Augmentation(mixup=0.8, mixed=0.0), draws(0, 0)) == (pixels, None)
    alone, mixture = mixed(pixels[:1], Augmentation(mixup=0.8, cutmix=1.0), draws(0, 0))
    assert mixture is not None
    torch.testing.assert_close(alone, pixels[:1])  # with itself
