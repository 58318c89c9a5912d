"""`preprocessor_config.json`: how a picture becomes what a model reads, in the words of transformers.

It computes (byte · factor - mean) / std, we (byte / 255 - mean) / std: another factor goes into the two numbers.
"""

import json
from pathlib import Path
from typing import Any

from heedful.errors import UserError
from heedful.formats.documents import write_document
from heedful.nn.pixels import RESAMPLES, Pixels

NAME = "preprocessor_config.json"
PROCESSOR = "ViTImageProcessor"
FACTOR = 1 / 255


def write_preprocessor(folder: Path, pixels: Pixels, image_size: int, channels: int) -> None:
    """Write the file for a model of that image size."""
    square = {"height": image_size, "width": image_size}
    document = {
        "image_processor_type": PROCESSOR,
        "do_convert_rgb": channels == 3,
        "do_resize": True,
        "size": square if pixels.edge is None else {"shortest_edge": pixels.edge},
        "resample": RESAMPLES.index(pixels.resample),
        **({} if pixels.edge is None else {"do_center_crop": True, "crop_size": square}),
        "do_rescale": True,
        "rescale_factor": FACTOR,
        "do_normalize": True,
        "image_mean": _each(pixels.mean, channels),
        "image_std": _each(pixels.std, channels),
    }
    write_document(folder / NAME, document)


def read_preprocessor(folder: Path) -> Pixels:
    """What a folder says; the published ViT's way where it says nothing."""
    path = folder / NAME
    if not path.is_file():
        return Pixels()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); the folder is damaged") from None
    if not isinstance(document, dict):
        raise UserError(f"{path} is not an object of settings; the folder is damaged")
    mean, std = (0.0,), (1.0,)
    if document.get("do_normalize", True):
        mean, std = (_numbers(path, document, key) for key in ("image_mean", "image_std"))
    factor = 1.0
    if document.get("do_rescale", True):
        factor = document.get("rescale_factor", FACTOR)
        if not _is_number(factor) or factor <= 0:
            raise UserError(f"{path}: rescale_factor is {factor!r} but must be a number above 0")
    # The usual factor is 1 / 255 up to its last digit, which should leave the numbers as they are written.
    whole = 1.0 if abs(factor * 255 - 1) < 1e-6 else factor * 255
    number = document.get("resample", RESAMPLES.index("bilinear"))
    if not isinstance(number, int) or not 0 <= number < len(RESAMPLES):
        raise UserError(f"{path}: resample is {number!r} but must be one of 0 to {len(RESAMPLES) - 1}, as in Pillow")
    try:
        return Pixels(
            mean=tuple(value / whole for value in mean),
            std=tuple(value / whole for value in std),
            resample=RESAMPLES[number],
            edge=_edge(document),
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _edge(document: dict[str, Any]) -> int | None:
    """The length of the shorter side, where a picture is resized by it and cropped."""
    size = document.get("size")
    edge = size.get("shortest_edge") if isinstance(size, dict) else None
    return edge if isinstance(edge, int) and document.get("do_resize", True) else None


def _numbers(path: Path, document: dict[str, Any], key: str) -> tuple[float, ...]:
    found = document.get(key, 0.5)
    numbers = found if isinstance(found, list) else [found]
    if not numbers or not all(_is_number(value) for value in numbers):
        raise UserError(f"{path}: {key} is {found!r} but must be a number, or one for each channel")
    return tuple(float(value) for value in (numbers[:1] if len(set(numbers)) == 1 else numbers))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _each(numbers: tuple[float, ...], channels: int) -> list[float]:
    return list(numbers) if len(numbers) == channels else list(numbers) * channels
