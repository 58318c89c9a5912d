"""What every training run shares around the loop: it says how it goes, keeps its checkpoints, and ends in words."""

import shlex
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful.data.sampler import Position
from heedful.errors import Interrupted, UserError
from heedful.models.bert import BertConfig
from heedful.runs.device import Compute
from heedful.train import checkpoint
from heedful.train.checkpoint import Checkpoint
from heedful.train.distributed import World
from heedful.train.log import Log
from heedful.train.loop import Diverged, Job, Metrics, Plan, Progress, train
from heedful.train.optim import load_state_tensors, state_tensors
from heedful.train.schedule import seconds


def interval(every: str) -> tuple[int | None, float | None]:
    """Steps or seconds between two checkpoints, as they were typed: 500 or 5m."""
    if not every.isdecimal():
        return None, seconds(every)
    if int(every) == 0:
        raise UserError("checkpoint_every 0 would never go on; write steps like 500 or a time like 5m")
    return int(every), None


def reporter(plan: Plan, log: Log) -> Callable[[Progress, Metrics], None]:
    """Tells how training goes, and how long it will take."""
    recent: deque[tuple[float, float]] = deque(maxlen=25)

    def report(now: Progress, metrics: Metrics) -> None:
        done = plan.done(now)
        recent.append((done, now.elapsed))
        (old, then), (_, latest) = recent[0], recent[-1]
        pace = (latest - then) / (done - old) if done > old else now.elapsed / done  # of late: machines have moods
        left = (1 - done) * pace if plan.budget is None else max(0.0, plan.budget - now.elapsed)
        log.metrics("train", now.step, {**metrics, "tokens": now.tokens, "elapsed": now.elapsed})
        guess = {"left": left} if len(recent) > 1 else {}  # the first step says nothing of the others
        log.progress(done, now.step, {**metrics, **guess})

    return report


def run(
    job: Job[Any], progress: Progress, log: Log, *, folder: Path, resume: str, smaller: str, tensorboard: bool
) -> None:
    """Train to the end; what stops it is told with what to do.

    `folder` has the checkpoints, `resume` is the command that goes on, `smaller` what fits into less memory.
    """
    with log.opened(step=progress.step, tensorboard=tensorboard):
        try:
            train(job, progress)
        except Diverged as error:
            raise UserError(_diverged(error, folder, job.plan)) from None
        except Interrupted as stop:
            raise Interrupted(f"{stop}; go on with: {resume}") from None
        except torch.OutOfMemoryError:
            saved = f"; when more memory is free, go on with: {resume}" if checkpoint.steps(folder) else ""
            raise UserError(f"the GPU's memory is too small for this; try {smaller}, in a new --out{saved}") from None


def introduce(log: Log, model: nn.Module, shape: str, compute: Compute, ranks: World, progress: Progress) -> None:
    """Say what is trained, and where; `shape` is the model in a few words."""
    parameters = sum(p.numel() for p in model.parameters())
    where = compute.device.type if ranks.ranks == 1 else f"{ranks.ranks} processes ({compute.device.type})"
    log.note(
        f"model: {shape}, {parameters / 1e6:.1f}M parameters, "
        f"on {where} in {str(compute.dtype).removeprefix('torch.')}"
    )
    if progress.step:
        log.note(f"resuming at step {progress.step}")


def bert_shape(config: BertConfig) -> str:
    """A BERT in a few words."""
    sizes = f"{config.layers} layers, {config.dim} wide, {config.heads} heads, {config.vocab_size:,} tokens"
    return ", ".join([sizes, *config.variations])


def resume_command(command: str, out: Path, ranks: World = World()) -> str:  # noqa: B008 (a tuple)
    """How to go on with an interrupted run."""
    program = "heedful" if ranks.ranks == 1 else f"torchrun --nproc-per-node {ranks.ranks} -m heedful"
    return f"{program} {command} --resume --out {shlex.quote(str(out))}"


def snapshot(
    now: Progress,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    state: dict[str, Any],
    tensors: dict[str, dict[str, torch.Tensor]] | None = None,
) -> Checkpoint:
    """All that a run needs to go on; `state` and `tensors` are what it alone knows of."""
    return Checkpoint(
        step=now.step,
        tensors={
            "model": dict(model.state_dict()),
            "optimizer": state_tensors(optimizer, model),
            **(tensors or {}),
        },
        state={"position": list(now.position), "tokens": now.tokens, "elapsed": now.elapsed, **state},
    )


def last_checkpoint(folder: Path, digest: str, log: Log) -> Checkpoint | None:
    """The newest checkpoint, which must be of the same data; None if there was never one."""
    found = checkpoint.load_last(folder, log.warn)
    if found is not None and found.state["data"] != digest:
        raise UserError(
            "the data has changed since the run began, so it can't be resumed; start again in another --out"
        )
    return found


def restore(found: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put a checkpoint back; where the run stood."""
    model.load_state_dict(found.tensors["model"])
    load_state_tensors(optimizer, model, found.tensors["optimizer"])
    return Progress(
        step=found.step,
        position=Position(*found.state["position"]),
        tokens=found.state["tokens"],
        elapsed=found.state["elapsed"],
    )


def _diverged(error: Diverged, folder: Path, plan: Plan) -> str:
    good = checkpoint.steps(folder)
    where = f"the last good checkpoint is {good[-1]}" if good else "there is no checkpoint yet"
    remedy = f"try a lower --lr (now {plan.lr:g}), a longer --warmup, or a smaller --clip, in a new --out"
    return f"{error}; {where}; {remedy}"
