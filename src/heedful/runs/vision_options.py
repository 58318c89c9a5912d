"""What training an image classifier can be told: on the command line, in a recipe, in a folder's heedful.toml.

Plain data, without torch, so that `--help` is instant. The attribute docstrings are the help.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, Suppress, arg

from heedful.arguments import flag, optional
from heedful.data.augmentation import Augmentation
from heedful.errors import UserError
from heedful.runs.options import MachinePart
from heedful.runs.recipe_files import named, read_as
from heedful.train.schedule import seconds

DIGITS = "digits"
"""The images that are always there, and the recipe that they get unless another is named."""
USUAL = Augmentation(crop=0.125, mixup=0.2, cutmix=1.0, mixed=0.5)
"""For few images, whatever is in them. RandAugment is not among it: it needs images that survive it, and time. On the
digits, with 8 pixels a side, it cost four points in the one run that was compared."""
RATES = {
    "adamw": {"micro": 2e-3, "mini": 1.5e-3, "compact": 1e-3, "tiny": 1e-3, "small": 5e-4, "base": 3e-4},
    "muon": {"micro": 4e-3, "mini": 4e-3, "compact": 3e-3, "tiny": 3e-3, "small": 2e-3, "base": 1e-3},
}
"""Peak learning rates by optimizer and size."""
BATCHES = ((5_000, 64), (20_000, 128))
"""Images of a batch, by how many there are to learn from, and beyond that 256: few images need the many steps."""
MOST_SIDE = 1024
MOST_TOKENS = 4097
"""Of an image: 64 x 64 patches and `[CLS]`. Attention's work grows with the square of it."""
DIGITS_EPOCHS = 40
"""What the digits get, where nobody says how long to train: about 48 seconds of one core."""
BUDGET = "10m"

Size = Literal["micro", "mini", "compact", "tiny", "small", "base"]


