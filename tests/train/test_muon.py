import math

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from heedful.train.muon import Muon, orthogonal


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("rows", "columns"), [(7, 13), (31, 31), (5, 127)])
def test_all_singular_values_come_near_one(rows: int, columns: int):
    matrices = drawn(3, rows, columns)
    found = torch.linalg.svdvals(orthogonal(matrices))
    assert found.min() > 0.68
    assert found.max() < 1.21
    assert torch.linalg.svdvals(matrices).amax() > 2.0


def test_the_directions_stay():
    """With all singular values at one, U and V alone are left of U S Vᵀ."""
    matrices = drawn(2, 11, 29)
    u, values, vt = torch.linalg.svd(matrices, full_matrices=False)
    middle = u.mT @ orthogonal(matrices) @ vt.mT  # (K, R, R)
    assert torch.diagonal(middle, dim1=-2, dim2=-1).min() > 0.68
    off = middle - torch.diag_embed(torch.diagonal(middle, dim1=-2, dim2=-1))
    assert off.abs().max() < 1e-4
    assert (values / values.amax(-1, keepdim=True)).min() < 0.5


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 7), st.integers(0, 11), st.floats(1e-3, 1e3))
def test_the_length_of_a_matrix_does_not_count(rows: int, more: int, size: float):
    matrix = drawn(1, rows, rows + more, seed=rows)
    torch.testing.assert_close(orthogonal(size * matrix), orthogonal(matrix), rtol=1e-3, atol=1e-3)


def test_by_hand_for_a_matrix_of_one_number():
    """Its own length is divided out; then five times 3.4445 x - 4.7750 x³ + 2.0315 x⁵."""
    x = 1.0
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    torch.testing.assert_close(orthogonal(torch.tensor([[[-17.0]]])), torch.tensor([[[-x]]]))


def test_nothing_stays_nothing():
    assert orthogonal(torch.zeros(2, 3, 5)).abs().max() == 0


def matrices_of(*shapes: tuple[int, int]) -> list[nn.Parameter]:
    return [nn.Parameter(drawn(*shape, seed=number)) for number, shape in enumerate(shapes)]


def give(parameters: list[nn.Parameter], seed: int) -> None:
    """Gradients that follow from the seed."""
    for number, parameter in enumerate(parameters):
        parameter.grad = drawn(*parameter.shape, seed=100 * seed + number)


def test_many_at_once_are_what_torch_does_one_by_one(monkeypatch: pytest.MonkeyPatch):
    """Torch computes in half precision, which some CPUs can't bear: here both keep single precision."""
    monkeypatch.setattr(Tensor, "bfloat16", Tensor.clone)
    shapes = ((7, 13), (13, 7), (7, 13), (5, 5), (2, 31))
    ours, theirs = matrices_of(*shapes), matrices_of(*shapes)
    mine = Muon(ours, lr=0.03, weight_decay=0.1)
    peer = torch.optim.Muon(theirs, lr=0.03, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        give(ours, step)
        give(theirs, step)
        mine.step()
        peer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert (ours[0] - matrices_of((7, 13))[0]).abs().max() > 0.01


def test_a_step_is_as_large_as_one_of_adamw():
    """A fifth of the rate, root mean square, whatever the shape."""
    parameters = matrices_of((31, 127), (127, 31), (61, 61))
    before = [parameter.detach().clone() for parameter in parameters]
    give(parameters, 1)
    Muon(parameters, lr=0.5).step()
    for parameter, old in zip(parameters, before, strict=True):
        assert (parameter - old).square().mean().sqrt().item() == pytest.approx(0.2 * 0.5, rel=0.2)


def test_weights_decay_by_themselves():
    (parameter,) = parameters = matrices_of((3, 5))
    before = parameter.detach().clone()
    parameter.grad = torch.zeros(3, 5)
    Muon(parameters, lr=0.5, weight_decay=0.2).step()
    torch.testing.assert_close(parameter.detach(), before * 0.9)


def test_the_momentum_is_a_mean_of_what_came_before():
    (parameter,) = parameters = matrices_of((2, 3))
    optimizer = Muon(parameters, lr=0.1, momentum=0.75)
    for number in (8.0, 4.0):
        parameter.grad = torch.full((2, 3), number)
        optimizer.step()
    torch.testing.assert_close(optimizer.state[parameter]["momentum"], torch.full((2, 3), 0.75 * 2.0 + 0.25 * 4.0))


def test_what_has_no_gradient_is_left_alone():
    one, other = parameters = matrices_of((3, 5), (3, 5))
    before = other.detach().clone()
    one.grad = drawn(3, 5)
    optimizer = Muon(parameters, lr=0.1, weight_decay=0.5)
    optimizer.step()
    assert torch.equal(other, before)
    assert other not in optimizer.state
    optimizer.zero_grad()
    after = one.detach().clone()
    optimizer.step()
    assert torch.equal(one, after)


def test_a_closure_is_called_with_gradients():
    (parameter,) = parameters = matrices_of((2, 3))
    before = parameter.detach().clone()

    def closure() -> float:
        loss = parameter.square().sum()
        loss.backward()
        return loss.item()

    assert Muon(parameters, lr=0.1).step(closure) == pytest.approx(before.square().sum().item())
    assert not torch.equal(parameter, before)


def test_only_matrices_are_taken():
    with pytest.raises(ValueError, match=r"Muon is for matrices, got a parameter of shape \(3,\)"):
        Muon([nn.Parameter(torch.zeros(3))], lr=0.1)


def test_a_matrix_in_pieces_moves_as_a_whole_one():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    shapes = ((7, 13), (13, 7))
    plain = matrices_of(*shapes)
    give(plain, 2)
    Muon(plain, lr=0.1, weight_decay=0.3).step()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        source = matrices_of(*shapes)
        give(source, 2)
        pieces = []
        for parameter in source:
            pieces.append(nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)])))
            assert parameter.grad is not None
            pieces[-1].grad = distribute_tensor(parameter.grad, mesh, [Shard(0)])
        Muon(pieces, lr=0.1, weight_decay=0.3).step()
        found = [piece.full_tensor().detach() for piece in pieces]
    finally:
        dist.destroy_process_group()
    for one, other in zip(found, plain, strict=True):
        assert torch.equal(one, other)
        assert math.isfinite(one.sum().item())
