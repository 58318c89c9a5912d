"""What a pretrained encoder is worth: fine-tuned on five tasks, beside published models and beside no pretraining.

    python -m bench.downstream english --data FOLDER --model FOLDER [--scratch] [--search] [--device cuda] [--together 8]
    python -m bench.downstream korean --data FOLDER --model FOLDER [--tasks nsmc …] [--seeds 3] [--out FILE]

English: SST-2, CoLA, MRPC, RTE and STS-B of GLUE. Korean: NSMC, KLUE NLI, YNAT headlines, KorSTS, KLUE NER. The data
folder holds glue, or nsmc, klue and kornlu. Every run is `heedful finetune` on the training part, which keeps the epoch
that does best on the dev set, then one `heedful evaluate` on the test set. Where there is no public test set the
official dev set takes its place, and a tenth of the training part that of the dev set (at most 5,000 rows), as well as
where there is no dev set. `--scratch` does the same with random weights: same architecture, same tokenizer. `--search`
tries three rates with the first seed, each side for itself, and goes on with the one that does best on the dev set.

KLUE tags characters. The model reads and tags its own tokens, each of which has the tag of its first character; scores
are taken over characters without blanks, as KLUE does: entity F1 is the mean over the six kinds of the F1 of exact
spans, character F1 the mean over the tags but O.

Results go to `--out` line by line, as they come; what is there already is not run again.
"""

import argparse
import json
import lzma
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import tokenizers
import torch

from bench.commands import heedful
from heedful.data import tokenizer as wordpiece
from heedful.data.inputs import characters
from heedful.durable import file_digest
from heedful.errors import UserError
from heedful.formats.huggingface import read_config, save_model
from heedful.metrics.spans import span_report, tag_report
from heedful.models.bert import Bert, initialise

RATES = (5e-5, 1e-4, 2e-4)
"""What `--search` chooses from."""
STARTS = {"pretrained": "pretrained", "scratch": "without pretraining"}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")


class Task(NamedTuple):
    """A task, its files under the data folder, how it is learned, and what others reached."""

    kind: str
    train: str
    dev: str | None
    """None: a part of the training set."""
    test: str
    chosen_by: str
    """The score on the dev set that tells the best epoch, and the best rate."""
    scores: dict[str, str]
    """Scores on the test set, and what they are called."""
    epochs: int
    batch: int
    published: dict[str, str]
    remark: str = ""


def _glue(*scores: str) -> dict[str, str]:
    return dict(zip(("BERT-Tiny", "BERT-Mini", "BERT-Small", "BERT-Medium", "BERT-Base"), scores, strict=True))


def _klue(*scores: str) -> dict[str, str]:
    return dict(zip(("mBERT-base", "KLUE-RoBERTa-small", "KLUE-BERT-base"), scores, strict=True))


def _kominilm(*scores: str) -> dict[str, str]:
    return dict(zip(("DistilKoBERT", "KoBERT", "KcBERT", "KLUE-BERT-base"), scores, strict=True))


