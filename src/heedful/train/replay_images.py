"""An image classifier's passes over full batches, recorded once and then replayed; see `train/replay.py`.

Images have one size and the batches of a run one count, so a single recording is enough.

Shapes: B images, C channels, H height, W width, K classes.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.models.vit import ViTClassifier
from heedful.train.replay import record

MOST_TOKENS = 32768
"""Larger batches keep a GPU busy by themselves, and their recording would take much memory."""


class _Scores(nn.Module):
    """The whole model: its parameters are what a recording gives gradients to."""

    def __init__(self, model: ViTClassifier, dtype: torch.dtype) -> None:
        super().__init__()
        self.model = model
        self.low = dtype is not torch.float32

    def forward(self, pixels: Tensor) -> Tensor:
        # The cache of cast weights would hold what the first recording cast for ever.
        with torch.autocast("cuda", torch.bfloat16, enabled=self.low, cache_enabled=False):
            return self.model(pixels).float()


class ImageReplay:
    """The model as a function from pixels to scores, full batches by replaying. For training alone.

    A step is one batch: gradients lie where the recording put them, and its next replay writes over them.
    """

    def __init__(self, model: ViTClassifier, batch: int, dtype: torch.dtype) -> None:
        self.model = model
        self.batch = batch
        self.dtype = dtype
        self.recorded: Callable[[Tensor], Tensor] | None = None

    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) floats -> (B, K)."""
        if len(pixels) != self.batch or self.batch * self.model.config.tokens > MOST_TOKENS:
            return self.model(pixels)
        if self.recorded is None:
            pool = torch.cuda.graph_pool_handle()
            self.recorded = record(_Scores(self.model, self.dtype), (torch.zeros_like(pixels),), pool)
        return self.recorded(pixels)
