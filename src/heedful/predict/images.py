"""A classifier of images as something to ask: files, Pillow's images or arrays in, classes out.

Shapes: N images, H height, W width, C channels, K classes.
"""

import contextlib
import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, overload

import numpy as np
from PIL import Image

from heedful.data.flaws import Flaw, sound
from heedful.data.image_files import Framing, Unreadable, careful, read_image, taken_in
from heedful.data.pixel_arrays import picture
from heedful.errors import UserError
from heedful.nn.pixels import RESAMPLES, Pixels
from heedful.predict.image_engine import ImageEngine
from heedful.predict.reading import Pace, answers

Picture = str | Path | bytes | Image.Image | np.ndarray
"""A file's name, the bytes of a file, an image that is open, or (H, W) or (H, W, C) bytes: grey, RGB, or RGB with
opacity."""

CHUNK, GPU_CHUNK = 64, 1024
"""Images that are decoded and classified together; more where a GPU computes."""
ROOM = 128 << 20
"""Bytes that those may have together, at the model's size."""
UNPACKS = "it unpacks to"
"""How the flaw of an image that is too large begins."""
_THREADS = min(16, 2 * (os.cpu_count() or 1))
_READING = Lock()
"""Warnings, which are watched while images are read, belong to the whole process: one at a time may."""


class Seen(NamedTuple):
    """The class of an image."""

    label: str
    score: float
    """Its probability."""
    scores: dict[str, float]
    """Of every class, in their order."""

    def best(self, count: int) -> dict[str, float]:
        """The most probable classes, the best first."""
        return dict(sorted(self.scores.items(), key=lambda one: -one[1])[:count])


class ImageExample(NamedTuple):
    """An image to classify."""

    where: str
    """What messages call it."""
    image: Picture
    target: str | None = None
    """Its class, where it is known."""


class ImageReader:
    """Classifies images; see `predict/reading.py`."""

    def __init__(self, engine: ImageEngine, most_pixels: int | None = None) -> None:
        self.engine = engine
        self.most_pixels = most_pixels
        self.framing = framing(engine.pixels, engine.image_size)

    def prepare(self, examples: Sequence[ImageExample]) -> list[np.ndarray | Flaw]:
        """(H, W, C) bytes of each, at the model's size; or why it can't be read."""
        with _READING, careful():
            if len(examples) == 1:
                return [self._ready(examples[0])]
            with ThreadPoolExecutor(_THREADS) as pool:
                return list(pool.map(self._ready, examples))

    def _ready(self, example: ImageExample) -> np.ndarray | Flaw:
        size, channels, image = self.engine.image_size, self.engine.channels, example.image
        try:
            if isinstance(image, str | Path):
                return read_image(Path(image), size, channels, self.framing)
            if isinstance(image, bytes):
                self._check_pixels(image)
                return read_image(io.BytesIO(image), size, channels, self.framing)
            opened = picture(_channelled(image)) if isinstance(image, np.ndarray) else image
            return taken_in(opened, size, channels, self.framing)
        except Unreadable as flaw:
            return Flaw(example.where, str(flaw))

    def _check_pixels(self, content: bytes) -> None:
        """Raise `Unreadable` if a file would unpack to more than is read; what else is wrong is told by who reads."""
        if self.most_pixels is None:
            return
        size = None
        with contextlib.suppress(Exception), Image.open(io.BytesIO(content)) as image:
            size = image.size
        if size is not None and size[0] * size[1] > self.most_pixels:
            raise Unreadable(
                f"{UNPACKS} {size[0]:,} x {size[1]:,} pixels, and {self.most_pixels:,} are read; make it smaller"
            )

    def answer(self, prepared: Sequence[np.ndarray]) -> list[Seen]:
        """The most probable class, and the probabilities of all."""
        if not prepared:
            return []
        scores = self.engine.scores(np.stack(prepared)).astype(np.float64)
        powers = np.exp(scores - scores.max(1, keepdims=True))
        shares = powers / powers.sum(1, keepdims=True)
        labels = self.engine.labels
        return [
            Seen(labels[best], float(row[best]), dict(zip(labels, row.tolist(), strict=True)))
            for row, best in zip(shares, shares.argmax(1).tolist(), strict=True)
        ]


