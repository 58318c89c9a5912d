"""The training loop: batch, loss, backward, step, report.

Knows neither text nor models: a job brings batches, a way to turn one into sums, and what to do at reports,
evaluations and checkpoints. All randomness of a step follows from (seed, step, rank), so a run that is
stopped and resumed equals one that was not, to the bit.

Shapes: none here; batches are the task's business.
"""

import math
import signal
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from heedful import launch
from heedful.data.sampler import START, Position
from heedful.errors import Interrupted
from heedful.tasks.term import Term
from heedful.train.distributed import World
from heedful.train.schedule import SCHEDULES
from heedful.train.stepping import RecordedStep, take_step

Batch = TypeVar("Batch")
Metrics = dict[str, float]

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
REPORTS = 500
"""Reports of a run, at most one a step."""
EDGE = 0.002
"""How near to its beginning and end, as shares of it, a step of a budget may be: at them the rate is zero."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands: with the tensors, all that a checkpoint holds."""

    step: int = 0
    position: Position = START
    tokens: int = 0
    elapsed: float = 0.0
    """Seconds, over all the processes that the run has had."""
    late: float = 0.0
    """Of them, those that went into what is done once, in the first step: a schedule by the clock begins after it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to train, how fast, and when to look up."""

    steps: int | None
    budget: float | None
    """Seconds; either this or steps."""
    lr: float
    warmup: float
    """Share of the run."""
    accumulation: int
    clip: float
    seed: int
    evaluations: int
    """Over the whole run, evenly."""
    checkpoint_steps: int | None
    checkpoint_seconds: float | None
    """Either this or steps between two checkpoints."""
    schedule: str = "linear"
    decay: float = 0.2
    """Share of the run, for a schedule that stays at its peak until then."""

    def rate(self, step: int, elapsed: float, late: float = 0.0) -> float:
        """The learning rate of a step."""
        return self.lr * SCHEDULES[self.schedule](self.moment(step, elapsed, late), self.warmup, self.decay)

    def moment(self, step: int, elapsed: float, late: float = 0.0) -> float:
        """When in the run a step is, from 0 to 1: in its middle, so that neither the first nor the last is wasted.

        In a budget, `late` seconds were over before the first step had been taken, and how long a step will take is
        not known: so none is at the very beginning or end.
        """
        if self.steps is not None:
            return (step + 0.5) / self.steps
        assert self.budget is not None
        return min(1.0 - EDGE, max(EDGE, (elapsed - late) / max(self.budget - late, 1e-9)))

    def done(self, progress: Progress) -> float:
        """The share of the run that is behind us."""
        if self.steps is not None:
            return progress.step / self.steps
        assert self.budget is not None
        return min(1.0, progress.elapsed / self.budget)


