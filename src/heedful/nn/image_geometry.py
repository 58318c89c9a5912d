"""Images moved, turned, cut and enlarged, each by its own amount, on whatever device they are.

Nothing is drawn here: who calls says how much. What comes in from outside an image has the colour `fill`.

Shapes: B images, C channels, H height, W width. Pixels are (B, C, H, W) uint8, amounts (B,), `fill` (C,) floats.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def flip(pixels: Tensor, chosen: Tensor) -> Tensor:
    """Left and right exchanged where chosen."""
    return torch.where(chosen[:, None, None, None], pixels.flip(3), pixels)


def shift(pixels: Tensor, down: Tensor, right: Tensor, fill: Tensor) -> Tensor:
    """Moved by whole pixels: what a random crop of a padded image comes to."""
    height, width = pixels.shape[2:]
    rows = torch.arange(height, device=pixels.device) - down[:, None]  # (B, H): where each row comes from
    columns = torch.arange(width, device=pixels.device) - right[:, None]
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None]
    moved = pixels.gather(2, rows.clamp(0, height - 1)[:, None, :, None].expand_as(pixels))
    moved = moved.gather(3, columns.clamp(0, width - 1)[:, None, None].expand_as(pixels))
    return torch.where(inside[:, None], moved, _byte(fill)[:, None, None])


def zoom(pixels: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> Tensor:
    """The part of each image from (top, left), in pixels, enlarged to the whole."""
    rows, columns = pixels.shape[2:]
    across, along = width / columns, height / rows
    sideways = (2.0 * left + width) / columns - 1.0
    downwards = (2.0 * top + height) / rows - 1.0
    zero = torch.zeros_like(across)
    there = torch.stack([across, zero, sideways, zero, along, downwards], -1).view(-1, 2, 3)
    return _byte(_sampled(pixels.float(), there, "border"))


def rotate(pixels: Tensor, degrees: Tensor, fill: Tensor) -> Tensor:
    """Turned about the middle, counter-clockwise."""
    angle = degrees * (math.pi / 180.0)
    return _moved(pixels, (angle.cos(), -angle.sin(), angle.sin(), angle.cos()), None, fill)


def shear_x(pixels: Tensor, amount: Tensor, fill: Tensor) -> Tensor:
    """Every row moved to the right by the amount times its distance above the middle."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _moved(pixels, (one, amount, zero, one), None, fill)


def shear_y(pixels: Tensor, amount: Tensor, fill: Tensor) -> Tensor:
    """Every column moved down by the amount times its distance to the left of the middle."""
    one, zero = torch.ones_like(amount), torch.zeros_like(amount)
    return _moved(pixels, (one, zero, amount, one), None, fill)


def translate_x(pixels: Tensor, share: Tensor, fill: Tensor) -> Tensor:
    """Moved to the right by a share of the width."""
    return _translated(pixels, (share, torch.zeros_like(share)), fill)


def translate_y(pixels: Tensor, share: Tensor, fill: Tensor) -> Tensor:
    """Moved down by a share of the height."""
    return _translated(pixels, (torch.zeros_like(share), share), fill)


def _translated(pixels: Tensor, shares: tuple[Tensor, Tensor], fill: Tensor) -> Tensor:
    one, zero = torch.ones_like(shares[0]), torch.zeros_like(shares[0])
    return _moved(pixels, (one, zero, zero, one), shares, fill)


def _moved(
    pixels: Tensor,
    turn: tuple[Tensor, Tensor, Tensor, Tensor],
    shares: tuple[Tensor, Tensor] | None,
    fill: Tensor,
) -> Tensor:
    """Each pixel from where a matrix says, about the middle: x' = a·x + b·y, y' = c·x + d·y, in pixels."""
    height, width = pixels.shape[2:]
    a, b, c, d = turn
    right, down = shares or (torch.zeros_like(a), torch.zeros_like(a))
    # The grid goes from -1 to 1 along each side, however long they are.
    there = torch.stack([a, b * (height / width), -2.0 * right, c * (width / height), d, -2.0 * down], -1)
    colour = _byte(fill).float()[:, None, None]
    return _byte(_sampled(pixels.float() - colour, there.view(-1, 2, 3), "zeros") + colour)


def _sampled(pixels: Tensor, there: Tensor, outside: str) -> Tensor:
    """(B, C, H, W) floats, each from where (B, 2, 3) says, between its four neighbours."""
    grid = F.affine_grid(there.float(), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, "bilinear", outside, align_corners=False)


def _byte(values: Tensor) -> Tensor:
    return values.round().clamp(0.0, 255.0).to(torch.uint8)
