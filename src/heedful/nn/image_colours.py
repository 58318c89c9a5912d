"""What is done to the colours of images, each image by its own amount, on whatever device they are.

The arithmetic is that of Pillow's ImageOps and ImageEnhance, which RandAugment was described with. Nothing is drawn
here: who calls says how much.

Shapes: B images, C channels (1 grey, 3 RGB), H height, W width. Pixels are (B, C, H, W) uint8, amounts (B,).
"""

import torch
from torch import Tensor

_LUMA = (19595, 38470, 7471)
"""Of red, green and blue in grey, of 65536 (ITU-R 601)."""


def brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    """0 is black, 1 the image itself, more is brighter."""
    return _blend(torch.zeros_like(pixels[:, :1]), pixels, factor)


def contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    """0 is the mean grey everywhere, 1 the image itself."""
    shade = _grey(pixels).flatten(1)
    count = shade.shape[1]
    mean = (2 * shade.sum(1) + count) // (2 * count)  # rounded
    return _blend(mean[:, None, None, None], pixels, factor)


def colour(pixels: Tensor, factor: Tensor) -> Tensor:
    """0 is grey, 1 the image itself. A grey image has none and stays."""
    return pixels if pixels.shape[1] == 1 else _blend(_grey(pixels), pixels, factor)


def sharpness(pixels: Tensor, factor: Tensor) -> Tensor:
    """0 is smoothed over 3 by 3 pixels, 1 the image itself; the outermost pixels stay."""
    height, width = pixels.shape[2:]
    smooth = pixels.int()
    if min(height, width) > 2:
        around = smooth.unfold(2, 3, 1).unfold(3, 3, 1).sum((-1, -2), dtype=torch.int32)  # (B, C, H - 2, W - 2)
        inside = 2 * (around + 4 * smooth[:, :, 1:-1, 1:-1]) + 13
        smooth[:, :, 1:-1, 1:-1] = inside // 26
    return _blend(smooth, pixels, factor)


def solarize(pixels: Tensor, threshold: Tensor) -> Tensor:
    """Every value from the threshold on is turned into its negative."""
    return torch.where(pixels < threshold[:, None, None, None], pixels, 255 - pixels)


def posterize(pixels: Tensor, bits: Tensor) -> Tensor:
    """Only the highest bits of every value are kept, 1 to 8 of them."""
    kept = (256 - (1 << (8 - bits.int()))).to(torch.uint8)
    return pixels & kept[:, None, None, None]


def autocontrast(pixels: Tensor) -> Tensor:
    """Each channel is stretched so that its darkest pixel is 0 and its brightest 255."""
    values = pixels.flatten(2).int()  # (B, C, H·W)
    low, high = values.amin(2)[..., None, None], values.amax(2)[..., None, None]
    stretched = (pixels - low) * 255 // (high - low).clamp(min=1)
    return torch.where(high > low, stretched, pixels).to(torch.uint8)


def equalize(pixels: Tensor) -> Tensor:
    """Each channel's values are spread so that all are about equally common."""
    values = pixels.flatten(2).long()  # (B, C, H·W)
    counts = torch.zeros(*values.shape[:2], 256, dtype=torch.long, device=pixels.device)
    counts.scatter_add_(2, values, torch.ones_like(values))
    last = counts.gather(2, values.amax(2, keepdim=True))  # how often the brightest value occurs
    step = (values.shape[2] - last) // 255
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    spread = table.gather(2, values).view_as(pixels).to(torch.uint8)
    return torch.where(step[..., None] > 0, spread, pixels)


def _grey(pixels: Tensor) -> Tensor:
    """(B, 1, H, W) int."""
    values = pixels.int()
    if pixels.shape[1] == 1:
        return values
    red, green, blue = values.split(1, 1)
    return (red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2] + 0x8000) >> 16


def _blend(base: Tensor, pixels: Tensor, factor: Tensor) -> Tensor:
    """From the base (0) to the pixels (1) and beyond."""
    start = base.float()
    mixed = start + factor[:, None, None, None] * (pixels.float() - start)
    return mixed.clamp(0.0, 255.0).to(torch.uint8)