class ImagePredictor:
    """A model folder that says what is in images."""

    def __init__(self, engine: ImageEngine, origin: str = "the model") -> None:
        self.engine = engine
        self.origin = origin
        self.most_pixels: int | None = None
        """Of images that come as bytes, which a stranger may have sent."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes, in their order."""
        return self.engine.labels

    @property
    def pace(self) -> Pace:
        """How many images are best given: a GPU needs no help while it computes, so the next are decoded meanwhile.

        A CPU has all its cores at work either way: to decode and compute by turns is quicker than at the same time.
        """
        engine = self.engine
        most = max(1, ROOM // (engine.image_size**2 * engine.channels))
        return Pace(min(GPU_CHUNK if engine.on_gpu else CHUNK, most), ahead=engine.on_gpu)

    @overload
    def see(self, images: Picture) -> Seen: ...
    @overload
    def see(self, images: Sequence[Picture]) -> list[Seen]: ...

    def see(self, images: Picture | Sequence[Picture]) -> Seen | list[Seen]:
        """The class of an image, or of each of several: files, their bytes, Pillow's images, or uint8 arrays.

        An array of (N, H, W, C) is several images, one of (H, W, C) or (H, W) a single one.
        """
        single = isinstance(images, str | Path | bytes | Image.Image)
        alone = single or (isinstance(images, np.ndarray) and images.ndim < 4)
        if not alone and not isinstance(images, Sequence | np.ndarray):
            raise UserError(f"{images!r:.60} is neither an image nor a list of them")
        examples = [ImageExample(name(one), _image(one)) for one in ([images] if alone else images)]
        pace = self.pace
        if len(examples) <= pace.chunk:
            pace = pace._replace(ahead=False)
        answered = answers(self.reader(), examples, pace)
        found = [answer for _, answer in sound(answered)]
        return found[0] if alone else found

    def reader(self) -> ImageReader:
        """What classifies examples."""
        return ImageReader(self.engine, self.most_pixels)


def framing(pixels: Pixels, image_size: int) -> Framing:
    """What of an image a model reads, as its folder says."""
    share = None if pixels.edge is None else min(1.0, image_size / pixels.edge)
    return Framing(share, Image.Resampling(RESAMPLES.index(pixels.resample)))


def name(image: Any) -> str:
    """What messages call an image."""
    if isinstance(image, Image.Image):
        return str(getattr(image, "filename", "")) or f"an image of {image.width} x {image.height}"
    if isinstance(image, bytes):
        return f"an image of {len(image):,} bytes"
    return f"an array of {image.dtype} {image.shape}" if isinstance(image, np.ndarray) else str(image)


def _image(image: Any) -> Picture:
    """An image that can be read, as far as can be told without reading it."""
    if not isinstance(image, Picture):
        raise UserError(f"{image!r:.60} is no image; give a file, an image of Pillow, or a uint8 array")
    if isinstance(image, str | Path):
        if not Path(image).is_file():
            raise UserError(f"{image} is a folder; give its files" if Path(image).is_dir() else _missing(image))
    elif isinstance(image, np.ndarray):
        _check(image)
    return image


def _missing(image: str | Path) -> str:
    return f"{image} does not exist; name an image file"


def _check(pixels: np.ndarray) -> None:
    if pixels.dtype != np.uint8:
        raise UserError(f"an array of {pixels.dtype} is no image; give uint8 from 0 to 255")
    if pixels.ndim not in (2, 3) or 0 in pixels.shape or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4)):
        raise UserError(f"an array of shape {pixels.shape} is no image; give (H, W) or (H, W, 1, 3 or 4)")


def _channelled(pixels: np.ndarray) -> np.ndarray:
    return pixels[..., None] if pixels.ndim == 2 else pixels
