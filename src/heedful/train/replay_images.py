"""An image classifier's passes over full batches, recorded once and then replayed; see `train/replay.py`.

Images have one size and the batches of a run one count, so a single recording is enough. Between its products a small
ViT only reads and writes memory; compiled, layer by layer, it does so less often, and in half precision.

Shapes: B images, C channels, H height, W width, T tokens, D width, K classes.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.nn.layers import EncoderLayer
from heedful.nn.layout import Padded
from heedful.train.replay import compiler, quiet, record

MOST_TOKENS = 32768
"""Larger batches keep a GPU busy by themselves, and their recording would take much memory."""


def fits(config: ViTConfig, batch: int) -> bool:
    """Whether batches of so many images are recorded."""
    return batch * config.tokens <= MOST_TOKENS


class _Scores(nn.Module):
    """The whole model: its parameters are what a recording gives gradients to."""

    def __init__(self, model: ViTClassifier, dtype: torch.dtype, options: dict[str, Any] | None) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype
        self.layer, self.top = _layer, _top
        if options is not None:  # a function for all layers, which are alike and so compiled once
            self.layer = torch.compile(_layer, fullgraph=True, dynamic=False, **options)
            self.top = torch.compile(_top, fullgraph=True, dynamic=False, **options)
        self.compiled = options is not None

    def forward(self, pixels: Tensor) -> Tensor:
        low = self.dtype is not torch.float32
        # The cache of cast weights would hold what the first recording cast for ever.
        with torch.autocast("cuda", torch.bfloat16, enabled=low, cache_enabled=False):
            x = self.model.vit.embed(pixels)
            if self.compiled:
                x = x.to(self.dtype)
            for layer in self.model.vit.layers:
                assert isinstance(layer, EncoderLayer)
                x = self.layer(layer, x)
            return self.top(self.model, x)


def _layer(layer: EncoderLayer, x: Tensor) -> Tensor:
    """(B, T, D) -> the same."""
    return layer(x, Padded(None))[0]


def _top(model: ViTClassifier, x: Tensor) -> Tensor:
    """From the last layer's states to scores: (B, T, D) -> (B, K)."""
    return model.output(model.vit.pool(model.vit.final_norm(x))).float()


class ImageReplay:
    """The model as a function from pixels to scores, full batches by replaying. For training alone.

    A step is one batch: gradients lie where the recording put them, and its next replay writes over them. With
    `compiled`, what goes from layer to layer has the type of the products.
    """

    def __init__(
        self,
        model: ViTClassifier,
        batch: int,
        dtype: torch.dtype,
        *,
        compiled: bool = False,
        backend: str = "inductor",
    ) -> None:
        self.model = model
        self.batch = batch
        self.dtype = dtype
        self.options = compiler(backend) if compiled else None
        self.recorded: Callable[[Tensor], Tensor] | None = None

    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) floats -> (B, K)."""
        if len(pixels) != self.batch or not fits(self.model.config, self.batch):
            return self.model(pixels)
        if self.recorded is None:
            scores = _Scores(self.model, self.dtype, self.options)
            with quiet() if scores.compiled else nullcontext():
                self.recorded = record(scores, (torch.zeros_like(pixels),), torch.cuda.graph_pool_handle())
                return self.recorded(pixels)
        return self.recorded(pixels)
