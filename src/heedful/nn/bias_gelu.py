"""GELU of something plus a bias, and the bias's gradient in the same pass, on a GPU.

GELU(x) = x · Φ(x), exactly, not by tanh (Hendrycks and Gimpel 2016). Φ comes from the exponential function that its
derivative needs anyway (Abramowitz and Stegun 1964, formula 7.1.26, off by 1.5e-7 at most): a library's error
function takes so many operations that the kernel waits for arithmetic instead of memory. For the same reason there is
no division, which takes six where a root's inverse takes one.

Shapes: N rows, D columns.
"""

from typing import Any

import torch
import triton  # comes with torch where there may be a GPU
import triton.language as tl
from torch import Tensor

from heedful.nn import fp8_kernels

ROWS, COLUMNS = 256, 256
"""Of one program."""
STRIDE = 8
"""Rows that it holds at once."""


@triton.jit
def phi(x):
    """The normal distribution's Φ(x), and exp(-x²/2)."""
    bell = tl.exp2(x * x * -0.7213475204444817)  # log₂(e) / 2
    root = tl.rsqrt(1.0 + 0.23164189 * tl.abs(x))  # 0.3275911 / √2
    t = root * root
    tail = 0.530702715 * t - 0.726576014  # half of the formula's numbers
    tail = (tail * t + 0.710706871) * t - 0.142248368
    tail = (tail * t + 0.127414796) * t * bell
    return tl.where(x >= 0, 1.0 - tail, tail), bell


@triton.jit
def _forward(x, bias, out, small, rows, columns, height: tl.constexpr, stride: tl.constexpr, width: tl.constexpr):
    column = tl.program_id(1) * width + tl.arange(0, width)
    within = column < columns
    added = tl.load(bias + column, mask=within, other=0.0).to(tl.float32)
    for step in range(0, height, stride):
        row = (tl.program_id(0) * height + step + tl.arange(0, stride)).to(tl.int64)
        inside = (row < rows)[:, None] & within[None, :]
        place = row[:, None] * columns + column[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + added[None, :]
        share, _ = phi(value)
        tl.store(out + place, (value * share).to(out.dtype.element_ty), mask=inside)
        if small is not None:
            tl.store(small + place, fp8_kernels.state(value * share), mask=inside)


@triton.jit
def _backward(gradient, x, bias, out, small, sums, scale, rows, columns, height: tl.constexpr, stride: tl.constexpr,
              width: tl.constexpr):  # fmt: skip
    column = tl.program_id(1) * width + tl.arange(0, width)
    within = column < columns
    added = tl.load(bias + column, mask=within, other=0.0).to(tl.float32)
    total = tl.zeros((stride, width), tl.float32)
    for step in range(0, height, stride):
        row = (tl.program_id(0) * height + step + tl.arange(0, stride)).to(tl.int64)
        inside = (row < rows)[:, None] & within[None, :]
        place = row[:, None] * columns + column[None, :]
        value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + added[None, :]
        share, bell = phi(value)
        slope = share + value * bell * 0.3989422804014327  # 1 / √(2π)
        found = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32) * slope
        tl.store(out + place, found.to(out.dtype.element_ty), mask=inside)
        if small is not None:
            tl.store(small + place, fp8_kernels.gradient(found, scale), mask=inside)
        total += found
    tl.store(sums + tl.program_id(0) * columns + column, tl.sum(total, 0), mask=within)


@torch.library.custom_op("heedful::bias_gelu", mutates_args=())
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """GELU(x + bias): (N, D) and (D,) -> (N, D)."""
    return _run(x, bias, None)


@torch.library.custom_op("heedful::bias_gelu_fp8", mutates_args=())
def bias_gelu_fp8(x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The same, and once more in 8 bits."""
    small = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    return _run(x, bias, small), small


def _run(x: Tensor, bias: Tensor, small: Tensor | None) -> Tensor:
    out = torch.empty_like(x)
    _forward[_programs(x)](x, bias, out, small, *x.shape, ROWS, STRIDE, COLUMNS, num_warps=4)
    return out


@torch.library.custom_op("heedful::bias_gelu_backward", mutates_args=())
def bias_gelu_backward(gradient: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of x, (N, D), and its sums over the rows of each program, (N / ROWS, D)."""
    return _run_back(gradient, x, bias, None, 1.0)


@torch.library.custom_op("heedful::bias_gelu_backward_fp8", mutates_args=())
def bias_gelu_backward_fp8(gradient: Tensor, x: Tensor, bias: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of x, the same times a scale in 8 bits, and its sums."""
    small = torch.empty_like(x, dtype=torch.float8_e5m2)
    out, sums = _run_back(gradient, x, bias, small, scale)
    return out, small, sums


def _run_back(gradient: Tensor, x: Tensor, bias: Tensor, small: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    out, sums = torch.empty_like(x), _sums(x)
    _backward[_programs(x)](
        gradient.contiguous(), x, bias, out, small, sums, scale, *x.shape, ROWS, STRIDE, COLUMNS, num_warps=4
    )  # fmt: skip
    return out, sums


def _programs(x: Tensor) -> tuple[int, int]:
    return triton.cdiv(x.shape[0], ROWS), triton.cdiv(x.shape[1], COLUMNS)


def _sums(x: Tensor) -> Tensor:
    return x.new_empty((x.shape[0] + ROWS - 1) // ROWS, x.shape[1], dtype=torch.float32)


@bias_gelu.register_fake
def _(x: Tensor, _: Tensor) -> Tensor:
    return torch.empty_like(x)


@bias_gelu_backward.register_fake
def _(_: Tensor, x: Tensor, __: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), _sums(x)


@bias_gelu_fp8.register_fake
def _(x: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.float8_e4m3fn)


@bias_gelu_backward_fp8.register_fake
def _(_: Tensor, x: Tensor, __: Tensor, ___: float) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.float8_e5m2), _sums(x)


def _remember(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    x, bias = ctx.saved_tensors
    of_x, sums = bias_gelu_backward(gradient, x, bias)
    return of_x, sums.sum(0).to(bias.dtype)


bias_gelu.register_autograd(_gradient, setup_context=_remember)
