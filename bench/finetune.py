"""Fine-tuning beside a plain `transformers` script: how good and how fast, on the same weights and data.

    python -m bench.finetune quality --model FOLDER --data FOLDER [--tasks sst2 …] [--seeds 3] [--device cuda]
    python -m bench.finetune speed --model FOLDER --data FOLDER [--device cuda] [--rounds 3]

Both sides have the same weights, examples, epochs, batch, learning rate, warm-up, weight decay and clipping; both
keep the epoch that does best on the dev set, and are scored on a test set that neither has seen, by the same code.
Tasks without a test set of their own are tested on their dev set, and a tenth of their training set takes its place.
The data is the layout of GLUE, WNUT-17, WikiANN and SQuAD as `bench/plain_finetune.py` reads it.
"""

import argparse
import hashlib
import json
import lzma
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench.commands import heedful, python
from heedful.metrics.answers import answer_report
from heedful.metrics.classification import one_of
from heedful.metrics.regression import numbers
from heedful.metrics.spans import span_report
from heedful.runs import dataset
from heedful.runs.finetune_options import DataPart


class Setting(NamedTuple):
    """A task, its files under the data folder, and what both sides are told."""

    task: str
    train: tuple[str, ...]
    dev: str | None
    """None: a tenth of the training set."""
    test: str
    metric: str
    epochs: int
    lr: str
    batch: int = 32


SETTINGS = {
    "sst2": Setting(
        "classify", ("glue/sst2/train.tsv.xz",), "glue/sst2/dev.tsv", "glue/sst2/test.tsv", "accuracy", 2, "5e-5"
    ),
    "cola": Setting("classify", ("glue/cola/train.tsv",), None, "glue/cola/dev.tsv", "matthews", 5, "1e-4"),
    "mrpc": Setting(
        "classify", ("glue/mrpc/train.tsv.xz",), "glue/mrpc/dev.tsv", "glue/mrpc/test.tsv", "accuracy", 5, "1e-4"
    ),
    "rte": Setting("classify", ("glue/rte/train.tsv.xz",), None, "glue/rte/dev.tsv", "accuracy", 5, "1e-4"),
    "stsb": Setting(
        "regress", ("glue/stsb/train.tsv.xz",), "glue/stsb/dev.tsv", "glue/stsb/test.tsv", "pearson", 5, "1e-4"
    ),
    "wnut17": Setting("tag", ("wnut17/train.conll",), "wnut17/dev.conll", "wnut17/test.conll", "f1", 5, "1e-4"),
    "wikiann": Setting(
        "tag",
        ("wikiann_en/train.conll.xz",),
        "wikiann_en/dev.conll.xz",
        "wikiann_en/test.conll.xz",
        "f1",
        3,
        "1e-4",
    ),
    "squad": Setting(
        "answer",
        tuple(f"squadshifts/{part}.jsonl.xz" for part in ("new_wiki", "reddit", "amazon")),
        None,
        "squad1_dev/dev.jsonl.xz",
        "f1",
        3,
        "1e-4",
    ),
}
SIDES = ("heedful cls", "heedful mean", "transformers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("quality", "speed"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", nargs="*", choices=SETTINGS, default=None)
    parser.add_argument("--sides", nargs="*", choices=SIDES, default=SIDES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; quality does not depend on it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60, help="of each speed measurement")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument(
        "--out", type=Path, default=None, help="where results are kept; what is there is not run again"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        if arguments.what == "quality":
            quality(arguments, work)
        else:
            speed(arguments, work)


def quality(arguments: argparse.Namespace, work: Path) -> None:
    """A line a task: mean and deviation over the seeds on the test set, of each side."""
    names = arguments.tasks or list(SETTINGS)
    kept = arguments.out or work
    kept.mkdir(parents=True, exist_ok=True)
    jobs = []
    for name in names:
        (work / name).mkdir()
        split(arguments.data, SETTINGS[name], work / name)
        for side in arguments.sides:
            if side == "heedful mean" and SETTINGS[name].task not in ("classify", "regress"):
                continue
            jobs += [(name, side, seed) for seed in range(arguments.seeds)]

    def run(job: tuple[str, str, int]) -> None:
        name, side, seed = job
        path = kept / f"{name}-{side.replace(' ', '-')}-{seed}.json"
        if not path.is_file():
            begun = time.perf_counter()
            found = (
                ours(arguments, name, work, side, seed)
                if side != "transformers"
                else theirs(arguments, name, work, seed)
            )
            score = score_of(SETTINGS[name], work / name / f"test{_ending(SETTINGS[name])}", found)
            path.write_text(json.dumps({"score": score, "seconds": time.perf_counter() - begun}), encoding="utf-8")
            print(f"{name} {side} seed {seed}: {score:.4f} ({time.perf_counter() - begun:.0f} s)", flush=True)

    def attempt(job: tuple[str, str, int]) -> None:
        try:
            run(job)
        except SystemExit as error:  # told, and the others go on
            print(f"{job} failed: {error}", flush=True)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(attempt, jobs))
    sides = " | ".join(arguments.sides)
    print(f"\n| task | metric | epochs | lr | {sides} |\n|---|---|---:|---:|{'---:|' * len(arguments.sides)}")
    for name in names:
        setting = SETTINGS[name]
        cells = []
        for side in arguments.sides:
            found = [
                json.loads(path.read_text(encoding="utf-8"))["score"]
                for path in sorted(kept.glob(f"{name}-{side.replace(' ', '-')}-[0-9]*.json"))
            ]
            deviation = statistics.stdev(found) if len(found) > 1 else 0.0
            cells.append(f"{100 * statistics.mean(found):.1f} ± {100 * deviation:.1f}" if found else "-")
        print(f"| {name} | {setting.metric} | {setting.epochs} | {setting.lr} | {' | '.join(cells)} |")