ENGLISH = {
    "sst2": Task(
        *("classify", "glue/sst2/train.tsv.xz", "glue/sst2/dev.tsv", "glue/sst2/test.tsv"),
        *("accuracy", {"accuracy": "accuracy"}, 3, 64),
        published=_glue("83.2", "85.9", "89.7", "89.6", "93.5"),
    ),
    "cola": Task(
        *("classify", "glue/cola/train.tsv", None, "glue/cola/dev.tsv"),
        *("matthews", {"matthews": "Matthews"}, 6, 32),
        published=_glue("0.0", "0.0", "27.8", "38.0", "52.1"),
    ),
    "mrpc": Task(
        *("classify", "glue/mrpc/train.tsv.xz", "glue/mrpc/dev.tsv", "glue/mrpc/test.tsv"),
        *("accuracy", {"f1": "F1", "accuracy": "accuracy"}, 6, 32),
        published=_glue("81.1/71.1", "81.1/71.8", "83.4/76.2", "86.6/81.6", "88.9 (F1)"),
        remark="its dev set is cut from the original training set",
    ),
    "rte": Task(
        *("classify", "glue/rte/train.tsv.xz", None, "glue/rte/dev.tsv"),
        *("accuracy", {"accuracy": "accuracy"}, 8, 32),
        published=_glue("57.2", "57.9", "61.8", "62.2", "66.4"),
    ),
    "stsb": Task(
        *("regress", "glue/stsb/train.tsv.xz", "glue/stsb/dev.tsv", "glue/stsb/test.tsv"),
        *("pearson", {"pearson": "Pearson", "spearman": "Spearman"}, 6, 32),
        published=_glue("74.3/73.6", "75.4/73.3", "78.8/77.0", "80.4/78.4", "85.8 (Spearman)"),
    ),
}
ENGLISH_SOURCE = "GLUE's test server, from the README of google-research/bert; BERT-Base from Devlin et al. (2018)"
KOREAN = {
    "nsmc": Task(
        *("classify", "nsmc/train.tsv.xz", None, "nsmc/test.tsv.xz"),
        *("accuracy", {"accuracy": "accuracy"}, 3, 64),
        published=_kominilm("88.39", "89.28", "89.60", "90.20"),
        remark="made anew from the raw reviews by the published recipe, so an own split",
    ),
    "nli": Task(
        *("classify", "klue/nli_train.tsv.xz", None, "klue/nli_dev.tsv.xz"),
        *("accuracy", {"accuracy": "accuracy"}, 4, 32),
        published=_klue("73.20", "79.33", "81.63"),
    ),
    "ynat": Task(
        *("classify", "klue/ynat_train.tsv.xz", None, "klue/ynat_dev.tsv.xz"),
        *("macro_f1", {"macro_f1": "macro F1"}, 3, 64),
        published=_klue("81.55", "84.98", "85.73"),
        remark="an own split of the headlines of a competition run on it; published models had 45,678 to train on",
    ),
    "korsts": Task(
        *("regress", "kornlu/korsts_train.tsv.xz", "kornlu/korsts_dev.tsv", "kornlu/korsts_test.tsv"),
        *("spearman", {"spearman": "Spearman"}, 6, 32),
        published=_kominilm("72.11", "75.98", "76.57", "82.47"),
    ),
    "ner": Task(
        *("tag", "klue/ner_train.jsonl.xz", "klue/ner_dev.jsonl", "klue/ner_test.jsonl"),
        *("macro_f1", {"entity_f1": "entity F1", "character_f1": "character F1"}, 10, 32),
        published=_klue("76.50/89.23", "83.65/91.14", "83.97/91.39"),
        remark="an own split of the official dev set; published models had 21,008 sentences to train on, not 4,000",
    ),
}
KOREAN_SOURCE = (
    "NSMC and KorSTS from the README of BM-K/KoMiniLM (means of three runs), the others from that of "
    "KLUE-benchmark/KLUE (official training sets)"
)
LANGUAGES = {"english": (ENGLISH, ENGLISH_SOURCE), "korean": (KOREAN, KOREAN_SOURCE)}


class Job(NamedTuple):
    """One run: a task, what it starts from, and chance."""

    task: str
    start: str
    lr: float
    seed: int


class Files(NamedTuple):
    """What the commands read, and how many rows there are to learn from."""

    train: Path
    dev: Path | None
    test: Path
    rows: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", choices=LANGUAGES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=[*ENGLISH, *KOREAN], help="all of the language by default")
    parser.add_argument("--scratch", action="store_true", help="also without pretraining")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--search", action="store_true", help=f"choose the rate among {', '.join(map(str, RATES))}")
    parser.add_argument("--pool", choices=("cls", "mean"), help="what the head reads; by default as in the model")
    parser.add_argument("--dropout", type=float, help="by default as in the model")
    parser.add_argument("--most-rows", type=int, help="learn from so many rows at most, drawn at random")
    parser.add_argument("--together", type=int, default=1, metavar="N", help="runs at a time")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--out", type=Path, help="keep results here, one JSON object a line")
    arguments = parser.parse_args()
    tasks, source = LANGUAGES[arguments.language]
    if foreign := [name for name in arguments.tasks or () if name not in tasks]:
        parser.error(f"{foreign[0]} is no task in {arguments.language}; choose from {', '.join(tasks)}")
    # Each run alone would start a thread a core.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // arguments.together)))
    with tempfile.TemporaryDirectory() as made:
        try:
            bench = Bench(arguments, {name: tasks[name] for name in arguments.tasks or tasks}, Path(made))
        except (UserError, OSError) as error:
            raise SystemExit(str(error)) from None
        results = bench.run()
    report(bench, results, source)
    if bench.failed:
        raise SystemExit(f"{bench.failed} of the runs failed; with the same --out they alone are tried again")


