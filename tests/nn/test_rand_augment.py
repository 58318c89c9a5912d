"""Which operation an image gets, and how strong the strongest are."""

import numpy as np
import pytest
import torch

from heedful.nn import image_colours as colours
from heedful.nn import image_geometry as geometry
from heedful.nn.rand_augment import OPERATIONS, apply, grouped, operations

FILL = torch.tensor([3.0, 5.0, 7.0])
ONE = torch.ones(1)


def images(count: int, channels: int = 3) -> torch.Tensor:
    rng = np.random.default_rng(count)
    return torch.from_numpy(rng.integers(20, 230, (count, channels, 11, 13)).astype(np.uint8))


def test_fourteen_operations_and_grey_images_skip_colour():
    assert len(operations(3)) == 14
    assert set(operations(3)) - set(operations(1)) == {"colour"}
    assert operations(1) == operations(3)[: len(operations(1))]  # a number means the same for both


def test_each_image_gets_its_own():
    pixels = images(29)
    rng = np.random.default_rng(0)
    chosen, strength = rng.permutation(np.arange(29) % 14), torch.from_numpy(rng.uniform(-1, 1, 29)).float()
    order, counts = grouped(chosen)
    found = apply(pixels, torch.from_numpy(order), counts, strength, FILL)
    for number, operation in enumerate(chosen):
        one = slice(number, number + 1)
        expected = list(OPERATIONS.values())[operation](pixels[one], strength[one], FILL)
        assert found[one].equal(expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("identity", lambda x: x),
        ("autocontrast", colours.autocontrast),
        ("equalize", colours.equalize),
        ("rotate", lambda x: geometry.rotate(x, 30 * ONE, FILL)),
        ("solarize", lambda x: 255 - x),
        ("posterize", lambda x: x & 0xF0),
        ("contrast", lambda x: colours.contrast(x, 1.9 * ONE)),
        ("brightness", lambda x: colours.brightness(x, 1.9 * ONE)),
        ("sharpness", lambda x: colours.sharpness(x, 1.9 * ONE)),
        ("shear_x", lambda x: geometry.shear_x(x, 0.3 * ONE, FILL)),
        ("shear_y", lambda x: geometry.shear_y(x, 0.3 * ONE, FILL)),
        ("translate_x", lambda x: geometry.translate_x(x, 150 / 331 * ONE, FILL)),
        ("translate_y", lambda x: geometry.translate_y(x, 150 / 331 * ONE, FILL)),
        ("colour", lambda x: colours.colour(x, 1.9 * ONE)),
    ],
)
def test_the_strongest(name: str, expected):
    pixels = images(1)
    assert OPERATIONS[name](pixels, ONE, FILL).equal(expected(pixels))


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ("autocontrast", "equalize")])
def test_no_strength_changes_nothing(name: str):
    pixels = images(2)
    assert OPERATIONS[name](pixels, torch.zeros(2), FILL).equal(pixels)


@pytest.mark.parametrize("name", ["rotate", "shear_x", "translate_y", "brightness", "contrast", "sharpness"])
def test_a_sign_is_a_direction(name: str):
    pixels = images(1)
    assert not OPERATIONS[name](pixels, ONE, FILL).equal(OPERATIONS[name](pixels, -ONE, FILL))