def split(data: Path, setting: Setting, work: Path) -> None:
    """Write train, dev and test as plain files that both sides read."""
    ending = _ending(setting)
    training = [_lines(data / name) for name in setting.train]
    header = training[0][:1] if ending == ".tsv" else []
    rows = [row for lines in training for row in _rows(lines, ending)]
    if setting.dev is None:
        chosen = [_bucket(row, ending) == 0 for row in rows]
        dev = [row for row, out in zip(rows, chosen, strict=True) if out]
        rows = [row for row, out in zip(rows, chosen, strict=True) if not out]
    else:
        dev = _rows(_lines(data / setting.dev), ending)
    test = _rows(_lines(data / setting.test), ending)
    test_header = _lines(data / setting.test)[:1] if ending == ".tsv" else []
    dev_header = header if setting.dev is None or not header else _lines(data / setting.dev)[:1]
    for name, top, part in (("train", header, rows), ("dev", dev_header, dev), ("test", test_header, test)):
        (work / f"{name}{ending}").write_text("\n".join([*top, *part]) + "\n", encoding="utf-8")


def _ending(setting: Setting) -> str:
    return {"tag": ".conll", "answer": ".jsonl"}.get(setting.task, ".tsv")


def _lines(path: Path) -> list[str]:
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().split("\n")


def _rows(lines: list[str], ending: str) -> list[str]:
    if ending == ".conll":
        return [block.strip("\n") + "\n" for block in "\n".join(lines).split("\n\n") if block.strip("\n")]
    return [line for line in (lines[1:] if ending == ".tsv" else lines) if line]


def _bucket(row: str, ending: str) -> int:
    """Which tenth a row belongs to; all questions about a text to the same."""
    content = json.loads(row)["context"] if ending == ".jsonl" else row
    return hashlib.sha256(content.encode()).digest()[0] % 10


def ours(arguments: argparse.Namespace, name: str, work: Path, side: str, seed: int) -> list[Any]:
    """What our command makes of the test set."""
    setting, folder = SETTINGS[name], work / name
    train, dev, test = (folder / f"{part}{_ending(setting)}" for part in ("train", "dev", "test"))
    with tempfile.TemporaryDirectory() as made:
        model, predictions = Path(made) / "model", Path(made) / "predictions.jsonl"
        heedful(
            "finetune",
            arguments.model,
            train,
            dev=dev,
            task=setting.task,
            out=model,
            epochs=setting.epochs,
            batch=setting.batch,
            lr=setting.lr,
            metric=setting.metric,
            pool="mean" if side.endswith("mean") else None,
            patience=0,
            seed=seed,
            device=arguments.device,
            checkpoint_every=1_000_000,
            truncate=True,
        )
        heedful("evaluate", model, test, predictions=predictions, truncate=True, device=arguments.device, json=True)
        rows = [json.loads(line) for line in predictions.read_text(encoding="utf-8").splitlines()]
    key = {"classify": "label", "tag": "tags", "answer": "text", "regress": "score"}[setting.task]
    return [row[key] for row in rows]


