"""The checkpoints of a pretraining run: whole ones that the leading rank writes, or in parts, one from every rank."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from heedful.errors import UserError
from heedful.runs.training import NO_CHECKPOINT, numbers, progress_of, restore, snapshot, tell_of_ranks
from heedful.train import checkpoint, sharding
from heedful.train.distributed import World
from heedful.train.log import Log
from heedful.train.loop import Progress


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Where a run's checkpoints are, and what they are of."""

    folder: Path
    keep: int
    sharded: bool
    """In parts; so even those of one process, which others can then go on with."""
    shards: str
    """The key of the text."""
    ranks: World

    def save(self, now: Progress, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write one, and remove old ones."""
        state = {"shards": self.shards, "ranks": self.ranks.ranks}
        if self.sharded:
            sharding.save(
                self.folder,
                step=now.step,
                state={**numbers(now), **state},
                model=model,
                optimizer=optimizer,
                keep=self.keep,
                ranks=self.ranks,
            )
        elif self.ranks.leads:
            checkpoint.save(self.folder, snapshot(now, model, optimizer, state=state), self.keep)

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, log: Log) -> Progress:
        """Put the newest one back; where the run stood, which is its beginning if there is none."""
        if self.sharded:
            state = sharding.load_last(self.folder, model=model, optimizer=optimizer, ranks=self.ranks, warn=log.warn)
            progress = Progress() if state is None else progress_of(state["step"], state)
        else:
            found = self.ranks.in_turn(partial(checkpoint.load_last, self.folder, log.warn))
            state = None if found is None else found.state
            progress = Progress() if found is None else restore(found, model, optimizer)
        if state is None:
            log.note(NO_CHECKPOINT)
            return progress
        if state["shards"] != self.shards:
            changed = "the text has changed since the run began, so it can't be resumed; start again in another --out"
            raise self.ranks.ending(UserError(changed))
        tell_of_ranks(state["ranks"], self.ranks, log)
        return progress
