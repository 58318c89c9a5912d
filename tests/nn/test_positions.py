import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from heedful.nn.positions import Rotation, rotary, rotate, sinusoidal


def test_the_formula_by_hand():
    # D = 4: the frequencies are 1 and 1/100.
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
        [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)],
    ]
    assert_close(sinusoidal(3, 4), torch.tensor(expected), rtol=0, atol=1e-7)


def test_the_slowest_wave_of_the_published_width():
    assert sinusoidal(1000, 512)[999, 510] == pytest.approx(math.sin(999 / 10000 ** (510 / 512)), abs=1e-7)


def test_an_odd_width_ends_with_a_sine():
    # D = 3: the frequencies are 1 and 10000 ** (-2 / 3).
    expected = [math.sin(2), math.cos(2), math.sin(2 * 10000 ** (-2 / 3))]
    assert_close(sinusoidal(3, 3)[2], torch.tensor(expected))
    assert sinusoidal(5, 1).shape == (5, 1)


def test_bounded_whatever_the_length():
    encoding = sinusoidal(10_007, 64)
    assert encoding.dtype == torch.float32
    assert encoding.abs().max() <= 1.0
    assert_close(encoding.square().sum(1), torch.full((10_007,), 32.0))  # sin² + cos², 32 times


def test_no_two_positions_are_the_same():
    encoding = sinusoidal(512, 128)
    distances = torch.cdist(encoding, encoding) + torch.eye(512) * 100
    assert distances.min() > 0.1


def test_near_positions_are_more_alike_than_far_ones():
    encoding = sinusoidal(512, 128)
    similarity = F.cosine_similarity(encoding[:, None], encoding[None], dim=-1)
    by_distance = [similarity.diagonal(distance).mean().item() for distance in (0, 1, 2, 5, 50, 400)]
    assert by_distance == sorted(by_distance, reverse=True)
    assert by_distance[1] - by_distance[-1] > 0.3


def test_similarity_depends_on_the_distance_alone():
    encoding = sinusoidal(101, 64)
    for distance in (1, 7, 53):
        products = (encoding[distance:] * encoding[: 101 - distance]).sum(1)
        assert_close(products, products[:1].expand_as(products), rtol=1e-4, atol=1e-4)


def test_angles_by_hand():
    # K = 4, base 100: the frequencies are 1 and 1/10.
    cos, sin = rotary(torch.tensor([0, 3, 1]), 4, 100.0)
    assert cos.shape == sin.shape == (3, 1, 2)
    assert_close(cos[:, 0], torch.tensor([[0.0, 0.0], [3.0, 0.3], [1.0, 0.1]]).cos())
    assert_close(sin[:, 0], torch.tensor([[0.0, 0.0], [3.0, 0.3], [1.0, 0.1]]).sin())


def test_a_quarter_and_a_half_turn_by_hand():
    # Number 0 makes a pair with number 2, number 1 with number 3.
    quarter, half = (0.0, 1.0), (-1.0, 0.0)
    rotation = Rotation(torch.tensor([[quarter[0], half[0]]]), torch.tensor([[quarter[1], half[1]]]))
    turned = rotate(torch.tensor([[[1.0, 2.0, 3.0, 5.0]]]), rotation)
    assert turned.tolist() == [[[-3.0, -2.0, 1.0, -5.0]]]


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 97), st.integers(0, 2**31))
def test_a_product_depends_on_the_distance_alone(one: int, other: int, shift: int, seed: int):
    query, key = torch.randn(2, 1, 3, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)

    def product(places: tuple[int, int]) -> torch.Tensor:
        turned = [
            rotate(x, rotary(torch.tensor([at]), 10, 1000.0)) for x, at in zip((query, key), places, strict=True)
        ]
        return (turned[0] * turned[1]).sum(-1)

    assert_close(product((one, other)), product((one + shift, other + shift)), rtol=0, atol=2e-3)
    assert_close(product((one, one)), (query * key).sum(-1), rtol=0, atol=1e-4)


def test_turning_keeps_lengths_and_the_first_place():
    x = torch.randn(2, 7, 3, 10, generator=torch.Generator().manual_seed(1))
    turned = rotate(x, rotary(torch.arange(7), 10, 10000.0))
    assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, 0], x[:, 0])
    assert not torch.isclose(turned[:, 1:], x[:, 1:]).all(-1).any()


def test_angles_are_single_whatever_is_turned():
    """In bf16 positions 256 and 257 would be the same."""
    cos, _ = rotary(torch.tensor([256, 257]), 4, 100.0)
    assert cos.dtype == torch.float32
    turned = rotate(torch.ones(2, 1, 4, dtype=torch.bfloat16), rotary(torch.tensor([256, 257]), 4, 100.0))
    assert turned.dtype == torch.bfloat16
    assert not torch.equal(turned[0], turned[1])
