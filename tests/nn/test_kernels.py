"""Our GPU kernels against plain formulas in double precision; without a GPU, what decides about them alone."""

import ast
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.nn import kernels
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.embeddings import InputEmbedding
from heedful.nn.layers import EncoderLayer, FeedForward
from heedful.nn.layout import Packed, Padded
from heedful.nn.norm import Norm
from heedful.nn.positions import Rotation, rotary, rotate

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
LENGTHS = [5, 37, 1, 64, 0, 23]


def test_a_cpu_has_no_use_for_them():
    x = torch.zeros(3, 5, dtype=torch.bfloat16)
    assert not kernels.half(x)
    assert not kernels.short(x, 7, 64)


def test_what_lies_outside_is_never_left_to_chance():
    """A masked load without `other` gives whatever a register held, and a NaN times zero is a NaN."""
    calls = [
        (path.name, call.lineno, {keyword.arg for keyword in call.keywords}, len(call.args))
        for path in Path(kernels.__file__).parent.glob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "tl.load"
    ]
    assert len(calls) > 10
    assert [call for call in calls if call[3] > 1 or ("mask" in call[2] and "other" not in call[2])] == []


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_the_norm_of_a_sum_is_that(dtype: torch.dtype, bias: bool):
    norm = Norm(17, 1e-5, bias=bias).to(dtype)
    torch.nn.init.normal_(norm.weight)
    x, y = torch.randn(2, 3, 5, 17, generator=torch.Generator().manual_seed(1)).to(dtype)
    torch.testing.assert_close(norm.of_sum(x, y), norm(x + y), rtol=0, atol=0)
    both = norm.with_sum(x, y)
    torch.testing.assert_close(both, (x + y, norm(x + y)), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        ("no gradients", True),
        ("frozen", True),
        ("weights that train", False),
        ("an input that needs gradients", False),
        ("compiling", False),
        ("single precision under autocast", False),
        ("a residual of another type", False),
    ],
)
def test_a_residual_is_joined_with_its_norm_only_at_rest(
    monkeypatch: pytest.MonkeyPatch, situation: str, expected: bool
):
    """With a stand-in for the kernel, which needs a GPU."""
    used = []

    def add_norm(x: Tensor, *_: object) -> Tensor:
        used.append("of_sum")
        return x

    def add_then_norm(x: Tensor, *_: object) -> tuple[Tensor, Tensor]:
        used.append("with_sum")
        return x, x

    stand_in = SimpleNamespace(add_norm=add_norm, add_then_norm=add_then_norm)
    monkeypatch.setitem(sys.modules, "heedful.nn.add_norm", stand_in)
    monkeypatch.setattr(kernels, "half", lambda _: True)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: situation == "compiling")
    norm = Norm(5, 1e-5).bfloat16().requires_grad_(situation in ("no gradients", "compiling", "weights that train"))
    x, y = torch.ones(2, 3, 5).bfloat16()
    if situation == "an input that needs gradients":
        y.requires_grad_()
    if situation == "single precision under autocast":
        x, y, norm = x.float(), y.float(), norm.float()
    if situation == "a residual of another type":
        x, norm = x.float(), norm.float()
    with torch.set_grad_enabled(situation not in ("no gradients", "compiling")):
        norm.of_sum(x, y)
        norm.with_sum(x, y)
    assert used == (["of_sum", "with_sum"] if expected else [])


def offsets_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device="cuda")


def reference(qkv: Tensor, lengths: list[int], rotation: Rotation | None = None) -> Tensor:
    out, start = [], 0
    if rotation is not None:
        query, key, value = qkv.float().unbind(1)
        qkv = torch.stack([rotate(query, rotation), rotate(key, rotation), value], 1)
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
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("heads", "width", "longest"), [(2, 32, 100), (12, 64, 128), (5, 128, 64)])
def test_short_attention_and_its_gradients(heads: int, width: int, longest: int, dtype: torch.dtype, turned: bool):
    from heedful.nn.short_attention import short_attention

    torch.manual_seed(heads)
    lengths = [*LENGTHS, longest]
    qkv = torch.randn(sum(lengths), 3, heads, width, device="cuda", dtype=dtype).requires_grad_()
    offsets = offsets_of(lengths)
    places = torch.cat([torch.arange(length, device="cuda") for length in lengths])
    rotation = rotary(places, width, 10000.0) if turned else None
    turns = [part.squeeze(1) for part in rotation or ()]
    found = short_attention(qkv, offsets, longest, 0.0, None, *turns)
    expected = reference(qkv, lengths, rotation)
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
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "columns"), [(1, 3), (301, 517), (37, 1344), (5, 2048)])
def test_gelu_with_a_gate_and_its_gradients(rows: int, columns: int, dtype: torch.dtype):
    from heedful.nn.gated_gelu import gated_gelu

    torch.manual_seed(6)
    x = (3 * torch.randn(rows, 2 * columns, device="cuda")).to(dtype).requires_grad_()
    found = gated_gelu(x)
    left, right = x.double().chunk(2, -1)
    expected = F.gelu(left) * right
    tolerance = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 5e-3}[dtype]
    assert away(found, expected) < tolerance
    gradient = torch.randn_like(found)
    (one,) = torch.autograd.grad(found, x, gradient)
    (other,) = torch.autograd.grad(expected, x, gradient.double())
    assert away(one, other) < tolerance