class Bench:
    """The runs of one table. What they share, the data and the folders to start from, is made once."""

    def __init__(self, arguments: argparse.Namespace, tasks: dict[str, Task], work: Path) -> None:
        self.arguments, self.tasks, self.work = arguments, tasks, work
        self.config = read_config(arguments.model)
        self.starts = ["pretrained", "scratch"] if arguments.scratch else ["pretrained"]
        self.rates = RATES if arguments.search else (arguments.lr,)
        self.failed, self.lock = 0, Lock()
        self.tokenizer = wordpiece.load(arguments.model)
        self.weights = [file_digest(path) for path in sorted(arguments.model.glob("*.safetensors"))]
        self.files = {name: self.prepare(name) for name in tasks}
        self.folders = {("pretrained", seed): arguments.model for seed in range(arguments.seeds)}
        if arguments.scratch:
            self.folders |= {("scratch", seed): self.random_weights(seed) for seed in range(arguments.seeds)}
        self.by_token: dict[tuple[str, int], Path] = {}
        if any(task.kind == "tag" for task in tasks.values()):
            self.by_token = {key: self.reads_tokens(folder, key) for key, folder in self.folders.items()}
        self.done = self.kept()

    def run(self) -> dict[Job, dict[str, Any]]:
        """Every result. A search goes through the rates first."""
        seeds = range(self.arguments.seeds)
        sides = [(name, start) for name in self.tasks for start in self.starts]
        first = [Job(*side, lr, seed) for side in sides for lr in self.rates for seed in seeds]
        if len(self.rates) == 1:
            return self.together(first)
        found = self.together(job for job in first if job.seed == 0)
        best = {side: self.best_rate(found, *side) for side in sides}
        return found | self.together(job for job in first if job.seed > 0 and job.lr == best[job.task, job.start])

    def together(self, jobs: Iterable[Job]) -> dict[Job, dict[str, Any]]:
        """Runs side by side, the longest first, so that none is left alone at the end."""
        jobs = sorted(jobs, key=lambda job: -self.steps(job.task))
        steps = sum(self.steps(job.task) for job in jobs)
        say(f"{len(jobs)} runs, {steps:,} steps, {self.arguments.together} at a time")
        with ThreadPoolExecutor(self.arguments.together) as pool:
            found = dict(zip(jobs, pool.map(self.attempt, jobs), strict=True))
        return {job: result for job, result in found.items() if result is not None}

    def steps(self, name: str) -> int:
        """Steps of a run, about: what is held out is left aside."""
        return self.files[name].rows * self.tasks[name].epochs // self.tasks[name].batch

    def attempt(self, job: Job) -> dict[str, Any] | None:
        """A run's result, from the last time if it was run already; a failure is told, and the others go on."""
        key = self.key(job)
        if found := self.done.get(json.dumps(key)):
            return found
        begun = time.perf_counter()
        try:
            dev, test = self.finetune(job)
        except SystemExit as error:
            with self.lock:
                self.failed += 1
            say(f"{' '.join(map(str, job))} failed: {error}")
            return None
        result = {**key, "seconds": round(time.perf_counter() - begun, 1), "dev": dev, "test": test}
        with self.lock:
            if self.arguments.out is not None:
                with self.arguments.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")
        shown = ", ".join(f"{label} {100 * test[name]:.2f}" for name, label in self.tasks[job.task].scores.items())
        say(f"{job.task} {job.start}, rate {job.lr:g}, seed {job.seed}: {shown} ({result['seconds']:.0f} s)")
        return result

    def finetune(self, job: Job) -> tuple[dict[str, float], dict[str, float]]:
        """Scores on the dev set and on the test set."""
        task, files = self.tasks[job.task], self.files[job.task]
        tags = task.kind == "tag"
        device = self.arguments.device
        with tempfile.TemporaryDirectory(dir=self.work) as made:
            out, predictions = Path(made) / "model", Path(made) / "predictions.jsonl"
            heedful(
                "finetune",
                (self.by_token if tags else self.folders)[job.start, job.seed],
                files.train,
                dev=files.dev,
                task=task.kind,
                metric=task.chosen_by,
                epochs=task.epochs,
                batch=task.batch,
                lr=job.lr,
                pool=None if tags else self.arguments.pool,
                dropout=self.arguments.dropout,
                patience=0,
                seed=job.seed,
                device=device,
                checkpoint_every=1_000_000,
                truncate=True,
                out=out,
            )
            dev = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))["scores"]
            said = heedful(
                "evaluate", out, files.test, device=device, truncate=True, json=True, predictions=predictions
            )
            if not tags:
                return dev, json.loads(said)["scores"]
            given = [json.loads(line)["tags"] for line in predictions.read_text(encoding="utf-8").splitlines()]
        return dev, character_scores(self.tokenizer, read_tagged(self.arguments.data / task.test), given)

    def best_rate(self, found: dict[Job, dict[str, Any]], task: str, start: str) -> float:
        """The rate with the best score on the dev set; without any, that which was asked for."""
        scored = {job.lr: one["dev"] for job, one in found.items() if (job.task, job.start) == (task, start)}
        return max(scored, key=lambda lr: scored[lr][self.tasks[task].chosen_by], default=self.arguments.lr)

    def key(self, job: Job) -> dict[str, Any]:
        """All that decides a result."""
        task, asked = self.tasks[job.task], self.arguments
        return {
            **job._asdict(),
            "epochs": task.epochs,
            "batch": task.batch,
            "rows": self.files[job.task].rows,
            "pool": asked.pool,
            "dropout": asked.dropout,
            "model": str(asked.model),
            "weights": self.weights,
        }

    def kept(self) -> dict[str, dict[str, Any]]:
        """Results of an earlier run by their keys; a line that was cut off is passed over."""
        if self.arguments.out is None:
            return {}
        self.arguments.out.parent.mkdir(parents=True, exist_ok=True)
        if not self.arguments.out.is_file():
            return {}
        text = self.arguments.out.read_text(encoding="utf-8")
        if text and not text.endswith("\n"):
            text = text[: text.rfind("\n") + 1]
            self.arguments.out.write_text(text, encoding="utf-8")
        results = [json.loads(line) for line in text.splitlines()]
        later = ("seconds", "dev", "test")
        return {json.dumps({name: one[name] for name in one if name not in later}): one for one in results}

    def prepare(self, name: str) -> Files:
        """A task's files as the commands read them: rows left out where there are too many, characters as tokens."""
        task, data, most = self.tasks[name], self.arguments.data, self.arguments.most_rows
        paths = [None if part is None else data / part for part in (task.train, task.dev, task.test)]
        missing = [path for path in paths if path is not None and not path.is_file()]
        if missing:
            raise UserError(f"{missing[0]} is missing; --data is the folder that holds {task.train}")
        train, dev, test = paths
        assert train is not None
        assert test is not None
        head = 0 if task.kind == "tag" else 1
        rows = read_lines(train)
        header, rows = rows[:head], rows[head:]
        if most is not None and most < len(rows):
            rows = random.Random(0).sample(rows, most)
            train = self.work / f"{name}-train{'.jsonl' if task.kind == 'tag' else '.tsv'}"
            train.write_text("\n".join([*header, *rows]) + "\n", encoding="utf-8")
        if task.kind == "tag":
            train, dev, test = (
                None if path is None else self.tokens_of(path, self.work / f"{name}-{part}-tokens.jsonl")
                for path, part in ((train, "train"), (dev, "dev"), (test, "test"))
            )
        assert train is not None
        assert test is not None
        return Files(train, dev, test, len(rows))

    def tokens_of(self, path: Path, out: Path) -> Path:
        """Write sentences with tagged characters as tagged tokens."""
        with out.open("w", encoding="utf-8") as file:
            rows = read_tagged(path)
            for row, (words, spans) in zip(rows, tokens(self.tokenizer, rows), strict=True):
                tags = [row["tags"][start] for start, _ in spans]
                file.write(json.dumps({"tokens": words, "tags": tags}, ensure_ascii=False) + "\n")
        return out

    def random_weights(self, seed: int) -> Path:
        """A folder with the same architecture and tokenizer, and nothing learned."""
        folder = self.work / f"scratch-{seed}"
        model = Bert(self.config)
        initialise(model, self.config.init_std, torch.Generator().manual_seed(seed))
        save_model(model, folder)
        wordpiece.save(self.tokenizer, folder, self.config.max_length)
        return folder

    def reads_tokens(self, folder: Path, key: tuple[str, int]) -> Path:
        """The same model, with a tokenizer that takes `##x` for the token of that name.

        Tagging is told the words of a sentence; this way these can be the model's own tokens.
        """
        made = self.work / f"tokens-{key[0]}-{key[1]}"
        made.mkdir()
        for path in folder.iterdir():
            if path.is_file() and path.name not in TOKENIZER_FILES:
                (made / path.name).symlink_to(path.resolve())
        wordpiece.save(token_reader(self.tokenizer), made, self.config.max_length)
        return made


