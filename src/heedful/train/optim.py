"""AdamW as BERT uses it: no decay on biases and norms, clipped gradients."""

import torch
from torch import Tensor, nn


def adamw(model: nn.Module, *, lr: float, betas: tuple[float, float], eps: float, decay: float) -> torch.optim.AdamW:
    """The optimizer, with the matrices in one group and everything that must not decay in another."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=True)


def set_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Use this learning rate from now on."""
    for group in optimizer.param_groups:
        group["lr"] = lr


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
