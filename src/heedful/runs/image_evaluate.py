"""How good a classifier of images is on images whose classes are known.

Reads what `heedful train-vision` reads. Where that has a part to be held out, such as a folder `test`, it is the one
that counts; and of what the model itself was trained on, wherever it lies now, those images that it was not shown.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from heedful.config import read_toml
from heedful.data.flaws import Flaw
from heedful.data.image_sources import Found, Part, find
from heedful.data.image_store import DIGITS, OR_SKIP_FILES, content, digits_part, is_digits, label_indices
from heedful.data.images import Images, split
from heedful.data.pixel_arrays import pixel_pieces
from heedful.data.stored_arrays import StoredArray
from heedful.errors import UserError
from heedful.metrics.classification import one_of
from heedful.models.heads import Head
from heedful.predict.images import ImageExample, ImagePredictor, ImageReader, Seen
from heedful.predict.reading import answers
from heedful.predict.texts import Classified
from heedful.runs.evaluate import Evaluation, Mistake, as_json, figures, write_predictions
from heedful.runs.folder import RESULT_FILE
from heedful.runs.recipe_files import RUN_FILE
from heedful.runs.see import told

__all__ = ["as_json", "evaluate", "lines", "own_images", "write_predictions"]


class Judged(NamedTuple):
    """An image whose class is known."""

    where: str
    target: str


def evaluate(
    predictor: ImagePredictor,
    name: str,
    *,
    folder: Path | None = None,
    worst: int = 5,
    skip_bad: bool = False,
    every: bool = False,
) -> Evaluation:
    """Classify every image, and compare; with `every`, the probabilities of all classes are kept.

    The `folder` of the model may say that it was trained on the same images: then only those held out count.
    """
    given = Found(digits_part(), None) if is_digits(name) else find(name)
    labels = predictor.labels
    unseen, remark = (None, "") if folder is None else _unseen(predictor, folder, name, given)
    part = given.train if unseen is not None else given.heldout or given.train
    truth = label_indices(part, labels)
    if not set(part.names) <= set(labels):
        remark += f"; labels {part.names[0]} to {part.names[-1]} taken as {labels[int(part.names[0])]} to "
        remark += labels[int(part.names[-1])]
    truth = truth if unseen is None else truth[unseen]
    examples, found, mistakes, skipped = list[Judged](), list[Classified](), list[Mistake](), list[Flaw]()
    for label, (where, one) in zip(truth.tolist(), _seen(predictor, part, unseen), strict=True):
        if isinstance(one, Flaw):
            if not skip_bad:
                raise UserError(f"{one}, {OR_SKIP_FILES}")
            skipped.append(one)
            continue
        examples.append(Judged(where, labels[label]))
        found.append(Classified(one.label, one.score, one.scores if every else {}))
        if one.label != labels[label]:
            mistakes.append(Mistake(where, "", labels[label], one.label, one.score))
    if not examples:
        raise UserError(f"no image of {part.where} can be read: {told(skipped)}")
    places = {label: place for place, label in enumerate(labels)}
    right, said = (np.array([places[label] for label in each]) for each in _labels(examples, found))
    return Evaluation(
        head=Head(task="classify", labels=labels),
        report=one_of(labels, right, said),
        examples=examples,
        answers=found,
        mistakes=sorted(mistakes, key=lambda one: -one.confidence)[:worst],
        skipped=skipped,
        origin=f"{part.where}{remark}",
    )


def own_images(folder: Path) -> str:
    """What a model is evaluated on where nobody names anything: the digits, if those are what it was trained on."""
    data = read_toml(folder / RUN_FILE).get("data") if (folder / RUN_FILE).is_file() else None
    if data == DIGITS and is_digits(data):
        return DIGITS
    such_as = ""
    if data:
        such_as = f", such as those that it was trained on: heedful evaluate {shlex.join([str(folder), str(data)])}"
    raise UserError(f"there is nothing to evaluate {folder} on; name images as `heedful train-vision` takes{such_as}")


def lines(result: Evaluation) -> list[str]:
    """The evaluation for people."""
    count = "1 image" if len(result.examples) == 1 else f"{len(result.examples):,} images"
    said = [f"{count} of {result.origin}"]
    if result.skipped:
        said.append(f"passed over {told(result.skipped)}")
    return said + figures(result)


def _unseen(predictor: ImagePredictor, folder: Path, name: str, found: Found) -> tuple[np.ndarray | None, str]:
    """The numbers of the images that a model was not trained on, where it was trained on the others, else None; and
    what to say of it."""
    if not (folder / RUN_FILE).is_file():
        return None, ""
    run, labels, part = read_toml(folder / RUN_FILE), predictor.labels, found.train
    images = run.get("images", {})
    if run.get("dev") or (found.heldout and not images.get("held_out")):
        return None, ""
    if part.names != labels or content(part) != _trained_on(folder):
        changed = Path(run.get("data", DIGITS)).resolve() == Path(name).resolve()
        return None, ", changed since the model was trained on it: it may have seen some of them" if changed else ""
    rows = _readable(predictor, part) if images.get("skip_bad") else np.arange(len(part.labels))
    whole = Images(np.empty((0, 1, 1, 1), np.uint8), part.labels[rows], labels, rows)
    heldout = split(whole, images.get("held_out"), run.get("run", {}).get("seed", 0))[1]
    return heldout.rows, ", those held out while training"


def _trained_on(folder: Path) -> str | None:
    """What tells the images that a model was trained on; None where its folder does not say."""
    try:
        return json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))["trained_on"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _readable(predictor: ImagePredictor, part: Part) -> np.ndarray:
    """The numbers of the images that training had, where it passed over bad files: its split was of these."""
    if isinstance(part.images, StoredArray):
        return np.arange(len(part.labels))
    reader, size = predictor.reader(), predictor.pace.chunk
    read = [
        not isinstance(one, Flaw)
        for start in range(0, len(part.images), size)
        for one in reader.prepare([ImageExample(str(file), file) for file in part.images[start : start + size]])
    ]
    return np.flatnonzero(read)


def _seen(predictor: ImagePredictor, part: Part, rows: np.ndarray | None) -> Iterator[tuple[str, Seen | Flaw]]:
    """What the model takes each image for, or each of some rows, in order; and where the image is."""
    reader, pace = predictor.reader(), predictor.pace
    if isinstance(part.images, StoredArray):
        found = answers(_Fitted(reader), _in_array(reader, part.images, rows), pace)
    else:
        files = part.images if rows is None else [part.images[row] for row in rows]
        found = answers(reader, (ImageExample(str(file), file) for file in files), pace)
    for one in found:
        yield (one.where, one) if isinstance(one, Flaw) else (one[0].where, one[1])


class _Fitted:
    """Classifies arrays that have the model's size already; see `predict/reading.py`."""

    def __init__(self, reader: ImageReader) -> None:
        self.answer = reader.answer

    def prepare(self, examples: Sequence[ImageExample]) -> list[np.ndarray | Flaw]:
        return [np.asarray(one.image) for one in examples]


def _in_array(reader: ImageReader, stored: StoredArray, rows: np.ndarray | None) -> Iterator[ImageExample]:
    """The images of an array, or some of its rows, brought to the model's size a few at a time."""
    first, engine = 0, reader.engine
    for pixels in pixel_pieces(stored, engine.image_size, engine.channels, reader.framing):
        numbers = np.arange(first, first + len(pixels))
        for number in numbers if rows is None else np.intersect1d(numbers, rows):
            yield ImageExample(f"{stored.where}[{number}]", pixels[number - first])
        first += len(pixels)


def _labels(examples: list[Judged], found: list[Classified]) -> tuple[list[str], list[str]]:
    return [one.target for one in examples], [one.label for one in found]
