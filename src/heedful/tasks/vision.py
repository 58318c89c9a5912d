"""What is in an image: one class, or the shares of several where images were mixed.

Shapes: B images, C channels, H height, W width, K classes.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.augmentation import NONE, Augmentation
from heedful.data.batch import ImageBatch
from heedful.nn.pixels import Pixels, normalised
from heedful.nn.transfer import on_device
from heedful.tasks.augmentation import Mixture, changed, draws, erased, mixed
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
    pixels, mixture = seen(batch, device, read_as, augmentation, seed)
    scores = model(pixels)
    labels = on_device(batch.labels, device)
    targets = labels if mixture is None else mixture.targets(labels, scores.shape[1])
    return {NAME: image_term(scores, targets, smoothing)}


@torch.no_grad()
def seen(
    batch: ImageBatch,
    device: torch.device,
    read_as: Pixels,
    augmentation: Augmentation = NONE,
    seed: int = 0,
) -> tuple[Tensor, Mixture | None]:
    """The images as the model sees them, (B, C, H, W) floats, and how they were mixed.

    What is drawn is a function of the seed and of the batch's place in the run alone.
    """
    pixels = on_device(batch.pixels, device).permute(0, 3, 1, 2).contiguous()
    if augmentation == NONE:
        return _floats(pixels, read_as), None
    rng = draws(seed, int(batch.numbers[0]))
    pixels = _floats(changed(pixels, augmentation, read_as, rng), read_as)
    return mixed(erased(pixels, augmentation, rng), augmentation, rng)


def image_term(scores: Tensor, targets: Tensor, smoothing: float = 0.0) -> Term:
    """(B, K) scores against (B,) classes or (B, K) shares; `smoothing` of each goes to all classes alike.

    An image that was mixed is right where its largest share is.
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # half precision is too coarse for sums
    loss = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
    classes = targets if targets.ndim == 1 else targets.argmax(-1)
    return Term(loss, (scores.detach().argmax(-1) == classes).sum(), len(targets))


def _floats(pixels: Tensor, read_as: Pixels) -> Tensor:
    """(B, C, H, W) uint8 as a predictor makes them numbers too."""
    return normalised(pixels.permute(0, 2, 3, 1), read_as)
