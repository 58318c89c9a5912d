"""What a pretrained encoder is worth: fine-tuned on five tasks, beside published models and beside no pretraining.

    python -m bench.downstream english --data FOLDER --model FOLDER [--scratch] [--device cuda] [--together 8]
    python -m bench.downstream korean --data FOLDER --model FOLDER [--tasks nsmc …] [--search] [--out FILE]

English: SST-2, CoLA, MRPC, RTE and STS-B of GLUE. Korean: NSMC, KLUE NLI, YNAT headlines, KorSTS, KLUE NER. The data
folder holds glue, or nsmc, klue and kornlu. Every run is `heedful finetune`, which keeps the epoch that does best on
the dev set, then one `heedful evaluate` on the test set. Where there is no public test set the official dev set takes
its place; where that leaves no dev set, a tenth of the training set is held out for it (at most 5,000 rows).
`--scratch` also starts from random weights, with the same architecture and tokenizer. `--search` tries three rates
with the first seed, each side for itself, and goes on with the one that does best on the dev set.

KLUE tags characters. The model tags its own tokens, each of which has the tag of its first character; scores are
taken over characters without blanks, as KLUE does: entity F1 is the mean over the kinds of entities of the F1 of
exact spans, character F1 the mean over the tags but O.
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
from functools import partial
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
Rows = Sequence[dict[str, Any]]
say = partial(print, file=sys.stderr, flush=True)
"""Progress; the table alone goes to the standard output."""


class Task(NamedTuple):
    """A task, its files under the data folder, and how it is learned."""

    kind: str
    folder: str
    parts: tuple[str, str | None, str]
    """To train on, to choose by (None: a part of the first), and to test on."""
    epochs: int
    batch: int
    chosen_by: str
    """The score on the dev set that tells the best epoch, and the best rate."""
    scores: tuple[str, ...]
    """What is told of the test set."""


class Language(NamedTuple):
    """The tasks of a language, what others reached on them, and where that is from."""

    tasks: dict[str, Task]
    published: dict[str, dict[str, str]]
    source: str


SPLIT = ("train.tsv.xz", "dev.tsv", "test.tsv")
ENGLISH = Language(
    {
        "sst2": Task("classify", "glue/sst2", SPLIT, 3, 64, "accuracy", ("accuracy",)),
        "cola": Task("classify", "glue/cola", ("train.tsv", None, "dev.tsv"), 6, 32, "matthews", ("matthews",)),
        "mrpc": Task("classify", "glue/mrpc", SPLIT, 6, 32, "accuracy", ("f1", "accuracy")),
        "rte": Task("classify", "glue/rte", ("train.tsv.xz", None, "dev.tsv"), 8, 32, "accuracy", ("accuracy",)),
        "stsb": Task("regress", "glue/stsb", SPLIT, 6, 32, "pearson", ("pearson", "spearman")),
    },
    {
        "BERT-Tiny": {"sst2": "83.2", "cola": "0.0", "mrpc": "81.1/71.1", "rte": "57.2", "stsb": "74.3/73.6"},
        "BERT-Mini": {"sst2": "85.9", "cola": "0.0", "mrpc": "81.1/71.8", "rte": "57.9", "stsb": "75.4/73.3"},
        "BERT-Small": {"sst2": "89.7", "cola": "27.8", "mrpc": "83.4/76.2", "rte": "61.8", "stsb": "78.8/77.0"},
        "BERT-Medium": {"sst2": "89.6", "cola": "38.0", "mrpc": "86.6/81.6", "rte": "62.2", "stsb": "80.4/78.4"},
        "BERT-Base": {"sst2": "93.5", "cola": "52.1", "mrpc": "88.9/-", "rte": "66.4", "stsb": "-/85.8"},
    },
    "scores of GLUE's own test sets, from the README of google-research/bert and, for Base, Devlin et al. (2018). "
    "Here the dev set of MRPC is the end of its original training set.",
)
KOREAN = Language(
    {
        "nsmc": Task("classify", "nsmc", ("train.tsv.xz", None, "test.tsv.xz"), 3, 64, "accuracy", ("accuracy",)),
        "nli": Task(
            "classify", "klue", ("nli_train.tsv.xz", None, "nli_dev.tsv.xz"), 4, 64, "accuracy", ("accuracy",)
        ),
        "ynat": Task(
            "classify", "klue", ("ynat_train.tsv.xz", None, "ynat_dev.tsv.xz"), 3, 64, "macro_f1", ("macro_f1",)
        ),
        "korsts": Task(
            *("regress", "kornlu", ("korsts_train.tsv.xz", "korsts_dev.tsv", "korsts_test.tsv")),
            *(6, 32, "spearman", ("spearman",)),
        ),
        "ner": Task(
            *("tag", "klue", ("ner_train.jsonl.xz", "ner_dev.jsonl", "ner_test.jsonl")),
            *(10, 32, "macro_f1", ("entity_f1", "character_f1")),
        ),
    },
    {
        "DistilKoBERT": {"nsmc": "88.39", "korsts": "72.11"},
        "KoBERT": {"nsmc": "89.28", "korsts": "75.98"},
        "KcBERT": {"nsmc": "89.60", "korsts": "76.57"},
        "mBERT-base": {"nli": "73.20", "ynat": "81.55", "ner": "76.50/89.23"},
        "KLUE-RoBERTa-small": {"nli": "79.33", "ynat": "84.98", "ner": "83.65/91.14"},
        "KLUE-BERT-base": {"nli": "81.63", "ynat": "85.73", "ner": "83.97/91.39", "nsmc": "90.20", "korsts": "82.47"},
    },
    "NSMC and KorSTS from the README of BM-K/KoMiniLM, the others from that of KLUE-benchmark/KLUE. Here NSMC is "
    "drawn anew from its raw reviews by the published recipe, YNAT a split of a competition's headlines, "
    "NER one of the official dev set: the published models learned from 45,678 headlines and 21,008 sentences.",
)
LANGUAGES = {"english": ENGLISH, "korean": KOREAN}


class Job(NamedTuple):
    """One run: a task, what it starts from, and chance."""

    task: str
    start: str
    lr: float
    seed: int


Results = dict[Job, dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", choices=LANGUAGES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", help="all of the language by default")
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
    known = LANGUAGES[arguments.language].tasks
    if foreign := [name for name in arguments.tasks or () if name not in known]:
        parser.error(f"{foreign[0]} is no task in {arguments.language}; choose from {', '.join(known)}")
    # Each run by itself would start a thread a core.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // arguments.together)))
    with tempfile.TemporaryDirectory() as made:
        try:
            bench = Bench(arguments, {name: known[name] for name in arguments.tasks or known}, Path(made))
        except UserError as error:
            raise SystemExit(str(error)) from None
        report(bench, bench.run())
    if bench.failed:
        raise SystemExit(f"{bench.failed} of the runs failed; with the same --out they alone are tried again")


class Bench:
    """The runs of one table. What they share, the data and the folders to start from, is made once."""

    def __init__(self, arguments: argparse.Namespace, tasks: dict[str, Task], work: Path) -> None:
        self.arguments, self.tasks, self.work = arguments, tasks, work
        self.config, self.tokenizer = read_config(arguments.model), wordpiece.load(arguments.model)
        self.starts = ["pretrained", "scratch"] if arguments.scratch else ["pretrained"]
        self.rates = RATES if arguments.search else (arguments.lr,)
        self.failed, self.lock = 0, Lock()
        self.rows: dict[str, int] = {}
        self.files = {name: self.prepare(name) for name in tasks}
        self.weights = [file_digest(path) for path in sorted(arguments.model.glob("*.safetensors"))]
        self.done = self.kept()
        for seed in range(arguments.seeds if arguments.scratch else 0):
            self.random_weights(seed)

    def run(self) -> Results:
        """Every result. A search goes through the rates first."""
        sides = [(name, start) for name in self.tasks for start in self.starts]
        jobs = [Job(*side, lr, n) for side in sides for lr in self.rates for n in range(self.arguments.seeds)]
        if len(self.rates) == 1:
            return self.together(jobs)
        found = self.together(job for job in jobs if job.seed == 0)
        return found | self.together(job for job in jobs if job.seed and job.lr == self.best_rate(found, *job[:2]))

    def together(self, jobs: Iterable[Job]) -> Results:
        """Runs side by side, the longest first, so that none is left alone at the end. Steps are told roughly."""
        steps = {name: self.rows[name] * task.epochs // task.batch for name, task in self.tasks.items()}
        jobs = sorted(jobs, key=lambda job: -steps[job.task])
        new = [steps[job.task] for job in jobs if job not in self.done]
        say(f"runs: {len(new)}, steps: {sum(new):,}; {self.arguments.together} at a time")
        with ThreadPoolExecutor(self.arguments.together) as pool:
            found = dict(zip(jobs, pool.map(self.attempt, jobs), strict=True))
        results = {job: result for job, result in found.items() if result is not None}
        self.failed += len(jobs) - len(results)
        return results

    def attempt(self, job: Job) -> dict[str, Any] | None:
        """A run's result, from the last time if there is one; a failure is told, and the others go on."""
        if job in self.done:
            return self.done[job]
        begun = time.perf_counter()
        try:
            dev, test = self.finetune(job)
        except SystemExit as error:
            say(f"{' '.join(map(str, job))} failed: {error}")
            return None
        found = {"seconds": round(time.perf_counter() - begun, 1), "dev": dev, "test": test}
        result = {**job._asdict(), "settings": self.settings(job.task), **found}
        if self.arguments.out is not None:
            with self.lock, self.arguments.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        told = ", ".join(f"{name} {100 * test[name]:.2f}" for name in self.tasks[job.task].scores)
        say(f"{job.task} {job.start}, rate {job.lr:g}, seed {job.seed}: {told} ({found['seconds']:.0f} s)")
        return result

    def finetune(self, job: Job) -> tuple[dict[str, float], dict[str, float]]:
        """Scores on the dev set and on the test set."""
        task, files, device = self.tasks[job.task], self.files[job.task], self.arguments.device
        start = self.arguments.model if job.start == "pretrained" else self.work / f"scratch-{job.seed}"
        with tempfile.TemporaryDirectory(dir=self.work) as made:
            folder, predictions = Path(made), Path(made) / "predictions.jsonl"
            if task.kind == "tag":
                start = self.reading_tokens(start, folder / "start")
            data = {"dev": files.get("dev"), "task": task.kind, "metric": task.chosen_by, "truncate": True}
            learning = {"epochs": task.epochs, "batch": task.batch, "lr": job.lr, "patience": 0, "seed": job.seed}
            chosen = {"pool": self.arguments.pool if task.kind != "tag" else None, "dropout": self.arguments.dropout}
            run = {"device": device, "checkpoint_every": 1_000_000, "out": folder / "model"}
            heedful("finetune", start, files["train"], **data, **learning, **chosen, **run)
            dev = json.loads((folder / "model" / "evaluation.json").read_text(encoding="utf-8"))["scores"]
            asked = {"device": device, "truncate": True, "json": True, "predictions": predictions}
            test = json.loads(heedful("evaluate", folder / "model", files["test"], **asked))["scores"]
            if task.kind == "tag":
                given = [json.loads(line)["tags"] for line in read_lines(predictions)]
                tagged = [*map(json.loads, read_lines(self.arguments.data / task.folder / task.parts[-1]))]
                test = character_scores(self.tokenizer, tagged, given)
        return dev, test

    def best_rate(self, found: Results, task: str, start: str) -> float:
        """The rate whose first seed does best on the dev set; that which was asked for, if there is none."""
        score = self.tasks[task].chosen_by
        first = {job: one["dev"][score] for job, one in found.items() if job.seed == 0 and job[:2] == (task, start)}
        return max(first, key=first.__getitem__).lr if first else self.arguments.lr

    def settings(self, name: str) -> list[Any]:
        """All that decides a result besides the job."""
        task, asked = self.tasks[name], self.arguments
        return [task.epochs, task.batch, self.rows[name], asked.pool, asked.dropout, str(asked.model), *self.weights]

    def kept(self) -> Results:
        """What an earlier run has written."""
        if self.arguments.out is None:
            return {}
        self.arguments.out.parent.mkdir(parents=True, exist_ok=True)
        self.arguments.out.touch()
        lines = [json.loads(line) for line in read_lines(self.arguments.out)]
        ours = [one for one in lines if one["task"] in self.tasks and one["settings"] == self.settings(one["task"])]
        return {Job(*(one[field] for field in Job._fields)): one for one in ours}

    def prepare(self, name: str) -> dict[str, Path]:
        """A task's files as the commands read them: no more rows than asked for, characters as tokens."""
        task = self.tasks[name]
        given = zip(("train", "dev", "test"), task.parts, strict=True)
        files = {part: self.arguments.data / task.folder / path for part, path in given if path is not None}
        if missing := [path for path in files.values() if not path.is_file()]:
            raise UserError(f"{missing[0]} is missing; --data is the folder that holds {task.folder}")
        rows, most = read_lines(files["train"]), self.arguments.most_rows
        header = [] if task.kind == "tag" else [rows.pop(0)]
        if most is not None and most < len(rows):
            rows = random.Random(0).sample(rows, most)
            files["train"] = self.work / f"{name}{'.tsv' if header else '.jsonl'}"
            files["train"].write_text("\n".join([*header, *rows]) + "\n", encoding="utf-8")
        self.rows[name] = len(rows)
        if task.kind == "tag":
            return {part: self.tokens_of(path, self.work / f"{name}-{part}.jsonl") for part, path in files.items()}
        return files

    def tokens_of(self, path: Path, out: Path) -> Path:
        """Write sentences with tagged characters as tagged tokens."""
        rows = [*map(json.loads, read_lines(path))]
        with out.open("w", encoding="utf-8") as file:
            for row, (words, spans) in zip(rows, tokens(self.tokenizer, rows), strict=True):
                tags = [row["tags"][start] for start, _ in spans]
                file.write(json.dumps({"tokens": words, "tags": tags}) + "\n")
        return out

    def random_weights(self, seed: int) -> None:
        """A folder with the same architecture and tokenizer, and nothing learned."""
        model = Bert(self.config)
        initialise(model, self.config.init_std, torch.Generator().manual_seed(seed))
        save_model(model, self.work / f"scratch-{seed}")
        wordpiece.save(self.tokenizer, self.work / f"scratch-{seed}", self.config.max_length)

    def reading_tokens(self, folder: Path, made: Path) -> Path:
        """The same model, with a tokenizer that takes `##x` for the token of that name, not for signs and a letter.

        Who tags says what the words of a sentence are; this way they can be the model's own tokens.
        """
        made.mkdir()
        for path in folder.iterdir():
            if path.is_file() and path.name not in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
                (made / path.name).symlink_to(path.resolve())
        wordpiece.save(token_reader(self.tokenizer), made, self.config.max_length)
        return made


