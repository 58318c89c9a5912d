"""What a user names as images, found: class folders, IDX files, npy pairs and npz archives, with their parts.

A part is a list of files or a stored array, with a class for each image; nothing is decoded here. Folders named
`train` and `test` (or `val`, `dev` and the like), and arrays with such words in their names, are the images to
train on and those held out; where there are both, `val` is held out and `test` left alone. Names of classes are
in NFC.
"""

import difflib
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from heedful.data.image_files import ENDINGS
from heedful.data.lines import PACKINGS, lines, packing, reading
from heedful.data.stored_arrays import Read, StoredArray, read_idx, read_npy, read_npz
from heedful.errors import Missing, UserError

NAMES_FILE = "classes.txt"
"""Beside arrays: the names of the classes, one a line, from label 0 on."""
TRAIN = ("train", "training")
HELD_OUT = ("val", "valid", "validation", "dev", "heldout", "test", "testing", "t10k")
"""What held-out parts are called; of several, the first that is there is taken."""

_IMAGES = ("images", "image", "imgs", "x", "data", "pixels")
_LABELS = ("labels", "label", "y", "targets", "target")
_CLASS_NAMES = ("classes", "class_names", "label_names", "target_names", "names")
_KINDS = f"a folder of class folders ({' '.join(ENDINGS)}), .npy pairs, .npz or IDX files"


@dataclass(frozen=True, eq=False)
class Part:
    """Images with a class each."""

    where: Path
    names: tuple[str, ...]
    """The classes, in their order."""
    labels: np.ndarray
    """(N,) int64: indices into the names."""
    images: tuple[Path, ...] | StoredArray
    """N files, or an array of N images."""
    others: tuple[Path, ...] = ()
    """What lies among class folders and is no image of a class: files of other kinds, images beside the folders."""


class Found(NamedTuple):
    """What there is to train on, and what was given to be held out."""

    train: Part
    heldout: Part | None


def find(name: str) -> Found:
    """The parts that a file or a folder holds."""
    path = Path(name)
    with reading(path):
        if path.is_dir():
            return _of_folder(path)
        if path.is_file():
            return _of_file(path)
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.75)
    way_out = f"did you mean {path.parent / near[0]}?" if near else f"name {_KINDS}"
    raise Missing(f"{name} does not exist; {way_out}")


def in_order(names: Sequence[str]) -> tuple[str, ...]:
    """Class names, numbers by size and then everything else by its letters."""
    return tuple(sorted(names, key=_order))


def _order(name: str) -> tuple[int, int, str]:
    return (0, int(name), name) if re.fullmatch(r"-?[0-9]{1,18}", name) else (1, 0, name)


def _of_folder(folder: Path) -> Found:
    files = [entry for entry in sorted(folder.iterdir()) if entry.is_file() and not entry.name.startswith(".")]
    arrays = {file.name: _reader(file) for file in files if _reader(file)}
    if pairs := _pairs(arrays, str(folder)):
        return _of_pairs(pairs, folder, _names_beside(folder))
    archives = [file for file in files if file.suffix.lower() == ".npz"]
    if len(archives) > 1:
        raise UserError(f"{folder} holds {len(archives)} npz files; name one, such as {archives[0]}")
    if archives:
        return _of_file(archives[0])
    folders = {entry.name.lower(): entry for entry in _folders(folder)}
    train = next((folders[name] for name in TRAIN if name in folders and _folders(folders[name])), None)
    if train is None:
        return Found(_classes(folder), None)
    heldout = next((folders[name] for name in HELD_OUT if name in folders and _folders(folders[name])), None)
    return Found(_classes(train), _classes(heldout) if heldout else None)


def _folders(folder: Path) -> list[Path]:
    return [entry for entry in sorted(folder.iterdir()) if entry.is_dir() and not entry.name.startswith((".", "__"))]


def _classes(folder: Path) -> Part:
    """Class folders, each with its images, in folders of their own or not."""
    folders = _folders(folder)
    if not folders:
        if images_under(folder):
            raise UserError(
                f"{folder} holds images but no class folders; put those of each class into one: cat/1.png"
            )
        raise UserError(f"{folder} holds no images; give {_KINDS}")
    of_class: dict[str, list[Path]] = {}
    for entry in folders:  # a folder made on a Mac may spell the name of another one differently
        of_class.setdefault(unicodedata.normalize("NFC", entry.name), []).append(entry)
    names = in_order(list(of_class))
    files, labels = [], []
    others = [entry for entry in sorted(folder.iterdir()) if entry.is_file() and _shows(entry) and _is_image(entry)]
    for label, name in enumerate(names):
        inside = [file for entry in of_class[name] for file in _files_under(entry)]
        found = [file for file in inside if _is_image(file)]
        others += [file for file in inside if not _is_image(file)]
        if not found:
            ends = " ".join(ENDINGS)
            raise UserError(f"the class folder {of_class[name][0]} holds no images ({ends}); fill or remove it")
        files += found
        labels += [label] * len(found)
    return Part(folder, names, np.array(labels, np.int64), tuple(files), tuple(others))