def token_reader(tokenizer: wordpiece.Tokenizer) -> wordpiece.Tokenizer:
    """A tokenizer with the same ids that knows tokens inside words by their names."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    inner = [token for token in tokenizer.vocabulary if token.startswith(wordpiece.CONTINUES)]
    backend.add_tokens([tokenizers.AddedToken(token, normalized=False, special=False) for token in inner])
    return wordpiece.Tokenizer(backend)


def tokens(
    tokenizer: wordpiece.Tokenizer, rows: Sequence[dict[str, Any]]
) -> list[tuple[list[str], list[tuple[int, int]]]]:
    """The tokens of each sentence by name, and the characters [start, stop) that each stands for.

    What has no token keeps its letters, so that it is as unknown again.
    """
    found = []
    for row, read in zip(
        rows, tokenizer.backend.encode_batch([row["text"] for row in rows], add_special_tokens=False), strict=True
    ):
        spans = [(int(start), int(stop)) for start, stop in characters(row["text"], read.offsets)]
        words = [
            row["text"][slice(*span)] if number == tokenizer.unk else token
            for number, token, span in zip(read.ids, read.tokens, spans, strict=True)
        ]
        found.append((words, spans))
    return found


def character_scores(
    tokenizer: wordpiece.Tokenizer, rows: Sequence[dict[str, Any]], given: Sequence[Sequence[str]]
) -> dict[str, float]:
    """KLUE's two scores of tagged tokens, over all characters but blanks."""
    truth, predicted = [], []
    for row, (_, spans), tags in zip(rows, tokens(tokenizer, rows), given, strict=True):
        spread = ["O"] * len(row["text"])
        for (start, stop), tag in zip(spans, tags, strict=True):
            inner = tag if tag == "O" else f"I-{tag[2:]}"
            spread[start:stop] = [tag] + [inner] * (stop - start - 1)
        seen = [place for place, character in enumerate(row["text"]) if not character.isspace()]
        truth.append([row["tags"][place] for place in seen])
        predicted.append([spread[place] for place in seen])
    labels = sorted({tag for tags in [*truth, *predicted] for tag in tags})
    each = [one.f1 for one in tag_report(truth, predicted, labels).classes if one.label != "O"]
    return {
        "entity_f1": span_report(truth, predicted, "BIO").scores["macro_f1"],
        "character_f1": statistics.mean(each),
    }


