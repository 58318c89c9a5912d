"""What runs that keep their best model share: when they look, when that is enough, what a checkpoint has of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from heedful.runs.training import snapshot
from heedful.train import checkpoint
from heedful.train.checkpoint import Checkpoint
from heedful.train.distributed import World
from heedful.train.log import Log, describe
from heedful.train.loop import Metrics, Plan, Progress


class Judging(Protocol):
    """Evaluates a model while it trains, and remembers the best so far."""

    best: Metrics
    best_step: int
    best_weights: dict[str, Tensor]
    stale: int
    """Evaluations since then."""

    def look(self, step: int) -> Metrics:
        """Evaluate, and keep the weights if they are the best."""
        ...


def watcher(
    judge: Judging, metric: str, patience: int, plan: Plan, epoch: Callable[[int], str], ranks: World, log: Log
) -> Callable[[Progress], bool]:
    """What the loop asks now and then: evaluates on the leading rank; whether it has been patient for long enough."""

    def look(now: Progress) -> bool:
        found = judge.look(now.step)
        log.metrics("heldout", now.step, {**found, "tokens": now.tokens, "elapsed": now.elapsed})
        log.note(f"epoch {epoch(now.step)}, held out: {describe(found)}")
        if patience and judge.stale >= patience and plan.done(now) < 1.0:
            log.note(f"stopping early: no better {metric} in {judge.stale} evaluations")
            return True
        return False

    return lambda now: ranks.share(ranks.leads and look(now))


def keeper(
    judge: Judging,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    digest: str,
    folder: Path,
    keep: int,
    ranks: World,
) -> Callable[[Progress], None]:
    """What saves checkpoints, with the best model in them. The leading rank's business."""

    def save(now: Progress) -> None:
        if not ranks.leads:
            return
        state = {
            "data": digest,
            "ranks": ranks.ranks,
            "best": judge.best,
            "best_step": judge.best_step,
            "stale": judge.stale,
        }
        tensors = {"best": judge.best_weights} if judge.best_weights else {}
        checkpoint.save(folder, snapshot(now, model, optimizer, state=state, tensors=tensors), keep)

    return save


def remind(judge: Judging, found: Checkpoint, device: torch.device) -> None:
    """Give back to a judge what a checkpoint has of the best."""
    judge.best, judge.best_step, judge.stale = (found.state[name] for name in ("best", "best_step", "stale"))
    judge.best_weights = {name: tensor.to(device) for name, tensor in found.tensors.get("best", {}).items()}
