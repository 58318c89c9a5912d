import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from heedful.nn.positions import sinusoidal


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
