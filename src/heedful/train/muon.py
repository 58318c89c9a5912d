"""Muon (Jordan et al. 2024): steps in which all directions of a matrix weigh alike.

A gradient is dominated by a few of its singular directions, so most of the matrix hardly learns. Here the
momentum's singular values are all moved near one by a short Newton-Schulz iteration, and the step is sized like
one of AdamW (Liu et al. 2025, section 2.2), whose rates and decay then fit. Made for the matrices inside a
network; what else there is to train is for another optimizer.

Shapes: K matrices of one shape, R rows, C columns.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of x, x³ and x⁵: the steepest at zero, so that five rounds do; they stop near one and not at it."""
ROUNDS = 5
MOMENTUM = 0.95
SIZE = 0.2
"""The root mean square of a step, in units of the rate: about what AdamW's steps have."""


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, made orthogonal; the weights decay by themselves as under AdamW."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = MOMENTUM,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.dim() != 2:
                    raise ValueError(f"Muon is for matrices, got a parameter of shape {tuple(parameter.shape)}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyrefly: ignore
        """Take a step. Nothing waits for a GPU."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            self._update(parameters, group["lr"], group["weight_decay"], group["momentum"])
        return loss

    def _update(self, parameters: list[Tensor], lr: float | Tensor, decay: float, momentum: float) -> None:
        if not parameters:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for parameter in parameters:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        memory = [self.state[parameter]["momentum"] for parameter in parameters]
        # Products and sums, for matrices in pieces have no interpolation in every torch.
        torch._foreach_mul_(memory, momentum)
        torch._foreach_add_(memory, gradients, alpha=1 - momentum)
        ahead = torch._foreach_mul(gradients, 1 - momentum)
        torch._foreach_add_(ahead, memory, alpha=momentum)  # as Nesterov: where the momentum leads
        torch._foreach_mul_(parameters, 1 - lr * decay)
        for places in _alike(parameters):
            shape = parameters[places[0]].shape
            chosen = [parameters[place] for place in places]
            steps = _steps([ahead[place] for place in places], -lr * SIZE * math.sqrt(max(shape)))
            torch._foreach_add_(chosen, steps)


def orthogonal(matrices: Tensor) -> Tensor:
    """Each matrix with its singular values near one (0.68 to 1.21): (K, R, C) -> the same, with R at most C.

    All of them at once, since a small model's matrices alone would leave a GPU idle. In half precision where a GPU
    has it: the values end near one only, so its errors don't count.
    """
    x = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)  # no singular value is above one
    if x.is_cuda and torch.cuda.is_bf16_supported(including_emulation=False):
        x = x.bfloat16()
    first, third, fifth = COEFFICIENTS
    for _ in range(ROUNDS):
        gram = x @ x.mT  # (K, R, R)
        powers = torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth)
        x = torch.baddbmm(x, powers, x, beta=first)
    return x.to(matrices.dtype)


def _alike(parameters: list[Tensor]) -> Iterator[list[int]]:
    """The places of matrices that have one shape, or that of one another's transpose."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, parameter in enumerate(parameters):
        places.setdefault(tuple(sorted(parameter.shape)), []).append(place)
    yield from places.values()


def _steps(matrices: list[Tensor], factor: float | Tensor) -> list[Tensor]:
    """What is added to matrices of a shape, lying or standing, each whole here or in pieces on several processes.

    The factor, with the rate in it, may lie on the device.
    """
    whole = [_whole(matrix) for matrix in matrices]
    made = orthogonal(torch.stack([one.mT if _stands(one) else one for one in whole])).mul_(factor)
    turned = [each.mT if _stands(one) else each for one, each in zip(whole, made.unbind(), strict=True)]
    return [_as_laid_out(each, matrix) for each, matrix in zip(turned, matrices, strict=True)]


def _stands(matrix: Tensor) -> bool:
    return matrix.shape[0] > matrix.shape[1]


def _whole(matrix: Tensor) -> Tensor:
    return matrix.full_tensor() if hasattr(matrix, "full_tensor") else matrix  # pyrefly: ignore


def _as_laid_out(matrix: Tensor, model: Tensor) -> Tensor:
    """A matrix that everybody has, in pieces where the model is."""
    if not hasattr(model, "full_tensor"):
        return matrix
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(model, DTensor)
    mesh = model.device_mesh
    return DTensor.from_local(matrix, mesh, [Replicate()] * mesh.ndim).redistribute(mesh, model.placements)
