"""What a fine-tuning run can be told: on the command line, in a recipe, in a folder's heedful.toml.

Plain data, without torch, so that `--help` is instant. The attribute docstrings are the help.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from heedful.arguments import optional
from heedful.config import from_tables, read_toml
from heedful.data.columns import Columns, refuse_named
from heedful.errors import UserError
from heedful.runs.options import MachinePart
from heedful.runs.recipe_files import RUN_FILE, named, read_as

Task = Literal["classify", "regress", "tag", "answer"]
Pool = Literal["cls", "mean"]
METRICS = {
    "classify": ("accuracy", "macro_f1", "matthews"),
    "binary": ("accuracy", "macro_f1", "matthews", "f1"),
    "multilabel": ("micro_f1", "macro_f1", "exact", "accuracy"),
    "regress": ("r2", "rmse", "mae", "pearson", "spearman"),
    "tag": ("f1", "accuracy", "macro_f1", "precision", "recall"),
    "plain": ("accuracy", "macro_f1"),
    "answer": ("f1", "exact"),
}
"""What a task can be judged by; the first is the usual one. "plain" are tags that mark no spans, "binary"
are two classes, of which the second has an F1 of its own."""
LOWER_IS_BETTER = ("rmse", "mae")


@dataclass(frozen=True, kw_only=True)
class DataPart:
    """The data."""

    text: Annotated[str | None, optional(metavar="COLUMN")] = None
    """Column of the text. Found by itself when its name is usual, like the others."""
    pair: Annotated[str | None, optional(metavar="COLUMN")] = None
    """Column of the second text, for pairs."""
    label: Annotated[UseAppendAction[tuple[str, ...]], optional(metavar="COLUMN")] = ()
    """Column of the label or the number; several times for several numbers."""
    many_labels: Annotated[bool, FlagCreatePairsOff] = False
    """Any number of labels a text, in one column (lists in jsonl and parquet are read so anyway)."""
    separator: str = ","
    """What separates several labels in a column of text."""
    errors: Literal["strict", "replace"] = "strict"
    """What to do with bytes that are not UTF-8: stop, or put a replacement character."""
    held_out: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of the examples to evaluate on, when there is no --dev (10 percent by default, at most 5,000)."""
    length: Annotated[int | None, optional(metavar="N")] = None
    """Most tokens of an input: the model's for texts; windows over long texts have 256 to tag, 384 to answer."""
    overlap: Annotated[int | None, optional(metavar="N")] = None
    """Tokens that neighbouring windows share (a quarter of the length to tag, a third to answer)."""
    truncate: Annotated[bool, FlagCreatePairsOff] = False
    """Cut texts that are too long, where else they are refused. How many is said."""
    skip_bad: Annotated[bool, FlagCreatePairsOff] = False
    """Pass over rows that can't be used, where else the first one stops the run. How many is said."""

    def __post_init__(self) -> None:
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise UserError(f"held_out {self.held_out} must lie between 0 and 1")
        if self.length is not None and self.length < 8:
            raise UserError(f"length {self.length} is too short to read anything; use 8 or more")
        if self.overlap is not None and self.overlap < 0:
            raise UserError(f"overlap {self.overlap} must not be negative")

    @property
    def columns(self) -> Columns:
        """The columns that were named."""
        return Columns(text=self.text, pair=self.pair, label=self.label)


@dataclass(frozen=True, kw_only=True)
class HeadPart:
    """The head."""

    pool: Annotated[Pool | None, optional(metavar="cls|mean")] = None
    """What the head reads of a text: the state of [CLS], or the mean of all states (by default as in MODEL)."""
    balance: Annotated[bool, FlagCreatePairsOff] = False
    """Weigh rare classes more, so that every class counts the same in all."""
    metric: Annotated[str | None, optional(metavar="NAME")] = None
    """What tells the best checkpoint, the first by default: accuracy, macro_f1 or matthews; micro_f1, macro_f1, exact
    or accuracy of several labels; r2, rmse, mae, pearson or spearman of numbers; f1, accuracy, macro_f1, precision or
    recall of tags; f1 or exact of answers."""


