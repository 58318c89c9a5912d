"""From the host to where a model is."""

import numpy as np
import torch
from torch import Tensor


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """The array where the model is. A GPU fetches it by itself: neither waits for the other.

    From memory that may be moved, a copy begins only when the GPU has done all that it was told before: who copies a
    few numbers that way in every step never gets ahead of it.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
