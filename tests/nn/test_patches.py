import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from heedful.nn.patches import PatchEmbedding, cut


def test_patches_by_hand():
    image = torch.arange(16.0).view(1, 1, 4, 4)
    assert cut(image, 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]
    assert cut(image, 4).tolist() == [[list(range(16))]]
    assert cut(image, 1)[0].flatten().tolist() == list(range(16))


def test_channels_follow_each_other_in_a_patch():
    image = torch.stack([torch.arange(4.0).view(2, 2), 10 + torch.arange(4.0).view(2, 2)])[None]
    assert cut(image, 2).tolist() == [[[0, 1, 2, 3, 10, 11, 12, 13]]]
    assert cut(image, 1).tolist() == [[[0, 10], [1, 11], [2, 12], [3, 13]]]


@settings(deadline=None)
@given(
    batch=st.integers(1, 3),
    channels=st.integers(1, 3),
    rows=st.integers(1, 5),
    columns=st.integers(1, 5),
    side=st.integers(1, 4),
)
@torch.no_grad()
def test_it_is_a_convolution_whose_stride_is_its_size(batch: int, channels: int, rows: int, columns: int, side: int):
    generator = torch.Generator().manual_seed(7)
    embedding = PatchEmbedding(channels, side, 11)
    pixels = torch.randn(batch, channels, rows * side, columns * side, generator=generator)
    weight = embedding.projection.weight.view(11, channels, side, side)
    expected = F.conv2d(pixels, weight, embedding.projection.bias, stride=side).flatten(2).transpose(1, 2)
    found = embedding(pixels)
    assert found.shape == (batch, rows * columns, 11)
    assert_close(found, expected, atol=1e-5, rtol=0)
    assert torch.equal(cut(pixels, side), F.unfold(pixels, side, stride=side).transpose(1, 2))
