import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.nn.layout import Packed, Padded, chosen

OFFSETS = torch.tensor([0, 3, 4, 6], dtype=torch.int32)
LAYOUT = Packed.from_offsets(OFFSETS, longest=3, tokens=6)


def test_slots_by_hand():
    # Sequences of 3, 1 and 2 tokens in a rectangle of 3 x 3.
    assert LAYOUT.slots.tolist() == [0, 1, 2, 3, 6, 7]
    assert LAYOUT.slots.dtype == torch.int64
    assert LAYOUT.offsets is OFFSETS
    assert LAYOUT.longest == 3


def test_slots_of_a_rectangle_wider_than_the_longest():
    assert Packed.from_offsets(OFFSETS, longest=5, tokens=6).slots.tolist() == [0, 1, 2, 5, 10, 11]


def test_positions_by_hand():
    assert LAYOUT.positions(torch.zeros(6)).tolist() == [0, 1, 2, 0, 0, 1]
    assert Padded(None).positions(torch.zeros(2, 5)).tolist() == [0, 1, 2, 3, 4]


def test_the_mask_by_hand():
    assert LAYOUT.mask().tolist() == [[True, True, True], [True, False, False], [True, True, False]]


def test_first_by_hand():
    hidden = torch.arange(12.0).view(6, 2)
    assert LAYOUT.first(hidden).tolist() == [[0.0, 1.0], [6.0, 7.0], [8.0, 9.0]]
    assert Padded(None).first(hidden.view(3, 2, 2)).tolist() == [[0.0, 1.0], [4.0, 5.0], [8.0, 9.0]]


def test_starts_by_hand():
    assert LAYOUT.starts(torch.zeros(6, 2)).tolist() == [0, 3, 4]
    assert Padded(None).starts(torch.zeros(3, 5, 2)).tolist() == [0, 5, 10]


def test_chosen_tokens_by_hand():
    x = torch.arange(12.0).view(6, 2).requires_grad_()
    some = chosen(x, torch.tensor([4, 6, 1, 6]))  # 6 is no token
    assert some[::2].tolist() == [[8.0, 9.0], [2.0, 3.0]]
    assert some.shape == (4, 2)
    (some * torch.tensor([[3.0], [7.0], [5.0], [11.0]])).sum().backward()
    assert x.grad is not None
    assert x.grad[:, 0].tolist() == x.grad[:, 1].tolist() == [0.0, 5.0, 0.0, 0.0, 3.0, 0.0]
    assert chosen(x.view(2, 3, 2), torch.tensor([4])).tolist() == [[8.0, 9.0]]


def test_mean_by_hand():
    hidden = torch.tensor([[1.0, 10.0], [2.0, 20.0], [6.0, 0.0], [7.0, -3.0], [8.0, 1.0], [10.0, 2.0]])
    expected = [[3.0, 10.0], [7.0, -3.0], [9.0, 1.5]]
    assert LAYOUT.mean(hidden).tolist() == expected
    # What lies where there is no token does not matter, be it ever so large.
    filled = LAYOUT.unpack(hidden).masked_fill(~LAYOUT.mask()[..., None], 1e6)
    assert Padded(LAYOUT.mask()).mean(filled).tolist() == expected
    assert Padded(None).mean(hidden.view(3, 2, 2)).tolist() == [[1.5, 15.0], [6.5, -1.5], [9.0, 1.5]]


def test_the_mean_keeps_half_precision_and_hands_gradients_on():
    hidden = torch.ones(6, 2, dtype=torch.bfloat16, requires_grad=True)
    assert LAYOUT.mean(hidden).dtype == Padded(None).mean(hidden.view(2, 3, 2)).dtype == torch.bfloat16
    assert Padded(LAYOUT.mask()).mean(LAYOUT.unpack(hidden)).dtype == torch.bfloat16
    LAYOUT.mean(hidden.double()).sum().backward()
    assert hidden.grad is not None
    torch.testing.assert_close(
        hidden.grad[:, 0].double(), torch.tensor([1 / 3] * 3 + [1.0, 0.5, 0.5]).bfloat16().double()
    )


def test_unpack_and_pack_by_hand():
    rectangle = LAYOUT.unpack(torch.tensor([11, 12, 13, 21, 31, 32]))
    assert rectangle.tolist() == [[11, 12, 13], [21, 0, 0], [31, 32, 0]]
    filled = torch.tensor([[1, 2, 3], [4, -1, -1], [5, 6, -1]])
    assert LAYOUT.pack(filled).tolist() == [1, 2, 3, 4, 5, 6]


def test_gradients_go_to_where_the_tokens_lay():
    x = torch.ones(6, requires_grad=True)
    (LAYOUT.unpack(x) * torch.arange(1.0, 10.0).view(3, 3)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 2.0, 3.0, 4.0, 7.0, 8.0]


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 13), min_size=1, max_size=11), extra=st.integers(0, 3))
def test_any_lengths(lengths: list[int], extra: int):
    offsets = torch.tensor([0, *lengths]).cumsum(0).int()
    tokens, longest = sum(lengths), max(lengths) + extra
    layout = Packed.from_offsets(offsets, longest, tokens)
    x = torch.arange(1.0, tokens * 6 + 1).view(tokens, 2, 3)
    rectangle = layout.unpack(x)
    assert rectangle.shape == (len(lengths), longest, 2, 3)
    assert torch.equal(layout.pack(rectangle), x)
    assert torch.equal(rectangle[..., 0, 0] != 0, layout.mask())
    assert layout.mask().sum(1).tolist() == lengths
    assert layout.positions(x).tolist() == [i for length in lengths for i in range(length)]
    assert torch.equal(layout.first(x), rectangle[:, 0])
    states = x[:, 0]  # (N, 3)
    means = torch.stack([part.mean(0) for part in states.split(lengths)])
    torch.testing.assert_close(layout.mean(states), means)
    torch.testing.assert_close(Padded(layout.mask()).mean(layout.unpack(states)), means)
