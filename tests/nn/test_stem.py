import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.nn.stem import ConvolutionalStem, halvings


def fill_at_random(stem: nn.Module) -> None:
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in stem.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)


def test_how_often_an_image_is_halved():
    assert [halvings(side) for side in (2, 4, 8, 16)] == [1, 2, 3, 4]
    for side in (1, 3, 6, 7, 12):
        with pytest.raises(UserError, match=f"patch_size {side} must be one of 2, 4, 8, 16"):
            halvings(side)


def test_channels_double_up_to_the_models_width():
    """For patches of 16 and 192 wide as in the paper's smallest model."""
    stem = ConvolutionalStem(3, 16, 192)
    shapes = [tuple(one.weight.shape) for one in stem.modules() if isinstance(one, nn.Conv2d)]
    assert shapes == [(24, 3, 3, 3), (48, 24, 3, 3), (96, 48, 3, 3), (192, 96, 3, 3)]
    assert ConvolutionalStem(1, 16, 5)(torch.zeros(2, 1, 32, 48)).shape == (2, 6, 5)


@torch.no_grad()
def test_a_stem_by_its_formula():
    stem = ConvolutionalStem(3, 4, 22)
    fill_at_random(stem)
    pixels = torch.randn(2, 3, 12, 20, generator=torch.Generator().manual_seed(1))
    x = pixels
    for convolution, norm, _ in stem.stages:  # pyrefly: ignore
        x = F.conv2d(x, convolution.weight, None, stride=2, padding=1)
        flat = x.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) / (flat.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        x = (flat.view_as(x) * norm.weight[:, None, None] + norm.bias[:, None, None]).clamp(min=0)
    expected = F.conv2d(x, stem.projection.weight[..., None, None], stem.projection.bias)
    found = stem(pixels)
    assert found.shape == (2, 15, 22)
    assert_close(found, expected.flatten(2).transpose(1, 2), atol=1e-4, rtol=1e-5)


@torch.no_grad()
def test_an_image_does_not_depend_on_its_neighbours():
    stem = ConvolutionalStem(1, 2, 13).train()
    fill_at_random(stem)
    pixels = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    assert_close(stem(pixels[3:4])[0], stem(pixels)[3])
    assert not list(stem.buffers())