def images_under(folder: Path) -> list[Path]:
    """The image files of a folder and of those in it, in order; hidden ones are left out."""
    return [file for file in _files_under(folder) if _is_image(file)]


def _is_image(file: Path) -> bool:
    return file.name.lower().endswith(ENDINGS)


def _shows(file: Path) -> bool:
    return not file.name.startswith(".")


def _files_under(folder: Path) -> list[Path]:
    def fail(error: OSError) -> None:
        raise error  # os.walk would pass over a folder that it may not open

    found: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        found += [Path(parent, name) for name in names]
    return sorted(filter(_shows, found))


def _of_file(file: Path) -> Found:
    if file.suffix.lower() == ".npz":
        arrays = read_npz(file)
        names = next((_text_names(arrays[name]()) for name in _CLASS_NAMES if name in arrays), None)
        pairs = _pairs(arrays, str(file))
        if not pairs:
            there = ", ".join(arrays) or "nothing"
            kinds = {_words(name)[0] for name in arrays}
            lacking = " but no labels" if "x" in kinds and "y" not in kinds else ""
            raise UserError(
                f"{file} holds {there}{lacking}; name the arrays x and y, images and labels, or x_train, y_train …"
            )
        return _of_pairs(pairs, file, names if names is not None else _names_beside(file.parent))
    if file.name.lower().endswith(ENDINGS):
        raise UserError(f"{file} is one image; give the folder with the class folders")
    read = _reader(file)
    if not read:
        raise UserError(f"{file} can't be read as images; give {_KINDS}")
    beside = {entry.name: _reader(entry) for entry in sorted(file.parent.iterdir()) if _reader(entry)}
    content, *part = _words(file.name)
    partners = {name: read for name, read in beside.items() if _words(name)[0] != content}
    chosen = {name: read for name, read in partners.items() if [*_words(name)[1:]] == part}
    if content is not None:  # what is named as this one is, where others are there too
        alike = {name: read for name, read in chosen.items() if name.lower() == _partner(file).lower()}
        chosen = alike or chosen
    chosen |= {file.name: read}
    pairs = _pairs(chosen, str(file.parent))
    if not pairs:
        read()  # said first, if it is no array at all
        raise UserError(_alone(file))
    (pair,) = pairs.values()
    return Found(_of_pair(*pair, file, _names_beside(file.parent)), None)


def _alone(file: Path) -> str:
    """What is missing beside an array, and what it must be called."""
    content = _words(file.name)[0]
    if content is None:
        return (
            f"{file} is named neither as images nor as labels; name the two alike, "
            "as images.npy and labels.npy, or x_train.npy and y_train.npy"
        )
    lacking = "labels" if content == "x" else "images"
    return f"{file} has no {lacking} beside it; put them into {file.with_name(_partner(file))}"


def _partner(file: Path) -> str:
    """What the labels of images are to be called, or the images of labels."""
    mine, theirs = (_IMAGES, _LABELS) if _words(file.name)[0] == "x" else (_LABELS, _IMAGES)
    words = re.split(r"([-_. ]+)", file.name)
    place = next(place for place, word in enumerate(words) if word.lower() in mine)
    words[place] = {"x": "y", "y": "x"}.get(words[place].lower(), theirs[0])
    return "".join(words)


def arrays_of(file: Path) -> list[StoredArray]:
    """The arrays of images that a file holds, whatever their labels; none where its name is not that of arrays."""
    if file.suffix.lower() == ".npz":
        arrays = read_npz(file)
        chosen = [read for name, read in arrays.items() if _words(name)[0] == "x"] or list(arrays.values())
        if len(chosen) > 1 and not any(_words(name)[0] == "x" for name in arrays):
            raise UserError(f"{file} holds {', '.join(arrays)}; name the array with the images x or images")
        return [read() for read in chosen]
    read = _reader(file)
    return [read()] if read else []


def _reader(file: Path) -> Read | None:
    """How an array is read from a file; None if its name is not an array's."""
    name = file.name.lower().removesuffix(packing(file))
    if not file.is_file():
        return None
    if name.endswith(".npy"):
        return lambda: read_npy(file)
    if re.search(r"[-._]idx[0-9]?(-ubyte)?$", name):
        return lambda: read_idx(file)
    return None


