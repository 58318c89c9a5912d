import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import EncoderLayer
from heedful.nn.layout import Padded
from heedful.nn.locality import LocalityAttention, others

B, T, DIM, HEADS = 3, 7, 22, 2


def made(dim: int = DIM, heads: int = HEADS) -> LocalityAttention:
    attention = LocalityAttention(MultiHeadAttention(dim, heads)).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in attention.attention.parameters():
            parameter.normal_(0.0, 0.4, generator=generator)
    return attention


def tokens(length: int = T, dim: int = DIM) -> Tensor:
    return torch.randn(B, length, dim, generator=torch.Generator().manual_seed(length))


def test_everybody_but_oneself():
    assert others(3).tolist() == [[False, True, True], [True, False, True], [True, True, False]]


@torch.no_grad()
def test_of_two_tokens_each_gets_what_the_other_says():
    local = made()
    x = tokens(2)
    mixed, weights = local(x, Padded(None), explain=True)
    assert weights is not None
    assert torch.equal(weights, torch.tensor([[0.0, 1.0], [1.0, 0.0]]).expand(B, HEADS, 2, 2))
    assert_close(mixed, local.attention.output(local.attention.value(x.flip(1))))


@torch.no_grad()
def test_weights_by_their_formula():
    local = made()
    local.sharpness.copy_(torch.tensor([0.5, 3.0]))
    x = tokens()
    query, key, _ = local.attention.project(x)
    for head, sharpness in enumerate((0.5, 3.0)):
        scores = query[:, :, head] @ key[:, :, head].mT * sharpness / math.sqrt(DIM // HEADS)
        expected = scores.masked_fill(torch.eye(T, dtype=torch.bool), -math.inf).softmax(-1)
        weights = local(x, Padded(None), explain=True)[1]
        assert weights is not None
        assert_close(weights[:, head], expected)


@settings(deadline=None)
@given(length=st.integers(2, 11), sharpness=st.floats(0.1, 5.0))
@torch.no_grad()
def test_the_fast_and_the_explaining_path_agree(length: int, sharpness: float):
    local = made()
    local.sharpness.fill_(sharpness)
    x = tokens(length)
    fast, nothing = local(x, Padded(None))
    explained, weights = local(x, Padded(None), explain=True)
    assert nothing is None
    assert weights is not None
    assert_close(fast, explained, atol=2e-5, rtol=0)
    assert not weights.diagonal(dim1=-2, dim2=-1).any()
    assert_close(weights.sum(-1), torch.ones(B, HEADS, length))


@torch.no_grad()
def test_what_is_padded_is_not_looked_at():
    local = made()
    mask = torch.arange(T) < torch.tensor([T, 3, 2])[:, None]
    x = tokens()
    found = local(x, Padded(mask))[0]
    assert_close(found[1, :3], local(x[1:2, :3], Padded(None))[0][0])
    assert_close(found[mask], local(x.masked_fill(~mask[..., None], 9.0), Padded(mask))[0][mask])


def test_the_sharpness_is_learnt_for_each_head():
    local = made()
    local(tokens(), Padded(None))[0].square().sum().backward()
    assert local.sharpness.grad is not None
    assert local.sharpness.grad.shape == (HEADS,)
    assert local.sharpness.grad.abs().min() > 0


@torch.no_grad()
def test_one_matrix_for_three_gives_the_same():
    local = made()
    x = tokens()
    apart = local(x, Padded(None))[0]
    local.join()
    assert_close(local(x, Padded(None))[0], apart)


@pytest.mark.parametrize("pre_norm", [False, True])
@torch.no_grad()
def test_a_layer_has_it_on_request_alone(pre_norm: bool):
    plain = EncoderLayer(DIM, HEADS, 13, pre_norm=pre_norm).eval()
    local = EncoderLayer(DIM, HEADS, 13, pre_norm=pre_norm, locality=True).eval()
    assert isinstance(plain.attention, MultiHeadAttention)
    assert isinstance(local.attention, LocalityAttention)
    x = tokens()
    local.attention.attention.load_state_dict(plain.attention.state_dict())
    for name in ("attention_norm", "feed_forward", "feed_forward_norm"):
        getattr(local, name).load_state_dict(getattr(plain, name).state_dict())
    weights = local(x, Padded(None), explain=True)[1]
    assert weights is not None
    assert not weights.diagonal(dim1=-2, dim2=-1).any()
    assert not torch.allclose(local(x, Padded(None))[0], plain(x, Padded(None))[0])
