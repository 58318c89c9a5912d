"""AdamW as BERT uses it: no decay on biases and norms, clipped gradients."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


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
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault((scale(name), parameter.dim() > 1), []).append(parameter)
    tables = [
        {"params": parameters, "weight_decay": decay if matrices else 0.0, "scale": share}
        for (share, matrices), parameters in groups.items()
    ]
    return torch.optim.AdamW(tables, lr=lr, betas=betas, eps=eps, fused=True)


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