def read_lines(path: Path) -> list[str]:
    """A file's lines, header included."""
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line for line in file.read().split("\n") if line]


def read_tagged(path: Path) -> list[dict[str, Any]]:
    """Sentences with a tag for each character."""
    return [json.loads(line) for line in read_lines(path)]


def say(text: str) -> None:
    """Progress; the table alone goes to the standard output."""
    print(text, file=sys.stderr, flush=True)


def report(bench: Bench, results: dict[Job, dict[str, Any]], source: str) -> None:
    """The table: means and deviations over the seeds, in points, and what was published."""
    asked, config = bench.arguments, bench.config
    parameters = sum(one.numel() for one in Bert(config).parameters())
    rate = f"the best on dev of {', '.join(f'{lr:g}' for lr in RATES)}" if asked.search else f"{asked.lr:g}"
    print(
        f"{asked.model.name}: {config.layers} layers, {config.dim} wide, {config.heads} heads, "
        f"{parameters / 1e6:.1f} M parameters. Seeds: {asked.seeds}; rate {rate}, linear warm-up (10%) and decay.\n"
    )
    models = list(dict.fromkeys(model for task in bench.tasks.values() for model in task.published))
    heads = ["task", "metric", "on", "rows", "epochs", "batch", *(STARTS[start] for start in bench.starts), *models]
    print(f"| {' | '.join(heads)} |\n|---|---|---|{'---:|' * (len(heads) - 3)}")
    for name, task in bench.tasks.items():
        cells = [name, "/".join(task.scores.values()), "test" if "test" in task.test else "dev"]
        cells += [f"{bench.files[name].rows:,}", str(task.epochs), str(task.batch)]
        cells += [side(bench, results, name, start) for start in bench.starts]
        print(f"| {' | '.join([*cells, *(task.published.get(model, '-') for model in models)])} |")
    print(f"\nPublished: {source}.")
    for name, task in bench.tasks.items():
        if task.remark:
            print(f"{name}: {task.remark}.")


def side(bench: Bench, results: dict[Job, dict[str, Any]], task: str, start: str) -> str:
    """A cell of the table: all seeds at the best rate."""
    found = {job: one for job, one in results.items() if (job.task, job.start) == (task, start)}
    if not found:
        return "-"
    lr = bench.best_rate({job: one for job, one in found.items() if job.seed == 0} or found, task, start)
    cells = []
    for name in bench.tasks[task].scores:
        values = [100 * one["test"][name] for job, one in found.items() if job.lr == lr]
        deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.1f}{deviation}")
    return "/".join(cells) + (f" ({lr:g})" if len(bench.rates) > 1 else "")


if __name__ == "__main__":
    main()
