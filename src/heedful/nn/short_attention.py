"""Attention inside packed sequences of up to 128 tokens, on a GPU: one program a head and sequence.

Everything between reading queries, keys and values and writing their mix stays on the chip; the backward pass
computes the weights again. General kernels for ragged batches are made for long sequences: with short ones they take
twice as long, and three gradients apart would have to be joined again for the product that follows. Rotary positions
are a part of it: queries and keys are read by halves, turned, and multiplied by halves. Programs write to places of
their own, so the result is the same every time.

Shapes: N packed tokens, B sequences, H heads, K width of a head, T sequence length rounded up.
"""

from typing import Any

import torch
import triton  # comes with torch where there may be a GPU
import triton.language as tl
from torch import Tensor

from heedful.nn import fp8_kernels

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _weights(products, inside, scale):
    """softmax(QKᵀ · scale) over the columns inside: (T, T)."""
    scores = tl.where(inside[None, :], products * (scale * LOG2_E), float("-inf"))
    powers = tl.exp2(scores - tl.max(scores, 1)[:, None])
    return powers / tl.sum(powers, 1)[:, None]


@triton.jit
def _kept(seed, start, rows, head, dropout, heads: tl.constexpr, width: tl.constexpr):
    """Which weights stay, alike in both passes: (T, T).

    Each weight's number is mixed with the seed as MurmurHash3 ends (Appleby 2011): random enough to drop by, and a
    fraction of the operations of a generator for statistics.
    """
    place = ((start + rows) * heads + head)[:, None] * width + tl.arange(0, width)[None, :]
    bits = place.to(tl.uint32) * 0x9E3779B1 + tl.load(seed).to(tl.uint32)
    bits = (bits ^ (bits >> 16)) * 0x85EBCA6B
    bits = (bits ^ (bits >> 13)) * 0xC2B2AE35
    return ((bits ^ (bits >> 16)) >> 8).to(tl.float32) * 5.960464477539063e-08 >= dropout  # 2⁻²⁴


@triton.jit
def _turned(place, cos, sin, inside, half: tl.constexpr):
    """The halves of queries or keys as their positions turn them: twice (T, K / 2)."""
    left = tl.load(place, mask=inside[:, None], other=0.0)
    right = tl.load(place + half, mask=inside[:, None], other=0.0)
    one = left.to(tl.float32) * cos - right.to(tl.float32) * sin
    other = right.to(tl.float32) * cos + left.to(tl.float32) * sin
    return one.to(left.dtype), other.to(left.dtype)


@triton.jit
def _store(out, small, place, value, grows, inside):
    """Write gradients, and if asked for, so many times as large in 8 bits."""
    tl.store(out + place, value.to(out.dtype.element_ty), mask=inside[:, None])
    if small is not None:
        tl.store(small + place, fp8_kernels.gradient(value, grows), mask=inside[:, None])


@triton.jit
def _store_back(out, small, place, left, right, cos, sin, grows, inside, half: tl.constexpr):
    """Write gradients of turned halves as those of what was turned."""
    _store(out, small, place, left * cos + right * sin, grows, inside)
    _store(out, small, place + half, right * cos - left * sin, grows, inside)


@triton.jit
def _forward(qkv, offsets, cos, sin, seed, out, small, scale, dropout, heads: tl.constexpr, size: tl.constexpr,
             width: tl.constexpr, drops: tl.constexpr, turns: tl.constexpr):  # fmt: skip
    sequence, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    start = tl.load(offsets + sequence)
    length = tl.load(offsets + sequence + 1) - start
    rows, columns = tl.arange(0, width), tl.arange(0, size)
    inside = rows < length
    here = start.to(tl.int64)  # places are counted from here, in half as many bits
    qkv += (3 * here * heads + head) * size
    line: tl.constexpr = heads * size
    shift = 3 * line * rows[:, None] + columns[None, :]
    value = tl.load(qkv + shift + 2 * line, mask=inside[:, None], other=0.0)
    if turns:
        half: tl.constexpr = size // 2
        few = tl.arange(0, half)[None, :]
        angle = half * rows[:, None] + few
        by = tl.load(cos + here * half + angle, mask=inside[:, None], other=0.0)
        aside = tl.load(sin + here * half + angle, mask=inside[:, None], other=0.0)
        halves = 3 * line * rows[:, None] + few
        left, right = _turned(qkv + halves, by, aside, inside, half)
        key_left, key_right = _turned(qkv + line + halves, by, aside, inside, half)
        products = tl.dot(right, tl.trans(key_right), tl.dot(left, tl.trans(key_left)))
    else:
        query = tl.load(qkv + shift, mask=inside[:, None], other=0.0)
        key = tl.load(qkv + line + shift, mask=inside[:, None], other=0.0)
        products = tl.dot(query, tl.trans(key))
    weights = _weights(products, inside, scale)
    if drops:
        weights = tl.where(_kept(seed, start, rows, head, dropout, heads, width), weights / (1.0 - dropout), 0.0)
    mixed = tl.dot(weights.to(value.dtype), value)
    first, place = (here * heads + head) * size, line * rows[:, None] + columns[None, :]
    tl.store(out + first + place, mixed.to(value.dtype), mask=inside[:, None])
    if small is not None:
        tl.store(small + first + place, fp8_kernels.state(mixed), mask=inside[:, None])


