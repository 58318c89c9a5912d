"""Which axis is what, and which numbers are pixels."""

import numpy as np
import pytest
from PIL import Image

from heedful.data.image_files import MIDDLE, Framing
from heedful.data.pixel_arrays import pixel_pieces, pixel_shape
from heedful.data.stored_arrays import StoredArray
from heedful.errors import UserError


def stored(array: np.ndarray) -> StoredArray:
    return StoredArray.of("some.npy", array)


def pixels(array: np.ndarray, size: int, channels: int, framing: Framing = MIDDLE) -> np.ndarray:
    return np.concatenate(list(pixel_pieces(stored(array), size, channels, framing)))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 28, 28), (28, 28, 1)),
        ((2, 28, 28, 1), (28, 28, 1)),
        ((2, 1, 28, 28), (28, 28, 1)),
        ((2, 5, 7, 3), (5, 7, 3)),
        ((2, 3, 5, 7), (5, 7, 3)),
        ((2, 5, 7, 4), (5, 7, 4)),
        ((3, 3, 5, 7), (5, 7, 3)),  # three images are not three channels
    ],
)
def test_layouts_are_told_apart(shape: tuple[int, ...], expected: tuple[int, int, int]):
    assert pixel_shape(stored(np.zeros(shape, np.uint8))) == expected


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.zeros((5, 784), np.uint8), "reshape(-1, 28, 28)"),
        (np.zeros((5, 783), np.uint8), "(N, H, W)"),
        (np.zeros(5, np.uint8), "(5,)"),
        (np.zeros((5, 2, 2, 2, 2), np.uint8), "(5, 2, 2, 2, 2)"),
        (np.zeros((5, 8, 8, 2), np.uint8), "without an axis of 1, 3 or 4 channels"),
        (np.zeros((5, 3, 9, 3), np.uint8), "could come first or last"),
        (np.zeros((0, 8, 8), np.uint8), "no pixels"),
        (np.zeros((5, 8, 0), np.uint8), "no pixels"),
        (np.zeros((5, 8, 8), np.int64), "holds int64"),
        (np.zeros((5, 8, 8), np.uint16), "holds uint16"),
        (np.zeros((5, 8, 8), bool), "holds bool"),
        (np.zeros((5, 8, 8), "U3"), "holds <U3"),
    ],
)
def test_what_is_no_array_of_images(array: np.ndarray, told: str):
    with pytest.raises(UserError) as error:
        pixel_shape(stored(array))
    assert str(error.value).startswith("some.npy ")
    assert told in str(error.value)


def test_bytes_pass_through_in_every_layout():
    grey = np.arange(2 * 5 * 5, dtype=np.uint8).reshape(2, 5, 5)
    assert (pixels(grey, 5, 1)[..., 0] == grey).all()
    assert (pixels(grey[:, None], 5, 1)[..., 0] == grey).all()
    rgb = np.arange(2 * 5 * 5 * 3, dtype=np.uint8).reshape(2, 5, 5, 3)
    assert (pixels(rgb, 5, 3) == rgb).all()
    assert (pixels(rgb.transpose(0, 3, 1, 2), 5, 3) == rgb).all()


def test_an_array_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("heedful.data.pixel_arrays._PIECE", 2 * 25)
    grey = np.arange(7 * 25, dtype=np.uint8).reshape(7, 5, 5)
    pieces = list(pixel_pieces(stored(grey), 5, 1))
    assert [len(piece) for piece in pieces] == [2, 2, 2, 1]
    assert (np.concatenate(pieces)[..., 0] == grey).all()
    larger = [piece.shape for piece in pixel_pieces(stored(grey), 7, 1)]  # 49 bytes an image, not 25
    assert larger == [(1, 7, 7, 1)] * 7
    smaller = [len(piece) for piece in pixel_pieces(stored(grey), 2, 3)]
    assert smaller == [2, 2, 2, 1]


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f8"])
def test_floats_from_0_to_1(dtype: str):
    levels = np.arange(250).reshape(10, 5, 5)
    assert (pixels((levels / 255).astype(dtype), 5, 1)[..., 0] == levels).all()


def test_other_sizes_and_channels_are_brought_to_the_run_s():
    grey = np.full((3, 4, 10), 7, np.uint8)
    grey[:, :, 3:7] = 90
    assert (pixels(grey, 4, 1) == 90).all()  # the middle
    assert pixels(grey, 4, 3).shape == (3, 4, 4, 3)
    clear = np.zeros((2, 6, 6, 4), np.uint8)
    assert (pixels(clear, 6, 3) == 255).all()  # laid on white
    red = np.zeros((2, 3, 6, 6), np.uint8)
    red[:, 0] = 255
    assert (pixels(red, 5, 1) == 76).all()


def test_framings_are_those_of_files():
    nearest, ramp = Image.Resampling.NEAREST, np.arange(2 * 4 * 8, dtype=np.uint8).reshape(2, 4, 8)
    assert pixels(ramp, 4, 1, Framing(None, nearest))[1, 0, :, 0].tolist() == [33, 35, 37, 39]  # all of the row
    assert pixels(ramp, 4, 1, Framing(1.0, nearest))[1, 0, :, 0].tolist() == [34, 35, 36, 37]  # its middle
    square = np.arange(16, dtype=np.uint8).reshape(1, 4, 4)
    assert pixels(square, 4, 1, Framing(0.5, nearest))[0, 0, :, 0].tolist() == [
        5,
        5,
        6,
        6,
    ]  # though its size is right
    assert (pixels(square, 4, 1, Framing(None))[0, :, :, 0] == square[0]).all()


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0, 16, "from 0 to 16; floats must be from 0 to 1: divide by the most that a pixel can be, such as 16 for"),
        (0, 254, "from 0 to 254; floats must be from 0 to 1: divide by 255, or give uint8"),
        (
            0,
            4095,
            "from 0 to 4095; floats must be from 0 to 1: divide by the most that a pixel can be, such as",
        ),
        (
            -0.01,
            1.01,
            "from -0.01 to 1.01; floats must be from 0 to 1: cut off what is a little beyond with numpy.clip",
        ),
        (-1, 1, "from -1 to 1; floats must be from 0 to 1: add 1 and divide by 2, or give uint8"),
        (-2.5, 2, "from -2.5 to 2; floats must be from 0 to 1: undo what made them negative, or give uint8"),
    ],
)
def test_floats_out_of_range_are_told_with_what_helps(low: float, high: float, told: str):
    array = np.full((3, 5, 5), low, np.float32)
    array[2, 3, 1] = high
    with pytest.raises(UserError) as error:
        pixels(array, 5, 1)
    assert str(error.value).startswith(f"some.npy has pixels {told}")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_no_pixel(bad: float):
    array = np.zeros((3, 5, 5))
    array[2, 3, 1] = bad
    with pytest.raises(UserError, match=f"has the pixel {bad:g}, which is no number from 0 to 1; mend or leave out"):
        pixels(array, 5, 1)
