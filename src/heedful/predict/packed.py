"""A Transformer whose decoder's matrices lie as a CPU reads them best.

A step multiplies a few rows with every matrix of the decoder, so reading the matrices is what takes the time. oneDNN
reads them in blocks of its own: laid out so once, a step takes half as long or less. The numbers are the same up to
rounding; the matrices are there twice. The two operations are those that compiled models use inside torch; where a
version lacks them, the model stays as it is.

Shapes: N rows, I inputs, O outputs.
"""

import copy

import torch
from torch import Tensor, nn

from heedful.models.transformer import Transformer

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


def packed(model: Transformer) -> Transformer:
    """The same model for steps on a CPU, as its weights are now; all but the decoder's matrices are shared."""
    known = hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if not known or model.positions.device.type != "cpu" or model.positions.dtype != torch.float32:
        return model
    shared = [*model.parameters(), *model.buffers()]
    twin = copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
    for module in list(twin.decoder.modules()):
        for name, linear in list(module.named_children()):
            if isinstance(linear, nn.Linear):
                setattr(module, name, PackedLinear(linear.weight, linear.bias))
    twin.projection = PackedLinear(twin.output_table, twin.output_bias)
    twin.output_bias = None
    return twin