@dataclass(frozen=True, kw_only=True)
class Job(Generic[Batch]):
    """What is trained, on what, and who is told."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Callable[[Position, Callable[[int], float]], Iterator[tuple[Position, Batch]]]
    """From a position on, and for a run whose batches change: told when in it, from 0 to 1, the n-th step from there
    is, as far as that is known while a batch of it is made."""
    tokens: Callable[[Batch], int]
    counts: Callable[[Batch], dict[str, int]]
    terms: Callable[[Batch], dict[str, Term]]
    plan: Plan
    world: World
    report: Callable[[Progress, Metrics], None]
    evaluate: Callable[[Progress], bool | None]
    """True ends the run: it has seen enough."""
    save: Callable[[Progress], None]
    recorded: bool = False
    """Whether the steps are replayed: for small models, whose steps a GPU takes faster than it is told to."""


class Diverged(Exception):  # noqa: N818
    """The loss, or its gradient, is no longer a number."""

    def __init__(self, step: int, what: str, value: float) -> None:
        super().__init__(f"the {what} became {value} at step {step}")
        self.step = step


def train(job: Job[Any], progress: Progress) -> Progress:
    """Run the job to its end from where it stands. Raises Interrupted or Diverged."""
    plan, world = job.plan, job.world
    parameters = [p for p in job.model.parameters() if p.requires_grad]
    device = parameters[0].device
    given = parameters, job.optimizer, plan.clip
    step = RecordedStep(*given) if job.recorded else partial(take_step, *given)
    clock, tally = _Clock(progress.elapsed), _Tally()
    saved, first = progress, progress.step

    def moment(number: int) -> float:
        return plan.moment(first + number, progress.elapsed, progress.late)

    job.model.train()
    with signals() as stop, closing(ahead(job.batches(progress.position, moment))) as batches:
        while plan.done(progress) < 1.0:
            fetched = [next(batches) for _ in range(plan.accumulation)]
            micro = [batch for _, batch in fetched]
            counts, tokens, elapsed, stopping = _agree(job, micro, clock, stop)
            before = plan.done(progress)
            late = _late(progress, elapsed)
            lr = plan.rate(progress.step, elapsed, late)
            reseed(step_seed(plan.seed, progress.step, world.rank), device)

            for batch in micro:
                terms = job.terms(batch)
                loss = torch.stack([term.loss / max(1, counts[name]) for name, term in terms.items()]).sum()
                loss.backward()
                tally.add(terms)
                del terms, loss  # the step's graph goes with them: what outlives it would spoil a recording
            world.sum_gradients(parameters)
            norm = world.whole(step(lr))
            tally.norm = tally.norm + norm.detach()

            progress = Progress(
                step=progress.step + 1,
                position=fetched[-1][0],
                tokens=progress.tokens + tokens,
                elapsed=elapsed,
                late=late,
            )
            tally.tokens += tokens
            after = plan.done(progress)
            last = after >= 1.0 or stopping
            if last or crossed(before, after, REPORTS) or device.type == "cpu":
                tally.check(progress.step)
            if last or crossed(before, after, REPORTS):
                speed = tally.tokens / clock.lap()
                metrics = {**tally.averages(counts, world), "lr": lr, "grad_norm": float(norm)}
                job.report(progress, {**metrics, "tokens_per_second": speed})
                tally = _Tally()
            if after >= 1.0 or crossed(before, after, plan.evaluations):
                with clock.paused():
                    enough = job.evaluate(progress)
                    job.model.train()
                if enough:
                    return progress
            if last or due(plan, saved, progress):
                tally.check(progress.step)
                with clock.paused():
                    job.save(progress)
                saved = progress
            if stopping and after < 1.0:
                raise Interrupted(f"stopped and saved at step {progress.step}")
    return progress


def step_seed(seed: int, step: int, rank: int) -> int:
    """The seed of one step's dropout on one rank."""
    return int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0] >> 1)