def token_reader(tokenizer: wordpiece.Tokenizer) -> wordpiece.Tokenizer:
    """A tokenizer with the same ids that knows the tokens inside words by their names."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    inner = [token for token in tokenizer.vocabulary if token.startswith(wordpiece.CONTINUES)]
    backend.add_tokens([tokenizers.AddedToken(token, normalized=False, special=False) for token in inner])
    return wordpiece.Tokenizer(backend)


def tokens(tokenizer: wordpiece.Tokenizer, rows: Rows) -> list[tuple[list[str], list[tuple[int, int]]]]:
    """The tokens of each sentence by name, and the characters [start, stop) that each stands for.

    What is unknown keeps its letters, so that it is unknown again.
    """
    texts = [row["text"] for row in rows]
    found = []
    for text, read in zip(texts, tokenizer.backend.encode_batch(texts, add_special_tokens=False), strict=True):
        spans = [(int(start), int(stop)) for start, stop in characters(text, read.offsets)]
        known = zip(read.ids, read.tokens, spans, strict=True)
        found.append(([text[slice(*span)] if n == tokenizer.unk else token for n, token, span in known], spans))
    return found


def character_scores(tokenizer: wordpiece.Tokenizer, rows: Rows, given: Sequence[list[str]]) -> dict[str, float]:
    """KLUE's two scores of tagged tokens, over all characters but blanks."""
    truth, predicted = [], []
    for row, (_, spans), tags in zip(rows, tokens(tokenizer, rows), given, strict=True):
        spread = ["O"] * len(row["text"])
        for (start, stop), tag in zip(spans, tags, strict=True):
            for place in range(start, stop):
                spread[place] = tag if place == start or tag == "O" else f"I-{tag[2:]}"
        seen = [place for place, character in enumerate(row["text"]) if not character.isspace()]
        truth.append([row["tags"][place] for place in seen])
        predicted.append([spread[place] for place in seen])
    labels = sorted({tag for tags in [*truth, *predicted] for tag in tags})
    each = [one.f1 for one in tag_report(truth, predicted, labels).classes if one.label != "O"]
    entities = span_report(truth, predicted, "BIO").scores["macro_f1"]
    return {"entity_f1": entities, "character_f1": statistics.mean(each)}


