"""Which random changes images get in training, and how strong they are.

Plain data, without torch, so that `--help` is instant; `tasks/augmentation.py` does what it says. The attribute
docstrings are the help.
"""

from dataclasses import dataclass
from typing import Literal

from heedful.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random changes to the training images, drawn anew for every image in every epoch."""

    crop: float = 0.0
    """Random crop with padding: the share of its side that an image is moved by at most (an eighth is usual)."""
    zoom: float = 1.0
    """Random resized crop: the least share of the area that is cut out and enlarged; 1 for none."""
    flip: bool = False
    """Exchange left and right half of the time. Not for letters, digits or road signs."""
    rand_augment: int = 0
    """Operations of RandAugment for each image; 0 for none, 2 is usual."""
    magnitude: float = 9.0
    """Strength of RandAugment, from 0 to 10."""
    erasing: float = 0.0
    """Random erasing: the share of images that lose a rectangle; 0.25 is usual."""
    mixup: float = 0.0
    """Lay another image over each (mixup): the alpha of the shares, which are Beta; 0.8 is usual, 0 for none."""
    cutmix: float = 0.0
    """Put a piece of another image into each (cutmix): the alpha of its size; 1 is usual, 0 for none."""
    mixed: float = 1.0
    """Share of the images that are mixed, by mixup or cutmix; where both are on, each takes half of them."""
    fill: Literal["black", "mean"] = "black"
    """Colour of what comes in from outside an image."""

    def __post_init__(self) -> None:
        for name, value in (("crop", self.crop), ("erasing", self.erasing), ("mixed", self.mixed)):
            if not 0.0 <= value <= 1.0:
                raise UserError(f"--{name} {value:g} is not between 0 and 1")
        if not 0.0 < self.zoom <= 1.0:
            raise UserError(f"--zoom {self.zoom:g} is not above 0 and at most 1; try 0.5, or 1 for none")
        if not 0 <= self.rand_augment <= 14:
            raise UserError(f"--rand-augment {self.rand_augment} is not from 0 to 14 operations; try 2")
        if not 0.0 <= self.magnitude <= 10.0:
            raise UserError(f"--magnitude {self.magnitude:g} is not between 0 and 10; try 9")
        for name, value in (("mixup", self.mixup), ("cutmix", self.cutmix)):
            if not 0.0 <= value < float("inf"):
                raise UserError(f"--{name} {value:g} is not 0 or more; try 0.8, or 0 for none")
        if self.fill not in ("black", "mean"):
            raise UserError(f"--fill {self.fill!r} is not known; try black or mean")

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with others, and labels with theirs."""
        return self.mixed > 0.0 and (self.mixup > 0.0 or self.cutmix > 0.0)


NONE = Augmentation()
LIGHT = Augmentation(crop=0.125)
"""Small moves alone: safe for whatever is in the images."""
STRONG = Augmentation(crop=0.125, rand_augment=2, magnitude=9.0, erasing=0.25, mixup=0.8, cutmix=1.0)
"""What makes a ViT learn from few images (Touvron et al. 2021); with flip where left and right do not matter."""
