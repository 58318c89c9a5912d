"""From the host to where a model is."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

ALIGNED = 16
"""Bytes that every array begins at a multiple of."""


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """The array where the model is. A GPU fetches it by itself: neither waits for the other.

    From memory that may be moved, a copy begins only when the GPU has done all that it was told before: who copies a
    few numbers that way in every step never gets ahead of it.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def together(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    """Arrays where the model is. A GPU fetches them all at once: to make one ready takes the host as long as many."""
    if device.type != "cuda":
        return {name: on_device(array, device) for name, array in arrays.items()}
    whole = torch.empty(packed_size(arrays), dtype=torch.uint8, pin_memory=True)
    pack(arrays, whole.numpy())
    return unpacked(whole.to(device, non_blocking=True), arrays)


def packed_size(arrays: Mapping[str, np.ndarray]) -> int:
    """Bytes of all arrays, one after the other, with gaps."""
    return _starts(arrays)[-1]


def pack(arrays: Mapping[str, np.ndarray], whole: np.ndarray) -> None:
    """Write the arrays into the bytes of all of them."""
    for start, array in zip(_starts(arrays), arrays.values(), strict=False):
        whole[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def unpacked(whole: Tensor, arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """The arrays in the bytes of all of them."""
    return {
        name: whole[start : start + array.nbytes].view(torch.from_numpy(array).dtype).view(array.shape)
        for start, (name, array) in zip(_starts(arrays), arrays.items(), strict=False)
    }


def _starts(arrays: Mapping[str, np.ndarray]) -> list[int]:
    """Where each begins, and where the next one would; an array of nothing has a place too."""
    return [0, *np.cumsum([(array.nbytes // ALIGNED + 1) * ALIGNED for array in arrays.values()]).tolist()]
