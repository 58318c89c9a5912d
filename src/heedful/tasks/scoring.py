"""A packed batch through a model with a head.

Shapes: B sequences, N tokens, C outputs.
"""

import numpy as np
import torch
from torch import Tensor

from heedful.data.batch import InputBatch
from heedful.models.heads import BertForTask
from heedful.nn.layout import Packed


def layout(inputs: InputBatch, device: torch.device) -> Packed:
    """How the batch lies in memory."""
    return Packed.from_offsets(on_device(inputs.offsets, device), inputs.longest, len(inputs.ids))


def score(model: BertForTask, inputs: InputBatch, packed: Packed, device: torch.device) -> Tensor:
    """Scores of each sequence (B, C), or of each token (N, C)."""
    return model(on_device(inputs.ids, device), on_device(inputs.segments, device), packed=packed)


def on_device(array: np.ndarray, device: torch.device) -> Tensor:
    """The array where the model is. A GPU fetches it by itself: neither waits for the other."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