@needs_gpu
def test_rows_of_small_tables_have_the_gradients_that_they_have_in_full_precision():
    torch.manual_seed(7)
    embeddings = InputEmbedding(11, 32, 64, 2, 0.0, 1e-12).cuda()
    layout = Packed.from_offsets(offsets_of(LENGTHS), 64, sum(LENGTHS))
    ids, segments = torch.randint(11, (sum(LENGTHS),)).cuda(), torch.randint(2, (sum(LENGTHS),)).cuda()
    given = torch.randn(sum(LENGTHS), 32, device="cuda")

    def run() -> list[Tensor]:
        found = embeddings(ids, segments, layout)
        return [found, *torch.autograd.grad(found, [*embeddings.parameters()], given)]

    expected = run()
    with torch.autocast("cuda", torch.bfloat16):
        found = run()
    for one, other in zip(found, expected, strict=True):
        assert away(one, other) < 5e-3


@needs_gpu
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_modules_that_use_them_give_what_they_give_in_full_precision(bias: bool, turned: bool, gated: bool):
    torch.manual_seed(2)
    attention = MultiHeadAttention(64, 2, bias=bias).cuda()
    inner = FeedForward(64, 101, "gelu", bias=bias, gated=gated).cuda()
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


@needs_gpu
@pytest.mark.parametrize("length", [5, 50, 65])
def test_a_rectangle_without_padding_is_packed_too(length: int):
    torch.manual_seed(5)
    attention = MultiHeadAttention(64, 2).cuda()
    x = torch.randn(3, length, 64, device="cuda", requires_grad=True)

    def run() -> list[Tensor]:
        found = attention(x, Padded(None))[0]
        return [found, *torch.autograd.grad(found.float().square().sum(), [x, *attention.parameters()])]

    expected = run()
    with torch.autocast("cuda", torch.bfloat16):
        assert kernels.short(x, length, 32)
        found = run()
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        if float(other.detach().norm()) > 1e-3:  # the bias of keys has no gradient
            assert away(one, other) < 3e-2


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "columns"), [(0, 768), (1, 24), (301, 768), (37, 517), (3, 5003)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_residual_and_its_norm(rows: int, columns: int, bias: bool, dtype: torch.dtype):
    from heedful.nn.add_norm import add_norm, add_then_norm

    torch.manual_seed(4)
    x, y = 3 * torch.randn(2, rows, 1, columns, device="cuda").to(dtype)
    weight, shift = torch.randn(2, columns, device="cuda").to(dtype)
    added = shift if bias else None
    found = add_norm(x, y.transpose(0, 1).contiguous().transpose(0, 1), weight, added, 1e-12)
    wide = None if added is None else added.double()
    expected = F.layer_norm(x.double() + y.double(), (columns,), weight.double(), wide, 1e-12)
    assert found.dtype is dtype
    assert found.shape == x.shape
    assert not rows or away(found, expected) < (1e-3 if dtype is torch.float16 else 5e-3)
    sums, normed = add_then_norm(x, y, weight, added, 1e-12)
    assert torch.equal(sums, x + y)
    assert torch.equal(normed, found)


@needs_gpu
@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_a_block_at_rest_gives_what_it_gives_in_full_precision(
    monkeypatch: pytest.MonkeyPatch, gated: bool, pre_norm: bool
):
    from heedful.nn import add_norm

    used = []
    run = add_norm._run
    monkeypatch.setattr(add_norm, "_run", lambda *given, **named: used.append(1) or run(*given, **named))
    torch.manual_seed(5)
    layer = EncoderLayer(64, 2, 101, pre_norm=pre_norm, gated=gated, bias=not gated).cuda().eval()
    layout = Packed.from_offsets(offsets_of(LENGTHS), 64, sum(LENGTHS))
    x = torch.randn(sum(LENGTHS), 64, device="cuda")
    with torch.inference_mode():
        expected = layer(x, layout)[0]
    assert not used
    layer.half()
    layer.attention.join()
    with torch.inference_mode():
        found = layer(x.half(), layout)[0]
    assert len(used) == (1 if pre_norm else 2)
    assert away(found, expected) < 5e-3
    layer(x.half(), layout)  # gradients are recorded
    assert len(used) == (1 if pre_norm else 2)
