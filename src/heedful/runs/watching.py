"""What runs that keep their best share: which states that is, when they look, when it is enough, and what a
checkpoint has of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from heedful.runs.training import snapshot
from heedful.train import checkpoint
from heedful.train.checkpoint import Checkpoint
from heedful.train.distributed import World
from heedful.train.log import Log, Sample, describe
from heedful.train.loop import Metrics, Plan, Progress


class State(NamedTuple):
    """A model as it was after a step, and how good it was then."""

    worth: float
    """Higher is better, whatever the score is."""
    step: int
    scores: Metrics
    weights: dict[str, Tensor]


class States:
    """The states that the result of a run is made of: the best ones by a score, or the newest."""

    def __init__(
        self, model: nn.Module, metric: str, *, count: int = 1, newest: bool = False, lower_is_better: bool = False
    ) -> None:
        self.model = model
        self.metric = metric
        self.count = count
        self.newest = newest
        self.sign = -1 if lower_is_better else 1
        self.kept: list[State] = []
        """Oldest first."""
        self.stale = 0
        """Evaluations since the best one."""
        self._top: float | None = None

    @property
    def best(self) -> State:
        """Of those that are kept; of equals the last."""
        return max(self.kept, key=_rank)

    def offer(self, step: int, scores: Metrics) -> None:
        """Keep the model as it is, if it is among those to keep.

        Of equals the last is kept: on few examples many tie, and who has learned longer is surer of itself.
        """
        worth = self.sign * scores[self.metric]
        better = self._top is None or worth > self._top
        self.stale = 0 if better else self.stale + 1
        self._top = worth if better else self._top
        if len(self.kept) == self.count:
            least = self.kept[0] if self.newest else min(self.kept, key=_rank)
            if not (self.newest or worth >= least.worth):
                return
            self.kept = [one for one in self.kept if one is not least]
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self.kept.append(State(worth, step, scores, weights))

    def numbers(self) -> dict[str, Any]:
        """What a checkpoint has of them beside their weights."""
        return {"kept": [one[:-1] for one in self.kept], "stale": self.stale, "top": self._top}

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Their weights, as a checkpoint has them."""
        return {f"kept-{number}": one.weights for number, one in enumerate(self.kept)}

    def recall(self, found: Checkpoint, device: torch.device) -> None:
        """Be as when a checkpoint was made."""
        self._top, self.stale = found.state["top"], found.state["stale"]
        kept = [found.tensors[f"kept-{number}"] for number in range(len(found.state["kept"]))]
        self.kept = [
            State(worth, step, scores, {name: tensor.to(device) for name, tensor in weights.items()})
            for (worth, step, scores), weights in zip(found.state["kept"], kept, strict=True)
        ]


def _rank(state: State) -> tuple[float, int]:
    return state.worth, state.step


class Looked(NamedTuple):
    """How good a model is while it trains."""

    scores: Metrics
    samples: Sequence[Sample] = ()
    """Of what it answers."""
    aloud: bool = False
    """Whether whoever watches the run is told of them."""


class Judging(Protocol):
    """Evaluates a model while it trains."""

    states: States

    def look(self) -> Looked:
        """Evaluate the model as it is."""
        ...


def watcher(
    judge: Judging, metric: str, patience: int, plan: Plan, when: Callable[[int], str], ranks: World, log: Log
) -> Callable[[Progress], bool]:
    """What the loop asks now and then: evaluates on the leading rank; whether it has been patient for long enough.

    `metric` is what people call it, and `when` says where in the run a step is.
    """

    def look(now: Progress) -> bool:
        found, states = judge.look(), judge.states
        states.offer(now.step, found.scores)
        log.metrics("heldout", now.step, {**found.scores, "tokens": now.tokens, "elapsed": now.elapsed})
        log.note(f"{when(now.step)}, held out: {describe(found.scores)}")
        log.samples(now.step, found.samples)
        for sample in found.samples if found.aloud else ():
            log.note(f"    {sample.input}\n  → {sample.output}")
        if patience and states.stale >= patience and plan.done(now) < 1.0:
            log.note(f"stopping early: no better {metric} in {states.stale} evaluations")
            return True
        return False

    return lambda now: ranks.share(ranks.leads and look(now))


def keeper(
    states: States, optimizer: torch.optim.Optimizer, *, digest: str, folder: Path, keep: int, ranks: World
) -> Callable[[Progress], None]:
    """What saves checkpoints, with the states that are kept in them. The leading rank's business."""

    def save(now: Progress) -> None:
        if not ranks.leads:
            return
        state = {"data": digest, "ranks": ranks.ranks, **states.numbers()}
        made = snapshot(now, states.model, optimizer, state=state, tensors=states.tensors())
        checkpoint.save(folder, made, keep)

    return save
