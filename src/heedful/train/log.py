"""What a run tells: `metrics.jsonl`, one line a report; `samples.jsonl`, what it makes of a few examples; a bar on a
terminal, plain lines elsewhere; tensorboard.

Only the leading rank has a log that says anything.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Column

from heedful.durable import alone, write_file
from heedful.errors import UserError

FILE = "metrics.jsonl"
SAMPLES = "samples.jsonl"
PLAIN_EVERY = 0.05
"""The share of a run between two lines where there is no bar."""
WORDS = {
    "loss": ("loss", ".3f"),
    "mlm_accuracy": ("words", ".1%"),
    "nsp_accuracy": ("next sentence", ".1%"),
    "token_accuracy": ("tokens", ".1%"),
    "bleu": ("BLEU", ".2f"),
    "perplexity": ("perplexity", ".1f"),
    "accuracy": ("accuracy", ".1%"),
    "matthews": ("Matthews", ".3f"),
    "exact": ("exact", ".1%"),
    "f1": ("F1", ".1%"),
    "micro_f1": ("micro F1", ".1%"),
    "macro_f1": ("macro F1", ".1%"),
    "pearson": ("Pearson", ".3f"),
    "spearman": ("Spearman", ".3f"),
    "rmse": ("error (RMS)", ".4g"),
    "mae": ("error (mean)", ".4g"),
    "r2": ("R²", ".3f"),
    "precision": ("precision", ".1%"),
    "recall": ("recall", ".1%"),
}
"""How a metric is told: its name in words, and its form."""


class Sample(NamedTuple):
    """What a model that trains makes of an example."""

    input: str
    output: str
    reference: str | None = None
    """What it should make of it."""
    probability: float | None = None
    """How sure it is, where it says."""


class _Console(Console):
    """Whoever listens may go, as a terminal does that is closed: then training goes on in silence."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As it does, as long as anybody listens."""
        try:
            super().print(*objects, **options)
        except OSError:
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Log:
    """The voice of a run: speaks at once, and keeps a record while it is opened."""

    def __init__(self, folder: Path, *, leads: bool) -> None:
        self.folder = folder
        self.leads = leads
        self.file: TextIO | None = None
        self.board: Any = None
        self.console = _Console(quiet=not leads, highlight=False, soft_wrap=True)
        self.said = 0.0
        self.bar = Progress(
            BarColumn(bar_width=20, table_column=Column(min_width=20)),
            TaskProgressColumn(table_column=Column(min_width=4, no_wrap=True)),
            TextColumn("{task.fields[numbers]}", table_column=Column()),  # two lines where the terminal is narrow
            console=self.console,
            disable=not (leads and self.console.is_terminal),
        )
        self.task = self.bar.add_task("training", total=1.0, numbers="")

    @contextmanager
    def opened(self, *, step: int, tensorboard: bool) -> Iterator[None]:
        """Keep a record from a step on, and show the bar."""
        if not self.leads:
            yield
            return
        with alone(self.folder):
            for name in (FILE, SAMPLES):
                keep_until(self.folder / name, step)
            self.board = summary_writer()(self.folder / "tensorboard", purge_step=step + 1) if tensorboard else None
            try:
                with (self.folder / FILE).open("a", encoding="utf-8") as self.file, self.bar:
                    yield
            finally:
                self.file = None
                if self.board is not None:
                    self.board.close()

    def note(self, text: str) -> None:
        """A line for people."""
        self.console.print(text, markup=False, emoji=False)

    def warn(self, text: str) -> None:
        """A line on standard error."""
        if self.leads:
            with suppress(OSError):  # a terminal that was closed
                print(f"heedful: {text}", file=sys.stderr)

    def metrics(self, kind: str, step: int, numbers: dict[str, float]) -> None:
        """One line in metrics.jsonl."""
        if self.file is not None:
            self.file.write(json.dumps({"kind": kind, "step": step, **numbers}) + "\n")
            self.file.flush()
        if self.board is not None:
            for name, value in numbers.items():
                self.board.add_scalar(f"{kind}/{name}", value, step)

    def samples(self, step: int, found: Sequence[Sample]) -> None:
        """A line for each in samples.jsonl, which is there from the first one on."""
        if self.file is None or not found:
            return
        told = [{name: value for name, value in one._asdict().items() if value is not None} for one in found]
        lines = [json.dumps({"step": step, **one}, ensure_ascii=False) + "\n" for one in told]
        with (self.folder / SAMPLES).open("a", encoding="utf-8") as file:
            file.writelines(lines)

    def progress(self, done: float, step: int, numbers: dict[str, float]) -> None:
        """Where training stands: moves the bar, or says a line where there is none."""
        if self.bar.disable:
            if done >= self.said:
                self.note(f"step {step} ({done:.0%})  {describe(numbers)}")
                self.said = done + PLAIN_EVERY
        else:
            self.bar.update(self.task, completed=done, numbers=f"step {step}  {describe(numbers)}")


def describe(numbers: dict[str, float]) -> str:
    """Metrics in a few words."""
    parts = [f"{words} {numbers[name]:{form}}" for name, (words, form) in WORDS.items() if name in numbers]
    speeds = {unit: numbers.get(f"{unit}_per_second") for unit in ("tokens", "words", "images")}
    parts += [f"{speed:,.0f} {unit}/s" for unit, speed in speeds.items() if speed is not None]
    if "left" in numbers:
        minutes, seconds = divmod(round(numbers["left"]), 60)
        parts.append(f"{minutes}:{seconds:02d} left")
    return "  ".join(parts)


def read(folder: Path) -> list[dict[str, float | str]]:
    """The reports of a run so far."""
    path = folder / FILE
    if not folder.is_dir():
        raise UserError(f"{folder} holds no run: {'it is a file' if folder.exists() else 'there is no such folder'}")
    if not path.is_file():
        raise UserError(f"{folder} holds no run: it has no {FILE}")
    *lines, _ = path.read_bytes().split(b"\n")  # after the last end of line is what a kill has cut short
    found = []
    for number, line in enumerate(lines, 1):
        try:
            report = json.loads(line)
        except ValueError:
            report = None
        if not isinstance(report, dict) or not report.keys() >= {"kind", "step"}:
            raise UserError(f"{path}: line {number} is no report of a run; remove it")
        found.append(report)
    return found


def keep_until(path: Path, step: int) -> None:
    """Forget the reports after a step: a resumed run makes them again. A line cut short goes too."""
    if not path.is_file():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):  # texts may have other ends of lines
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    write_file(path, "".join(kept).encode())


def summary_writer() -> Any:
    """The class that writes tensorboard files, where that optional part is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError("tensorboard is not installed; pip install 'heedful[tensorboard]'") from None
    return SummaryWriter