@triton.jit
def _back(products, value, of_mixed, seed, start, rows, head, inside, scale, dropout, heads: tl.constexpr,
          width: tl.constexpr, drops: tl.constexpr):  # fmt: skip
    """The weights as they were used, and the gradient of the scores before their scale: (T, T) twice."""
    weights = _weights(products, inside, scale)
    of_weights = tl.dot(of_mixed, tl.trans(value))
    used = weights
    if drops:
        kept = _kept(seed, start, rows, head, dropout, heads, width)
        used = tl.where(kept, weights / (1.0 - dropout), 0.0)
        of_weights = tl.where(kept, of_weights / (1.0 - dropout), 0.0)
    of_scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None]) * scale
    return used.to(value.dtype), of_scores.to(value.dtype)


@triton.jit
def _backward(qkv, offsets, cos, sin, seed, gradient, out, small, scale, dropout, grows, heads: tl.constexpr,
              size: tl.constexpr, width: tl.constexpr, drops: tl.constexpr, turns: tl.constexpr):  # fmt: skip
    sequence, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    start = tl.load(offsets + sequence)
    length = tl.load(offsets + sequence + 1) - start
    rows, columns = tl.arange(0, width), tl.arange(0, size)
    inside = rows < length
    here = start.to(tl.int64)
    qkv += (3 * here * heads + head) * size
    out += (3 * here * heads + head) * size
    if small is not None:
        small += (3 * here * heads + head) * size
    gradient += (here * heads + head) * size
    line: tl.constexpr = heads * size
    shift = 3 * line * rows[:, None] + columns[None, :]
    value = tl.load(qkv + shift + 2 * line, mask=inside[:, None], other=0.0)
    of_mixed = tl.load(gradient + line * rows[:, None] + columns[None, :], mask=inside[:, None], other=0.0)
    if turns:
        half: tl.constexpr = size // 2
        few = tl.arange(0, half)[None, :]
        angle = half * rows[:, None] + few
        by = tl.load(cos + here * half + angle, mask=inside[:, None], other=0.0)
        aside = tl.load(sin + here * half + angle, mask=inside[:, None], other=0.0)
        halves = 3 * line * rows[:, None] + few
        left, right = _turned(qkv + halves, by, aside, inside, half)
        key_left, key_right = _turned(qkv + line + halves, by, aside, inside, half)
        products = tl.dot(right, tl.trans(key_right), tl.dot(left, tl.trans(key_left)))
        used, of_scores = _back(products, value, of_mixed, seed, start, rows, head, inside, scale, dropout, heads,
                                width, drops)  # fmt: skip
        of_left, of_right = tl.dot(of_scores, key_left), tl.dot(of_scores, key_right)
        _store_back(out, small, halves, of_left, of_right, by, aside, grows, inside, half)
        of_left, of_right = tl.dot(tl.trans(of_scores), left), tl.dot(tl.trans(of_scores), right)
        _store_back(out, small, halves + line, of_left, of_right, by, aside, grows, inside, half)
    else:
        query = tl.load(qkv + shift, mask=inside[:, None], other=0.0)
        key = tl.load(qkv + line + shift, mask=inside[:, None], other=0.0)
        products = tl.dot(query, tl.trans(key))
        used, of_scores = _back(products, value, of_mixed, seed, start, rows, head, inside, scale, dropout, heads,
                                width, drops)  # fmt: skip
        _store(out, small, shift, tl.dot(of_scores, key), grows, inside)
        _store(out, small, shift + line, tl.dot(tl.trans(of_scores), query), grows, inside)
    _store(out, small, shift + 2 * line, tl.dot(tl.trans(used), of_mixed), grows, inside)


