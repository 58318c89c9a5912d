"""Images of any source as arrays on disk: decoded once, mapped ever after, in constant memory.

A folder of the store is named by a hash of the images' content and of the size and channels that were asked for,
so that nothing is decoded twice and a changed image is never mistaken for the old one. It takes its name only when
it is complete. It holds the flat files `train.pixels` and `train.labels`, those of `heldout` where it was given,
and `meta.json`.

Unless a size is asked for, it is the shorter side of the most common size of the training images, rounded down to
what patches divide (a multiple of 4, above 64 of 16), and at most 224. Unless channels are asked for, images are grey
if all training images are, and RGB otherwise.

Shapes: N images, H height, W width, C channels.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from heedful.data import builtin
from heedful.data.flaws import Flaw
from heedful.data.image_files import Header, Unreadable, careful, read_header, read_image
from heedful.data.image_sources import Found, Part, find
from heedful.data.images import CHANNELS, Images
from heedful.data.pixel_arrays import pixel_pieces, pixel_shape
from heedful.data.stored_arrays import StoredArray
from heedful.durable import file_digest, new_folder
from heedful.errors import UserError

FORMAT = 1
"""To be raised when the same files would give other pixels."""
DIGITS = "digits"
"""The name of the images that are always there."""
MOST = 224
"""The largest side that is chosen by itself."""
OR_SKIP_FILES = "or pass over such files with --skip-bad"

_AT_ONCE = 256
"""Files decoded before they are written."""
_THREADS = min(16, 2 * (os.cpu_count() or 1))

In = TypeVar("In")
Out = TypeVar("Out")


class Stored(NamedTuple):
    """Images ready to be trained on."""

    train: Images
    heldout: Images | None
    """None where the source has no such part; `images.split` makes one."""
    key: str
    """Tells the content: the same images, sizes and classes have the same key."""
    content: str
    """Tells the images to train on alone, whatever size they were brought to; see `content`."""
    skipped: tuple[Flaw, ...]
    """Images that can't be read."""
    others: tuple[Path, ...] = ()
    """Files that are not taken for images of a class; see `image_sources.Part`."""


def prepare(
    name: str,
    *,
    cache: Path,
    size: int | None = None,
    channels: int | None = None,
    classes: Sequence[str] | None = None,
    skip_bad: bool = False,
) -> Stored:
    """The images that a name stands for; decoded now unless they are in the cache.

    With `classes`, those of a model, labels are indices into them, and the images may be of a single one.
    """
    _check(size, channels)
    if is_digits(name):
        return _digits(size, channels, classes)
    found = find(name)
    used = np.unique(found.train.labels)
    if classes is None and len(used) < 2:
        only = found.train.names[used[0]]
        raise UserError(
            f"every image of {found.train.where} is of the class {only!r}; a classifier needs two or more"
        )
    names = tuple(classes or found.train.names)
    labels = [None if part is None else label_indices(part, names) for part in found]
    told = content(found.train)
    key = _key([told, None if found.heldout is None else content(found.heldout)], names, size, channels)
    folder = cache / "images" / key
    if not (folder / "meta.json").is_file():
        with careful(), new_folder(folder) as aside:
            _write(found, labels, names, aside, size, channels, skip_bad, strict=classes is None)
    train, heldout, skipped = _load(folder, found, names, skip_bad)
    others = [file for part in found if part is not None for file in part.others]
    return Stored(train, heldout, key, told, skipped, tuple(others))


def default_size(height: int, width: int) -> int:
    """The side of the square that images of a size are brought to."""
    side = min(height, width, MOST)
    return side if side < 8 else side - side % (4 if side <= 64 else 16)


def is_digits(name: str) -> bool:
    """Whether a name stands for the images that are always there: nothing has it, or no more than a model has."""
    made = ("heedful.toml", "model.safetensors")
    return name == DIGITS and (not Path(name).exists() or any((Path(name) / file).is_file() for file in made))