def read_lines(path: Path) -> list[str]:
    """A file's lines, header included."""
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line for line in file.read().split("\n") if line]


def report(bench: Bench, results: Results) -> None:
    """The table: means and deviations over the seeds, in points, and what was published."""
    asked, config, language = bench.arguments, bench.config, LANGUAGES[bench.arguments.language]
    parameters = sum(one.numel() for one in Bert(config).parameters())
    rate = " or ".join(f"{lr:g}" for lr in bench.rates) + (", as does best on dev" if asked.search else "")
    print(
        f"{asked.model.name}: {config.layers} layers, {config.dim} wide, {config.heads} heads, "
        f"{parameters / 1e6:.1f} M parameters. Seeds: {asked.seeds}; rate {rate}, linear warm-up (10%) and decay.\n"
    )
    heads = ["task", "metric", "on", "rows", "epochs", "batch", *bench.starts, *language.published]
    print(f"| {' | '.join(heads)} |\n|---|---|---|{'---:|' * (len(heads) - 3)}")
    for name, task in bench.tasks.items():
        cells = [name, "/".join(task.scores).replace("_", " "), "test" if "test" in task.parts[-1] else "dev"]
        cells += [f"{bench.rows[name]:,}", str(task.epochs), str(task.batch)]
        cells += [side(bench, results, name, start) for start in bench.starts]
        print(f"| {' | '.join([*cells, *(one.get(name, '-') for one in language.published.values())])} |")
    print(f"\nPublished: {language.source}")


def side(bench: Bench, results: Results, task: str, start: str) -> str:
    """A cell of the table: all seeds at the best rate."""
    lr = bench.best_rate(results, task, start)
    found = [one["test"] for job, one in results.items() if (job.task, job.start, job.lr) == (task, start, lr)]
    if not found:
        return "-"
    cells = []
    for name in bench.tasks[task].scores:
        values = [100 * one[name] for one in found]
        deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.1f}{deviation}")
    return "/".join(cells) + (f" ({lr:g})" if len(bench.rates) > 1 else "")


if __name__ == "__main__":
    main()
