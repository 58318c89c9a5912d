"""What a model sees in image files and in arrays of images, one after the other, in constant memory."""

import difflib
import glob
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from heedful.data.flaws import Flaw
from heedful.data.image_files import ENDINGS
from heedful.data.image_sources import arrays_of, images_under
from heedful.data.image_store import OR_SKIP_FILES, digits_part, is_digits
from heedful.data.lines import reading
from heedful.data.pixel_arrays import own_pieces
from heedful.data.stored_arrays import StoredArray
from heedful.errors import UserError
from heedful.predict.images import ImageExample, ImagePredictor, Seen
from heedful.predict.looking import looking, looks
from heedful.predict.reading import answers

MOST_DRAWN = 8
"""Images of a picture: more would make it too long to look at."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be said of the images."""

    top: int = 3
    """Classes to name, the most probable first."""
    json: bool = False
    skip_bad: bool = False
    picture: Path | None = None
    """Where to draw which patches the heads look at."""
    layer: int | None = None
    """Of which layer; the last if it isn't said."""

    def __post_init__(self) -> None:
        if self.top < 1:
            raise UserError(f"--top {self.top} must be at least 1")
        if self.layer is not None and self.picture is None:
            raise UserError("--layer says which heads --picture draws; ask for a picture too, or leave it out")
        if self.picture is not None:
            from heedful.runs.pictures import check_format

            check_format(self.picture)


class Rows(NamedTuple):
    """The images of an array, or one of them."""

    stored: StoredArray
    only: int | None = None
    """Its number, counted from 0."""


def find(names: Sequence[str]) -> list[Path | Rows]:
    """What names stand for: image files, arrays, folders with all images that are in them, and patterns; `digits`;
    and one image of an array, as `images.npy[7]`."""
    found: list[Path | Rows] = []
    for name in names:
        path = Path(name)
        with reading(path):
            if is_digits(name):
                found += _rows(name)
                continue
            if path.exists():
                found += _within(path)
                continue
            one = re.fullmatch(r"(.+)\[(-?\d+)\]", name)
            if one and (is_digits(one[1]) or Path(one[1]).is_file()) and (rows := _rows(one[1])):
                found.append(_one(rows, int(one[2])))
                continue
            # Path has no pattern that may begin anywhere, as a shell's does
            matched = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else []  # noqa: PTH207
            inside = [file for match in matched for file in _within(Path(match), pattern=True)]
        if not inside:
            raise UserError(_missing(path))
        found += inside
    if not found:
        raise UserError("there is no image to look at; name files, folders or patterns")
    return found


def see(
    predictor: ImagePredictor, found: Sequence[Path | Rows], wanted: Wanted, say: Callable[[str], None]
) -> str | None:
    """Say what is in every image; what there is to say in the end of those that could not be read."""
    if wanted.picture is not None:
        looking(predictor, wanted.layer)
    skipped: list[Flaw] = []
    shown: list[tuple[ImageExample, Seen]] = []
    seen = 0
    for one in answers(predictor.reader(), _examples(found), predictor.pace):
        if isinstance(one, Flaw):
            if not wanted.skip_bad:
                raise UserError(f"{one}, {OR_SKIP_FILES}")
            skipped.append(one)
            if wanted.json:
                say(json.dumps({"image": one.where, "error": one.problem}, ensure_ascii=False))
            continue
        seen += 1
        say(_line(*one, wanted))
        if wanted.picture is not None and len(shown) < MOST_DRAWN:
            shown.append(one)
    if not seen:
        raise UserError(f"no image can be read: {told(skipped)}")
    remarks = [f"passed over {told(skipped)}"] if skipped else []
    if wanted.picture is not None:
        lacks = draw(predictor, shown, wanted.picture, wanted.layer)
        remarks += [lacks] if lacks else []
        if seen > len(shown):
            remarks.append(f"the picture shows the first {len(shown)} of {seen:,} images")
    return "; ".join(remarks) or None


def draw(
    predictor: ImagePredictor, seen: Sequence[tuple[ImageExample, Seen]], path: Path, layer: int | None = None
) -> str | None:
    """Draw which patches of the images the heads of a layer look at; what there is to say of the picture."""
    from heedful.runs.patch_pictures import Drawn
    from heedful.runs.patch_pictures import draw as run

    pictures = predictor.reader().prepare([example for example, _ in seen])
    drawn = []
    for (example, answer), picture in zip(seen, pictures, strict=True):
        if not isinstance(picture, np.ndarray):  # it was there a moment ago
            raise UserError(f"{picture}")
        name = example.image.name if isinstance(example.image, Path) else example.where
        found = looks(predictor, picture, layer)
        drawn.append(Drawn(name, f"{answer.label} {answer.score:.1%}", picture, found))
    return run(drawn, path)


def told(flaws: Sequence[Flaw]) -> str:
    """How many files were passed over, and why the first was."""
    count = "1 file" if len(flaws) == 1 else f"{len(flaws):,} files, the first"
    return f"{count}: {flaws[0]}"


def _examples(found: Sequence[Path | Rows]) -> Iterator[ImageExample]:
    for one in found:
        if isinstance(one, Path):
            yield ImageExample(str(one), one)
            continue
        number = 0
        for piece in own_pieces(one.stored):
            for pixels in piece:
                if one.only in (None, number):
                    yield ImageExample(f"{one.stored.where}[{number}]", pixels)
                number += 1


def _rows(name: str) -> list[Rows]:
    """The arrays that a name stands for, if it does."""
    stored = digits_part().images if is_digits(name) else None
    return [Rows(_many(one)) for one in ([stored] if isinstance(stored, StoredArray) else arrays_of(Path(name)))]


def _many(stored: StoredArray) -> StoredArray:
    """An array of images: one that is a single image in colour, (height, width, 3), as an array of one."""
    alone = len(stored.shape) == 3 and stored.shape[2] == 3
    return replace(stored, shape=(1, *stored.shape)) if alone else stored


def _one(found: list[Rows], number: int) -> Rows:
    stored = found[0].stored
    if len(found) > 1:
        names = ", ".join(one.stored.where for one in found)
        raise UserError(f"{stored.file} holds several arrays of images ({names}); save the one that is meant alone")
    if not 0 <= number < stored.shape[0]:
        raise UserError(f"{stored.where} has no image {number}; it has {stored.shape[0]:,}, counted from 0")
    return Rows(stored, number)


def _within(path: Path, *, pattern: bool = False) -> Sequence[Path | Rows]:
    """A file, its arrays, or the images of a folder; what a pattern matched may be something else, which nobody
    named."""
    if path.is_dir():
        files = images_under(path)
        if not files and not pattern:
            raise UserError(f"{path} holds no images ({' '.join(ENDINGS)}); name another folder, or files")
        return files
    if rows := _rows(str(path)):
        return rows
    return [path] if not pattern or path.name.lower().endswith(ENDINGS) else []


def _missing(path: Path) -> str:
    if glob.has_magic(str(path)):
        return f"no image is named like {path} ({' '.join(ENDINGS)})"
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.75)
    return f"{path} does not exist; {f'did you mean {path.parent / near[0]}?' if near else 'name an image file'}"


def _line(example: ImageExample, answer: Seen, wanted: Wanted) -> str:
    best = answer.best(wanted.top)
    if wanted.json:
        table: dict[str, Any] = {"image": example.where, "label": answer.label, "score": answer.score}
        return json.dumps({**table, "scores": best}, ensure_ascii=False)
    return f"{example.where}: {', '.join(f'{label} {score:.1%}' for label, score in best.items())}"
