"""Stored arrays as pixels: which axis is what, which numbers are allowed, and all of it brought to one form.

Shapes: N images, H height, W width, C channels.
"""

from collections.abc import Iterator

import numpy as np
from PIL import Image

from heedful.data.image_files import MIDDLE, Framing, fitted
from heedful.data.stored_arrays import StoredArray
from heedful.errors import UserError

_CHANNELS = (1, 3, 4)
"""Grey, RGB, and RGB with opacity."""
_PIECE = 16 << 20
"""Bytes at once, as they are read or as they are wanted, whichever is more."""


def pixel_shape(stored: StoredArray) -> tuple[int, int, int]:
    """Height, width and channels of the images in an array."""
    _check_type(stored)
    shape = stored.shape
    if 0 in shape:
        raise UserError(f"{stored.where} has the shape {shape}, which holds no pixels; give images")
    if len(shape) == 3:
        return shape[1], shape[2], 1
    if len(shape) != 4:
        hint = _unflattened(shape)
        raise UserError(f"{stored.where} has the shape {shape}; give images as (N, H, W), (N, H, W, C){hint}")
    last, first = shape[3] in _CHANNELS, shape[1] in _CHANNELS
    if last and first:
        raise UserError(
            f"{stored.where} has the shape {shape}, where the channels could come first or last; "
            "give images of 5 pixels a side or more"
        )
    if last:
        return shape[1], shape[2], shape[3]
    if first:
        return shape[2], shape[3], shape[1]
    raise UserError(f"{stored.where} has the shape {shape}, without an axis of 1, 3 or 4 channels; give (N, H, W, C)")


def pixel_pieces(stored: StoredArray, size: int, channels: int, framing: Framing = MIDDLE) -> Iterator[np.ndarray]:
    """The images at a size, grey or RGB, some at a time: (n, size, size, channels) uint8."""
    shape = pixel_shape(stored)
    for pixels in own_pieces(stored, least=size * size * channels):
        if shape == (size, size, channels) and framing.share in (None, 1.0):
            yield np.ascontiguousarray(pixels)
        else:
            yield np.stack([fitted(picture(one), size, channels, framing) for one in pixels])


def own_pieces(stored: StoredArray, least: int = 1) -> Iterator[np.ndarray]:
    """The images as they are, some at a time: (n, H, W, C) uint8. Each counts for so many bytes at least."""
    shape = pixel_shape(stored)
    in_front = len(stored.shape) == 4 and stored.shape[1:] != shape
    rows = max(1, _PIECE // max(int(np.prod(shape)) * stored.dtype.itemsize, least))
    for piece in stored.pieces(rows):
        pixels = _bytes(piece, stored.where)
        yield pixels.transpose(0, 2, 3, 1) if in_front else pixels.reshape(len(pixels), *shape)


def picture(pixels: np.ndarray) -> Image.Image:
    """One image, (H, W, C) uint8, as Pillow has it."""
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))


def _check_type(stored: StoredArray) -> None:
    if stored.dtype != np.uint8 and stored.dtype.kind != "f":
        raise UserError(
            f"{stored.where} holds {stored.dtype}; give pixels as uint8 from 0 to 255, or floats from 0 to 1"
        )


def _bytes(pixels: np.ndarray, where: str) -> np.ndarray:
    if pixels.dtype == np.uint8:
        return pixels
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= 0.0 and high <= 1.0):  # also where one is no number
        raise UserError(f"{where} {_out_of_range(low, high)}")
    return np.rint(pixels.astype(np.float64) * 255.0).astype(np.uint8)


def _out_of_range(low: float, high: float) -> str:
    """What is wrong with floats that are no pixels, and how they become some."""
    if not (np.isfinite(low) and np.isfinite(high)):
        bad = low if not np.isfinite(low) else high
        return f"has the pixel {bad:g}, which is no number from 0 to 1; mend or leave out such images"
    found = f"has pixels from {low:g} to {high:g}; floats must be from 0 to 1"
    if low >= -0.05 and high <= 1.05:
        return f"{found}: cut off what is a little beyond with numpy.clip, or give uint8"
    if low < 0:
        centred = low >= -1 and high <= 1
        return f"{found}: {'add 1 and divide by 2' if centred else 'undo what made them negative'}, or give uint8"
    if high <= 16:
        return f"{found}: divide by the most that a pixel can be, such as 16 for scikit-learn's digits"
    if high <= 255:
        return f"{found}: divide by 255, or give uint8"
    return f"{found}: divide by the most that a pixel can be, such as 65535 for 16 bits"


def _unflattened(shape: tuple[int, ...]) -> str:
    """For images that were laid out in rows: the square that they may come from."""
    if len(shape) != 2:
        return " or (N, C, H, W)"
    side = int(np.sqrt(shape[1]))
    return f", such as .reshape(-1, {side}, {side})" if side * side == shape[1] else " or (N, C, H, W)"
