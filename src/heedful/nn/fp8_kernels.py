"""How kernels of ours write numbers of 8 bits, and one that does nothing else; see `nn/fp8.py`.

Shapes: N rows, D columns.
"""

import torch
import triton  # comes with torch where there may be a GPU
import triton.language as tl
from torch import Tensor

from heedful.nn.fp8 import MOST, MOST_OF_GRADIENTS, STATES

_STATES, _MOST, _MOST_OF_GRADIENTS = tl.constexpr(STATES), tl.constexpr(MOST), tl.constexpr(MOST_OF_GRADIENTS)
TILE = 4096
"""Numbers of one program."""


@triton.jit
def state(x):
    """A state, scaled."""
    return tl.clamp(x * _STATES, -_MOST, _MOST, propagate_nan=tl.PropagateNan.ALL).to(tl.float8e4nv)


@triton.jit
def gradient(x, scale):
    """A gradient, scaled."""
    kept = tl.clamp(x * scale, -_MOST_OF_GRADIENTS, _MOST_OF_GRADIENTS, propagate_nan=tl.PropagateNan.ALL)
    return kept.to(tl.float8e5)


@triton.jit
def _round(x, out, scale, count, tile: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    value = tl.load(x + place, mask=place < count, other=0.0).to(tl.float32)
    tl.store(out + place, gradient(value, scale), mask=place < count)


@torch.library.custom_op("heedful::fp8_gradients", mutates_args=())
def fp8_gradients(x: Tensor, scale: float) -> Tensor:
    """Gradients times a scale in 8 bits: (N, D), the same.

    A compiler would join it with the gradient of a norm, into a kernel that takes ten times as long as both.
    """
    x = x.contiguous()
    out = torch.empty_like(x, dtype=torch.float8_e5m2)
    _round[(triton.cdiv(x.numel(), TILE),)](x, out, scale, x.numel(), TILE, num_warps=8)
    return out


@fp8_gradients.register_fake
def _(x: Tensor, _: float) -> Tensor:
    return torch.empty_like(x, dtype=torch.float8_e5m2, memory_format=torch.contiguous_format)
