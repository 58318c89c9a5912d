"""Erasing and mixing by hand."""

import pytest
import torch

from heedful.nn.image_mixing import cutmix, erase, inside, mixup, soft_labels

PIXELS = torch.arange(2 * 3 * 5 * 7).view(2, 3, 5, 7).float()
PARTNERS = torch.tensor([1, 0])


def test_inside_a_box():
    found = inside(torch.tensor([[1, 2, 2, 3], [0, 0, 0, 0], [3, -1, 9, 3]]), 5, 7)
    assert found.shape == (3, 1, 5, 7)
    expected = torch.zeros(5, 7, dtype=torch.bool)
    expected[1:3, 2:5] = True
    assert found[0, 0].equal(expected)
    assert not found[1].any()
    assert found[2, 0].nonzero().tolist() == [[3, 0], [3, 1], [4, 0], [4, 1]]  # cut off at the rim


def test_erased_is_filled_in_every_channel_and_nowhere_else():
    boxes = torch.tensor([[4, 6, 1, 1], [0, 0, 0, 0]])
    found = erase(PIXELS, boxes, torch.tensor(-1.0))
    assert (found[0, :, 4, 6] == -1.0).all()
    assert (found == -1.0).sum() == 3
    noise = -torch.arange(2 * 3 * 5 * 7).view_as(PIXELS).float()
    assert erase(PIXELS, boxes, noise)[0, 2, 4, 6] == -PIXELS[0, 2, 4, 6]


def test_mixup_by_hand():
    found = mixup(PIXELS, PARTNERS, torch.tensor([0.75, 1.0]))
    assert torch.equal(found[0], 0.75 * PIXELS[0] + 0.25 * PIXELS[1])
    assert torch.equal(found[1], PIXELS[1])


def test_cutmix_says_what_is_left():
    found, left = cutmix(PIXELS, PARTNERS, torch.tensor([[3, 5, 4, 4], [0, 0, 0, 0]]))
    assert left.tolist() == pytest.approx([1 - 4 / 35, 1.0])  # two by two pixels of the box lie in the image
    assert torch.equal(found[0, :, 3:, 5:], PIXELS[1, :, 3:, 5:])
    assert torch.equal(found[0, :, :3], PIXELS[0, :, :3])
    assert torch.equal(found[1], PIXELS[1])


def test_soft_labels_by_hand():
    found = soft_labels(torch.tensor([2, 0, 2]), torch.tensor([1, 0, 0]), torch.tensor([0.75, 0.5, 0.25]), 4)
    assert found.tolist() == [[0.25, 0, 0.75, 0], [0.5, 0, 0.5, 0], [0, 0, 1.0, 0]]