def _words(name: str) -> tuple[str | None, str | None, tuple[str, ...]]:
    """What a name says: images or labels, which part, and the words left over."""
    skipped = ("npy", "ubyte", *(ending[1:] for ending in PACKINGS))
    words = [word for word in re.split(r"[-_. ]+", name.lower()) if word not in skipped]
    words = [word for word in words if not re.fullmatch(r"idx[0-9]?", word)]
    # Labels first: image_labels are no images.
    content = "y" if any(w in _LABELS for w in words) else "x" if any(w in _IMAGES for w in words) else None
    part = next((word for word in words if word in (*TRAIN, *HELD_OUT)), None)
    rest = tuple(word for word in words if word not in (*_IMAGES, *_LABELS, *TRAIN, *HELD_OUT))
    return content, part, rest


Pairs = Mapping[str | None, tuple[Read, Read]]


def _pairs(arrays: Mapping[str, Read | None], where: str) -> Pairs:
    """Images and their labels by the part that they are; for arrays of no named part, None."""
    found: dict[tuple[str | None, tuple[str, ...]], dict[str, Read]] = {}
    for name, read in arrays.items():
        content, part, rest = _words(name)
        if content and read:
            both = found.setdefault((part, rest), {})
            if content in both:
                kind = "images" if content == "x" else "labels"
                raise UserError(f"{where} holds two arrays of {kind}; name one that is meant, such as {name}")
            both[content] = read
    whole = {key: (both["x"], both["y"]) for key, both in found.items() if len(both) == 2}
    for part in {part for part, _ in whole}:
        several = sorted(" ".join(rest) for other, rest in whole if other == part)
        if len(several) > 1:
            raise UserError(
                f"{where} holds several sets of images ({', '.join(several)}); keep one, or name its file"
            )
    return {part: both for (part, _), both in whole.items()}


def _of_pairs(pairs: Pairs, where: Path, names: tuple[str, ...] | None) -> Found:
    train = next((part for part in (*TRAIN, None) if part in pairs), None)
    heldout = next((part for part in HELD_OUT if part in pairs), None)
    if train not in pairs:  # only a test part: it is all that there is
        train, heldout = heldout, None
    first = _of_pair(*pairs[train], where, names)
    return Found(first, None if heldout is None else _of_pair(*pairs[heldout], where, names))


def _of_pair(images: Read, labels: Read, where: Path, names: tuple[str, ...] | None) -> Part:
    pixels, stored = images(), labels()
    values = _labels(stored)
    if len(values) != pixels.shape[0]:
        raise UserError(
            f"{pixels.where} has {pixels.shape[0]:,} images and {stored.where} {len(values):,} labels; "
            "give one label an image"
        )
    if not len(values):
        raise UserError(f"{pixels.where} holds no images; give some")
    if values.dtype.kind == "U" or names is None:
        distinct, places = np.unique(values, return_inverse=True)
        found = [unicodedata.normalize("NFC", str(value)) for value in distinct.tolist()]
        order = in_order(list(dict.fromkeys(found)))
        return Part(where, order, np.array([order.index(name) for name in found])[places], pixels)
    beyond = values[(values < 0) | (values >= len(names))]
    if len(beyond):
        raise UserError(
            f"{stored.where} has the label {beyond[0]}, but there are names for 0 to {len(names) - 1} only; "
            "name the others too, or leave the names out"
        )
    return Part(where, names, values.astype(np.int64), pixels)


def _labels(stored: StoredArray) -> np.ndarray:
    if len(stored.shape) != 1 and not (len(stored.shape) == 2 and stored.shape[1] == 1):
        raise UserError(f"{stored.where} has the shape {stored.shape}; give one label an image: (N,)")
    if stored.dtype.kind not in "iuU":
        raise UserError(f"{stored.where} holds {stored.dtype}; give labels as whole numbers or as text")
    values = stored.whole().ravel()
    return values if stored.dtype.kind == "U" else values.astype(np.int64)


def _names_beside(folder: Path) -> tuple[str, ...] | None:
    file = folder / NAMES_FILE
    if not file.is_file():
        return None
    return _distinct([line.strip() for _, line in lines(file, "strict") if line.strip()], str(file))


def _text_names(stored: StoredArray) -> tuple[str, ...]:
    if stored.dtype.kind != "U" or len(stored.shape) != 1:
        raise UserError(f"{stored.where} holds {stored.dtype} {stored.shape}; give class names as a list of texts")
    return _distinct([unicodedata.normalize("NFC", name) for name in stored.whole().tolist()], stored.where)


def _distinct(names: list[str], where: str) -> tuple[str, ...]:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{where} names the class {name!r} twice; give every class its own name")
    return tuple(names)
