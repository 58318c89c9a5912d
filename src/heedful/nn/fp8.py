"""The products of a layer in 8 bits, on a GPU that has them: nearly twice as fast (Micikevicius et al. 2022).

What is multiplied in the forward pass, and to hand gradients back to a layer's input, is rounded to 8 bits: states
and weights to e4m3 (4 bits of exponent, 3 of fraction), gradients to e5m2. Sums and results have more. The gradients
of the weights are computed in 16 bits as ever: an 8-bit product would have to read both its factors along the tokens
there, and to lay them out for it would take as long as it saves.

All scales are fixed, so that whoever writes a number can round it at once, and nothing must be remembered from step
to step: norms keep states near 1, weights are small, and the gradient of a mean over so many words is so many times
smaller than that of a word. Each leaves room for numbers a hundred times larger and a thousand times smaller than
usual; what is still larger is cut off.

Shapes: N tokens, I inputs, O outputs, H heads, K width of a head.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

MOST, MOST_OF_GRADIENTS = 448.0, 57344.0
"""The largest numbers of e4m3 and e5m2."""
STATES, WEIGHTS = 4.0, 64.0
"""By how much states and weights are multiplied before they are rounded."""
OF_A_WORD = 8.0
"""The same for the gradients of one word's loss."""
MULTIPLE = 16
"""What the sides of the matrices must be multiples of."""


class Scales(NamedTuple):
    """What a layer must know to compute in 8 bits."""

    gradients: float
    """By how much gradients are multiplied before they are rounded."""
    after_states: Tensor
    """(): by how much a product of states and weights is multiplied in the end."""
    after_gradients: Tensor
    """(): the same for gradients and weights."""
    one: Tensor
    """()."""

    @classmethod
    def of(cls, words: float, device: torch.device) -> "Scales":
        """For a loss that is the mean over about so many words."""
        gradients = 2.0 ** round(math.log2(OF_A_WORD * max(1.0, words)))
        undo = (1 / (STATES * WEIGHTS), 1 / (gradients * WEIGHTS), 1.0)
        return cls(gradients, *(torch.tensor(one, device=device) for one in undo))


