import torch
import torch.nn.functional as F
from torch.testing import assert_close

from heedful.nn.patches import cut
from heedful.nn.shifted_patches import ShiftedPatchEmbedding, with_shifts


def test_shifts_by_hand():
    image = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])[None, None]
    found = with_shifts(image, 1)
    assert found.shape == (1, 5, 3, 3)
    assert found[0].tolist() == [
        [[1, 2, 3], [4, 5, 6], [7, 8, 9]],
        [[5, 6, 0], [8, 9, 0], [0, 0, 0]],  # left and up
        [[0, 4, 5], [0, 7, 8], [0, 0, 0]],  # right and up
        [[0, 0, 0], [2, 3, 0], [5, 6, 0]],  # left and down
        [[0, 0, 0], [0, 1, 2], [0, 4, 5]],  # right and down
    ]


def test_all_channels_of_a_copy_stay_together():
    image = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(1))
    found = with_shifts(image, 2)
    assert found.shape == (2, 15, 5, 7)
    assert torch.equal(found[:, :3], image)
    assert torch.equal(found[:, 3:6, :3, :5], image[:, :, 2:, 2:])
    assert torch.equal(found[:, 12:, 2:, 2:], image[:, :, :3, :5])


@torch.no_grad()
def test_patches_of_all_five_are_normalised_and_projected():
    generator = torch.Generator().manual_seed(3)
    for side, by in ((1, 1), (2, 1), (4, 2), (5, 2)):
        embedding = ShiftedPatchEmbedding(3, side, 11, 1e-12)
        for parameter in embedding.parameters():
            parameter.normal_(generator=generator)
        pixels = torch.randn(2, 3, 3 * side, 2 * side, generator=generator)
        numbers = cut(with_shifts(pixels, by), side)
        norm = embedding.norm
        expected = embedding.projection(F.layer_norm(numbers, (5 * 3 * side**2,), norm.weight, norm.bias, 1e-12))
        found = embedding(pixels)
        assert found.shape == (2, 6, 11)
        assert_close(found, expected)


@torch.no_grad()
def test_a_token_sees_half_a_patch_beyond_its_edges():
    embedding = ShiftedPatchEmbedding(1, 4, 7, 1e-12)
    pixels = torch.randn(1, 1, 12, 12, generator=torch.Generator().manual_seed(2))
    before = embedding(pixels)[0, 4]  # of the middle: rows and columns 4 to 7
    for row, column, sees in ((2, 2, True), (9, 9, True), (1, 2, False), (9, 10, False)):
        touched = pixels.clone()
        touched[0, 0, row, column] += 1.0
        assert (not torch.equal(embedding(touched)[0, 4], before)) is sees
