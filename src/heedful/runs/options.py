"""What a pretraining run can be told: on the command line, in a recipe, in a folder's heedful.toml.

Plain data, without torch, so that `--help` is instant. The attribute docstrings are the help.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import flag, optional
from heedful.errors import UserError
from heedful.runs.recipe_files import named, read_as

NO_SHARDS = "--shard is for pretrain; leave it out: every process then has the whole model"
LEARNING_RATES = {"tiny": 1.5e-3, "mini": 7e-4, "small": 5e-4, "medium": 3e-4, "base": 1e-4, "large": 5e-5}
"""Peak rates, lower for larger models: base stayed on the plateau of word frequencies with 3e-4 and learns with
1e-4. Checked by short runs alone (docs/results.md)."""
DECAY = 0.2
"""The last share of a run, in which the rate of a trapezoid falls."""
PRE_NORM_RATES = {"tiny": 3e-3, "mini": 2e-3, "small": 1e-3, "medium": 7.5e-4, "base": 5e-4, "large": 3e-4}
"""With norms before the sublayers, training bears higher rates."""
MUON_RATES = {"tiny": 4e-3, "mini": 3e-3, "small": 2.5e-3, "medium": 2e-3, "base": 1.5e-3, "large": 1e-3}
"""With Muon and such norms, higher ones still."""
CONTINUED_RATE = 1e-4
"""The peak rate of a model that goes on training: gentle, so that it keeps what it knows."""

SHAPE = ("size", "max_length", "pre_norm", "rotary_base", "positions", "gated", "bias", "segments", "init")
"""What is settled when a model is made, and can't be told one that goes on training."""

Size = Literal["auto", "tiny", "mini", "small", "medium", "base", "large"]


