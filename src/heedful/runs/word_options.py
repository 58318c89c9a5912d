"""What a training of word vectors can be told: on the command line, and in a folder's heedful.toml.

Plain data, without torch, so that `--help` is instant. The attribute docstrings are the help.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import flag, optional
from heedful.errors import UserError
from heedful.runs.recipe_files import named, read_as

EPOCHS = 5


@dataclass(frozen=True, kw_only=True)
class WordTextPart:
    """The text."""

    text: Annotated[str | None, optional(metavar="COLUMN")] = None
    """Column that holds the text, for tables. Found by itself when its name is usual."""
    errors: Literal["strict", "replace"] = "strict"
    """What to do with bytes that are not UTF-8: stop, or put a replacement character."""
    cased: Annotated[bool, FlagCreatePairsOff] = False
    """Keep upper and lower case apart."""


@dataclass(frozen=True, kw_only=True)
class WordVectorsPart:
    """The vectors."""

    dim: int = 100
    """Numbers of a vector."""
    window: int = 5
    """The furthest word to either side that counts as context."""
    negatives: int = 5
    """Words of noise for each pair of words."""
    min_count: int = 5
    """Words that occur less often are passed over."""
    subsample: float = 1e-3
    """Share of the text above which a word is thinned out; 0 keeps all."""
    lr: float = 0.025
    """Learning rate at the start: how far a step moves the vectors. It falls to nothing in a straight line.
    0.025 is that of the original word2vec and of gensim; higher learns faster, until it overshoots."""

    def __post_init__(self) -> None:
        for name in ("dim", "window", "negatives", "min_count"):
            if getattr(self, name) < 1:
                raise UserError(f"{flag(name)} {getattr(self, name)} must be at least 1")
        if self.window > 100:
            raise UserError(f"--window {self.window} is wider than sentences are; use 100 or less, 5 is usual")
        if not 0 <= self.subsample < 1:
            raise UserError(f"--subsample {self.subsample} must be at least 0 and less than 1; 0.001 is usual")
        if not 0 < self.lr < float("inf"):
            raise UserError(f"--lr {self.lr} must be above 0; 0.025 is usual")


@dataclass(frozen=True, kw_only=True)
class WordRunPart:
    """The run."""

    epochs: Annotated[int | None, optional(metavar="N")] = None
    """Times that the text is read (5 by default): the same seed then gives the same vectors."""
    budget: Annotated[str | None, optional(metavar="TIME")] = None
    """Train for this long instead (90s, 10m, 1h30m)."""
    seed: int = 0
    """Everything random follows from it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    checkpoint_every: Annotated[str, arg(metavar="TIME|STEPS")] = "5m"
    """Time (5m) or steps (500) between two checkpoints."""
    keep: int = 2
    """Checkpoints to keep."""

    def __post_init__(self) -> None:
        if self.budget is not None and self.epochs is not None:
            raise UserError("--budget and --epochs exclude each other; give one of them")
        for name in ("epochs", "keep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{flag(name)} {value} must be at least 1")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"--seed {self.seed} must lie between 0 and 2^63")


@dataclass(frozen=True, kw_only=True)
class WordRecipe:
    """All that decides what a run makes: the content of a recipe file and of a folder's heedful.toml."""

    corpus: Annotated[Positional[tuple[str, ...]], optional(metavar="CORPUS…")] = ()
    """Text: files (txt, jsonl, csv, tsv, parquet; plain or gz, xz, zst), folders, globs, - for standard input;
    or one folder of prepared shards, whose pieces are put together to words."""
    text: WordTextPart = field(default_factory=WordTextPart)
    vectors: WordVectorsPart = field(default_factory=WordVectorsPart)
    run: WordRunPart = field(default_factory=WordRunPart)


@dataclass(frozen=True, kw_only=True)
class WordOptions:
    """Train word vectors (word2vec: skip-gram with negative sampling), one a word, written as gensim reads them."""

    settings: Annotated[WordRecipe, arg(name="")] = field(default_factory=WordRecipe)
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Where the vectors go."""
    recipe: Annotated[str | None, optional(metavar="FILE|FOLDER")] = None
    """Start from a recipe, which is a TOML file or the folder of a run; other options override it."""
    resume: Annotated[bool, FlagCreatePairsOff] = False
    """Go on with the interrupted run in --out."""
    cache: Annotated[Path | None, optional(metavar="FOLDER")] = None
    """Where prepared text is kept (~/.cache/heedful by default)."""


RIVALS = {"budget": ("run.epochs",), "epochs": ("run.budget",)}
"""What a flag puts aside of the recipe that it overrides."""


def resolved(recipe: WordRecipe) -> WordRecipe:
    """The recipe with its defaults written out, so that a later version's can't change what a folder says."""
    run = recipe.run
    if run.epochs is None and run.budget is None:
        return replace(recipe, run=replace(run, epochs=EPOCHS))
    return recipe


def load_recipe(name: str) -> WordRecipe:
    """A recipe from a TOML file or from the folder of a run."""
    return named(WordRecipe, name, "vectors")


def read_recipe(path: Path) -> WordRecipe:
    """A recipe from a file."""
    return read_as(WordRecipe, path)
