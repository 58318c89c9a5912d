import pytest
import torch
from torch import nn
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.nn.layers import EncoderLayer
from heedful.nn.layout import Padded
from heedful.nn.stochastic_depth import StochasticDepth, depth_rates

SIZES = (22, 2, 13)


def test_later_layers_are_skipped_more():
    assert depth_rates(0.3, 3) == pytest.approx([0.1, 0.2, 0.3])
    assert depth_rates(0.5, 1) == [0.5]
    assert depth_rates(0.0, 4) == [0.0] * 4
    for rate in (-0.1, 1.0, 1.5):
        with pytest.raises(UserError, match=f"stochastic_depth {rate} must be at least 0 and below 1"):
            depth_rates(rate, 2)


def test_a_sample_is_left_out_whole_or_made_larger():
    torch.manual_seed(3)
    branch = torch.randn(2003, 3, 5)
    found = StochasticDepth(0.2).train()(branch)
    left_out = (found == 0).flatten(1).all(1)
    assert_close(found[~left_out], branch[~left_out] / 0.8)
    assert 0.17 < left_out.float().mean() < 0.23
    assert_close(found.mean(), branch.mean(), atol=0.02, rtol=0)


def test_draws_are_torchs_own():
    branch = torch.ones(31, 1, 1)
    drop = StochasticDepth(0.5).train()
    torch.manual_seed(1)
    first, second = drop(branch), drop(branch)
    torch.manual_seed(1)
    assert torch.equal(drop(branch), first)
    assert not torch.equal(first, second)


def test_nothing_is_left_out_when_not_training():
    branch = torch.randn(7, 3, 5)
    assert StochasticDepth(0.9).eval()(branch) is branch
    assert torch.equal(StochasticDepth(0.0).train()(branch), branch)


@pytest.mark.parametrize("pre_norm", [False, True])
def test_a_layer_that_is_always_skipped_changes_nothing(pre_norm: bool):
    x = torch.randn(5, 7, 22)
    layer = EncoderLayer(*SIZES, pre_norm=pre_norm, stochastic_depth=1.0).train()
    expected = x if pre_norm else nn.functional.layer_norm(x, (22,))
    assert_close(layer(x, Padded(None))[0], expected, atol=1e-4, rtol=0)


def test_both_branches_are_left_out_each_by_its_own_draw():
    """Every sample of a layer is one of four sums, and all four occur."""
    torch.manual_seed(0)
    layer = EncoderLayer(*SIZES, pre_norm=True, stochastic_depth=0.5).train()
    x = torch.randn(1, 3, 22).expand(97, -1, -1)
    found = layer(x, Padded(None))[0]
    kinds = {tuple(sample.flatten()[:5].mul(1e4).round().tolist()) for sample in found}
    assert len(kinds) == 4
    assert tuple(x[0].flatten()[:5].mul(1e4).round().tolist()) in kinds


def test_without_it_a_layer_is_as_it_was():
    """The same modules, and no draw from the generator."""
    layer = EncoderLayer(*SIZES).train()
    assert isinstance(layer.dropout, nn.Identity)
    assert isinstance(EncoderLayer(*SIZES, dropout=0.1).dropout, nn.Dropout)
    before = torch.get_rng_state()
    layer(torch.ones(2, 3, 22), Padded(None))
    assert torch.equal(torch.get_rng_state(), before)
    with_it = EncoderLayer(*SIZES, dropout=0.1, stochastic_depth=0.2)
    assert layer.state_dict().keys() == with_it.state_dict().keys()
