"""What every training run shares around the loop: it says how it goes, keeps its checkpoints, and ends in words."""

import shlex
import signal
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from heedful.data.sampler import Position
from heedful.durable import sweep
from heedful.errors import Interrupted, OfOneProcess, UserError
from heedful.models.bert import BertConfig
from heedful.nn import gpus
from heedful.nn.shortage import too_small
from heedful.runs.agreement import require_same_place, require_same_step
from heedful.runs.device import Compute, choose, within_memory
from heedful.runs.folder import amend, claim, give_back, is_complete, note_diverged, reclaim, require_kept
from heedful.runs.options import NO_SHARDS, MachinePart
from heedful.runs.recipe_files import RUN_FILE
from heedful.train import checkpoint
from heedful.train.checkpoint import Checkpoint
from heedful.train.distributed import PeerLost, World, may_restart, world
from heedful.train.log import Log
from heedful.train.loop import STOPPING, Diverged, Job, Metrics, Plan, Progress, train
from heedful.train.optim import load_state_tensors, state_tensors
from heedful.train.schedule import seconds
from heedful.wording import counted

NO_CHECKPOINT = "there is no checkpoint yet: the run starts from its beginning"
ENDING = tuple(number for number in STOPPING if number != signal.SIGINT)
"""Signals that would end a process at once; Ctrl-C raises KeyboardInterrupt by itself."""
FEW = 20
"""Steps of a budget that are not worth the name."""


def interval(every: str) -> tuple[int | None, float | None]:
    """Steps or seconds between two checkpoints, as they were typed: 500 or 5m."""
    if not every.isdecimal():
        return None, seconds(every, "--checkpoint-every", ", or steps like 500")
    if int(every) == 0:
        raise UserError("--checkpoint-every 0 would never go on; write steps like 500 or a time like 5m")
    return int(every), None


@contextmanager
def computing(part: MachinePart, out: Path) -> Iterator[tuple[World, Compute]]:
    """The processes of a run in a folder, and where this one computes: the same every time."""
    try:
        with world(choose(part.device, part.precision).device.type) as ranks:
            compute = choose(part.device, part.precision, ranks.local_rank)
            require_same_place(compute, ranks)
            compute.repeatable()
            yield ranks, compute
    except PeerLost as error:
        raise OfOneProcess(f"{error}; {_left(out)}") from None


def _left(out: Path) -> str:
    """What a run that breaks off leaves behind, and how to go on with it."""
    if (out / "model.safetensors").is_file():
        return f"the model in {out} is complete"
    if _saved(out / "checkpoints"):
        return "what was saved before is intact, and --resume goes on from there"
    return f"nothing was saved yet; give the command again, with --resume if {out} is still there"


def _saved(folder: Path) -> list[Path]:
    """The checkpoints of a run that has ended; none if they can't be read, for what ended it is to be told."""
    with suppress(OSError):
        return checkpoint.steps(folder)
    return []


def refuse_sharding(part: MachinePart) -> None:
    """For runs that are evaluated by one rank, which must have the whole model."""
    if part.shard:
        raise UserError(NO_SHARDS)


def goes_on(out: Path, ranks: World, *, resume: bool) -> bool:
    """Whether this is a run that has begun: one to resume, or one that torchrun has started again by itself."""
    if ranks.leads and may_restart() and out.is_dir():
        sweep(out)
        resume = resume or ((out / RUN_FILE).is_file() and not (out / "model.safetensors").is_file())
    return ranks.share(resume)


def is_over(out: Path, recipe: Any, read: Callable[[Path], Any], ranks: World) -> bool:
    """Whether a run that torchrun may start again has been completed already, which is said."""
    over = ranks.share(may_restart() and is_complete(out, recipe, read))
    if over:
        Log(out, leads=ranks.leads).note(f"the run in {out} is complete")
    return over


@contextmanager
def taken(
    out: Path,
    recipe: Any,
    told: Any,
    read: Callable[[Path], Any],
    ranks: World,
    *,
    resume: bool,
    cache: Path | None = None,
) -> Iterator[None]:
    """Prepare a run in a folder that is taken for it, and given back if that fails. The leading rank's business.

    The recipe says all that the run does, and was `told` a part of it.
    """
    if not ranks.leads:
        yield
    elif resume:
        reclaim(out, recipe, read)
        yield
        if cache is not None:  # another one from now on, since it has served
            amend(out, read(out / RUN_FILE), cache)
    else:
        with claimed(out, recipe, cache, told):
            yield


