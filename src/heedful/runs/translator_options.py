"""What training a translator can be told: on the command line, in a recipe, in a folder's heedful.toml.

Plain data, without torch, so that `--help` is instant. The attribute docstrings are the help.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from heedful.arguments import optional
from heedful.errors import UserError
from heedful.runs.options import RunPart
from heedful.runs.recipe_files import named, read_as

RATES = {128: 2e-3, 256: 1.5e-3, 512: 7e-4, 1024: 3e-4}
"""Peak learning rates by width; the widths between them take that of the next wider. With batches of 4,096 tokens and
a long warm-up 128 wide also learns with 5e-3, and better; with small batches it learned nothing then."""
RNN_RATE = 1e-3
WARMUP = 0.1
DROPOUTS = {"tiny": 0.3, "small": 0.3, "base": 0.1, "big": 0.3}
"""As published, for small and for large data."""

TRANSFORMER_ONLY = ("pre_norm", "attention_dropout")
RNN_ONLY = ("score", "cell", "bidirectional", "input_feeding")

Names = Annotated[UseAppendAction[tuple[str, ...]], optional(metavar="FILE|COLUMN")]


@dataclass(frozen=True, kw_only=True)
class PairsPart:
    """The sentence pairs."""

    errors: Literal["strict", "replace"] = "strict"
    """What to do with bytes that are not UTF-8: stop, or put a replacement character."""
    held_out: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of the pairs to evaluate on, when there is no --dev (5 percent by default, at most 2,000)."""
    language: Annotated[str | None, optional(metavar="CODE")] = None
    """Language of the targets (ko, ja, zh, …), by which BLEU cuts them into words; without it, by their spaces."""
    length: int = 256
    """Most tokens of a sentence to learn from; longer pairs are left out, and how many is said."""
    skip_bad: Annotated[bool, FlagCreatePairsOff] = False
    """Pass over pairs that can't be used, where else the first one stops the run. How many is said."""

    def __post_init__(self) -> None:
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise UserError(f"held_out {self.held_out} must lie between 0 and 1")
        if self.length < 4:
            raise UserError(f"length {self.length} is too short to hold a sentence; use 4 or more")


@dataclass(frozen=True, kw_only=True)
class SubwordsPart:
    """The vocabulary."""

    subwords: Literal["bpe", "unigram", "wordpiece"] = "bpe"
    """How words are taken apart."""
    vocab_size: Annotated[int | None, optional(metavar="N")] = None
    """Tokens of the vocabulary, or of each of the two (by default 8000, or as many as the text supports)."""
    joint: bool = True
    """One vocabulary for both languages."""
    bpe_dropout: float = 0.0
    """Share of merges left out at random, so that words are taken apart in other ways each time (try 0.1)."""

    def __post_init__(self) -> None:
        if not 0 <= self.bpe_dropout < 1:
            raise UserError(f"bpe_dropout {self.bpe_dropout} must be at least 0 and less than 1; try 0.1")
        if self.bpe_dropout and self.subwords != "bpe":
            raise UserError(f"bpe_dropout is for --subwords bpe, not {self.subwords}; leave one of them out")


