"""The Vision Transformer (Dosovitskiy et al. 2020): a Transformer encoder over the patches of an image.

By default as published. What helps where images are few stands each for itself, behind a setting of its own.

Knows pixels as numbers around zero, not files: `nn/pixels.py` says how bytes become those.

Shapes: B batch, C channels, H height, W width (in pixels) or heads, N patches, T tokens: N, or N + 1 with `[CLS]`;
D width, L layers, K classes.
"""

import copy
import dataclasses
from dataclasses import dataclass, field
from itertools import count, islice
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.nn import grid_positions
from heedful.nn.layers import ACTIVATIONS, EncoderLayer
from heedful.nn.layout import Padded
from heedful.nn.locality import LocalityAttention
from heedful.nn.norm import Norm
from heedful.nn.patches import PatchEmbedding
from heedful.nn.pixels import Pixels
from heedful.nn.shifted_patches import ShiftedPatchEmbedding
from heedful.nn.stem import ConvolutionalStem, halvings
from heedful.nn.stochastic_depth import depth_rates

SIZES: dict[str, tuple[int, int, int]] = {
    "micro": (4, 64, 4),
    "mini": (6, 128, 4),
    "compact": (9, 256, 8),
    "tiny": (12, 192, 3),
    "small": (12, 384, 6),
    "base": (12, 768, 12),
}
"""Layers, width and heads. The last three are published (Touvron et al. 2020, table 1), for 224 x 224 pixels and many
images. The first three are for small images and few of them: micro for 8 x 8 digits on a processor, mini for 28 x 28
in minutes without a GPU, compact for 32 x 32 to 64 x 64 on a GPU."""

POOLS = ("cls", "mean")
"""How an image's states become one vector: the state of a `[CLS]` token, or the mean of the patches' states, without
such a token."""

LARGEST_PATCH = 16
"""The published one."""


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """What decides a ViT's shape and its arithmetic."""

    image_size: int = 224
    """Pixels a side. Images of other sizes are read too: positions are resized to fit."""
    patch_size: int = 16
    channels: int = 3
    layers: int = 12
    dim: int = 768
    heads: int = 12
    ffn_dim: int = 3072
    activation: str = "gelu"
    pool: str = "cls"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    stochastic_depth: float = 0.0
    """How often, while training, a sample skips a branch of the last layer; earlier ones are skipped less."""
    shifted_patches: bool = False
    """Patches see half a patch beyond their edges (shifted patch tokenization)."""
    convolutional_stem: bool = False
    """Several small convolutions in place of one large stride."""
    locality: bool = False
    """Tokens do not look at themselves, and heads learn how sharply they look (locality self-attention)."""
    norm_eps: float = 1e-12
    init_std: float = 0.02
    pixels: Pixels = field(default_factory=Pixels)
    """How a picture becomes what the model reads."""

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size", "channels", "layers", "dim", "heads", "ffn_dim"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} {getattr(self, name)} must be at least 1")
        if self.image_size % self.patch_size:
            listed = ", ".join(map(str, divisors(self.image_size)))
            raise UserError(
                f"patch_size {self.patch_size} does not divide image_size {self.image_size}; choose from {listed}"
            )
        if self.activation not in ACTIVATIONS:
            raise UserError(f"activation {self.activation!r} is not known; choose from {', '.join(ACTIVATIONS)}")
        if self.pool not in POOLS:
            raise UserError(f"pool {self.pool!r} is not known; choose from {', '.join(POOLS)}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} {getattr(self, name)} must be at least 0 and below 1")
        depth_rates(self.stochastic_depth, self.layers)
        if self.shifted_patches and self.convolutional_stem:
            raise UserError("shifted_patches and convolutional_stem both make the tokens; choose one of them")
        if self.convolutional_stem:
            halvings(self.patch_size)
        if self.locality and self.tokens < 2:
            raise UserError(
                "with locality a token looks at others, but there is one alone; choose a smaller patch_size"
            )
        for name in ("mean", "std"):
            numbers = getattr(self.pixels, name)
            if len(numbers) not in (1, self.channels):
                raise UserError(
                    f"{name} has {len(numbers)} numbers, but images have channels {self.channels}; "
                    "give one for all or one for each"
                )

    @classmethod
    def of_size(
        cls,
        size: str,
        *,
        image_size: int = 224,
        patch_size: int | None = None,
        channels: int = 3,
        pool: str = "cls",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        shifted_patches: bool = False,
        convolutional_stem: bool = False,
        locality: bool = False,
        pixels: Pixels | None = None,
    ) -> "ViTConfig":
        """A size by name; the feed-forward layer is four times as wide as the model, patches suit the image."""
        if size not in SIZES:
            raise UserError(f"size {size!r} is not known; choose from {', '.join(SIZES)}")
        layers, dim, heads = SIZES[size]
        return cls(
            image_size=image_size,
            patch_size=default_patch(image_size) if patch_size is None else patch_size,
            channels=channels,
            layers=layers,
            dim=dim,
            heads=heads,
            ffn_dim=4 * dim,
            pool=pool,
            dropout=dropout,
            attention_dropout=attention_dropout,
            stochastic_depth=stochastic_depth,
            shifted_patches=shifted_patches,
            convolutional_stem=convolutional_stem,
            locality=locality,
            pixels=pixels or Pixels(),
        )

    @property
    def side(self) -> int:
        """Patches a side."""
        return self.image_size // self.patch_size

    @property
    def tokens(self) -> int:
        """The length of what the layers read."""
        return self.side**2 + (self.pool == "cls")

    @property
    def published(self) -> bool:
        """Whether it is a ViT as published, whatever its sizes."""
        return not self.variations

    @property
    def variations(self) -> tuple[str, ...]:
        """How it differs from the published ViT, in words; what matters in training alone is no difference."""
        named = {
            "mean of the patches": self.pool == "mean",
            "shifted patches": self.shifted_patches,
            "convolutional stem": self.convolutional_stem,
            "locality": self.locality,
        }
        return tuple(name for name, differs in named.items() if differs)