@contextmanager
def claimed(
    out: Path,
    recipe: Any,
    cache: Path | None = None,
    told: Any = None,
    begun: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Take a folder for a new run, and give it back if that fails or is ended by a signal before it has `begun`."""
    before = {number: signal.getsignal(number) for number in ENDING}
    minded = [number for number in ENDING if before[number] is not signal.SIG_IGN]
    try:
        for number in minded:
            signal.signal(number, _ended)
        new = claim(out, recipe, cache, told)
        try:
            yield
        except BaseException:
            for number in minded:  # torchrun sends one as soon as another process has gone
                signal.signal(number, signal.SIG_IGN)
            if not begun():
                give_back(out, remove=new)
            raise
    finally:
        for number in minded:
            signal.signal(number, before[number])


def _ended(number: int, _: object) -> NoReturn:
    raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")


def tell_of_ranks(before: int, ranks: World, log: Log) -> None:
    """Say that a run goes on with another number of processes than it had."""
    if before != ranks.ranks:
        log.warn(
            f"the run had {counted(before, 'process', 'processes')} and now has {ranks.ranks}; it goes on, "
            "but with other steps than if it had not been interrupted"
        )


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
    require_same_step(progress.step, job.world)
    job = _minding(folder.parent, job)
    with log.opened(step=progress.step, tensorboard=tensorboard):
        try:
            with within_memory(next(job.model.parameters()).device, job.world.here):
                ended = train(job, progress)
        except Diverged as error:
            line = _diverged(error, folder, job.plan)
            if log.leads:
                note_diverged(folder.parent, line)
            raise job.world.ending(UserError(line)) from None
        except Interrupted as stop:
            raise job.world.ending(Interrupted(f"{stop}; go on with: {resume}")) from None
        except KeyboardInterrupt:  # the second: it would not wait for a checkpoint
            saved = _saved(folder)
            ready = f"go on from checkpoint {saved[-1].name} with: {resume}" if saved else "nothing was saved"
            raise KeyboardInterrupt(f"interrupted; {ready}") from None
        except (RuntimeError, MemoryError) as error:
            if (line := too_small(error, way_out=f"try {smaller}, in a new --out")) is None:
                raise
            saved = f"; when more memory is free, go on with: {resume}" if _saved(folder) else ""
            raise UserError(line + saved) from None
    if job.world.leads:
        require_kept(folder.parent)
    if job.plan.budget is not None and ended.step < FEW:
        steps = counted(ended.step, "step")
        way_out = "give more time, or take a smaller batch or model"
        log.note(f"only {steps} fitted into the budget, too few to learn; {way_out}")


def _minding(out: Path, job: Job[Any]) -> Job[Any]:
    """The same job, whose leading rank looks whether the run's folder is still there before it writes into it."""
    if not job.world.leads:
        return job

    def evaluate(now: Progress) -> bool | None:
        require_kept(out)
        return job.evaluate(now)

    def save(now: Progress) -> None:
        require_kept(out)
        job.save(now)

    return replace(job, evaluate=evaluate, save=save)


def introduce(log: Log, model: nn.Module, shape: str, compute: Compute, ranks: World, progress: Progress) -> None:
    """Say what is trained, and where; `shape` is the model in a few words."""
    parameters = sum(p.numel() for p in model.parameters())
    spread = ", each with a part of it" if ranks.sharded else ""
    where = compute.device.type if ranks.ranks == 1 else f"{ranks.ranks} processes ({compute.device.type}){spread}"
    log.note(
        f"model: {shape}, {parameters / 1e6:.1f}M parameters, "
        f"on {where} in {str(compute.dtype).removeprefix('torch.')}"
    )
    if compute.device.type == "cpu" and (why := gpus.why_not()):
        log.note(f"no GPU is used: {why}")
    if progress.step:
        log.note(f"resuming at step {progress.step}")


def bert_shape(config: BertConfig) -> str:
    """A BERT in a few words."""
    sizes = f"{config.layers} layers, {config.dim} wide, {config.heads} heads, {config.vocab_size:,} tokens"
    return ", ".join([sizes, *config.variations])


def resume_command(command: str, out: Path, ranks: World = World()) -> str:  # noqa: B008 (a tuple)
    """How to go on with an interrupted run."""
    return f"{ranks.launcher()} {command} --resume --out {shlex.quote(str(out))}"


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
        state={**numbers(now), **state},
    )


def numbers(now: Progress) -> dict[str, Any]:
    """Where a run stands, but for its step, as a checkpoint keeps it."""
    return {"position": list(now.position), "tokens": now.tokens, "elapsed": now.elapsed, "late": now.late}


def progress_of(step: int, state: dict[str, Any]) -> Progress:
    """Where a run stood that a checkpoint was made of."""
    return Progress(
        step=step,
        position=Position(*state["position"]),
        tokens=state["tokens"],
        elapsed=state["elapsed"],
        late=state.get("late", 0.0),
    )


def last_checkpoint(folder: Path, digest: str, log: Log, ranks: World) -> Checkpoint | None:
    """The newest checkpoint, which must be of the same data; None if there was never one."""
    found = ranks.in_turn(partial(checkpoint.load_last, folder, log.warn))
    if found is None:
        log.note(NO_CHECKPOINT)
    elif found.state["data"] != digest:
        changed = "the data has changed since the run began, so it can't be resumed; start again in another --out"
        raise ranks.ending(UserError(changed))
    return found


def restore(found: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Put a checkpoint back; where the run stood."""
    model.load_state_dict(found.tensors["model"])
    load_state_tensors(optimizer, model, found.tensors["optimizer"])
    return progress_of(found.step, found.state)


def _diverged(error: Diverged, folder: Path, plan: Plan) -> str:
    good = _saved(folder)
    where = f"the last good checkpoint is {good[-1]}" if good else "there is no checkpoint yet"
    remedy = f"try a lower --lr (now {plan.lr:g}), a longer --warmup, or a smaller --clip, in a new --out"
    return f"{error}; {where}; {remedy}"
