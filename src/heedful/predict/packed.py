"""A Transformer whose decoder's matrices lie as a step reads them best.

A step multiplies a few rows with every matrix of the decoder. Query, key and value become one matrix, so that there
are fewer products. On a CPU reading the matrices is what takes the time, and oneDNN reads them in blocks of its own:
laid out so once, a step takes half as long or less. The numbers are the same up to rounding; the matrices are there
twice. The two operations are those that compiled models use inside torch; where a version lacks them, the matrices
stay as they are.

Shapes: N rows, I inputs, O outputs.
"""

import copy
from typing import TypeVar

import torch
from torch import Tensor, nn

from heedful.models.transformer import Transformer
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import DecoderLayer

M = TypeVar("M", bound=nn.Module)
ROWS = 16
"""For how many rows the layout is chosen: a few sentences with their beams."""


class PackedLinear(nn.Module):
    """A linear layer that can't be trained."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) -> (..., O)."""
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def twin_of(model: M) -> M:
    """A model that shares its tensors with this one, and can be given others without this one's noticing."""
    shared = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in shared})


def packed(model: Transformer) -> Transformer:
    """The same model for steps, as its weights are now; all but the decoder's matrices are shared."""
    twin = twin_of(model)
    for layer in twin.decoder:
        assert isinstance(layer, DecoderLayer)
        layer.attention.join()
    known = hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not known or model.positions.device.type != "cpu" or model.positions.dtype != torch.float32:
        return twin
    for module in list(twin.decoder.modules()):
        for name, linear in list(module.named_children()):
            joined = isinstance(module, MultiHeadAttention) and module.joined is not None
            if isinstance(linear, nn.Linear) and not (joined and name in ("query", "key", "value")):
                setattr(module, name, PackedLinear(linear.weight, linear.bias))
    twin.projection = PackedLinear(twin.output_table, twin.output_bias)
    twin.output_bias = None
    return twin