@dataclass(frozen=True, kw_only=True)
class LearningPart:
    """Learning: AdamW, linear warm-up, then linear decay."""

    epochs: Annotated[int | None, optional(metavar="N")] = None
    """Times to go through the data (by default 3 to 20, fewer for more data)."""
    batch: Annotated[int | None, optional(metavar="N")] = None
    """Examples in a batch (by default 16, or 32 from 5,000 examples on)."""
    lr: Annotated[float | None, optional(metavar="RATE")] = None
    """Peak learning rate (by default 2e-5 to 1e-4, lower for wider models)."""
    warmup: float = 0.1
    """Share of the run during which the learning rate rises."""
    weight_decay: float = 0.01
    """Pull of the matrices towards zero; biases and norms are free of it."""
    clip: float = 1.0
    """Longest gradient."""
    layer_decay: float = 1.0
    """Share of the rate of each layer that the layer below it gets: 0.9 changes lower layers less."""
    freeze: Annotated[int, arg(metavar="LAYERS")] = 0
    """Leave the embeddings and so many lower layers as they are; -1 trains the head alone."""
    dropout: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of activations dropped while training (the model's own by default)."""
    attention_dropout: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of attention weights dropped while training (the model's own by default)."""
    evaluations: Annotated[int | None, optional(metavar="N")] = None
    """Evaluations, evenly over the run (by default one an epoch)."""
    patience: int = 3
    """Stop after so many evaluations without a better one; 0 never stops early."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "evaluations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} {value} must be at least 1")
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise UserError(f"--lr {self.lr} must be a number above 0")
        if not 0 <= self.warmup <= 1:
            raise UserError(f"warmup {self.warmup} is a share of the run and must lie between 0 and 1")
        if not self.clip > 0:
            raise UserError(f"clip {self.clip} must be above 0")
        if not self.weight_decay >= 0:
            raise UserError(f"weight_decay {self.weight_decay} must not be negative")
        if not 0 < self.layer_decay <= 1:
            raise UserError(f"layer_decay {self.layer_decay} must be above 0 and at most 1")
        if self.freeze < -1:
            raise UserError(f"freeze {self.freeze} must be a number of layers, or -1 for all")
        if self.patience < 0:
            raise UserError(f"patience {self.patience} must not be negative")
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise UserError(f"{name} {value} must be at least 0 and less than 1")


@dataclass(frozen=True, kw_only=True)
class FinetuneRun(MachinePart):
    """The run."""

    seeds: Annotated[int, arg(metavar="N")] = 1
    """Train so many times, from --seed on, keep the best and tell mean and deviation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seeds < 1:
            raise UserError(f"seeds {self.seeds} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe:
    """All that decides what a run makes: the content of a recipe file and of a folder's heedful.toml."""

    start_from: Annotated[Positional[str | None], optional(name="MODEL", metavar="MODEL")] = None
    """A BERT folder, ours or anyone's."""
    train: Annotated[Positional[tuple[str, ...]], optional(name="TRAIN", metavar="TRAIN…")] = ()
    """Labelled data: csv, tsv, jsonl, parquet; CoNLL files to tag; SQuAD json to answer; plain or gz, xz, zst."""
    task: Annotated[Task | None, optional(metavar="TASK")] = None
    """classify, regress, tag or answer."""
    dev: Annotated[str | None, optional(metavar="FILE")] = None
    """Labelled data to evaluate on; without it, a part of the training data is held out."""
    data: DataPart = field(default_factory=DataPart)
    head: HeadPart = field(default_factory=HeadPart)
    learning: LearningPart = field(default_factory=LearningPart)
    run: FinetuneRun = field(default_factory=FinetuneRun)


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """Fine-tune a BERT to classify, score, tag or answer: training, evaluation, a folder anyone can open."""

    settings: Annotated[FinetuneRecipe, arg(name="")] = field(default_factory=FinetuneRecipe)
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Where the model goes."""
    recipe: Annotated[str | None, optional(metavar="FILE|FOLDER")] = None
    """Start from a recipe, which is a TOML file or the folder of a run; other options override it."""
    resume: Annotated[bool, FlagCreatePairsOff] = False
    """Go on with the interrupted run in --out."""


def check(recipe: FinetuneRecipe, *, begun: bool = False) -> None:
    """Refuse what can't become a run; of one that has begun, not what it was told in vain."""
    if recipe.start_from is None:
        raise UserError("MODEL is missing: the folder of the BERT to fine-tune")
    if not recipe.train:
        raise UserError("TRAIN is missing: the file with the labelled data")
    if recipe.task is None:
        raise UserError("--task is missing; choose from classify, regress, tag, answer")
    if recipe.task not in ("classify", "regress") and recipe.head.pool is not None:
        raise UserError(
            f"--pool is for answers about whole texts; to {recipe.task}, every token is read: leave it out"
        )
    if recipe.task in ("regress", "answer") and recipe.head.balance:
        raise UserError(f"--balance weighs classes, and to {recipe.task} there are none; leave it out")
    if recipe.data.many_labels and recipe.task != "classify":
        raise UserError(f"--many-labels is for --task classify, not {recipe.task}; leave it out")
    if recipe.data.overlap is not None and recipe.task not in ("tag", "answer"):
        raise UserError(f"--overlap is for windows, and to {recipe.task} there are none; leave it out")
    if begun:
        return
    if recipe.dev is not None and recipe.data.held_out is not None:
        raise UserError("--dev has the examples to evaluate on; leave --held-out out")
    refuse_named(recipe.data.columns, recipe.task)


RIVALS = {"dev": ("data.held_out",), "held-out": ("dev",)}
"""What a flag puts aside of the recipe that it overrides."""


def resolved(recipe: FinetuneRecipe, *, task: str, examples: int, dim: int, pool: str) -> FinetuneRecipe:
    """The recipe with its defaults written out, for so many examples and a model so wide that pools so."""
    learning = recipe.learning
    metric = recipe.head.metric or METRICS[task][0]
    if metric not in METRICS[task]:
        raise UserError(f"--metric {metric!r} is not one of this task; choose from {', '.join(METRICS[task])}")
    epochs = learning.epochs or usual_epochs(examples)
    own: Pool | None = None if recipe.task not in ("classify", "regress") else "mean" if pool == "mean" else "cls"
    return replace(
        recipe,
        head=replace(recipe.head, metric=metric, pool=recipe.head.pool or own),
        learning=replace(
            learning,
            epochs=epochs,
            batch=learning.batch or (16 if examples < 5000 else 32),
            lr=learning.lr or usual_rate(dim),
            evaluations=learning.evaluations or epochs,
        ),
    )


def usual_epochs(examples: int) -> int:
    """Few examples are gone through more often."""
    for most, epochs in ((1000, 20), (5000, 10), (20000, 5)):
        if examples < most:
            return epochs
    return 3


def usual_rate(dim: int) -> float:
    """Narrow models learn faster."""
    return 1e-4 if dim < 512 else 5e-5 if dim < 768 else 3e-5 if dim < 1024 else 2e-5


def trained_with(folder: Path) -> DataPart:
    """How the data was read that a folder's model was trained on; as by default where the folder does not say."""
    path = folder / RUN_FILE
    said = read_toml(path).get("data") if path.is_file() else None
    if not isinstance(said, dict):  # of another kind of run
        return DataPart()
    kept = {name: said[name] for name in ("text", "pair", "label", "separator") if name in said}
    return from_tables(DataPart, kept, f"{path} [data]")


def load_recipe(name: str) -> FinetuneRecipe:
    """A recipe from a TOML file or from the folder of a run."""
    return named(FinetuneRecipe, name, "finetune")


def read_recipe(path: Path) -> FinetuneRecipe:
    """A recipe from a file."""
    return read_as(FinetuneRecipe, path)