@dataclass(frozen=True, kw_only=True)
class TranslatorModelPart:
    """The model."""

    model: Literal["transformer", "rnn"] = "transformer"
    """The Transformer, or the recurrent network with attention that it replaced."""
    size: Literal["tiny", "small", "base", "big"] = "tiny"
    """tiny for up to some 100,000 pairs, base for millions."""
    share: Annotated[Literal["all", "output", "none"] | None, optional(metavar="all|output|none")] = None
    """Which of the three tables of tokens are one: all, those of target and output, or none (as many as can be)."""
    pre_norm: Annotated[bool, FlagCreatePairsOff] = False
    """Transformer: norms before the sublayers, not after the residuals as published."""
    dropout: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of activations dropped while training (by default 0.3, for base 0.1)."""
    attention_dropout: float = 0.0
    """Transformer: share of attention weights dropped while training."""
    score: Literal["dot", "scaled", "general", "concat", "location"] = "general"
    """RNN: how a query is compared with the source."""
    cell: Literal["lstm", "gru"] = "lstm"
    """RNN: the recurrent unit."""
    bidirectional: bool = True
    """RNN: the encoder reads in both directions."""
    input_feeding: bool = True
    """RNN: each step also reads what the one before made of its attention."""

    def __post_init__(self) -> None:
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise UserError(f"{name} {value} must be at least 0 and less than 1")


@dataclass(frozen=True, kw_only=True)
class TranslatorLearningPart:
    """Learning: Adam, warm-up, then decay with the root of the steps."""

    lr: Annotated[float | None, optional(metavar="RATE")] = None
    """Peak learning rate (by default one that suits the width; the paper's for base and 4,000 steps of warm-up)."""
    schedule: Literal["inverse-root", "linear"] = "inverse-root"
    """How the rate falls after the warm-up: as in the paper, or in a straight line to nothing."""
    warmup: float = WARMUP
    """Share of the run during which the learning rate rises; from 1 on, steps."""
    batch_tokens: int = 4096
    """Tokens of a batch on its longer side."""
    accumulation: int = 1
    """Batches whose gradients are added before a step."""
    label_smoothing: float = 0.1
    """Probability that the training targets keep for all other tokens."""
    agreement: float = 0.0
    """Read every pair twice under different dropout, and pull the two readings together (R-Drop); 5 is usual."""
    weight_decay: float = 0.0
    """Pull of the matrices towards zero."""
    beta2: float = 0.98
    """Memory of the gradient's square."""
    clip: float = 1.0
    """Longest gradient."""
    patience: int = 0
    """Stop after so many evaluations without a better BLEU; 0 never stops early."""
    average: int = 5
    """States whose mean is the result, unless the best of the best has a better BLEU alone."""
    average_of: Literal["best", "last"] = "best"
    """Which: those with the best BLEU, or the last."""

    def __post_init__(self) -> None:
        for name in ("accumulation", "average", "batch_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} {getattr(self, name)} must be at least 1")
        for name in ("warmup", "weight_decay", "patience", "agreement"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} {getattr(self, name)} must not be negative")
        for name in ("label_smoothing", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} {getattr(self, name)} must be at least 0 and less than 1")
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise UserError(f"--lr {self.lr} must be a number above 0")
        if not self.clip > 0:
            raise UserError(f"clip {self.clip} must be above 0")


@dataclass(frozen=True, kw_only=True)
class TranslatorRun(RunPart):
    """The run."""

    evaluations: int = 20
    """Evaluations on the dev set, evenly over the run."""
    samples: int = 2
    """Sentences of the dev set whose translation is shown at every evaluation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 0:
            raise UserError(f"samples {self.samples} must not be negative")


@dataclass(frozen=True, kw_only=True)
class TranslatorRecipe:
    """All that decides what a run makes: the content of a recipe file and of a folder's heedful.toml."""

    train: Annotated[Positional[tuple[str, ...]], optional(name="TRAIN", metavar="TRAIN…")] = ()
    """Tables of sentence pairs (tsv, csv, jsonl, parquet; plain or gz, xz, zst); or none, and two files with
    --source and --target."""
    source: Names = ()
    """The file with the sources, one a line; for tables, the column. Several times for several files."""
    target: Names = ()
    """The file with their translations, line by line; for tables, the column."""
    dev: Annotated[tuple[str, ...], optional(metavar="FILE…")] = ()
    """Pairs to evaluate on: a table, or a source and a target file; without it, a part of the pairs is held out."""
    pairs: PairsPart = field(default_factory=PairsPart)
    vocabulary: SubwordsPart = field(default_factory=SubwordsPart)
    model: TranslatorModelPart = field(default_factory=TranslatorModelPart)
    learning: TranslatorLearningPart = field(default_factory=TranslatorLearningPart)
    run: TranslatorRun = field(default_factory=TranslatorRun)


@dataclass(frozen=True, kw_only=True)
class TranslatorOptions:
    """Train a translator from sentence pairs: vocabulary, training, evaluation, a folder anyone can open."""

    settings: Annotated[TranslatorRecipe, arg(name="")] = field(default_factory=TranslatorRecipe)
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Where the model goes."""
    recipe: Annotated[str | None, optional(metavar="NAME|FILE|FOLDER")] = None
    """Start from a recipe (paper: the Transformer as published; multi30k: for some 30,000 pairs; numbers: the
    demo's; or a TOML file, or the folder of a run); other options override it."""
    resume: Annotated[bool, FlagCreatePairsOff] = False
    """Go on with the interrupted run in --out."""


def check(recipe: TranslatorRecipe, *, begun: bool = False) -> None:
    """Refuse what can't become a run; of one that has begun, not what it was told in vain."""
    if not recipe.train and not (recipe.source or recipe.target):
        raise UserError("there is nothing to learn from; give TRAIN, or two files with --source and --target")
    if not recipe.train and not (recipe.source and recipe.target):
        given, lacking = ("source", "target") if recipe.source else ("target", "source")
        raise UserError(
            f"--{given} {(recipe.source + recipe.target)[0]} is one side; give the other file with --{lacking}, "
            "or the table that has this column as TRAIN"
        )
    if not recipe.train and len(recipe.source) != len(recipe.target):
        raise UserError(
            f"{len(recipe.source)} files with --source but {len(recipe.target)} with --target; give as many of both"
        )
    if recipe.train and max(len(recipe.source), len(recipe.target)) > 1:
        raise UserError("with TRAIN, --source and --target each name one column; give each of them once")
    if len(recipe.dev) > 2:
        raise UserError(f"--dev takes a table, or a source and a target file, not {len(recipe.dev)} files")
    if recipe.dev and recipe.pairs.held_out is not None and not begun:
        raise UserError("--dev has the pairs to evaluate on; leave --held-out out")
    model, plain = recipe.model, TranslatorModelPart()
    foreign = TRANSFORMER_ONLY if model.model == "rnn" else RNN_ONLY
    if given := [name for name in foreign if getattr(model, name) != getattr(plain, name)]:
        flag = given[0].replace("_", "-")
        raise UserError(f"--{flag} says nothing to --model {model.model}; leave it out")
    if recipe.model.share == "all" and not recipe.vocabulary.joint:
        raise UserError(
            "--share all needs one vocabulary for both languages; leave out --no-joint or use --share output"
        )
    if recipe.learning.warmup == 0 and recipe.learning.schedule == "inverse-root":  # which would always be zero
        raise UserError(
            "--schedule inverse-root falls from where the warm-up ends; give a --warmup, or --schedule linear"
        )
    if recipe.learning.warmup >= 1 and recipe.run.steps is None:
        raise UserError("--warmup in steps needs --steps; with a time budget give a share of it, like 0.1")
    if recipe.run.steps is not None and recipe.learning.warmup > recipe.run.steps:
        raise UserError(
            f"a warm-up of {recipe.learning.warmup:g} steps is longer than the {recipe.run.steps} of the run"
        )


def resolved(recipe: TranslatorRecipe, *, dim: int) -> TranslatorRecipe:
    """The recipe with its defaults written out, for a model so wide."""
    model, run = recipe.model, recipe.run
    rate = RNN_RATE if model.model == "rnn" else next((rate for width, rate in RATES.items() if dim <= width), 2e-4)
    if run.steps is None and run.budget is None:
        run = replace(run, budget="10m")
    return replace(
        recipe,
        model=replace(
            model,
            share=model.share or ("all" if recipe.vocabulary.joint else "output"),
            dropout=DROPOUTS[model.size] if model.dropout is None else model.dropout,
        ),
        learning=replace(recipe.learning, lr=recipe.learning.lr or rate),
        run=run,
    )


RIVALS = {
    "budget": ("run.steps",),
    "steps": ("run.budget",),
    "source": ("source",),
    "target": ("target",),
    "dev": ("pairs.held_out",),
    "held-out": ("dev",),
}
"""What a flag puts aside of the recipe that it overrides."""


def load_recipe(name: str) -> TranslatorRecipe:
    """A recipe by its name, from a TOML file or from the folder of a run."""
    return named(TranslatorRecipe, name, "translator")


def read_recipe(path: Path) -> TranslatorRecipe:
    """A recipe from a file."""
    return read_as(TranslatorRecipe, path)
