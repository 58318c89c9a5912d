"""GELU of one half, times the other half: what is inside a gated feed-forward layer (Shazeer 2020), on a GPU.

One pass over memory each way, and as few operations as `nn/bias_gelu.py` has.

Shapes: N rows, D columns of a half.
"""

from typing import Any

import torch
import triton  # comes with torch where there may be a GPU
import triton.language as tl
from torch import Tensor

from heedful.nn import fp8_kernels
from heedful.nn.bias_gelu import phi

TILE = 2048
"""Numbers that a program makes."""
WIDEST, NARROWEST = 256, 64
"""Columns of a program's tile; its memory is read in pieces of so many."""


@triton.jit
def _place(rows, columns, height: tl.constexpr, width: tl.constexpr):
    """Where a program's tile lies in the half (N, D) and in the left of both (N, 2D), and what of it is inside."""
    row = (tl.program_id(0) * height + tl.arange(0, height)).to(tl.int64)
    column = tl.program_id(1) * width + tl.arange(0, width)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    start = row[:, None] * columns
    return start + column[None, :], 2 * start + column[None, :], inside


@triton.jit
def _forward(x, out, small, rows, columns, height: tl.constexpr, width: tl.constexpr):
    one, both, inside = _place(rows, columns, height, width)
    left = tl.load(x + both, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(x + both + columns, mask=inside, other=0.0).to(tl.float32)
    share, _ = phi(left)
    tl.store(out + one, (left * share * right).to(out.dtype.element_ty), mask=inside)
    if small is not None:
        tl.store(small + one, fp8_kernels.state(left * share * right), mask=inside)


@triton.jit
def _backward(gradient, x, out, small, scale, rows, columns, height: tl.constexpr, width: tl.constexpr):
    one, both, inside = _place(rows, columns, height, width)
    left = tl.load(x + both, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(x + both + columns, mask=inside, other=0.0).to(tl.float32)
    given = tl.load(gradient + one, mask=inside, other=0.0).to(tl.float32)
    share, bell = phi(left)
    slope = share + left * bell * 0.3989422804014327  # 1 / √(2π)
    tl.store(out + both, (given * right * slope).to(out.dtype.element_ty), mask=inside)
    tl.store(out + both + columns, (given * left * share).to(out.dtype.element_ty), mask=inside)
    if small is not None:
        tl.store(small + both, fp8_kernels.gradient(given * right * slope, scale), mask=inside)
        tl.store(small + both + columns, fp8_kernels.gradient(given * left * share, scale), mask=inside)


@torch.library.custom_op("heedful::gated_gelu", mutates_args=())
def gated_gelu(x: Tensor) -> Tensor:
    """GELU(left) ⊙ right: (N, 2D) -> (N, D)."""
    return _run(x, None)


@torch.library.custom_op("heedful::gated_gelu_fp8", mutates_args=())
def gated_gelu_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same, and once more in 8 bits."""
    small = x.new_empty(x.shape[0], x.shape[1] // 2, dtype=torch.float8_e4m3fn)
    return _run(x, small), small


def _run(x: Tensor, small: Tensor | None) -> Tensor:
    rows, columns = x.shape[0], x.shape[1] // 2
    out = x.new_empty(rows, columns)
    height, width = _tile(columns)
    _forward[_programs(rows, columns)](x, out, small, rows, columns, height, width, num_warps=4)
    return out


@torch.library.custom_op("heedful::gated_gelu_backward", mutates_args=())
def gated_gelu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient of both halves, (N, 2D)."""
    return _run_back(gradient, x, None, 1.0)


@torch.library.custom_op("heedful::gated_gelu_backward_fp8", mutates_args=())
def gated_gelu_backward_fp8(gradient: Tensor, x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The same, and times a scale in 8 bits."""
    small = torch.empty_like(x, dtype=torch.float8_e5m2)
    return _run_back(gradient, x, small, scale), small


def _run_back(gradient: Tensor, x: Tensor, small: Tensor | None, scale: float) -> Tensor:
    rows, columns = gradient.shape
    out = torch.empty_like(x)
    height, width = _tile(columns)
    _backward[_programs(rows, columns)](
        gradient.contiguous(), x, out, small, scale, rows, columns, height, width, num_warps=4
    )
    return out


def _tile(columns: int) -> tuple[int, int]:
    """Rows and columns of a tile; as wide as divides what there is, so that nothing lies beyond its end."""
    width = max(NARROWEST, min(WIDEST, columns & -columns))
    return TILE // width, width


def _programs(rows: int, columns: int) -> tuple[int, int]:
    height, width = _tile(columns)
    return triton.cdiv(rows, height), triton.cdiv(columns, width)


@gated_gelu.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


@gated_gelu_backward.register_fake
def _(_: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x)


@gated_gelu_fp8.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    half = x.new_empty(x.shape[0], x.shape[1] // 2)
    return half, torch.empty_like(half, dtype=torch.float8_e4m3fn)


@gated_gelu_backward_fp8.register_fake
def _(_: Tensor, x: Tensor, __: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.float8_e5m2)


def _remember(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, gradient: Tensor) -> Tensor:
    return gated_gelu_backward(gradient, *ctx.saved_tensors)


gated_gelu.register_autograd(_gradient, setup_context=_remember)