def _check(size: int | None, channels: int | None) -> None:
    if size is not None and size < 1:
        raise UserError(f"an image size of {size} is not 1 or more; try 32 or 224")
    if channels is not None and channels not in CHANNELS:
        raise UserError(f"{channels} channels are neither 1 (grey) nor 3 (RGB)")


def digits_part() -> Part:
    """The images that are always there."""
    pixels, labels = builtin.digits()
    return Part(Path(DIGITS), tuple(map(str, range(10))), labels, StoredArray.of(DIGITS, pixels))


def _digits(size: int | None, channels: int | None, classes: Sequence[str] | None) -> Stored:
    part = digits_part()
    assert isinstance(part.images, StoredArray)
    size, channels, wanted, told = size or 8, channels or 1, tuple(classes or part.names), content(part)
    made = np.concatenate(list(pixel_pieces(part.images, size, channels)))
    images = Images.of(made, label_indices(part, wanted), wanted)
    return Stored(images, None, _key([told, None], wanted, size, channels), told, ())


def label_indices(part: Part, classes: tuple[str, ...]) -> np.ndarray:
    """The labels of a part as indices into the classes. Numbers of an array without names are indices already."""
    places = {name: place for place, name in enumerate(classes)}
    unknown = [name for name in part.names if name not in places]
    if not unknown:
        return np.array([places[name] for name in part.names])[part.labels]
    if (
        isinstance(part.images, StoredArray)
        and all(map(_is_number, part.names))
        and not any(map(_is_number, classes))
    ):
        indices = np.array([int(name) for name in part.names])
        if indices.max() >= len(classes):
            raise UserError(
                f"{part.where} has the label {indices.max()}, but there are classes for 0 to {len(classes) - 1} "
                "only; leave such images out, or train with them"
            )
        return indices[part.labels]
    known = ", ".join(classes[:10]) + (", …" if len(classes) > 10 else "")
    raise UserError(
        f"{part.where} has the class {unknown[0]!r}, which is none of those trained on: {known}; "
        "give it one of these names, leave it out, or train with it"
    )


def _is_number(name: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", name) is not None


def content(part: Part) -> str:
    """Tells the images of a part and the class of each: the same ones have the same, wherever they lie."""
    if isinstance(part.images, StoredArray):
        return _hashed([part.names, _digest_of(part.labels), part.images.digest()])
    files = [file.relative_to(part.where).as_posix() for file in part.images]
    return _hashed(list(zip(files, _in_threads(_digest, part.images), strict=True)))


def _key(contents: Sequence[str | None], names: tuple[str, ...], size: int | None, channels: int | None) -> str:
    return _hashed([FORMAT, names, size, channels, *contents])


def _hashed(told: list[Any]) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]


def _digest_of(labels: np.ndarray) -> str:
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()


def _digest(file: Path) -> str:
    try:
        return file_digest(file)
    except OSError as error:  # told, or passed over, where it is read
        return f"unreadable: {error.errno}"