@torch.library.custom_op("heedful::short_attention", mutates_args=())
def short_attention(
    qkv: Tensor,
    offsets: Tensor,
    longest: int,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> Tensor:
    """Each token's mix of its sequence: queries, keys and values (N, 3, H, K) -> (N, H, K).

    Sequences start at the offsets (B + 1,) and have at most `longest` tokens. The seed (1,) decides what is dropped.
    With cosines and sines (N, K / 2) in single precision, queries and keys are turned by them.
    """
    return _run(qkv, offsets, longest, dropout, seed, cos, sin, None)


@torch.library.custom_op("heedful::short_attention_fp8", mutates_args=())
def short_attention_fp8(
    qkv: Tensor,
    offsets: Tensor,
    longest: int,
    dropout: float,
    seed: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The same, and once more in 8 bits."""
    small = qkv.new_empty(qkv.shape[0], *qkv.shape[2:], dtype=torch.float8_e4m3fn)
    return _run(qkv, offsets, longest, dropout, seed, cos, sin, small), small


def _run(
    qkv: Tensor,
    offsets: Tensor,
    longest: int,
    dropout: float,
    seed: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    small: Tensor | None,
) -> Tensor:
    tokens, _, heads, size = qkv.shape
    out = qkv.new_empty(tokens, heads, size)
    _forward[(heads * (len(offsets) - 1),)](
        qkv, offsets, cos, sin, seed, out, small, size**-0.5, dropout, heads, size, _rounded(longest), dropout > 0,
        cos is not None, num_warps=8,
    )  # fmt: skip
    return out


@torch.library.custom_op("heedful::short_attention_backward", mutates_args=())
def short_attention_backward(
    gradient: Tensor,
    qkv: Tensor,
    offsets: Tensor,
    longest: int,
    dropout: float,
    seed: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
) -> Tensor:
    """The gradient of queries, keys and values, (N, 3, H, K), from that of the mix."""
    return _run_back(gradient, qkv, offsets, longest, dropout, seed, cos, sin, None, 1.0)


@torch.library.custom_op("heedful::short_attention_backward_fp8", mutates_args=())
def short_attention_backward_fp8(
    gradient: Tensor,
    qkv: Tensor,
    offsets: Tensor,
    longest: int,
    dropout: float,
    seed: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    grows: float,
) -> tuple[Tensor, Tensor]:
    """The same, and so many times as large in 8 bits."""
    small = torch.empty_like(qkv, dtype=torch.float8_e5m2)
    return _run_back(gradient, qkv, offsets, longest, dropout, seed, cos, sin, small, grows), small


def _run_back(
    gradient: Tensor,
    qkv: Tensor,
    offsets: Tensor,
    longest: int,
    dropout: float,
    seed: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    small: Tensor | None,
    grows: float,
) -> Tensor:
    _, _, heads, size = qkv.shape
    out, turns = torch.empty_like(qkv), cos is not None
    # Two programs of 4 side by side are faster than one of 8, but for turned halves they have too few registers.
    _backward[(heads * (len(offsets) - 1),)](
        qkv, offsets, cos, sin, seed, gradient.contiguous(), out, small, size**-0.5, dropout, grows, heads, size,
        _rounded(longest), dropout > 0, turns, num_warps=8 if turns else 4,
    )  # fmt: skip
    return out


def _rounded(longest: int) -> int:
    return max(16, triton.next_power_of_2(longest))


@short_attention.register_fake
def _(qkv: Tensor, *_: object) -> Tensor:
    return qkv.new_empty(qkv.shape[0], *qkv.shape[2:])


@short_attention_backward.register_fake
def _(_: Tensor, qkv: Tensor, *__: object) -> Tensor:
    return torch.empty_like(qkv)


@short_attention_fp8.register_fake
def _(qkv: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    out = qkv.new_empty(qkv.shape[0], *qkv.shape[2:])
    return out, torch.empty_like(out, dtype=torch.float8_e4m3fn)


@short_attention_backward_fp8.register_fake
def _(_: Tensor, qkv: Tensor, *__: object) -> tuple[Tensor, Tensor]:
    return torch.empty_like(qkv), torch.empty_like(qkv, dtype=torch.float8_e5m2)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    qkv, offsets, ctx.longest, ctx.dropout, seed, cos, sin = inputs
    ctx.save_for_backward(qkv, offsets, seed, cos, sin)


def _gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    qkv, offsets, *others = ctx.saved_tensors
    of_qkv = short_attention_backward(gradient, qkv, offsets, ctx.longest, ctx.dropout, *others)
    return of_qkv, *[None] * 6


short_attention.register_autograd(_gradient, setup_context=_remember)
