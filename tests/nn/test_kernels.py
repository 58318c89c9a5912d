"""Our GPU kernels against plain formulas in double precision; without a GPU, what decides about them alone."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.nn import kernels
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import FeedForward
from heedful.nn.layout import Packed
from heedful.nn.norm import Norm
from heedful.nn.positions import rotary

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LENGTHS = [5, 37, 1, 64, 0, 23]


def test_a_cpu_has_no_use_for_them():
    x = torch.zeros(3, 5, dtype=torch.bfloat16)
    assert not kernels.half(x)
    assert not kernels.short(x, 7, 64)


def test_a_norm_leaves_the_type_alone_and_is_computed_in_single_precision():
    norm = Norm(17, 1e-5)
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(5, 17, generator=torch.Generator().manual_seed(0))
    expected = F.layer_norm(x, (17,), norm.weight, norm.bias, 1e-5)
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(norm(x), expected, rtol=0, atol=0)
        low = norm(x.bfloat16())
    assert low.dtype is torch.bfloat16
    expected = F.layer_norm(x.bfloat16().float(), (17,), norm.weight, norm.bias, 1e-5)
    torch.testing.assert_close(low, expected.bfloat16(), rtol=0, atol=0)


def offsets_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device="cuda")


def reference(qkv: Tensor, lengths: list[int]) -> Tensor:
    out, start = [], 0
    qkv = qkv.double()
    for length in lengths:
        query, key, value = (part.transpose(0, 1) for part in qkv[start : start + length].unbind(1))
        weights = (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])).softmax(-1)
        out.append((weights @ value).transpose(0, 1))
        start += length
    return torch.cat(out)


def away(found: Tensor, expected: Tensor) -> float:
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm())


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("heads", "width", "longest"), [(3, 16, 64), (2, 32, 100), (12, 64, 128), (5, 128, 64)])
def test_short_attention_and_its_gradients(heads: int, width: int, longest: int, dtype: torch.dtype):
    from heedful.nn.short_attention import short_attention

    torch.manual_seed(heads)
    lengths = [*LENGTHS, longest]
    qkv = torch.randn(sum(lengths), 3, heads, width, device="cuda", dtype=dtype).requires_grad_()
    offsets = offsets_of(lengths)
    found = short_attention(qkv, offsets, longest, 0.0, offsets)
    expected = reference(qkv, lengths)
    tolerance = 1e-2 if dtype is torch.bfloat16 else 2e-3
    assert away(found, expected) < tolerance
    gradient = torch.randn_like(found)
    (one,) = torch.autograd.grad(found, qkv, gradient)
    (other,) = torch.autograd.grad(expected, qkv, gradient.double())
    assert away(one, other) < 2 * tolerance


@needs_gpu
def test_dropped_weights_are_those_of_the_seed_in_both_passes():
    from heedful.nn.short_attention import short_attention

    torch.manual_seed(3)
    qkv = torch.randn(sum(LENGTHS), 3, 2, 32, device="cuda", dtype=torch.float16).requires_grad_()
    offsets, seed = offsets_of(LENGTHS), torch.tensor([7], device="cuda")
    found = short_attention(qkv, offsets, 64, 0.3, seed)
    assert torch.equal(found, short_attention(qkv, offsets, 64, 0.3, seed))
    assert not torch.equal(found, short_attention(qkv, offsets, 64, 0.3, seed + 1))
    gradient = torch.randn_like(found)
    (of_qkv,) = torch.autograd.grad(found, qkv, gradient)
    # The mix is linear in the values, whatever was dropped.
    value = qkv[:, 2].detach().double()
    assert float((gradient.double() * found.detach().double()).sum()) == pytest.approx(
        float((of_qkv[:, 2].double() * value).sum()), rel=1e-2
    )
    ones = torch.ones(128, 3, 1, 16, device="cuda", dtype=torch.float16)
    share = short_attention(ones, offsets_of([128]), 128, 0.25, seed).float()
    assert share.mean().item() == pytest.approx(1.0, abs=0.02)
    assert share.std().item() > 0.02


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gelu_with_a_bias_and_its_gradients(dtype: torch.dtype):
    from heedful.nn.bias_gelu import bias_gelu

    torch.manual_seed(1)
    x = (3 * torch.randn(301, 517, device="cuda")).to(dtype).requires_grad_()
    bias = torch.randn(517, device="cuda").requires_grad_()
    found = bias_gelu(x, bias)
    expected = F.gelu(x.double() + bias.double())
    tolerance = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 5e-3}[dtype]
    assert away(found, expected) < tolerance
    gradient = torch.randn_like(found)
    found_gradients = torch.autograd.grad(found, (x, bias), gradient)
    expected_gradients = torch.autograd.grad(expected, (x, bias), gradient.double())
    for one, other in zip(found_gradients, expected_gradients, strict=True):
        assert away(one, other) < tolerance


@needs_gpu
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_modules_that_use_them_give_what_they_give_in_full_precision(bias: bool, turned: bool):
    torch.manual_seed(2)
    attention, inner = MultiHeadAttention(64, 2, bias=bias).cuda(), FeedForward(64, 101, "gelu", bias=bias).cuda()
    offsets = offsets_of(LENGTHS)
    layout = Packed.from_offsets(offsets, 64, sum(LENGTHS))
    x = torch.randn(sum(LENGTHS), 64, device="cuda")
    rotation = rotary(layout.positions(x[:, 0]), 32, 10000.0) if turned else None

    def run() -> list[Tensor]:
        found = inner(attention(x, layout, rotation=rotation)[0])
        parameters = [*attention.parameters(), *inner.parameters()]
        return [found, *torch.autograd.grad(found.float().square().sum(), parameters)]

    expected = run()
    with torch.autocast("cuda", torch.bfloat16):
        assert kernels.short(x, 64, 32)
        found = run()
    for one, other in zip(found, expected, strict=True):
        if float(other.detach().norm()) > 1e-3:  # the bias of keys has no gradient
            assert away(one, other) < 3e-2
