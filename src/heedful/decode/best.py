"""The best few of many."""

import torch
from torch import Tensor

BLOCK = 128


def best(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of the last axis, the largest first, and where they are: `topk`, several times faster on long rows.

    A row is cut into blocks. Only those whose largest value is among the best can hold any of them.
    """
    size = values.shape[-1]
    blocks = size // BLOCK
    if blocks <= count:
        return values.topk(min(count, size), -1)
    peaks = values[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK)).amax(-1)
    numbers = torch.arange(size, device=values.device)
    inside = peaks.topk(count, -1).indices[..., None] * BLOCK + numbers[:BLOCK]  # (..., count, BLOCK)
    beyond = numbers[blocks * BLOCK :].expand(*values.shape[:-1], -1)  # what is left over when a row is cut
    places = torch.cat([inside.flatten(-2), beyond], -1)
    found, order = values.gather(-1, places).topk(count, -1)
    return found, places.gather(-1, order)