def possible(device: torch.device) -> bool:
    """Whether a device multiplies numbers of 8 bits: GPUs since Ada Lovelace and Hopper."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def suits(*sides: int) -> bool:
    """Whether matrices with such sides can be multiplied."""
    return not any(side % MULTIPLE for side in sides)


def feed_forward(
    x: Tensor,
    inner: Tensor,
    bias: Tensor | None,
    outer: Tensor,
    outer_bias: Tensor | None,
    gated: bool,
    scales: Scales,
) -> Tensor:
    """GELU(xW₁ + b₁)W₂ + b₂, or with a gate: (N, I) -> (N, I)."""
    return _FeedForward.apply(x.bfloat16(), inner, bias, outer, outer_bias, gated, *scales)


def attention(
    x: Tensor,
    joined: Tensor,
    bias: Tensor | None,
    output: Tensor,
    output_bias: Tensor | None,
    scales: Scales,
    *how: Any,
) -> Tensor:
    """Self-attention inside short packed sequences, from what goes into its four matrices to what comes out.

    `joined` is the matrix of queries, keys and values, (3HK, I); `how` is the number of heads and what
    `nn/short_attention.py` wants to know besides. (N, I) -> (N, I).
    """
    return _Attention.apply(x.bfloat16(), joined, bias, output, output_bias, *scales, *how)


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        inner: Tensor,
        bias: Tensor | None,
        outer: Tensor,
        outer_bias: Tensor | None,
        gated: bool,
        grows: float,
        after_states: Tensor,
        after_gradients: Tensor,
        one: Tensor,
    ) -> Tensor:
        from heedful.nn.bias_gelu import bias_gelu_fp8  # these need Triton
        from heedful.nn.gated_gelu import gated_gelu_fp8

        h = _times(_states(x), inner, bias if gated else None, after_states, one)
        if gated:
            active, small = gated_gelu_fp8(h)
        else:
            assert bias is not None
            active, small = bias_gelu_fp8(h, bias)
        ctx.save_for_backward(x, h, active, inner, bias, outer, outer_bias, after_gradients, one)
        ctx.gated, ctx.grows = gated, grows
        return _times(small, outer, outer_bias, after_states, one)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore
        from heedful.nn.bias_gelu import bias_gelu_backward_fp8
        from heedful.nn.fp8_kernels import fp8_gradients
        from heedful.nn.gated_gelu import gated_gelu_backward_fp8

        (gradient,), grows = gradients, ctx.grows
        x, h, active, inner, bias, outer, outer_bias, *scales = ctx.saved_tensors
        of_active = _times_back(fp8_gradients(gradient, grows), outer, *scales)
        if ctx.gated:
            of_h, small = gated_gelu_backward_fp8(of_active, h, grows)
            of_bias = _sum(of_h, bias)
        else:
            of_h, small, sums = bias_gelu_backward_fp8(of_active, h, bias, grows)
            of_bias = sums.sum(0).to(bias.dtype)
        of_x = _times_back(small, inner, *scales)
        of_inner, of_outer = _of_weights(of_h, x, inner), _of_weights(gradient, active, outer)
        return of_x, of_inner, of_bias, of_outer, _sum(gradient, outer_bias), *[None] * 5


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        joined: Tensor,
        bias: Tensor | None,
        output: Tensor,
        output_bias: Tensor | None,
        grows: float,
        after_states: Tensor,
        after_gradients: Tensor,
        one: Tensor,
        heads: int,
        offsets: Tensor,
        longest: int,
        dropout: float,
        seed: Tensor | None,
        cos: Tensor | None,
        sin: Tensor | None,
    ) -> Tensor:
        from heedful.nn.short_attention import short_attention_fp8  # needs Triton

        qkv = _times(_states(x), joined, bias, after_states, one).unflatten(-1, (3, heads, -1))  # (N, 3, H, K)
        mixed, small = short_attention_fp8(qkv, offsets, longest, dropout, seed, cos, sin)
        ctx.save_for_backward(
            x, qkv, mixed, joined, bias, output, output_bias, after_gradients, one, offsets, seed, cos, sin
        )
        ctx.longest, ctx.dropout, ctx.grows = longest, dropout, grows
        return _times(small.flatten(1), output, output_bias, after_states, one)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyrefly: ignore
        from heedful.nn.fp8_kernels import fp8_gradients
        from heedful.nn.short_attention import short_attention_backward_fp8

        (gradient,), grows = gradients, ctx.grows
        x, qkv, mixed, joined, bias, output, output_bias, after, one, offsets, *others = ctx.saved_tensors
        of_mixed = _times_back(fp8_gradients(gradient, grows), output, after, one).view_as(mixed)
        of_qkv, small = short_attention_backward_fp8(of_mixed, qkv, offsets, ctx.longest, ctx.dropout, *others, grows)
        of_qkv, mixed = of_qkv.flatten(1), mixed.flatten(1)
        of_x = _times_back(small.flatten(1), joined, after, one)
        of_joined, of_output = _of_weights(of_qkv, x, joined), _of_weights(gradient, mixed, output)
        return of_x, of_joined, _sum(of_qkv, bias), of_output, _sum(gradient, output_bias), *[None] * 11


def _states(x: Tensor) -> Tensor:
    return (x.float() * STATES).clamp(-MOST, MOST).to(torch.float8_e4m3fn)


def _weights(weight: Tensor) -> Tensor:
    """Laid out along what is summed."""
    return (weight.float() * WEIGHTS).clamp(-MOST, MOST).to(torch.float8_e4m3fn).contiguous()


def _times(x: Tensor, weight: Tensor, bias: Tensor | None, scale: Tensor, one: Tensor) -> Tensor:
    """States of 8 bits, times a matrix, plus a bias: (N, I), (O, I), (O,) -> (N, O)."""
    added = None if bias is None else bias.bfloat16()
    return fp8_product(x, _weights(weight), scale, one, added)


def _times_back(gradient: Tensor, weight: Tensor, scale: Tensor, one: Tensor) -> Tensor:
    """The gradient of what was multiplied with a matrix: (N, O), (O, I) -> (N, I)."""
    return fp8_product(gradient, _weights(weight.mT), scale, one, None)


@torch.library.custom_op("heedful::fp8_product", mutates_args=())
def fp8_product(x: Tensor, weight: Tensor, scale: Tensor, one: Tensor, bias: Tensor | None) -> Tensor:
    """xWᵀ times a scale, plus a bias: (N, I), (O, I), (O,) -> (N, O), in bf16.

    A compiler that saw what is inside would let other kernels compete with the library's, which takes a minute and
    may end differently tomorrow.
    """
    return torch._scaled_mm(
        x, weight.mT, scale_a=scale, scale_b=one, bias=bias, out_dtype=torch.bfloat16, use_fast_accum=True
    )


@fp8_product.register_fake
def _(x: Tensor, weight: Tensor, *_: object) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0], dtype=torch.bfloat16)


def _of_weights(gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """The gradient of a matrix: (N, O), (N, I) -> (O, I)."""
    return (gradient.mT @ x).to(weight.dtype)


def _sum(gradient: Tensor, bias: Tensor | None) -> Tensor | None:
    """The gradient of a bias, if there is one."""
    return None if bias is None else gradient.sum(0, dtype=torch.float32).to(bias.dtype)