def divisors(number: int) -> list[int]:
    """What divides a number, in order."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def default_patch(image_size: int) -> int:
    """The largest patch, up to 16, that leaves seven or more a side; of images below 16 pixels, four or more.

    So 8 -> 2, 28 -> 4, 32 -> 4, 64 -> 8, 224 -> 16. What has no good divisor, as a prime number, is refused.
    """
    if image_size < 1:
        raise UserError(f"image_size {image_size} must be at least 1")
    patch = _suitable(image_size)
    if patch is None:
        near = (size for step in count(1) for size in (image_size - step, image_size + step))
        tried = sorted(islice(filter(_suitable, near), 2))
        raise UserError(
            f"image_size {image_size} divides by {', '.join(map(str, divisors(image_size)))} alone, so no patch "
            f"suits it; try image_size {tried[0]} or {tried[1]}, or choose a patch_size"
        )
    return patch


def _suitable(image_size: int) -> int | None:
    """The default patch; None where there would be fewer than 4 a side, or more than 24 though they are small."""
    if image_size < 8:
        return 1
    sides = {patch: image_size // patch for patch in divisors(image_size) if patch <= LARGEST_PATCH}
    usable = [patch for patch, side in sides.items() if side >= 4 and (side <= 24 or patch >= 8)]
    many = [patch for patch in usable if sides[patch] >= (7 if image_size >= 16 else 4)]
    return max(many) if many else min(usable, default=None)


class ViTOutput(NamedTuple):
    """What the encoder makes of images."""

    hidden: Tensor
    """(B, T, D); with pool cls the first of the tokens is `[CLS]`, the patches follow row by row."""
    pooled: Tensor
    """(B, D): the state of `[CLS]` or the mean of the states, through the pooler where there is one."""
    weights: tuple[Tensor, ...] | None = None
    """On request: L times (B, heads, T, T)."""


class ViT(nn.Module):
    """The encoder."""

    def __init__(self, config: ViTConfig, pooler: bool = False) -> None:
        super().__init__()
        self.config = config
        self.patches = _patches(config)
        self.cls = nn.Parameter(torch.zeros(config.dim)) if config.pool == "cls" else None
        self.positions = nn.Parameter(torch.zeros(config.tokens, config.dim))
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(
            EncoderLayer(
                config.dim,
                config.heads,
                config.ffn_dim,
                activation=config.activation,
                dropout=config.dropout,
                attention_dropout=config.attention_dropout,
                norm_eps=config.norm_eps,
                pre_norm=True,
                locality=config.locality,
                stochastic_depth=rate,
            )
            for rate in depth_rates(config.stochastic_depth, config.layers)
        )
        self.final_norm = Norm(config.dim, config.norm_eps)
        self.pooler = nn.Linear(config.dim, config.dim) if pooler else None

    def forward(self, pixels: Tensor, *, explain: bool = False) -> ViTOutput:
        """(B, C, H, W), of any size that patches divide."""
        hidden, weights = self.states(self.embed(pixels), explain)
        return ViTOutput(hidden, self.pool(hidden), weights)

    def embed(self, pixels: Tensor) -> Tensor:
        """The patches with `[CLS]` before them, each with its position: (B, C, H, W) -> (B, T, D)."""
        config = self.config
        _check(pixels, config)
        x = self.patches(pixels)  # (B, N, D)
        if self.cls is not None:
            x = torch.cat([self.cls.to(x.dtype).expand(x.shape[0], 1, -1), x], 1)
        grid = (pixels.shape[2] // config.patch_size, pixels.shape[3] // config.patch_size)
        return self.dropout(x + grid_positions.resized(self.positions, grid, config.side))

    def states(self, x: Tensor, explain: bool = False) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """What the layers make of embedded tokens: (B, T, D) -> (B, T, D), and on request the attention weights."""
        weights = []
        for layer in self.layers:
            x, layer_weights = layer(x, Padded(None), explain)
            weights.append(layer_weights)
        return self.final_norm(x), tuple(weights) if explain else None

    def pool(self, hidden: Tensor) -> Tensor:
        """One vector an image: (B, T, D) -> (B, D)."""
        pooled = hidden.mean(1) if self.cls is None else hidden[:, 0]
        return pooled if self.pooler is None else torch.tanh(self.pooler(pooled))


class ViTClassifier(nn.Module):
    """The encoder with one linear layer over what it makes of an image."""

    def __init__(self, config: ViTConfig, labels: tuple[str, ...]) -> None:
        super().__init__()
        if not labels or len(set(labels)) != len(labels):
            raise UserError(f"a classifier needs labels, each once; got {', '.join(labels) or 'none'}")
        self.labels = labels
        """One name a class, in their order."""
        self.vit = ViT(config)
        self.output = nn.Linear(config.dim, len(labels))

    @property
    def config(self) -> ViTConfig:
        """The encoder's."""
        return self.vit.config

    def forward(self, pixels: Tensor) -> Tensor:
        """Scores before the softmax: (B, C, H, W) -> (B, K)."""
        return self.score(self.vit(pixels))

    def score(self, encoded: ViTOutput) -> Tensor:
        """What the head says of the encoder's states."""
        return self.output(encoded.pooled)


