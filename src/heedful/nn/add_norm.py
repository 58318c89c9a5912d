"""A residual and the norm behind it in one pass, on a GPU, for a model that trains no more: it has no gradients.

Two operations would write the sum and read it again. Here it stays on the chip, in single precision; it is written
only where it is needed beside its norm.

Shapes: N rows, D columns.
"""

import torch
import triton  # comes with torch where there may be a GPU
import triton.language as tl
from torch import Tensor

TILE = 4096
"""Numbers that a program holds at once: whole rows, as many as fit."""


@triton.jit
def _forward(x, y, weight, bias, sums, out, rows, columns, eps, biased: tl.constexpr, keeps: tl.constexpr,
             height: tl.constexpr, width: tl.constexpr):  # fmt: skip
    column = tl.arange(0, width)
    within = column < columns
    row = (tl.program_id(0) * height + tl.arange(0, height)).to(tl.int64)
    inside = (row < rows)[:, None] & within[None, :]
    place = row[:, None] * columns + column[None, :]
    total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    if keeps:
        tl.store(sums + place, total.to(sums.dtype.element_ty), mask=inside)
    centred = tl.where(within[None, :], total - (tl.sum(total, 1) / columns)[:, None], 0.0)
    variance = tl.sum(centred * centred, 1) / columns
    found = centred * (1.0 / tl.sqrt(variance + eps))[:, None]
    found *= tl.load(weight + column, mask=within, other=0.0).to(tl.float32)[None, :]
    if biased:
        found += tl.load(bias + column, mask=within, other=0.0).to(tl.float32)[None, :]
    tl.store(out + place, found.to(out.dtype.element_ty), mask=inside)


def add_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """The norm of x + y: (..., D) twice, and (D,) -> (..., D)."""
    return _run(x, y, weight, bias, eps, keeps=False)[1]


def add_then_norm(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """x + y, and its norm."""
    return _run(x, y, weight, bias, eps, keeps=True)


def _run(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *, keeps: bool
) -> tuple[Tensor, Tensor]:
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    sums = torch.empty_like(x) if keeps else out  # not written to, if not kept
    columns = x.shape[-1]
    rows = x.numel() // columns
    width = triton.next_power_of_2(columns)
    height = max(1, TILE // width)
    if rows:
        _forward[(triton.cdiv(rows, height),)](
            x, y, weight, weight if bias is None else bias, sums, out, rows, columns, eps, bias is not None, keeps,
            height, width, num_warps=4,
        )  # fmt: skip
    return sums, out
