"""Small images by hand, and Pillow's resize as an oracle."""

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from heedful.nn import image_geometry as geometry

FIVE = torch.arange(1, 31, dtype=torch.uint8).view(1, 1, 5, 6)
"""1 to 30 in five rows of six."""
SQUARE = torch.arange(1, 26, dtype=torch.uint8).view(1, 1, 5, 5)
BLACK = torch.zeros(1)


def amount(*values: float) -> Tensor:
    return torch.tensor(values)


def test_a_flip_where_chosen():
    pixels = torch.arange(24, dtype=torch.uint8).view(2, 2, 2, 3)
    found = geometry.flip(pixels, torch.tensor([False, True]))
    assert found[0].equal(pixels[0])
    assert found[1].tolist() == [[[14, 13, 12], [17, 16, 15]], [[20, 19, 18], [23, 22, 21]]]


def test_a_shift_is_a_crop_of_the_padded_image():
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (7, 3, 5, 6)).astype(np.uint8))
    fill = torch.tensor([10.0, 20.4, 30.0])
    down, right = rng.integers(-3, 4, (2, 7))
    found = geometry.shift(pixels, torch.from_numpy(down), torch.from_numpy(right), fill)
    assert found.dtype is torch.uint8
    for one, moved, y, x in zip(pixels, found, down, right, strict=True):
        padded = torch.tensor([10, 20, 30], dtype=torch.uint8).view(3, 1, 1).expand(3, 11, 12).clone()
        padded[:, 3:8, 3:9] = one
        assert moved.equal(padded[:, 3 - y : 8 - y, 3 - x : 9 - x])


def test_a_shift_beyond_the_image_leaves_the_fill():
    assert geometry.shift(FIVE, amount(5).long(), amount(0).long(), amount(9.0)).unique().tolist() == [9]


def test_a_zoom_into_the_whole_changes_nothing():
    found = geometry.zoom(FIVE, amount(0.0), amount(0.0), amount(5.0), amount(6.0))
    assert found.equal(FIVE)


def test_a_zoom_is_pillows_enlargement_of_the_part():
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (3, 13, 17, 3)).astype(np.uint8)
    boxes = np.array([[2.0, 3.0, 7.0, 11.0], [0.0, 5.5, 12.25, 9.0], [6.0, 0.0, 7.0, 17.0]])
    there = torch.from_numpy(boxes).float().unbind(1)
    found = geometry.zoom(torch.from_numpy(pixels).permute(0, 3, 1, 2), *there).permute(0, 2, 3, 1).numpy()
    for one, enlarged, (top, left, tall, wide) in zip(pixels, found, boxes, strict=True):
        # Pillow takes nothing from outside a box, which ours may where the box lies inside: the rim is left out.
        box = (left, top, left + wide, top + tall)
        expected = np.asarray(Image.fromarray(one).resize((17, 13), Image.Resampling.BILINEAR, box=box))
        apart = np.abs(enlarged.astype(int) - expected)[2:-2, 2:-2]
        assert apart.max() <= 2


def test_a_quarter_turn_is_counter_clockwise():
    found = geometry.rotate(SQUARE, amount(90.0), BLACK)
    assert found[0, 0].equal(torch.rot90(SQUARE[0, 0]))
    assert geometry.rotate(SQUARE, amount(-90.0), BLACK)[0, 0].equal(torch.rot90(SQUARE[0, 0], -1))


def test_a_turn_agrees_with_pillow_inside():
    rng = np.random.default_rng(2)
    smooth = Image.fromarray(rng.integers(0, 256, (5, 5)).astype(np.uint8)).resize((23, 29), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.asarray(smooth).copy())[None, None]
    for degrees in (17.0, -30.0):
        found = geometry.rotate(pixels, amount(degrees), BLACK)[0, 0].numpy().astype(int)
        expected = np.asarray(smooth.rotate(degrees, Image.Resampling.BILINEAR))
        assert np.abs(found - expected)[8:-8, 6:-6].max() <= 2


def test_translations_by_whole_pixels_are_exact():
    assert geometry.translate_x(FIVE, amount(2 / 6), BLACK)[0, 0, 0].tolist() == [0, 0, 1, 2, 3, 4]
    assert geometry.translate_x(FIVE, amount(-1 / 6), amount(77.0))[0, 0, 4].tolist() == [26, 27, 28, 29, 30, 77]
    assert geometry.translate_y(FIVE, amount(3 / 5), BLACK)[0, 0, :, 0].tolist() == [0, 0, 0, 1, 7]


def test_shears_move_what_is_far_from_the_middle():
    """With an amount of 1 the row above the middle moves right by 1, the one below it left."""
    found = geometry.shear_x(SQUARE, amount(1.0), BLACK)[0, 0]
    assert found[2].equal(SQUARE[0, 0, 2])
    assert found[1].tolist() == [0, 6, 7, 8, 9]
    assert found[4].tolist() == [23, 24, 25, 0, 0]
    turned = geometry.shear_y(SQUARE.transpose(2, 3), amount(1.0), BLACK).transpose(2, 3)
    assert turned[0, 0].equal(found)


def test_shears_of_an_oblong_are_in_pixels():
    found = geometry.shear_x(FIVE, amount(1.0), BLACK)[0, 0]
    assert found[1].tolist() == [0, 7, 8, 9, 10, 11]
    assert found[0].tolist() == [0, 0, 1, 2, 3, 4]


def test_nothing_is_done_by_an_amount_of_zero_and_each_image_has_its_own():
    pixels = torch.from_numpy(np.random.default_rng(3).integers(0, 256, (2, 3, 5, 7)).astype(np.uint8))
    fill = torch.zeros(3)
    for move in (geometry.rotate, geometry.shear_x, geometry.shear_y, geometry.translate_x, geometry.translate_y):
        found = move(pixels, amount(0.0, 0.3), fill)
        assert found[0].equal(pixels[0])
        assert found[1].equal(move(pixels[1:], amount(0.3), fill)[0])
        assert found.dtype is torch.uint8