Model = TypeVar("Model", ViT, ViTClassifier)


def at_size(model: Model, image_size: int) -> Model:
    """A copy for images of another size, to train on: its table of positions is resized once and for all."""
    made = copy.deepcopy(model)
    vit = made if isinstance(made, ViT) else made.vit
    before, pixels = vit.config.side, vit.config.pixels
    if pixels.edge is not None:  # as much is cut off as before
        pixels = dataclasses.replace(pixels, edge=round(pixels.edge * image_size / vit.config.image_size))
    vit.config = dataclasses.replace(vit.config, image_size=image_size, pixels=pixels)
    with torch.no_grad():
        table = grid_positions.resized(vit.positions, (vit.config.side, vit.config.side), before)
    vit.positions = nn.Parameter(table.clone(), requires_grad=vit.positions.requires_grad)
    return made


def initialise(model: ViT | ViTClassifier, generator: torch.Generator) -> None:
    """Weights, `[CLS]` and positions from a normal distribution that is cut off at ±2, norms at one, biases at zero
    (as transformers' ViT starts)."""
    std = model.config.init_std
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.trunc_normal_(module.weight, std=std, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm | nn.GroupNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, LocalityAttention):
            nn.init.ones_(module.sharpness)
        elif isinstance(module, ViT):
            nn.init.trunc_normal_(module.positions, std=std, generator=generator)
            if module.cls is not None:
                nn.init.trunc_normal_(module.cls, std=std, generator=generator)


def _patches(config: ViTConfig) -> nn.Module:
    """What makes tokens of an image."""
    sizes = (config.channels, config.patch_size, config.dim)
    if config.shifted_patches:
        return ShiftedPatchEmbedding(*sizes, config.norm_eps)
    return ConvolutionalStem(*sizes) if config.convolutional_stem else PatchEmbedding(*sizes)


def _check(pixels: Tensor, config: ViTConfig) -> None:
    """Refuse what is no batch of images for this model."""
    shape, patch = tuple(pixels.shape), config.patch_size
    if pixels.dim() != 4 or shape[1] != config.channels:
        raise UserError(f"pixels must be (images, {config.channels}, height, width); got {shape}")
    if not pixels.is_floating_point():
        raise UserError(f"pixels of type {pixels.dtype} are not normalised; heedful.nn.pixels.normalised does that")
    if shape[2] % patch or shape[3] % patch or 0 in shape[2:]:
        raise UserError(f"an image of {shape[2]} x {shape[3]} pixels is not made of patches of {patch} x {patch}")
