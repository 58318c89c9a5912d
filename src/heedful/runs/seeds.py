"""The same fine-tuning with several seeds: chance is part of a result, so mean and deviation are told with it."""

import json
import shutil
import statistics
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from heedful import launch
from heedful.durable import sweep, write_file
from heedful.errors import UserError
from heedful.runs.finetune import finetune
from heedful.runs.finetune_options import LOWER_IS_BETTER, FinetuneOptions, check, read_recipe
from heedful.runs.folder import RESULT_FILE, reclaim, require_unfinished, told_anew
from heedful.runs.recipe_files import RUN_FILE
from heedful.runs.training import claimed
from heedful.train.log import FILE, Log
from heedful.train.loop import Metrics

SEEDS_FILE = "seeds.json"


def finetune_seeds(options: FinetuneOptions) -> dict[str, tuple[float, float]]:
    """Train once a seed, each in a folder of its own, and keep the best; mean and deviation of each score."""
    recipe, out = options.settings, options.out
    if not launch.alone():
        raise UserError("--seeds trains one model after the other in one process; start it without torchrun")
    log = Log(out, leads=True)
    taking = nullcontext()
    if options.resume:
        require_unfinished(out, f"go on training its model, start a new one with MODEL {out}")
        reclaim(out, recipe, read_recipe)
    else:
        check(recipe)
        taking = claimed(out, recipe, begun=lambda: any(out.glob("seed-*")))
    with taking:
        results, metric = _trained(options, log)
    summary = summarise(list(results.values()))
    sign = -1 if metric in LOWER_IS_BETTER else 1
    best = max(results, key=lambda seed: sign * results[seed][metric])
    table = {name: {"mean": mean, "deviation": deviation} for name, (mean, deviation) in summary.items()}
    document = {"metric": metric, "best": best, "scores": table, "seeds": {str(n): one for n, one in results.items()}}
    write_file(out / SEEDS_FILE, (json.dumps(document, indent=2) + "\n").encode())
    _adopt(out / f"seed-{best}", out)
    for seed in results:  # what a seed's run said stays; without its recipe nobody takes it for unfinished
        for path in (out / f"seed-{seed}").iterdir():
            if path.name not in (FILE, RESULT_FILE):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    log.note("")
    log.note(f"{len(results)} seeds, mean and deviation on the examples to evaluate on:")
    for name, (mean, deviation) in summary.items():
        log.note(f"  {name.replace('_', ' '):<10}  {mean:.4f} ± {deviation:.4f}")
    log.note(f"saved {out}: the model of seed {best}, which has the best {metric.replace('_', ' ')}")
    return summary


def _trained(options: FinetuneOptions, log: Log) -> tuple[dict[int, Metrics], str]:
    """The scores of each seed's model, and by which of them the best is chosen."""
    recipe, out = options.settings, options.out
    results: dict[int, Metrics] = {}
    metric = ""
    for seed in range(recipe.run.seed, recipe.run.seed + recipe.run.seeds):
        folder = out / f"seed-{seed}"
        if not (folder / "model.safetensors").is_file():
            log.note(f"seed {seed}, in {folder}")
            alone = replace(recipe, run=replace(recipe.run, seed=seed, seeds=1))
            begun = (folder / RUN_FILE).is_file()
            settings = told_anew(read_recipe(folder / RUN_FILE), alone) if begun else alone
            if folder.is_dir():
                sweep(folder)
            finetune(replace(options, settings=settings, out=folder, resume=begun), whole=out)
        result = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
        results[seed], metric = result["scores"], result["metric"]
    return results, metric


def summarise(results: list[Metrics]) -> dict[str, tuple[float, float]]:
    """The mean of each score and its standard deviation (of the sample: divided by one less)."""
    return {
        name: (
            statistics.mean(one[name] for one in results),
            statistics.stdev(one[name] for one in results) if len(results) > 1 else 0.0,
        )
        for name in results[0]
    }


def _adopt(folder: Path, out: Path) -> None:
    """Put a finished model where the user asked for one; its weights last, which make it complete."""
    files = [path for path in folder.iterdir() if path.is_file() and path.name != RUN_FILE]
    for path in sorted(files, key=lambda path: path.name == "model.safetensors"):
        aside = out / f".{path.name}.part"
        shutil.copyfile(path, aside)
        aside.replace(out / path.name)