def reseed(seed: int, device: torch.device) -> None:
    """Let the host and this device draw from the seed.

    `torch.manual_seed` tells every kind of device that there could be, which takes as long as some models' steps.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def _agree(
    job: Job[Any], micro: list[Any], clock: "_Clock", stop: list[int]
) -> tuple[dict[str, int], int, float, bool]:
    """What all ranks must see alike: the counts to divide by, the tokens, the time, whether to stop."""
    names = job.counts(micro[0]).keys()
    mine = [sum(job.counts(batch)[name] for batch in micro) for name in names]
    tokens = sum(job.tokens(batch) for batch in micro)
    elapsed = clock.elapsed() if job.world.leads else 0.0
    *counts, total, elapsed, stopping = job.world.sum_numbers([*mine, tokens, elapsed, float(bool(stop))])
    return (
        {name: int(count) for name, count in zip(names, counts, strict=True)},
        int(total),
        elapsed,
        stopping > 0,
    )


def _late(progress: Progress, elapsed: float) -> float:
    """By how much the first step took longer than the second: it compiles, records, warms up.

    Without it the warm-up of a short budget would be over when the second step begins, which takes the first for it.
    """
    if progress.step == 1:
        return elapsed
    return max(0.0, 2 * progress.late - elapsed) if progress.step == 2 else progress.late


def crossed(before: float, after: float, parts: int) -> bool:
    """Whether one of the evenly spaced marks lies between."""
    return math.floor(before * parts + 1e-9) < math.floor(after * parts + 1e-9)


def due(plan: Plan, saved: Progress, now: Progress) -> bool:
    """Whether it is time for a checkpoint."""
    if plan.checkpoint_steps is not None:
        return now.step % plan.checkpoint_steps == 0
    assert plan.checkpoint_seconds is not None
    return now.elapsed - saved.elapsed >= plan.checkpoint_seconds


def ahead(batches: Iterator[Batch]) -> Generator[Batch, None, None]:
    """The same batches, each made while the one before it is in use. To be closed, or its thread might do it."""
    with ThreadPoolExecutor(1) as worker:
        coming = worker.submit(next, batches)
        while True:
            batch = coming.result()
            coming = worker.submit(next, batches)
            yield batch


@contextmanager
def signals() -> Iterator[list[int]]:
    """A list that Ctrl-C, SIGTERM or a closed terminal makes non-empty; a second Ctrl-C breaks off as usual.

    One of several processes whose training breaks off minds SIGTERM until it has ended: torchrun ends all as soon as
    one has gone, and the others have yet to say what became of the run.
    """
    received: list[int] = []

    def note(number: int, _: object) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    nohup = [one for one in STOPPING if one.name == "SIGHUP" and signal.getsignal(one) is signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in STOPPING if number not in nohup}
    try:
        yield received
    except BaseException:
        if not launch.alone():
            del before[signal.SIGTERM]
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Clock:
    """Seconds of the run, and of training without the pauses for evaluation and checkpoints."""

    def __init__(self, elapsed: float) -> None:
        self.start = time.perf_counter() - elapsed
        self.lap_start = time.perf_counter()

    def elapsed(self) -> float:
        return time.perf_counter() - self.start

    def lap(self) -> float:
        """Seconds of training since the last lap."""
        now = time.perf_counter()
        lap, self.lap_start = now - self.lap_start, now
        return lap

    @contextmanager
    def paused(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.lap_start += time.perf_counter() - begun


@dataclass
class _Tally:
    """Sums between two reports. They stay on the device until somebody asks."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    norm: Tensor | float = 0.0
    """Of the gradients: one that is no number makes every weight so, a step before the loss shows it."""

    def add(self, terms: dict[str, Term]) -> None:
        for name, term in terms.items():
            pair = torch.stack([term.loss.detach().double(), term.correct.double()])
            self.sums[name] = self.sums[name] + pair if name in self.sums else pair
            self.counts[name] = self.counts.get(name, 0) + term.count

    def check(self, step: int) -> None:
        for total in self.sums.values():
            if not math.isfinite(loss := float(total[0])):
                raise Diverged(step, "loss", loss)
        if not math.isfinite(norm := float(self.norm)):
            raise Diverged(step, "gradient", norm)

    def averages(self, names: Iterable[str], world: World) -> Metrics:
        """Loss and accuracy of each objective over all ranks, and the sum of the losses."""
        found: Metrics = {"loss": 0.0}
        for name in names:
            mine = self.sums[name].tolist() if name in self.sums else [0.0, 0.0]
            loss, correct, count = world.sum_numbers([*mine, self.counts.get(name, 0)])
            found["loss"] += loss / max(1, count)
            found[f"{name}_loss"] = loss / max(1, count)
            found[f"{name}_accuracy"] = correct / max(1, count)
        return found


@torch.no_grad()
def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    terms: Callable[[Batch], dict[str, Term]],
    names: Iterable[str],
    world: World,
) -> Metrics:
    """The averages over the batches, which the ranks share among them."""
    model.eval()
    tally = _Tally()
    for number, batch in enumerate(batches):
        if number % world.ranks == world.rank:
            tally.add(terms(batch))
    return tally.averages(names, world)
