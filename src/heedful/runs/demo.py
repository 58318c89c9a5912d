"""The demonstration's BERT: from the documentation that comes with Python, in about five minutes on two cores."""

import importlib.metadata
import platform
import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from heedful.config import differences
from heedful.data import builtin, shards
from heedful.data.shards import Shards
from heedful.data.tokenizer import Tokenizer
from heedful.errors import Interrupted, UserError
from heedful.predict import load
from heedful.runs import corpus, pictures
from heedful.runs.cache import default_cache
from heedful.runs.options import PretrainOptions, Recipe, load_recipe, read_recipe, resolved
from heedful.runs.pretrain import EVALUATION_TOKENS, evaluation_sampler, pretrain
from heedful.runs.recipe_files import RUN_FILE
from heedful.train import log

SENTENCES = (
    "Use [MASK] to open a file.",
    "Return True if the object is an [MASK] of the class.",
    "The function returns a [MASK] of strings.",
    "Raises a [MASK] if the key is not found in the dictionary.",
    "If the argument is [MASK], the default value is used.",
)

Say = Callable[[str], None]
R = TypeVar("R")


def demo(out: Path, *, steps: int | None, seed: int, cache: Path | None, say: Say) -> None:
    """Train, or go on training, or take what is trained; compare with the baselines, fill blanks, draw pictures."""
    begun = time.monotonic()
    cache = cache or default_cache()
    recipe = load_recipe("demo")
    recipe = replace(
        recipe,
        corpus=(str(builtin_corpus(cache, say)),),
        run=replace(recipe.run, seed=seed, steps=recipe.run.steps if steps is None else steps),
    )
    metrics = _trained(recipe, out, cache, say)
    predictor = load(out)
    baseline = most_frequent(recipe, _prepared(recipe, predictor.tokenizer, cache))
    say("")
    say("On documents it has never seen:")
    say(f"  masked words right   {metrics['mlm_accuracy']:6.1%}   always the most frequent token: {baseline:.1%}")
    say(f"  next sentence right  {metrics['nsp_accuracy']:6.1%}   a coin: 50.0%")
    say("")
    for sentence, (candidates, *_) in zip(SENTENCES, predictor.fill(SENTENCES, top=4), strict=True):
        say(f"  {sentence}")
        say("      " + ", ".join(f"{c.token} {c.probability:.0%}" for c in candidates))
    pictures.curves(out, out / "curves.png")
    assert predictor.words is not None
    pictures.model_positions(predictor.words, recipe.objective.length, out / "positions.png")
    say("")
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    say(f"That took {minutes} min {seconds} s.")
    say(f"The model is in {out}, its curves in {out / 'curves.png'}, its positions in {out / 'positions.png'}.")
    say("Now try:")
    say(f'  heedful fill {shlex.quote(str(out))} "Return the [MASK] of the list."')
    say(f"  heedful info {shlex.quote(str(out))}")
    say("  heedful pretrain your-text.txt --out my-bert --budget 10m")


def _trained(recipe: Recipe, out: Path, cache: Path, say: Say) -> dict[str, float]:
    """The metrics of the last evaluation, of a model trained now unless it is there."""

    def train(resume: bool) -> None:
        pretrain(PretrainOptions(settings=recipe, out=out, cache=cache, resume=resume))

    once(out, resolved(recipe), read_recipe, train, say)
    # Read back, since a run that was stopped after its last evaluation makes none when it is resumed.
    reports = [line for line in log.read(out) if line["kind"] == "heldout"]
    return {name: value for name, value in reports[-1].items() if not isinstance(value, str)}


def once(out: Path, recipe: R, read: Callable[[Path], R], train: Callable[[bool], None], say: Say) -> None:
    """Train what a resolved recipe says unless it is there; `train` is told whether to go on with what has begun."""
    begun = (out / RUN_FILE).is_file()
    if begun and (out / "model.safetensors").is_file():
        if differences(read(out / RUN_FILE), recipe):
            raise UserError(f"{out} holds another run; choose another --out")
        say(f"{out} is trained already; delete it to train anew")
        return
    try:
        train(begun)
    except Interrupted as stop:
        raise Interrupted(f"{str(stop).partition(';')[0]}; go on with the same command") from None


def builtin_corpus(cache: Path, say: Say) -> Path:
    """The documentation on this machine as a text file, collected once for these versions."""
    versions = [platform.python_version()]
    for package in ("numpy", "torch"):
        try:
            versions.append(importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            versions.append("none")
    path = cache / "corpora" / f"python-docs-{builtin.FORMAT}-{'-'.join(versions)}.txt"
    if not path.is_file():
        say("collecting the documentation that comes with Python, numpy and torch")
        builtin.write(path)
    return path


def most_frequent(recipe: Recipe, prepared: Shards) -> float:
    """The share of masked words that the training text's most frequent token gets right."""
    special = prepared.tokenizer.special
    counts = np.bincount(prepared.train.tokens, minlength=len(special))
    guess = int(np.where(special, 0, counts).argmax())
    asked = recipe.objective
    sampler = evaluation_sampler(prepared.heldout, prepared.tokenizer, length=asked.length, nsp=asked.nsp)
    labels = np.concatenate([batch.labels for batch in sampler.once(EVALUATION_TOKENS)])
    return float((labels == guess).mean())


def _prepared(recipe: Recipe, tokenizer: Tokenizer, cache: Path) -> Shards:
    """The shards that the run has just used: the cache has them."""
    files = [Path(file) for file in recipe.corpus]
    return shards.prepare(
        files,
        corpus.text_options(recipe.text),
        tokenizer,
        share=corpus.held_out_share(recipe.text, files),
        cache=cache,
    )
