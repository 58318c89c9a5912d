"""Pillow's ImageOps and ImageEnhance as oracles, and small images by hand."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from heedful.nn import image_colours as colours

FACTORS = torch.tensor([0.1, 0.55, 1.0, 1.37, 1.9])
ENHANCERS = [
    (colours.brightness, ImageEnhance.Brightness),
    (colours.contrast, ImageEnhance.Contrast),
    (colours.colour, ImageEnhance.Color),
    (colours.sharpness, ImageEnhance.Sharpness),
]


def random_images(channels: int, seed: int = 0, low: int = 0, high: int = 256) -> Tensor:
    """Five of 23 by 29: enough pixels for equalize to have something to do."""
    values = np.random.default_rng(seed).integers(low, high, (5, channels, 23, 29))
    return torch.from_numpy(values.astype(np.uint8))


def pictures(pixels: Tensor) -> list[Image.Image]:
    return [Image.fromarray(one.permute(1, 2, 0).squeeze(-1).numpy()) for one in pixels]


def tensor(images: list[Image.Image]) -> Tensor:
    rows = [np.asarray(image).reshape(image.height, image.width, -1).transpose(2, 0, 1) for image in images]
    return torch.from_numpy(np.stack(rows))


def assert_close(found: Tensor, expected: Tensor, exact: float) -> None:
    """Never off by more than 1, and equal in such a share of the pixels."""
    assert found.dtype is torch.uint8
    assert found.shape == expected.shape
    apart = (found.int() - expected.int()).abs()
    assert apart.max() <= 1
    assert (apart == 0).float().mean() >= exact


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("ours", "theirs"), ENHANCERS, ids=[ours.__name__ for ours, _ in ENHANCERS])
def test_enhanced_as_pillow_does(ours: Callable[[Tensor, Tensor], Tensor], theirs: type, channels: int):
    pixels = random_images(channels)
    found = ours(pixels, FACTORS)
    expected = [theirs(one).enhance(by) for one, by in zip(pictures(pixels), FACTORS.tolist(), strict=True)]
    assert_close(found, tensor(expected), 0.999)
    if ours is not colours.colour or channels == 3:
        assert (found[0] != pixels[0]).any()
    assert torch.equal(found[2], pixels[2])  # a factor of 1


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ["autocontrast", "equalize"])
def test_stretched_and_spread_as_pillow_does(name: str, channels: int):
    for seed, (low, high) in enumerate([(0, 256), (31, 97), (100, 103), (7, 8)]):
        pixels = random_images(channels, seed, low, high)
        expected = tensor([getattr(ImageOps, name)(one) for one in pictures(pixels)])
        # Pillow computes a stretch in floating point and may cut off a whole number that it has just missed.
        found = getattr(colours, name)(pixels)
        assert_close(found, expected, 1.0 if name == "equalize" else 0.9)
        assert found.equal(pixels) == (high - low == 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_solarized_and_posterized_as_pillow_does(channels: int):
    pixels = random_images(channels, 3)
    thresholds, bits = [0, 64, 128, 255, 256], [1, 3, 4, 7, 8]
    expected = [ImageOps.solarize(one, by) for one, by in zip(pictures(pixels), thresholds, strict=True)]
    assert torch.equal(colours.solarize(pixels, torch.tensor(thresholds)), tensor(expected))
    expected = [ImageOps.posterize(one, by) for one, by in zip(pictures(pixels), bits, strict=True)]
    assert torch.equal(colours.posterize(pixels, torch.tensor(bits)), tensor(expected))


def test_by_hand():
    row = torch.tensor([[[[0, 50, 100, 200]]]], dtype=torch.uint8)
    one = torch.ones(1)
    assert colours.brightness(row, 2 * one).tolist() == [[[[0, 100, 200, 255]]]]
    assert colours.contrast(row, 0 * one).tolist() == [[[[88, 88, 88, 88]]]]  # 87.5, rounded
    assert colours.solarize(row, 100 * one).tolist() == [[[[0, 50, 155, 55]]]]
    assert colours.posterize(row, 2 * one).tolist() == [[[[0, 0, 64, 192]]]]
    assert colours.autocontrast(row[..., 1:]).tolist() == [[[[0, 85, 255]]]]  # 50 of 150 is a third
    red = torch.tensor([255, 0, 0], dtype=torch.uint8).view(1, 3, 1, 1)
    assert colours.colour(red, 0 * one).flatten().tolist() == [76, 76, 76]
    dot = torch.zeros(1, 1, 3, 3, dtype=torch.uint8)
    dot[0, 0, 1, 1] = 130
    assert colours.sharpness(dot, 0 * one)[0, 0, 1, 1] == 50  # five thirteenths
    assert colours.sharpness(dot[..., :2], 0 * one).equal(dot[..., :2])  # nothing is inside


def test_each_image_has_its_own_amount_and_the_input_stays():
    pixels = random_images(3, 5)
    before = pixels.clone()
    for ours, _ in ENHANCERS:
        together = ours(pixels, FACTORS)
        alone = [ours(pixels[i : i + 1], FACTORS[i : i + 1]) for i in range(len(pixels))]
        assert torch.equal(together, torch.cat(alone))
    for name in ("autocontrast", "equalize"):
        whole = getattr(colours, name)(pixels)
        assert torch.equal(whole[3:4], getattr(colours, name)(pixels[3:4]))
    assert torch.equal(pixels, before)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=900))
def test_equalize_keeps_the_order_of_values(values: list[int]):
    pixels = torch.tensor(values, dtype=torch.uint8).view(1, 1, 1, -1)
    spread = colours.equalize(pixels).flatten().int()
    order = pixels.flatten().int().argsort(stable=True)
    assert (spread[order].diff() >= 0).all()
