import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from heedful.nn.grid_positions import resized


def test_the_same_grid_is_the_same_table():
    table = torch.randn(10, 5)
    assert resized(table, (3, 3), 3) is table


def test_bicubic_by_hand():
    """A row 0 1 seen at four places: by the cubic with a = -0.75, beyond the edge the edge itself."""
    table = torch.tensor([[7.0], [0.0], [1.0], [0.0], [1.0]])
    found = resized(table, (2, 4), 2)
    row = [-0.10546875, 0.2265625, 0.7734375, 1.10546875]
    assert_close(found, torch.tensor([[7.0], *([value] for value in row * 2)]))


@settings(deadline=None)
@given(side=st.integers(1, 5), rows=st.integers(1, 7), columns=st.integers(1, 7), before=st.integers(0, 1))
def test_what_stands_before_the_patches_stays_and_numbers_do_not_mix(side: int, rows: int, columns: int, before: int):
    table = torch.randn(before + side * side, 3, generator=torch.Generator().manual_seed(side))
    table[before:, 1] = 0.25  # a number that is the same everywhere is so in every grid
    found = resized(table, (rows, columns), side)
    assert found.shape == (before + rows * columns, 3)
    assert torch.equal(found[:before], table[:before])
    assert_close(found[before:, 1], torch.full((rows * columns,), 0.25))
    image = table[before:, 2].view(1, 1, side, side)
    expected = F.interpolate(image, size=(rows, columns), mode="bicubic")
    assert_close(found[before:, 2], expected.flatten())


def test_half_precision_is_resized_in_single():
    table = torch.randn(17, 3).bfloat16()
    found = resized(table, (5, 7), 4)
    assert found.dtype is torch.bfloat16
    assert torch.equal(found, resized(table.float(), (5, 7), 4).bfloat16())


def test_gradients_reach_the_table():
    table = torch.randn(5, 3, requires_grad=True)
    resized(table, (3, 3), 2).sum().backward()
    assert table.grad is not None
    assert_close(table.grad[1:].sum(), torch.tensor(27.0))
    assert table.grad[0].tolist() == [1.0, 1.0, 1.0]
