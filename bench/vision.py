"""How well images are told apart: our recipes beside plain ones, and what each option of a recipe is worth.

    python -m bench.vision fashion  --data FASHION_MNIST [--device cuda] [--budget 10m] [--seeds 1]
    python -m bench.vision cifar    --data CIFAR_SUBSET …
    python -m bench.vision locality --data FASHION_MNIST …
    python -m bench.vision options  --data CIFAR_SUBSET [--recipe cifar_small] [--variants NAME …] …

`fashion` is `heedful train-vision --recipe fashion_mnist`. `cifar` is `--recipe cifar_small` beside transformers' ViT
of the same size with AdamW (bench/plain_vision.py), at two learning rates, with flips and crops or without.
`locality` compares, on 1%, 10% and 100% of the training images, a convolutional network with as many parameters as
the ViT, the ViT with `--recipe plain`, and with our recipe. `options` changes one thing of a recipe at a time.

The data are folders with a training and a test part, as `train-vision` reads them. Every run is scored on the test
part once, when it has ended: nothing is chosen by it but, in favour of the other side, its best learning rate. With
`--budget` every run has the same time, and with `--together 1` the machine to itself; `--epochs` instead gives every
run as many (of a share of the images, as many more), so that several can share a GPU (`--together N`) without harm.
Lines go to --out as they come, and what is there already is not run again.
"""

import argparse
import json
import os
import shlex
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.commands import heedful, python
from heedful.data import image_store
from heedful.data.images import Images

RATES = ("3e-4", "1e-3")
"""Of the other side: the better one counts."""
SHARES = (0.01, 0.1, 1.0)
VARIANTS = {
    "as it is": "",
    "plain patches": "--no-convolutional-stem",
    "shifted patches": "--no-convolutional-stem --shifted-patches",
    "locality self-attention": "--locality",
    "mean of the patches": "--pool mean",
    "first weights as published": "--init-std 0.02",
    "AdamW": "--optimizer adamw",
    "no RandAugment": "--rand-augment 0",
    "no mixup": "--mixup 0",
    "no cutmix": "--cutmix 0",
    "neither mixup nor cutmix": "--mixup 0 --cutmix 0",
    "no erasing": "--erasing 0",
    "no flip": "--no-flip",
    "no crop": "--crop 0",
    "no label smoothing": "--smoothing 0",
    "no stochastic depth": "--stochastic-depth 0",
    "no weight decay": "--weight-decay 0",
}
"""Flags that change one thing of a recipe."""


class Job(NamedTuple):
    """One run."""

    name: str
    """The line of the table that it belongs to."""
    side: str
    """heedful, transformers or convolution."""
    data: Path
    flags: str
    seed: int
    share: float = 1.0
    """Of the training images; fewer are gone through more often, so that as many steps are taken."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fashion", "cifar", "locality", "options"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--recipe", help="ours; by default the one that is made for the data")
    parser.add_argument("--size", default="compact", help="of both sides")
    parser.add_argument("--budget")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--together", type=int, default=1, metavar="N", help="runs at a time")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--also", nargs="*", default=[], help="further variants of our recipe, as flags")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.budget and arguments.epochs:
        parser.error("--budget and --epochs exclude each other")
    if not arguments.epochs:
        arguments.budget = arguments.budget or "10m"
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // arguments.together)))
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        jobs = {"fashion": fashion, "cifar": cifar, "locality": locality, "options": options}[arguments.what](
            arguments, scratch
        )
        with ThreadPoolExecutor(arguments.together) as pool:
            found = list(pool.map(lambda job: attempted(job, arguments, scratch), jobs))
    table(jobs, found)


def fashion(arguments: argparse.Namespace, _: Path) -> list[Job]:
    """Our recipe, and what it is told besides."""
    recipe = f"--recipe {arguments.recipe or 'fashion_mnist'}"
    kinds = {"heedful": "", **{one: one for one in arguments.also}}
    return ours(kinds, recipe, arguments.data, arguments)


def cifar(arguments: argparse.Namespace, _: Path) -> list[Job]:
    """Our recipe, and a plain script with transformers' ViT."""
    jobs = fashion(argparse.Namespace(**{**vars(arguments), "recipe": arguments.recipe or "cifar_small"}), _)
    for kind in ("none", "flip-crop"):
        name = f"transformers, {'flips and crops' if kind == 'flip-crop' else 'no augmentation'}"
        for rate in RATES:
            flags = f"--augmentation {kind} --lr {rate}"
            jobs += [Job(name, "transformers", arguments.data, flags, seed) for seed in range(arguments.seeds)]
    return jobs


