"""One image file as an array: any size, mode or orientation in, a square of grey or RGB bytes out.

Unless another framing is asked for, the largest square in the middle is cut out and brought to the size, which is
what resizing the shorter side and cropping the centre comes to, without a huge image in between. What is transparent
is laid on white. Of a moving picture, the first frame is taken. Pillow reads; what it can't read is told in words,
without the file's name. Knows nothing of folders or classes.
"""

import math
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from PIL import Image, ImageOps

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif")
RESAMPLE = Image.Resampling.BILINEAR
"""What ViT's own preprocessing uses; with Pillow, it averages when it makes images smaller."""

_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF")
_GREY = ("1", "L", "LA", "La", "I", "F")
_TURNED = (5, 6, 7, 8)
_ORIENTATION = 0x0112


class Unreadable(Exception):  # noqa: N818 (whoever knows the name makes the error)
    """A file that is no image that can be used. The message says why, and what to do."""


class Framing(NamedTuple):
    """What of an image is taken, and how it is made larger or smaller."""

    share: float | None = 1.0
    """Of the shorter side: the square of so much in the middle. None takes everything, and stretches it."""
    resample: Image.Resampling = RESAMPLE

    @property
    def enough(self) -> float:
        """How many times the size an image must have at least to be decoded at a fraction."""
        return 2.0 if self.share is None else 2.0 / self.share


MIDDLE = Framing()
"""The largest square."""


class Header(NamedTuple):
    """What a file says of itself before it is decoded."""

    height: int
    width: int
    grey: bool


@contextmanager
def careful() -> Generator[None, None, None]:
    """Pillow's doubts about a file are kept from the screen, but for an image that is too large to be true.

    Warnings belong to the whole process: entered once, around all threads that read.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def read_image(file: Path | BinaryIO, size: int, channels: int, framing: Framing = MIDDLE) -> np.ndarray:
    """The pixels of a file, (size, size, channels) uint8. Raises Unreadable."""
    with _readable(file) as image:
        # A jpeg of many megapixels is decoded at a fraction, but never below twice what is needed.
        least = math.ceil(framing.enough * size)
        image.draft(None, (least, least))  # pyrefly: ignore (None leaves the mode alone)
        return fitted(ImageOps.exif_transpose(image), size, channels, framing)


def taken_in(image: Image.Image, size: int, channels: int, framing: Framing = MIDDLE) -> np.ndarray:
    """The same of an image that is open, or was made. Raises Unreadable."""
    with _worded():
        return fitted(ImageOps.exif_transpose(image), size, channels, framing)


def read_header(file: Path) -> Header:
    """Height, width, and whether it is without colour. Raises Unreadable."""
    with _readable(file) as image:
        width, height = image.size
        if image.getexif().get(_ORIENTATION) in _TURNED:
            width, height = height, width
        return Header(height, width, image.mode in _GREY or image.mode.startswith("I;16"))


def fitted(image: Image.Image, size: int, channels: int, framing: Framing = MIDDLE) -> np.ndarray:
    """The square in the middle of an image, at a size, grey or RGB: (size, size, channels) uint8."""
    image = _plain(image, "L" if channels == 1 else "RGB")
    box = _box(*image.size, framing.share)
    if image.size != (size, size) or box != (0, 0, size, size):
        image = image.resize((size, size), framing.resample, box=box)
    return np.asarray(image).reshape(size, size, channels)


def _box(width: int, height: int, share: float | None) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of what is taken of an image."""
    if share is None:
        return 0, 0, width, height
    side = share * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def _plain(image: Image.Image, mode: str) -> Image.Image:
    """The image without transparency, in 8 bits."""
    if image.mode.startswith("I;16") or image.mode == "I":
        image = _eight_bits(image)
    elif image.mode == "F":
        raise Unreadable("its pixels are floating-point numbers; save it with 8 or 16 bits")
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), clear)
    return image.convert(mode)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits as grey of 8; Pillow's own conversion would cut off all above 255."""
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise Unreadable(f"its pixels go up to {values.max()}; save it with 8 or 16 bits")
    return Image.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))


@contextmanager
def _readable(file: Path | BinaryIO) -> Generator[Image.Image, None, None]:
    with _worded(), Image.open(file, formats=_FORMATS) as image:
        if image.width * image.height > (Image.MAX_IMAGE_PIXELS or float("inf")):
            raise Image.DecompressionBombError
        yield image


@contextmanager
def _worded() -> Generator[None, None, None]:
    """What goes wrong with an image, in words."""
    try:
        yield
    except Unreadable:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        limit = f"{Image.MAX_IMAGE_PIXELS or 0:,}"
        raise Unreadable(f"it unpacks to more than {limit} pixels; make it smaller") from None
    except Image.UnidentifiedImageError:
        raise Unreadable("it is no png, jpeg, bmp, webp or gif, or its beginning is broken; save it again") from None
    except OSError as error:
        if error.errno:
            raise Unreadable(f"cannot read it: {error.strerror}; check that you may") from None
        raise Unreadable(_damaged(error)) from None
    except Exception as error:  # Pillow's readers raise almost anything on broken bytes
        raise Unreadable(_damaged(error)) from None


def _damaged(error: Exception) -> str:
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"the image is broken or cut short ({reason}); fetch or save it again"
