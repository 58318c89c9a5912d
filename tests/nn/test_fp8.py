"""Products in 8 bits: how numbers are rounded, and on a GPU what layers make of it, beside full precision."""

import math

import pytest
import torch
from torch import Tensor

from heedful.nn import fp8
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import FeedForward
from heedful.nn.layout import Packed
from heedful.nn.positions import rotary

needs_gpu = pytest.mark.skipif(
    not (torch.cuda.is_available() and fp8.possible(torch.device("cuda"))), reason="needs a GPU with 8 bits"
)
LENGTHS = [5, 37, 1, 64, 0, 23]


def away(found: Tensor, expected: Tensor) -> float:
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).norm() / expected.norm())


def test_a_cpu_has_no_such_products():
    assert not fp8.possible(torch.device("cpu"))


def test_sides_by_hand():
    assert fp8.suits(768, 3072, 16)
    assert not fp8.suits(768, 312)


@pytest.mark.parametrize("words", [1, 300, 19_660, 5_000_000])
def test_scales_undo_each_other(words: int):
    scales = fp8.Scales.of(words, torch.device("cpu"))
    assert math.log2(scales.gradients) == round(math.log2(8 * words))  # so that scaling rounds nothing
    assert float(scales.after_gradients) * scales.gradients * fp8.WEIGHTS == 1.0
    assert float(scales.after_states) * fp8.STATES * fp8.WEIGHTS == float(scales.one) == 1.0


def test_numbers_of_usual_size_lose_a_few_percent_and_the_largest_are_cut_off():
    x = torch.randn(997, generator=torch.Generator().manual_seed(0))
    assert away(fp8._states(x).float() / fp8.STATES, x) < 0.03
    assert away(fp8._weights(0.02 * x).float() / fp8.WEIGHTS, 0.02 * x) < 0.03
    assert fp8._states(torch.tensor([1e9, -1e9])).float().tolist() == [448.0, -448.0]
    assert fp8._states(torch.tensor([math.nan])).float().isnan().all()  # a run that diverges is noticed


def test_a_product_by_hand():
    x, weight = torch.tensor([[2.0, -1.0] * 8]), torch.tensor([[0.5, 0.25] * 8, [0.0, 1.0] * 8]).repeat(8, 1)
    bias, one = torch.arange(16.0).bfloat16(), torch.ones(())
    given = x.to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn), torch.tensor(0.5), one
    assert fp8.fp8_product(*given, bias).tolist() == [[number + (3.0, -4.0)[number % 2] for number in range(16)]]
    assert fp8.fp8_product(*given, None).tolist() == [[3.0, -4.0] * 8]
    with torch.device("meta"):
        assert fp8.fp8_product(*(one.to("meta") for one in given), None).shape == (1, 16)


@needs_gpu
def test_gradients_are_rounded_likewise():
    from heedful.nn.fp8_kernels import fp8_gradients

    x = 1e-6 * torch.randn(53, 97, generator=torch.Generator().manual_seed(0)).cuda()
    found = fp8_gradients(x.t(), 2.0**17)
    assert found.is_contiguous()
    assert torch.equal(found, (x.t() * 2.0**17).to(torch.float8_e5m2))
    assert away(found.float() / 2**17, x.t()) < 0.06
    assert fp8_gradients(torch.tensor([[1e9, -1e9]]).cuda(), 8.0).float().tolist() == [[57344.0, -57344.0]]
    assert fp8_gradients(torch.tensor([[math.nan]]).cuda(), 8.0).float().isnan().all()


def run(module: torch.nn.Module, x: Tensor, *given: object) -> list[Tensor]:
    found = module(x, *given)
    found = found[0] if isinstance(found, tuple) else found
    target = torch.randn(found.shape, generator=torch.Generator().manual_seed(3)).to(found.device)
    wanted = [x, *module.parameters()]
    return [found, *torch.autograd.grad((found.float() - target).square().mean(), wanted)]


def compare(module: torch.nn.Module, x: Tensor, *given: object) -> None:
    """Beside full precision, and twice the same."""
    module = module.cuda().train()
    expected = run(module, x, *given)
    module.fp8 = fp8.Scales.of(len(x), x.device)  # pyrefly: ignore
    with torch.autocast("cuda", torch.bfloat16):
        found, again = run(module, x, *given), run(module, x, *given)
        module.eval()
        at_rest = run(module, x, *given)[0]
    for one, other, right in zip(found, again, expected, strict=True):
        assert torch.equal(one, other)
        if float(right.detach().norm()) > 1e-4:  # the bias of keys has no gradient
            assert away(one, right) < 0.1
    assert away(found[0], expected[0]) > 0.01  # or it was not in 8 bits
    assert away(at_rest, expected[0]) < 0.01  # and answers are not


@needs_gpu
@pytest.mark.parametrize(("gated", "bias"), [(False, True), (True, True), (True, False)])
def test_a_feed_forward_layer_and_its_gradients(gated: bool, bias: bool):
    torch.manual_seed(1)
    x = torch.randn(301, 64, device="cuda").requires_grad_()
    compare(FeedForward(64, 208, "gelu", gated=gated, bias=bias), x)


@needs_gpu
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_attention_and_its_gradients(turned: bool, bias: bool):
    torch.manual_seed(2)
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0).int().cuda()
    layout = Packed.from_offsets(offsets, 64, sum(LENGTHS))
    x = torch.randn(sum(LENGTHS), 64, device="cuda").requires_grad_()
    rotation = rotary(layout.positions(x[:, 0]), 32, 10000.0) if turned else None
    compare(MultiHeadAttention(64, 2, bias=bias), x, layout, False, rotation)
