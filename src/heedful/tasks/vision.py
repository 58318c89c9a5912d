"""What is in an image: one class, or the shares of several where images were mixed.

Shapes: B images, C channels, H height, W width, K classes.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.augmentation import NONE, Augmentation
from heedful.data.batch import ImageBatch
from heedful.nn.pixels import Pixels, normalised
from heedful.nn.transfer import together
from heedful.tasks.augmentation import Mixture, changed, draw_numbers, draws, erased, mixed
from heedful.tasks.term import Term

NAME = "image"
"""What the objective is called in reports."""


def vision_counts(batch: ImageBatch) -> dict[str, int]:
    """How many images the batch asks about."""
    return {NAME: len(batch.labels)}


def vision_terms(
    model: Callable[[Tensor], Tensor],
    batch: ImageBatch,
    device: torch.device,
    read_as: Pixels,
    augmentation: Augmentation = NONE,
    *,
    seed: int = 0,
    smoothing: float = 0.0,
) -> dict[str, Term]:
    """The sums over the images, of a model from pixels (B, C, H, W) to scores (B, K)."""
    pixels, labels, mixture = seen(batch, device, read_as, augmentation, seed)
    scores = model(pixels)
    targets = labels if mixture is None else mixture.targets(labels, scores.shape[1])
    return {NAME: image_term(scores, targets, smoothing)}


class Seen(NamedTuple):
    """Images as the model sees them."""

    pixels: Tensor
    """(B, C, H, W) floats."""
    labels: Tensor
    """(B,) of the images as they were."""
    mixture: Mixture | None
    """How they were mixed."""


@torch.no_grad()
def seen(
    batch: ImageBatch,
    device: torch.device,
    read_as: Pixels,
    augmentation: Augmentation = NONE,
    seed: int = 0,
) -> Seen:
    """The images of a batch where the model is, changed and mixed.

    What is drawn is a function of the seed and of the batch's place in the run alone.
    """
    count, height, width, channels = batch.pixels.shape
    rng = draws(seed, int(batch.numbers[0]))
    drawn = draw_numbers(augmentation, read_as, (count, channels, height, width), rng)
    there = together({"pixels": batch.pixels, "labels": batch.labels, **drawn.numbers}, device)
    pixels = there["pixels"].permute(0, 3, 1, 2).contiguous()
    pixels = normalised(changed(pixels, there, drawn.counts).permute(0, 2, 3, 1), read_as)
    pixels, mixture = mixed(erased(pixels, there, drawn.seed), there)
    return Seen(pixels, there["labels"], mixture)


def image_term(scores: Tensor, targets: Tensor, smoothing: float = 0.0) -> Term:
    """(B, K) scores against (B,) classes or (B, K) shares; `smoothing` of each goes to all classes alike.

    An image that was mixed is right where its largest share is.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # half precision is too coarse for sums
    loss = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
    classes = targets if targets.ndim == 1 else targets.argmax(-1)
    return Term(loss, (scores.detach().argmax(-1) == classes).sum(), len(targets))
