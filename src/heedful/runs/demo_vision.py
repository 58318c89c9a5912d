"""The demonstration's image classifier: handwritten digits, learned in under a minute on two cores."""

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from heedful.data.images import Images
from heedful.predict.images import ImageExample, ImagePredictor, Seen
from heedful.predict.loading import load_images
from heedful.runs.cache import default_cache
from heedful.runs.demo import once
from heedful.runs.device import choose
from heedful.runs.see import draw
from heedful.runs.vision import train_vision
from heedful.runs.vision_material import VisionMaterial, gather
from heedful.runs.vision_options import VisionOptions, VisionRecipe, load_recipe, read_recipe
from heedful.train.log import Log

SHOWN = 4
"""Digits to print with their answers and to draw with what the heads look at, each of another class."""
MISTAKES = 3
ENOUGH = 0.97
INK = " .:*#"
"""From white to black."""

Say = Callable[[str], None]


def demo(out: Path, *, steps: int | None, seed: int, cache: Path | None, say: Say) -> None:
    """Train, or go on training, or take what is trained; classify what it has never seen, draw what heads look at."""
    begun = time.monotonic()
    cache = cache or default_cache()
    # One evaluation keeps the last weights: none are chosen by the digits that are asked for in the end.
    recipe = load_recipe("digits")
    epochs = recipe.run.epochs if steps is None else None
    recipe = replace(recipe, run=replace(recipe.run, seed=seed, epochs=epochs, steps=steps, evaluations=1))
    material = _material(recipe, out, cache)
    _train(material.recipe, out, cache, say)
    predictor, unseen = load_images(out), material.heldout
    say("")
    say(f"Handwritten digits that it has never seen, {unseen.height} x {unseen.width} pixels each:")
    right = _examine(predictor, unseen, say)
    if right < ENOUGH and steps is not None:
        say(f"  It had {steps:,} steps to learn; leave --steps out to give it its usual time.")
    files = _written(unseen, distinct(unseen, SHOWN), out / "digits")
    answers = predictor.see([str(file) for file in files])
    say("")
    for line in printed([np.asarray(Image.open(file)) for file in files], answers):
        say(f"  {line}".rstrip())
    picture = out / "patches.png"
    draw(predictor, [(ImageExample(str(file), file), one) for file, one in zip(files, answers, strict=True)], picture)
    say("")
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    say(f"That took {minutes} min {seconds} s.")
    say(f"The classifier is in {out}, what its heads look at in {picture}.")
    say("Now try:")
    say(f"  heedful see {shlex.join([str(out), str(out / 'digits')])}")
    say(f"  heedful evaluate {shlex.quote(str(out))} digits")
    say("  heedful train-vision your-folders --out my-vit --budget 10m")


def folder(out: Path) -> Path:
    """Where the classifier goes when the BERT goes to `out`: beside it."""
    named = out if out.name not in ("", "..") else out.resolve()
    return named.with_name(f"{named.name}-vision")


def distinct(images: Images, count: int) -> np.ndarray:
    """The numbers of some images, the first of each of so many classes."""
    _, first = np.unique(images.labels, return_index=True)
    return np.sort(first)[:count]


def printed(digits: Sequence[np.ndarray], answers: Sequence[Seen]) -> list[str]:
    """Digits side by side in letters, and under each what it is taken for."""
    shades = [np.rint(digit / 255 * (len(INK) - 1)).astype(int) for digit in digits]
    rows = [
        "   ".join("".join(2 * INK[shade] for shade in digit[row]) for digit in shades)
        for row in range(len(shades[0]))
    ]
    width = 2 * shades[0].shape[1]
    return [*rows, "   ".join(f"{one.label}, {one.score:.1%} sure".center(width) for one in answers)]


def _material(recipe: VisionRecipe, out: Path, cache: Path) -> VisionMaterial:
    """The images, and the recipe as it will be written down."""
    gpu = choose(recipe.run.device, recipe.run.precision).device.type == "cuda"
    return gather(recipe, cache, Log(out, leads=False), gpu=gpu)


def _train(recipe: VisionRecipe, out: Path, cache: Path, say: Say) -> None:
    def train(resume: bool) -> None:
        say("an image classifier of handwritten digits")
        train_vision(VisionOptions(settings=recipe, out=out, cache=cache, resume=resume))

    once(out, recipe, read_recipe, train, say)


def _examine(predictor: ImagePredictor, images: Images, say: Say) -> float:
    """Say how many digits are recognised, and what some others were taken for; the share that is right."""
    answers = predictor.see(list(images.take(np.arange(len(images)))))
    truth = [images.classes[label] for label in images.labels]
    wrong = [(right, one) for right, one in zip(truth, answers, strict=True) if one.label != right]
    share = 1 - len(wrong) / len(answers)
    say(f"  right  {share:6.1%}   of {len(answers):,}; a guess: {1 / len(images.classes):.1%}")
    for right, one in sorted(wrong, key=lambda pair: -pair[1].score)[:MISTAKES]:
        say(f"  mistaken: a {right} for a {one.label}, {one.score:.0%} sure")
    return share


def _written(images: Images, chosen: np.ndarray, folder: Path) -> list[Path]:
    """Some images as files, named by what they are."""
    folder.mkdir(exist_ok=True)
    files = [folder / f"{images.classes[images.labels[number]]}.png" for number in chosen]
    for file, pixels in zip(files, images.take(chosen), strict=True):
        Image.fromarray(pixels[..., 0]).save(file)
    return files