def locality(arguments: argparse.Namespace, scratch: Path) -> list[Job]:
    """A convolutional network, the plain ViT and ours, on more and more images."""
    recipe = arguments.recipe or "fashion_mnist"
    stored = image_store.prepare(str(arguments.data), cache=scratch / "cache")
    assert stored.heldout is not None, "the data has no test part"
    jobs = []
    for share in SHARES:
        folder = scratch / f"share-{share:g}"
        write_share(stored.train, stored.heldout, share, folder)
        for rate in RATES:
            jobs += [
                Job(f"convolutional network, {share:.0%}", "convolution", folder, f"--lr {rate}", seed, share)
                for seed in range(arguments.seeds)
            ]
        jobs += ours({f"ViT, plain, {share:.0%}": ""}, "--recipe plain", folder, arguments, share)
        jobs += ours({f"ViT, our recipe, {share:.0%}": ""}, f"--recipe {recipe}", folder, arguments, share)
    return jobs


def options(arguments: argparse.Namespace, _: Path) -> list[Job]:
    """A recipe, and with one thing changed at a time."""
    kinds = {name: VARIANTS[name] for name in arguments.variants} | {one: one for one in arguments.also}
    return ours(kinds, f"--recipe {arguments.recipe or 'cifar_small'}", arguments.data, arguments)


def ours(
    kinds: dict[str, str], recipe: str, data: Path, arguments: argparse.Namespace, share: float = 1.0
) -> list[Job]:
    """Runs of `heedful train-vision` with the flags of each line."""
    return [
        Job(name, "heedful", data, f"{recipe} {flags}".strip(), seed, share)
        for name, flags in kinds.items()
        for seed in range(arguments.seeds)
    ]


def write_share(train: Images, test: Images, share: float, folder: Path) -> None:
    """The first images of every class, and the whole test part."""
    folder.mkdir()
    members = [np.flatnonzero(train.labels == label) for label in range(len(train.classes))]
    chosen = np.sort(np.concatenate([one[: max(1, round(share * len(one)))] for one in members]))
    for part, images, rows in (("train", train, chosen), ("test", test, np.arange(len(test)))):
        np.save(folder / f"{part}_images.npy", images.take(rows))
        np.save(folder / f"{part}_labels.npy", images.labels[rows])


def attempted(job: Job, arguments: argparse.Namespace, scratch: Path) -> dict[str, Any] | None:
    """What a run came to, and its line; None if it failed, which must not lose the others."""
    told = {"what": arguments.what, **job._asdict(), "data": job.data.name, "size": arguments.size}
    told |= {"budget": arguments.budget, "epochs": arguments.epochs}
    if arguments.out and arguments.out.is_file():
        for line in map(json.loads, arguments.out.read_text(encoding="utf-8").splitlines()):
            if told == {name: line.get(name) for name in told}:
                return line["found"]
    try:
        found = run(job, arguments, Path(tempfile.mkdtemp(dir=scratch)) / "model", scratch / "cache")
    except SystemExit as failed:
        print(f"{job.name} ({job.flags}) failed: {failed}", flush=True)
        return None
    print(json.dumps({**told, "found": found}), flush=True)
    if arguments.out:
        with arguments.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**told, "found": found}) + "\n")
    return found


def run(job: Job, arguments: argparse.Namespace, out: Path, cache: Path) -> dict[str, Any]:
    """Train once, and read what the test part said in the end."""
    epochs = arguments.epochs and round(arguments.epochs / job.share)
    length = {"epochs": epochs, "budget": arguments.budget}
    common = {**length, "size": arguments.size, "seed": job.seed, "device": arguments.device, "cache": cache}
    own = shlex.split(job.flags)
    if job.side != "heedful":
        return json.loads(python("bench.plain_vision", job.side, *own, data=job.data, **common).splitlines()[-1])
    begun = time.perf_counter()
    heedful("train-vision", job.data, *own, **common, evaluations=1, out=out)
    elapsed = time.perf_counter() - begun
    result = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "accuracy": result["scores"]["accuracy"],
        "steps": result["step"],
        "tokens": lines[-1]["tokens"],
        "seconds": elapsed,
    }


def table(jobs: Sequence[Job], found: Sequence[dict[str, Any] | None]) -> None:
    """A line for each name: mean and deviation over the seeds, with the flags that did best."""
    lines: dict[str, dict[str, list[float]]] = {}
    for job, one in zip(jobs, found, strict=True):
        if one is not None:
            lines.setdefault(job.name, {}).setdefault(job.flags, []).append(one["accuracy"])
    first = None
    print("\n| | flags | seeds | test accuracy | against the first |\n|---|---|---:|---:|---:|")
    for name, by_flags in lines.items():
        flags, scores = max(by_flags.items(), key=lambda pair: statistics.mean(pair[1]))
        mean = statistics.mean(scores)
        first = mean if first is None else first
        spread = f" ± {100 * statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
        gap = 100 * (mean - first)
        print(f"| {name} | `{flags}` | {len(scores)} | {100 * mean:.2f}%{spread} | {gap:+.2f} |")


if __name__ == "__main__":
    main()
