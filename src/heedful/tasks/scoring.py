"""A packed batch through a model with a head.

Shapes: B sequences, N tokens, C outputs.
"""

import torch
from torch import Tensor

from heedful.data.batch import InputBatch
from heedful.models.heads import BertForTask
from heedful.nn.layout import Packed
from heedful.nn.transfer import on_device


def layout(inputs: InputBatch, device: torch.device) -> Packed:
    """How the batch lies in memory."""
    return Packed.from_offsets(on_device(inputs.offsets, device), inputs.longest, len(inputs.ids))


def score(model: BertForTask, inputs: InputBatch, packed: Packed, device: torch.device) -> Tensor:
    """Scores of each sequence (B, C), or of each token (N, C)."""
    return model(on_device(inputs.ids, device), on_device(inputs.segments, device), packed=packed)