def theirs(arguments: argparse.Namespace, name: str, work: Path, seed: int) -> list[Any]:
    """What the plain script makes of it."""
    setting, folder = SETTINGS[name], work / name
    train, dev, test = (folder / f"{part}{_ending(setting)}" for part in ("train", "dev", "test"))
    with tempfile.TemporaryDirectory() as made:
        out = Path(made) / "result.json"
        python(
            "bench.plain_finetune",
            model=arguments.model,
            task=setting.task,
            train=train,
            dev=dev,
            test=test,
            out=out,
            epochs=setting.epochs,
            batch=setting.batch,
            lr=setting.lr,
            metric="matthews" if setting.metric == "matthews" else None,
            seed=seed,
            device=arguments.device,
            length=384 if setting.task == "answer" else 512,
        )
        found = json.loads(out.read_text(encoding="utf-8"))["test_predictions"]
    return list(found.values()) if isinstance(found, dict) else found


def score_of(setting: Setting, test: Path, found: Sequence[Any]) -> float:
    """The score of predictions on the test set: one judge for both sides."""
    examples: list[Any] = list(dataset.read(setting.task, [test], DataPart()))
    if setting.task == "classify":
        labels = sorted({one.target for one in examples})
        truth, given = ([labels.index(label) for label in side] for side in ([e.target for e in examples], found))
        report = one_of(labels, truth, given)  # pyrefly: ignore
    elif setting.task == "regress":
        report = numbers(["score"], [one.target for one in examples], [[float(n)] for n in found])  # pyrefly: ignore
    elif setting.task == "tag":
        report = span_report([list(one.tags) for one in examples], [list(tags) for tags in found], "BIO")
    else:
        report = answer_report([[a.text for a in one.answers] for one in examples], list(found))
    return report.scores[setting.metric]


def speed(arguments: argparse.Namespace, work: Path) -> None:
    """Examples a second of both sides, who take turns; the median of the rounds."""
    print("| task | heedful | transformers | ratio |\n|---|---:|---:|---:|")
    for name in arguments.tasks or ("sst2", "mrpc"):
        (work / name).mkdir()
        setting = SETTINGS[name]
        split(arguments.data, setting, work / name)
        ending = _ending(setting)
        train, dev = work / name / f"train{ending}", work / name / f"dev{ending}"
        # So many steps of full batches, from the same rows.
        lines = train.read_text(encoding="utf-8").split("\n")
        rows = arguments.steps * setting.batch
        epochs = max(1, -(-rows // (len(lines) - 2)))
        train.write_text("\n".join(lines[: 1 + -(-rows // epochs)]) + "\n", encoding="utf-8")
        dev.write_text("\n".join(dev.read_text(encoding="utf-8").split("\n")[:65]) + "\n", encoding="utf-8")
        mine, other = [], []
        for number in range(arguments.rounds):
            out = work / f"{name}-{number}"
            heedful(
                "finetune",
                arguments.model,
                train,
                dev=dev,
                task=setting.task,
                out=out,
                epochs=epochs,
                evaluations=1,
                batch=setting.batch,
                lr=setting.lr,
                device=arguments.device,
                checkpoint_every=1_000_000,
                truncate=True,
            )
            reports = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
            reports = [line for line in reports if line["kind"] == "train"]
            half, last = reports[len(reports) // 2], reports[-1]
            mine.append((last["step"] - half["step"]) * setting.batch / (last["elapsed"] - half["elapsed"]))
            said = python(
                "bench.plain_finetune",
                model=arguments.model,
                task=setting.task,
                train=train,
                batch=setting.batch,
                lr=setting.lr,
                device=arguments.device,
                steps=arguments.steps,
                length=512,
            )
            other.append(float(said.split()[0].replace(",", "")))
        ours_, theirs_ = statistics.median(mine), statistics.median(other)
        print(f"| {name} | {ours_:,.0f} | {theirs_:,.0f} | {ours_ / theirs_:.2f} |", flush=True)


if __name__ == "__main__":
    main()