@dataclass(frozen=True, kw_only=True)
class TextPart:
    """The text."""

    text: Annotated[str | None, optional(metavar="COLUMN")] = None
    """Column that holds the text, for tables. Found by itself when its name is usual."""
    errors: Literal["strict", "replace"] = "strict"
    """What to do with bytes that are not UTF-8: stop, or put a replacement character."""
    held_out: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of the documents, which blank lines separate, kept for evaluation. By default 1 to 10 percent, less of a
    larger corpus."""

    def __post_init__(self) -> None:
        if self.held_out is not None and not 0 <= self.held_out < 1:
            raise UserError(f"--held-out {self.held_out} must be at least 0 and less than 1")


@dataclass(frozen=True, kw_only=True)
class VocabularyPart:
    """The tokenizer."""

    tokenizer: Annotated[str | None, optional(metavar="FOLDER")] = None
    """Use this tokenizer instead of training one."""
    vocab_size: Annotated[int | None, optional(metavar="N")] = None
    """Tokens in a newly trained vocabulary (by default 16000, or as many as the text supports)."""
    cased: bool = False
    """Keep upper and lower case apart."""


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """The model."""

    size: Annotated[Size | None, optional(metavar="SIZE")] = None
    """tiny, mini, small, medium, base or large (small by default); auto chooses what is worth the --budget here."""
    max_length: Annotated[int | None, optional(metavar="N")] = None
    """Positions of a new model: the longest input it can ever read (512 by default)."""
    dropout: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of activations dropped while training (0.1 by default; with --from, the model's own)."""
    attention_dropout: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of attention weights dropped while training (0.1 by default; with --from, the model's own)."""
    pre_norm: bool = False
    """Norms before the sublayers and not after them: learns at higher rates."""
    positions: Literal["learned", "rotary"] = "learned"
    """How a token says where it stands: by a learned vector, or by turning its queries and keys."""
    rotary_base: float = 10000.0
    """The base of rotary positions; larger ones tell far positions apart."""
    gated: bool = False
    """Feed-forward layers with a gate (GeGLU), two thirds as wide."""
    bias: bool = True
    """Biases in layers and norms."""
    segments: int = 2
    """2, or 0: then only [SEP] tells the two texts of a pair apart. 1 is a vector that all tokens share while they
    are learned, and that a ModernBERT has as a part of each."""
    init: Literal["normal", "scaled"] = "normal"
    """First weights: all alike, or those at the end of sublayers smaller, the more so the more layers there are."""

    def __post_init__(self) -> None:
        if self.segments not in (0, 1, 2):
            raise UserError(f"--segments {self.segments} must be 2, 1, or 0 for none")
        if not 1 <= self.rotary_base < float("inf"):
            raise UserError(f"--rotary-base {self.rotary_base} must be at least 1; 10000 is usual")
        if self.positions != "rotary" and self.rotary_base != type(self).rotary_base:
            raise UserError("--rotary-base is for rotary positions; add --positions rotary, or leave it out")
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise UserError(f"{flag(name)} {value} must be at least 0 and less than 1")
        if self.max_length is not None and self.max_length < 8:
            raise UserError(f"--max-length {self.max_length} is too short to read anything; use 8 or more")


@dataclass(frozen=True, kw_only=True)
class ObjectivePart:
    """What the model learns to do."""

    nsp: bool = True
    """Next-sentence prediction on pairs; without it, full single sequences. A model that goes on with --from and
    never learned it does not begin to unless told, here or by a recipe."""
    length: int = 128
    """Tokens in a training sequence, special ones included."""
    mask_rate: float = 0.15
    """Share of the tokens to predict."""
    final_mask_rate: Annotated[float | None, optional(metavar="SHARE")] = None
    """Let that share go to this one, in a straight line over the run."""
    whole_words: bool = False
    """Hide all pieces of a word together."""

    def __post_init__(self) -> None:
        if self.length < 8:
            raise UserError(f"--length {self.length} is too short to hold a pair of sentences; use 8 or more")
        for name in ("mask_rate", "final_mask_rate"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise UserError(f"{flag(name)} {value} must lie between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class OptimizerPart:
    """The optimizer, and how fast it learns when."""

    name: Annotated[Literal["adamw", "muon"], arg(name="optimizer")] = "adamw"
    """adamw, or muon: every direction of a layer's matrix learns alike; AdamW for the rest."""
    lr: Annotated[float | None, optional(metavar="RATE")] = None
    """Peak learning rate (by default one that suits the size)."""
    batch_tokens: Annotated[int | Literal["auto", "budget"], arg(metavar="N|auto|budget")] = 8192
    """Tokens in a batch of one process; a batch is filled up to this. auto finds the most that a GPU can take,
    budget what leaves enough steps in the --budget."""
    accumulation: int = 1
    """Batches whose gradients are added before a step."""
    schedule: Literal["linear", "cosine", "trapezoid"] = "linear"
    """How the learning rate falls to zero after the warm-up: evenly, along a wave, or only at the end."""
    warmup: float = 0.1
    """Share of the run during which the learning rate rises."""
    decay: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of the run, its last, during which the rate of a trapezoid falls (0.2 by default)."""
    weight_decay: float = 0.01
    """Pull of the matrices towards zero; biases and norms are free of it."""
    beta1: float = 0.9
    """Memory of the gradient's mean."""
    beta2: float = 0.98
    """Memory of the gradient's square."""
    clip: float = 1.0
    """Longest gradient."""

    def __post_init__(self) -> None:
        if self.accumulation < 1:
            raise UserError(f"--accumulation {self.accumulation} must be at least 1")
        if not 0 <= self.warmup <= 1:
            raise UserError(f"--warmup {self.warmup} is a share of the run and must lie between 0 and 1")
        if self.decay is not None and self.schedule != "trapezoid":
            raise UserError(f"--decay is for --schedule trapezoid; leave it out: {self.schedule} falls all along")
        if self.decay is not None and not (self.decay > 0 and self.warmup + self.decay <= 1):
            raise UserError(
                f"--decay {self.decay} is a share of the run and must be above 0, "
                f"and at most {1 - self.warmup:g} after a warmup of {self.warmup}"
            )
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise UserError(f"--lr {self.lr} must be a number above 0")
        if not self.clip > 0:
            raise UserError(f"--clip {self.clip} must be above 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{flag(name)} {getattr(self, name)} must be at least 0 and less than 1")
        if not self.weight_decay >= 0:
            raise UserError(f"--weight-decay {self.weight_decay} must not be negative")


@dataclass(frozen=True, kw_only=True)
class MachinePart:
    """What any run needs to know of where it runs."""

    seed: int = 0
    """Everything random follows from it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16 is used on GPUs that can; a CPU always computes in fp32."""
    checkpoint_every: Annotated[str, arg(metavar="TIME|STEPS")] = "5m"
    """Time (5m) or steps (500) between two checkpoints."""
    keep: int = 2
    """Checkpoints to keep."""
    tensorboard: bool = False
    """Write tensorboard files too."""
    shard: Annotated[bool, FlagCreatePairsOff] = False
    """Spread parameters, gradients and optimizer state over the processes (pretrain only)."""

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise UserError(f"--keep {self.keep} must be at least 1")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"--seed {self.seed} must lie between 0 and 2^63")


@dataclass(frozen=True, kw_only=True)
class RunPart(MachinePart):
    """The run."""

    budget: Annotated[str | None, optional(metavar="TIME")] = None
    """Train for this long (90s, 10m, 1h30m); 10m when neither this nor --steps is given."""
    steps: Annotated[int | None, optional(metavar="N")] = None
    """Train for this many steps: the same seed then gives the same model."""
    evaluations: int = 10
    """Evaluations on what is held out, evenly over the run. A pretraining with a --budget leaves some out if they
    take more than a tenth of the time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget is not None and self.steps is not None:
            raise UserError("--budget and --steps exclude each other; give one of them")
        for name in ("steps", "evaluations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{flag(name)} {value} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class PretrainRun(RunPart):
    """The run of a pretraining."""

    compile: bool = True
    """On a GPU with bf16, compile the layers and record a step: a quarter of a minute or more at first, then every
    step is faster. What goes from layer to layer is then bf16 too. Without effect with --shard."""
    fp8: bool = False
    """Let compiled layers multiply in 8 bits, on a GPU that can (Ada, Hopper or newer): feed-forward layers with
    biases or a gate, and attention in sequences of up to 128 tokens. What is learned is still kept in full."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fp8 and not self.compile:
            raise UserError("--fp8 is for layers that are compiled; leave --no-compile out, or add --no-fp8")
        if self.fp8 and self.shard:
            raise UserError("--fp8 is for a model in one piece; leave --shard out, or add --no-fp8")
        if self.fp8 and self.precision == "fp32":
            raise UserError("--fp8 and --precision fp32 exclude each other; leave --precision out, or add --no-fp8")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that decides what a run makes: the content of a recipe file and of a folder's heedful.toml."""

    corpus: Annotated[Positional[tuple[str, ...]], optional(metavar="CORPUS…")] = ()
    """Text: files (txt, jsonl, csv, tsv, parquet; plain or gz, xz, zst), folders, globs, - for standard input;
    or one folder of prepared shards."""
    start_from: Annotated[str | None, optional(name="from", metavar="MODEL")] = None
    """Go on training this model on new text, with its tokenizer."""
    text: TextPart = field(default_factory=TextPart)
    vocabulary: VocabularyPart = field(default_factory=VocabularyPart)
    model: ModelPart = field(default_factory=ModelPart)
    objective: ObjectivePart = field(default_factory=ObjectivePart)
    optimizer: OptimizerPart = field(default_factory=OptimizerPart)
    run: PretrainRun = field(default_factory=PretrainRun)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Fields of which it knows nothing: a model that goes on training keeps its shape."""
        return RIVALS["from"] if self.start_from is not None else ()

    def __post_init__(self) -> None:
        if self.start_from is not None:
            given = [
                name
                for part, names in ((self.model, SHAPE), (self.vocabulary, ("vocab_size", "tokenizer")))
                for name in names
                if getattr(part, name) != getattr(type(part)(), name)
            ]
            if given:
                flag = "no-bias" if given[0] == "bias" else given[0].replace("_", "-")
                raise UserError(
                    f"with --from, the model keeps its own {given[0].replace('_', ' ')}; leave --{flag} out"
                )
        if self.objective.nsp and self.model.segments == 1:
            raise UserError(
                "next sentences need --segments 2, or 0: with 1 two can't be told apart; or train without (--no-nsp)"
            )
        if self.run.shard and self.optimizer.batch_tokens == "auto":
            raise UserError(
                "--batch-tokens auto tries a model in one piece; with --shard give a number, or leave --shard out"
            )
        if self.vocabulary.tokenizer is not None and self.vocabulary.vocab_size is not None:
            raise UserError("--tokenizer brings its own vocabulary; leave --vocab-size out")
        if self.vocabulary.cased and (self.vocabulary.tokenizer or self.start_from):
            raise UserError("a tokenizer that exists already is cased or not; leave --cased out")


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """Pretrain a BERT from plain text: tokenizer, shards, training, evaluation, a folder anyone can open."""

    settings: Annotated[Recipe, arg(name="")] = field(default_factory=Recipe)
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Where the model goes."""
    recipe: Annotated[str | None, optional(metavar="NAME|FILE|FOLDER")] = None
    """Start from a recipe (modern: most for a few minutes, sized for --budget and machine; classic: BERT as
    published; demo: what `heedful demo` trains; or a TOML file, or the folder of a run); other options override
    it."""
    resume: Annotated[bool, FlagCreatePairsOff] = False
    """Go on with the interrupted run in --out."""
    cache: Annotated[Path | None, optional(metavar="FOLDER")] = None
    """Where prepared text is kept (~/.cache/heedful by default)."""


def resolved(recipe: Recipe) -> Recipe:
    """The recipe with its defaults written out, so that a later version's can't change what a folder says."""
    model, run = recipe.model, recipe.run
    rate: float | None = CONTINUED_RATE
    if recipe.start_from is None:
        model = replace(
            model,
            size=model.size or "small",
            max_length=512 if model.max_length is None else model.max_length,
            dropout=0.1 if model.dropout is None else model.dropout,
            attention_dropout=0.1 if model.attention_dropout is None else model.attention_dropout,
        )
        rates = LEARNING_RATES
        if model.pre_norm:
            rates = MUON_RATES if recipe.optimizer.name == "muon" else PRE_NORM_RATES
        rate = rates.get(model.size or "small")
    if run.steps is None and run.budget is None:
        run = replace(run, budget="10m")
    optimizer = replace(recipe.optimizer, lr=recipe.optimizer.lr or rate)
    if optimizer.schedule == "trapezoid" and optimizer.decay is None:
        if optimizer.warmup >= 1:
            raise UserError(f"--warmup {optimizer.warmup:g} leaves no time for a trapezoid's rate to fall; use less")
        optimizer = replace(optimizer, decay=min(DECAY, 1 - optimizer.warmup))
    return replace(recipe, model=model, optimizer=optimizer, run=run)


RIVALS = {
    "budget": ("run.steps",),
    "steps": ("run.budget",),
    "tokenizer": ("vocabulary.vocab_size", "vocabulary.cased"),
    "vocab-size": ("vocabulary.tokenizer",),
    "positions": ("model.rotary_base",),
    "schedule": ("optimizer.decay",),
    "from": (
        *(f"model.{name}" for name in SHAPE),
        *("vocabulary.vocab_size", "vocabulary.tokenizer", "vocabulary.cased"),
    ),
}
"""What a flag puts aside of the recipe that it overrides."""


def load_recipe(name: str) -> Recipe:
    """A recipe by its name, from a TOML file or from the folder of a run."""
    return named(Recipe, name)


def read_recipe(path: Path) -> Recipe:
    """A recipe from a file."""
    return read_as(Recipe, path)