def _write(
    found: Found,
    labels: list[np.ndarray | None],
    names: tuple[str, ...],
    folder: Path,
    size: int | None,
    channels: int | None,
    skip_bad: bool,
    *,
    strict: bool,
) -> None:
    """Decode every part; `strict` asks for at least one image of every class that was given some."""
    if size is None or channels is None:
        usual_size, usual_channels = _usual(found.train)
        size, channels = size or usual_size, channels or usual_channels
    meta: dict[str, Any] = {"format": FORMAT, "size": size, "channels": channels, "parts": {}, "skipped": {}}
    for name, part, wanted in zip(("train", "heldout"), found, labels, strict=True):
        if part is None or wanted is None:
            continue
        kept, skipped = [], []
        with (folder / f"{name}.pixels").open("wb") as file:
            for pixels, sound in _decoded(part, size, channels, skip_bad, skipped):
                file.write(np.ascontiguousarray(pixels).data)
                kept.append(sound)
        rows = np.concatenate(kept)
        lost = np.setdiff1d(wanted, wanted[rows])
        if not rows.any() or (strict and name == "train" and len(lost)):
            of_class = f" of the class {names[lost[0]]!r}" if len(lost) else ""
            raise UserError(f"no image{of_class} in {part.where} can be read: give others, or leave the class out")
        (folder / f"{name}.labels").write_bytes(wanted[rows].astype("<i8").tobytes())
        meta["parts"][name], meta["skipped"][name] = int(rows.sum()), skipped
    (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def _decoded(
    part: Part, size: int, channels: int, skip_bad: bool, skipped: list[list[str]]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pixels of images in their order, and which of the images looked at these are."""
    if isinstance(part.images, StoredArray):
        for pixels in pixel_pieces(part.images, size, channels):
            yield pixels, np.ones(len(pixels), bool)
        return

    def decode(file: Path) -> np.ndarray | Unreadable:
        try:
            return read_image(file, size, channels)
        except Unreadable as flaw:
            return flaw

    for start in range(0, len(part.images), _AT_ONCE):
        files = part.images[start : start + _AT_ONCE]
        read = _in_threads(decode, files)
        for file, one in zip(files, read, strict=True):
            if isinstance(one, Unreadable):
                if not skip_bad:
                    raise UserError(f"{file}: {one}, {OR_SKIP_FILES}")
                skipped.append([file.relative_to(part.where).as_posix(), str(one)])
        good = [one for one in read if not isinstance(one, Unreadable)]
        pixels = np.stack(good) if good else np.empty((0, size, size, channels), np.uint8)
        yield pixels, np.array([not isinstance(one, Unreadable) for one in read])


def _usual(part: Part) -> tuple[int, int]:
    """The size and the channels that the images of a part ask for."""
    if isinstance(part.images, StoredArray):
        height, width, channels = pixel_shape(part.images)
        return default_size(height, width), 1 if channels == 1 else 3

    def look(file: Path) -> Header | None:
        try:
            return read_header(file)
        except Unreadable:  # told, or passed over, where it is decoded
            return None

    headers = [header for header in _in_threads(look, part.images) if header]
    sizes = Counter((header.height, header.width) for header in headers)
    if not sizes:
        return MOST, 3
    most = max(sizes, key=lambda one: (sizes[one], one[0] * one[1]))
    return default_size(*most), 1 if all(header.grey for header in headers) else 3


def _load(
    folder: Path, found: Found, names: tuple[str, ...], skip_bad: bool
) -> tuple[Images, Images | None, tuple[Flaw, ...]]:
    """The images to train on, those held out, and what was passed over."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        shape = (meta["size"], meta["size"], meta["channels"])
        parts = {name: _mapped(folder, name, count, shape, names) for name, count in meta["parts"].items()}
        skipped = tuple(
            Flaw(str(part.where / file), problem)
            for name, part in zip(("train", "heldout"), found, strict=True)
            if part is not None
            for file, problem in meta["skipped"][name]
        )
        train = parts["train"]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(
            f"the images in {folder} are damaged ({error}); delete the folder to read them again"
        ) from None
    if skipped and not skip_bad:
        raise UserError(f"{skipped[0]}, {OR_SKIP_FILES}")
    return train, parts.get("heldout"), skipped


def _mapped(folder: Path, name: str, count: int, shape: tuple[int, ...], names: tuple[str, ...]) -> Images:
    pixels, labels = folder / f"{name}.pixels", folder / f"{name}.labels"
    for file, size in ((pixels, count * int(np.prod(shape))), (labels, count * 8)):
        if file.stat().st_size != size:
            raise ValueError(f"{file.name} has {file.stat().st_size} bytes instead of {size}")
    return Images.of(
        np.memmap(pixels, np.uint8, "r", shape=(count, *shape)), np.frombuffer(labels.read_bytes(), "<i8"), names
    )


def _in_threads(work: Callable[[In], Out], items: Sequence[In]) -> list[Out]:
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(work, items))
