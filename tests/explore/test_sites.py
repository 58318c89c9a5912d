"""One head by hand, and what it would be without scale and mask."""

import math

import numpy as np
import pytest
import torch

from heedful.explore.sites import DotProduct, Scored, mixed
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.positions import Rotation, rotary
from heedful.nn.scores import SCORES, Score


def softmax(scores: list[float]) -> np.ndarray:
    powers = np.exp(np.array(scores) - max(scores))
    return powers / powers.sum()


def identity(dim: int, heads: int) -> MultiHeadAttention:
    """An attention that asks, answers and says what it reads."""
    attention = MultiHeadAttention(dim, heads)
    with torch.no_grad():
        for linear in (attention.query, attention.key, attention.value, attention.output):
            linear.weight.copy_(torch.eye(dim))
            linear.bias.zero_()
    return attention


EVERYWHERE = torch.ones(3, 3, dtype=torch.bool)
STATES = torch.tensor([[2.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 3.0], [1.0, 1.0, 2.0, 0.0]])


def test_one_head_by_hand():
    """Three tokens, two heads of two numbers; the second token looks, and may not see the third."""
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    site = DotProduct(attention=identity(4, 2), asking=STATES, asked=STATES, mask=mask)
    look = site.look(1, 1)
    assert look.width == 2
    assert look.query.tolist() == [0.0, 3.0]
    assert look.keys.tolist() == [[1.0, 1.0], [0.0, 3.0], [2.0, 0.0]]
    assert look.products.tolist() == [3.0, 9.0, 0.0]
    np.testing.assert_allclose(look.scaled, [3 / math.sqrt(2), 9 / math.sqrt(2), 0], rtol=1e-6)
    assert look.mask.tolist() == [True, True, False]
    weights = softmax([3 / math.sqrt(2), 9 / math.sqrt(2)])
    np.testing.assert_allclose(look.mixed.weights, [*weights, 0], rtol=1e-5)
    np.testing.assert_allclose(look.mixed.output, [weights[0], weights[0] + 3 * weights[1]], rtol=1e-5)
    np.testing.assert_allclose(site.weights()[1, 1], look.mixed.weights, rtol=1e-6)


def test_without_the_scale_and_without_the_mask_by_hand():
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    look = DotProduct(attention=identity(4, 2), asking=STATES, asked=STATES, mask=mask).look(1, 1)
    sharper = softmax([3, 9])
    assert look.unscaled is not None
    np.testing.assert_allclose(look.unscaled.weights, [*sharper, 0], rtol=1e-5)
    np.testing.assert_allclose(look.unscaled.output, [sharper[0], sharper[0] + 3 * sharper[1]], rtol=1e-5)
    everywhere = softmax([3 / math.sqrt(2), 9 / math.sqrt(2), 0])
    assert look.unmasked is not None
    np.testing.assert_allclose(look.unmasked.weights, everywhere, rtol=1e-5)
    np.testing.assert_allclose(look.unmasked.output, everywhere @ look.values, rtol=1e-5)


def test_what_is_turned_is_turned_before_it_is_multiplied():
    rotation = rotary(torch.arange(3), 2, 10000.0)
    turned = DotProduct(
        attention=identity(4, 2), asking=STATES, asked=STATES, mask=EVERYWHERE, rotation=rotation
    ).look(0, 1)
    (one, other), angle = STATES[1, :2].tolist(), 1.0
    expected = [one * math.cos(angle) - other * math.sin(angle), other * math.cos(angle) + one * math.sin(angle)]
    np.testing.assert_allclose(turned.query, expected, rtol=1e-5)
    still = Rotation(torch.ones_like(rotation.cos), torch.zeros_like(rotation.sin))
    plain = DotProduct(attention=identity(4, 2), asking=STATES, asked=STATES, mask=EVERYWHERE, rotation=still)
    assert plain.look(0, 1).query.tolist() == STATES[1, :2].tolist()


@pytest.mark.parametrize("kind", SCORES)
def test_scores_of_a_recurrent_model(kind: str):
    score = Score(kind, 4, 4, 7)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.normal_(generator=generator)
        prepared = score.prepare(STATES[None])[0]
        asking = torch.randn(2, 4, generator=generator)
        expected = score(asking[None], STATES[None])[0].numpy()
    mask = torch.tensor([[True, True, False]] * 2)
    site = Scored(score=score, asking=asking, asked=prepared, values=STATES, mask=mask)
    look = site.look(0, 1)
    np.testing.assert_allclose(look.scaled, expected[1], rtol=1e-5)
    np.testing.assert_allclose(look.mixed.weights, [*softmax(expected[1, :2].tolist()), 0], rtol=1e-5)
    np.testing.assert_allclose(look.mixed.output, look.mixed.weights @ STATES.numpy(), rtol=1e-5)
    factor = 2 if kind == "scaled" else 1
    np.testing.assert_allclose(look.products, factor * expected[1], rtol=1e-5)
    assert look.unmasked is not None
    np.testing.assert_allclose(look.unmasked.weights, softmax(expected[1].tolist()), rtol=1e-5)


def test_large_scores_are_no_trouble():
    found = mixed(np.array([1e4, -1e4, 1e4]), np.array([True, True, False]), np.eye(3))
    assert found.weights.tolist() == [1.0, 0.0, 0.0]