@dataclass(frozen=True, kw_only=True)
class ImagesPart:
    """The images."""

    image_size: Annotated[int | None, optional(metavar="PIXELS")] = None
    """Side of the square that the middle of each image is brought to (by default that of most images, at most 224; so
    images of different sizes become alike)."""
    channels: Annotated[int | None, optional(metavar="1|3")] = None
    """1 for grey, 3 for colours (by default grey if all images are). What is transparent is laid on white, 16 bits
    become 8."""
    held_out: Annotated[float | None, optional(metavar="SHARE")] = None
    """Share of the images to evaluate on (10 percent where DATA has no part for it, at most 5,000)."""
    skip_bad: Annotated[bool, FlagCreatePairsOff] = False
    """Pass over files that can't be read, where else the first one stops the run. How many is said. A class folder
    without any image is refused all the same."""

    def __post_init__(self) -> None:
        if self.image_size is not None and not 1 <= self.image_size <= MOST_SIDE:
            raise UserError(f"--image-size {self.image_size} must lie between 1 and {MOST_SIDE}; 224 is usual")
        if self.channels not in (None, 1, 3):
            raise UserError(f"--channels {self.channels} must be 1, for grey, or 3, for colours")
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise UserError(f"--held-out {self.held_out} must lie between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class VisionModelPart:
    """The model."""

    size: Annotated[Size | None, optional(metavar="SIZE")] = None
    """micro, mini or compact for few and small images (by default micro below 16 pixels, else mini on a processor and
    compact on a GPU); tiny, small or base as published."""
    patch_size: Annotated[int | None, optional(metavar="PIXELS")] = None
    """Side of a patch, which must divide the image's (by default the largest up to 16 that leaves seven a side)."""
    pool: Literal["cls", "mean"] = "cls"
    """What the classifier reads: the state of [CLS], as published, or the mean of the patches' states."""
    dropout: float = 0.0
    """Share of activations dropped while training."""
    attention_dropout: float = 0.0
    """Share of attention weights dropped while training."""
    stochastic_depth: float = 0.1
    """How often an image skips the last layer while training; earlier layers are skipped less."""
    shifted_patches: bool = False
    """Patches see half a patch beyond their edges (shifted patch tokenization)."""
    convolutional_stem: bool = False
    """Several small convolutions in place of one large stride."""
    locality: bool = False
    """Patches do not look at themselves, and heads learn how sharply they look (locality self-attention)."""
    init_std: Annotated[float | None, optional(metavar="DEVIATION")] = None
    """Deviation of the first weights (by default one over the root of the width; 0.02 is published, but narrow models
    then learn next to nothing for long)."""

    def __post_init__(self) -> None:
        if self.init_std is not None and not self.init_std > 0:
            raise UserError(f"--init-std {self.init_std} must be above 0; 0.02 is published")
        for name in ("dropout", "attention_dropout", "stochastic_depth"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{flag(name)} {getattr(self, name)} must be at least 0 and less than 1")
        if self.patch_size is not None and self.patch_size < 1:
            raise UserError(f"--patch-size {self.patch_size} must be at least 1")
        if self.shifted_patches and self.convolutional_stem:
            raise UserError("--shifted-patches and --convolutional-stem both make the tokens; choose one of them")


@dataclass(frozen=True, kw_only=True)
class VisionLearningPart:
    """Learning: Muon or AdamW, warm-up, then decay."""

    name: Annotated[Literal["adamw", "muon"], arg(name="optimizer")] = "muon"
    """muon: every direction of a layer's matrix learns alike, and AdamW for the rest; or adamw for all."""
    lr: Annotated[float | None, optional(metavar="RATE")] = None
    """Peak learning rate (by default one that suits optimizer and size)."""
    batch: Annotated[int | None, optional(metavar="N")] = None
    """Images in a batch of one process (by default 64, 128 from 5,000 images on, 256 from 20,000 on)."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """How the learning rate falls to zero after the warm-up: along a wave, or evenly."""
    warmup: float = 0.1
    """Share of the run during which the learning rate rises."""
    weight_decay: float = 0.05
    """Pull of the matrices towards zero; biases and norms are free of it."""
    beta2: float = 0.99
    """Memory of the gradient's square."""
    clip: float = 1.0
    """Longest gradient."""
    smoothing: float = 0.1
    """Probability that the training targets keep for all classes alike."""
    patience: int = 0
    """Stop after so many evaluations without a better accuracy; 0 never stops early."""

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise UserError(f"--batch {self.batch} must be at least 1")
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise UserError(f"--lr {self.lr} must be a number above 0")
        if not 0 <= self.warmup <= 1:
            raise UserError(f"--warmup {self.warmup} is a share of the run and must lie between 0 and 1")
        if not self.clip > 0:
            raise UserError(f"--clip {self.clip} must be above 0")
        for name in ("smoothing", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{flag(name)} {getattr(self, name)} must be at least 0 and less than 1")
        for name in ("weight_decay", "patience"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{flag(name)} {getattr(self, name)} must not be negative")


@dataclass(frozen=True, kw_only=True)
class VisionRun(MachinePart):
    """The run."""

    epochs: Annotated[int | None, optional(metavar="N")] = None
    """Train until all images were seen this often: the same seed then gives the same model."""
    steps: Annotated[int | None, optional(metavar="N")] = None
    """Train for this many steps instead."""
    budget: Annotated[str | None, optional(metavar="TIME")] = None
    """Train for this long instead (90s, 10m, 1h30m); 10m when none of the three is given, 40 epochs for
    the digits."""
    evaluations: int = 10
    """Evaluations on the held-out images, evenly over the run; the best state is kept. 1 keeps the last."""
    compile: bool = True
    """On a GPU with bf16, compile the layers: half a minute at first, then every step is faster. What goes from layer
    to layer is then bf16 too."""
    shard: Annotated[bool, FlagCreatePairsOff, Suppress] = False
    """Refused: every process has the whole model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("epochs", "steps", "budget") if getattr(self, name) is not None]
        if len(given) > 1:
            raise UserError(f"{' and '.join(f'--{name}' for name in given)} exclude each other; give one of them")
        if self.budget is not None:
            seconds(self.budget)  # said now, if it is no time
        for name in ("epochs", "steps", "evaluations"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{flag(name)} {value} must be at least 1")


@dataclass(frozen=True, kw_only=True)
class VisionRecipe:
    """All that decides what a run makes: the content of a recipe file and of a folder's heedful.toml."""

    data: Annotated[Positional[str], optional(name="DATA", metavar="DATA")] = DIGITS
    """A folder of class folders (png, jpeg, …), IDX files, .npy or .npz arrays; without it digits, the handwritten
    ones of scikit-learn, with their own recipe."""
    dev: Annotated[str | None, optional(metavar="DATA")] = None
    """Images to evaluate on; without it, the val or test part of DATA, or else a part that is held out."""
    images: ImagesPart = field(default_factory=ImagesPart)
    model: VisionModelPart = field(default_factory=VisionModelPart)
    augmentation: Augmentation = USUAL
    learning: VisionLearningPart = field(default_factory=VisionLearningPart)
    run: VisionRun = field(default_factory=VisionRun)


@dataclass(frozen=True, kw_only=True)
class VisionOptions:
    """Train a ViT to tell images apart: reading, training, evaluation, a folder anyone can open."""

    settings: Annotated[VisionRecipe, arg(name="")] = field(default_factory=VisionRecipe)
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Where the model goes."""
    recipe: Annotated[str | None, optional(metavar="NAME|FILE|FOLDER")] = None
    """Start from a recipe (plain: ViT without what helps where images are few; digits, fashion_mnist, cifar_small:
    for such data; or a TOML file, or the folder of a run); other options override it."""
    resume: Annotated[bool, FlagCreatePairsOff] = False
    """Go on with the interrupted run in --out."""
    cache: Annotated[Path | None, optional(metavar="FOLDER")] = None
    """Where decoded images are kept (~/.cache/heedful by default)."""


def check(recipe: VisionRecipe) -> None:
    """Refuse what can't become a run, as far as it can be told without the images."""
    if recipe.images.held_out is not None and recipe.dev is not None:
        raise UserError("--dev has the images to evaluate on; leave --held-out out")
    side, patch = recipe.images.image_size, recipe.model.patch_size
    if side is not None and patch is not None:
        check_patches(side, patch)


def check_patches(side: int, patch: int) -> None:
    """Refuse patches that do not divide an image, or are more than can be attended to."""
    if side % patch:
        fitting = [one for one in range(1, side + 1) if side % one == 0 and (side // one) ** 2 < MOST_TOKENS]
        listed = ", ".join(map(str, fitting))
        raise UserError(f"--patch-size {patch} does not divide the images' {side} pixels; choose from {listed}")
    if (count := (side // patch) ** 2) >= MOST_TOKENS:
        raise UserError(
            f"patches of {patch} x {patch} are {count:,} of an image of {side} x {side}, and {MOST_TOKENS - 1:,} is "
            "the most; choose a larger --patch-size, or a smaller --image-size"
        )


def resolved(recipe: VisionRecipe, *, side: int, patch: int, images: int, gpu: bool) -> VisionRecipe:
    """The recipe with its defaults written out, for so many images of so many pixels a side and a patch that suits
    them."""
    learning, run = recipe.learning, recipe.run
    size = recipe.model.size or usual_size(side, gpu=gpu)
    if run.epochs is run.steps is run.budget is None:
        run = replace(run, epochs=DIGITS_EPOCHS) if recipe.data == DIGITS else replace(run, budget=BUDGET)
    rate = learning.lr or RATES[learning.name][size]
    return replace(
        recipe,
        model=replace(recipe.model, size=size, patch_size=recipe.model.patch_size or patch),
        learning=replace(learning, lr=rate, batch=learning.batch or usual_batch(images)),
        run=run,
    )


def usual_size(side: int, *, gpu: bool) -> Size:
    """What can be trained in minutes."""
    return "micro" if side < 16 else "compact" if gpu else "mini"


def usual_batch(images: int) -> int:
    """Images of a batch, where there are so many to learn from."""
    return next((batch for most, batch in BATCHES if images < most), 256)


RIVALS = {
    "epochs": ("run.steps", "run.budget"),
    "steps": ("run.epochs", "run.budget"),
    "budget": ("run.epochs", "run.steps"),
}
"""What a flag puts aside of the recipe that it overrides."""


def load_recipe(name: str) -> VisionRecipe:
    """A recipe by its name, from a TOML file or from the folder of a run."""
    return named(VisionRecipe, name, "vision", VisionRecipe())


def read_recipe(path: Path) -> VisionRecipe:
    """A recipe from a file, which says how it differs from the usual one."""
    return read_as(VisionRecipe, path, VisionRecipe())
