"""AdamW as BERT uses it: no decay on biases and norms, clipped gradients. Or Muon for what is inside the layers."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from heedful.train.muon import Muon


def adamw(
    model: nn.Module,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
    scale: Callable[[str], float] = lambda _: 1.0,
) -> torch.optim.AdamW:
    """The optimizer of what is to be trained: matrices decay, everything else does not.

    `scale` gives the share of the learning rate for each parameter, by its name.
    """
    groups = _groups(model.named_parameters(), decay, scale)
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=True)


def muon(
    model: nn.Module,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
    scale: Callable[[str], float] = lambda _: 1.0,
) -> "Both":
    """Muon for the matrices of the layers; AdamW for all else: tables, heads, norms, biases. One rate suits both."""
    inside = {name for name, parameter in model.named_parameters() if parameter.dim() == 2 and _LAYER.search(name)}
    hidden = [(name, parameter) for name, parameter in model.named_parameters() if name in inside]
    rest = [(name, parameter) for name, parameter in model.named_parameters() if name not in inside]
    return Both(
        Muon(_groups(hidden, decay, scale), lr=lr),
        torch.optim.AdamW(_groups(rest, decay, scale), lr=lr, betas=betas, eps=eps, fused=True),
    )


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adamw": adamw, "muon": muon}
_LAYER = re.compile(r"(^|\.)layers\.\d+\.")


def _groups(
    named: Iterable[tuple[str, nn.Parameter]], decay: float, scale: Callable[[str], float]
) -> list[dict[str, Any]]:
    """What is to be trained, by its share of the rate and by whether it decays."""
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in named:
        if parameter.requires_grad:
            groups.setdefault((scale(name), parameter.dim() > 1), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay if matrices else 0.0, "scale": share}
        for (share, matrices), parameters in groups.items()
    ]


class Both(torch.optim.Optimizer):
    """Two optimizers as one: their groups are its groups, and what they remember is its memory."""

    def __init__(self, one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> None:
        super().__init__([*one.param_groups, *other.param_groups], {})
        self.one, self.other = one, other
        self._share()

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyrefly: ignore
        """Take a step with each."""
        loss = None if closure is None else closure()
        self.one.step()
        self.other.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        super().load_state_dict(state_dict)  # has made new groups and a new memory
        self._share()

    def _share(self) -> None:
        count = len(self.one.param_groups)
        self.one.param_groups, self.other.param_groups = self.param_groups[:count], self.param_groups[count:]
        self.one.state = self.other.state = self.state


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Use this learning rate from now on, every group its share."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["scale"]


def clip(parameters: list[nn.Parameter], most: float) -> Tensor:
    """Shorten the gradient to the given norm where it is longer; the norm before."""
    return nn.utils.clip_grad_norm_(parameters, most)


def state_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Everything the optimizer remembers, by parameter name."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_state_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back what `state_tensors` gave."""
    for name, parameter in model.named_parameters():
        keys = [full for full in tensors if full.rpartition("/")[0] == name]
        optimizer.state[parameter] = {
            # The step count stays where a fused optimizer keeps it: beside its parameter.
            full.rpartition("/")[2]: tensors[full].to(parameter.device, copy=True)
            for full in keys
        }
