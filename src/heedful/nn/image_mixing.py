"""Images with a part missing or mixed with others: random erasing, mixup, cutmix.

Random erasing is of Zhong et al. 2020, mixup of Zhang et al. 2018, cutmix of Yun et al. 2019. Nothing is drawn here:
who calls says where, with whom and how much.

Shapes: B images, C channels, H height, W width, K classes. Pixels are (B, C, H, W) floats; a box is (top, left,
height, width) in whole pixels, and may reach beyond the image.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def inside(boxes: Tensor, height: int, width: int) -> Tensor:
    """(B, 1, H, W): whether a pixel lies in its image's box, of (B, 4)."""
    top, left, tall, wide = (boxes[:, side, None] for side in range(4))
    rows = torch.arange(height, device=boxes.device)
    columns = torch.arange(width, device=boxes.device)
    in_rows = (rows >= top) & (rows < top + tall)
    in_columns = (columns >= left) & (columns < left + wide)
    return (in_rows[:, :, None] & in_columns[:, None])[:, None]


def erase(pixels: Tensor, boxes: Tensor, filling: Tensor) -> Tensor:
    """What lies in the boxes replaced by the filling, which is one value or has the pixels' shape."""
    return torch.where(inside(boxes, *pixels.shape[2:]), filling, pixels)


def mixup(pixels: Tensor, partners: Tensor, share: Tensor) -> Tensor:
    """A share (B,) of each image, laid over the rest of its partner."""
    kept = share[:, None, None, None]
    return kept * pixels + (1.0 - kept) * pixels[partners]


def cutmix(pixels: Tensor, partners: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Each image with its partner's pixels in its box, and the share (B,) of its own that is left."""
    others = inside(boxes, *pixels.shape[2:])
    return torch.where(others, pixels[partners], pixels), 1.0 - others.float().mean((1, 2, 3))


def soft_labels(labels: Tensor, partners: Tensor, share: Tensor, classes: int) -> Tensor:
    """(B, K): each image's own class has its share, its partner's class the rest."""
    own = F.one_hot(labels, classes).to(share.dtype)
    return share[:, None] * own + (1.0 - share[:, None]) * own[partners]
