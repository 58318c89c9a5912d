import itertools
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor, nn

from heedful.data.sampler import START, Position
from heedful.errors import Interrupted
from heedful.tasks.term import Term
from heedful.train.distributed import World
from heedful.train.loop import Diverged, Job, Metrics, Plan, Progress, evaluate, reseed, signals, step_seed, train
from heedful.train.optim import adamw

Points = Tensor
"""(N, 2): the input and what it should become."""

PLAN = Plan(
    steps=5,
    budget=None,
    lr=0.1,
    warmup=0.0,
    accumulation=1,
    clip=1e9,
    seed=0,
    evaluations=1,
    checkpoint_steps=1000,
    checkpoint_seconds=None,
)


def line(slope: float = 0.0) -> nn.Linear:
    model = nn.Linear(1, 1)
    with torch.no_grad():
        model.weight.fill_(slope)
        model.bias.zero_()
    return model


def points(*values: tuple[float, float]) -> Points:
    return torch.tensor(values, dtype=torch.float32)


def squares(model: nn.Module, batch: Points) -> dict[str, Term]:
    error = model(batch[:, :1]) - batch[:, 1:]
    return {"fit": Term(error.square().sum(), (error.abs() < 0.5).sum(), len(batch))}


@dataclass
class Run:
    """A job over given batches, and what it said."""

    model: nn.Module
    cycle: list[Points]
    plan: Plan = PLAN
    terms: Callable[[nn.Module, Points], dict[str, Term]] = squares
    optimizer: torch.optim.Optimizer | None = None
    on_save: Callable[[Progress], None] = lambda _: None
    recorded: bool = False
    enough: int | None = None
    """The step whose evaluation ends the run."""
    reports: list[tuple[int, Metrics]] = field(default_factory=list)
    evaluations: list[int] = field(default_factory=list)
    saved: list[Progress] = field(default_factory=list)

    def batches(self, position: Position, moment: Callable[[int], float]) -> Iterator[tuple[Position, Points]]:
        self.moment = moment
        for number in itertools.count(position.batch):
            yield Position(0, number + 1), self.cycle[number % len(self.cycle)]

    def evaluate(self, now: Progress) -> bool | None:
        self.model.eval()
        self.evaluations.append(now.step)
        return None if self.enough is None else now.step == self.enough

    def save(self, now: Progress) -> None:
        self.saved.append(now)
        self.on_save(now)

    def train(self, progress: Progress = Progress()) -> Progress:  # noqa: B008 (frozen)
        self.optimizer = self.optimizer or adamw(self.model, lr=0.1, betas=(0.9, 0.98), eps=1e-6, decay=0.0)
        job = Job(
            model=self.model,
            optimizer=self.optimizer,
            batches=self.batches,
            tokens=len,
            counts=lambda batch: {"fit": len(batch)},
            terms=lambda batch: self.terms(self.model, batch),
            plan=self.plan,
            world=World(),
            report=lambda now, metrics: self.reports.append((now.step, metrics)),
            evaluate=self.evaluate,
            save=self.save,
            recorded=self.recorded,
        )
        return train(job, progress)


def descent(model: nn.Module) -> torch.optim.SGD:
    """Plain descent, whose step is the gradient itself."""
    return torch.optim.SGD([{"params": list(model.parameters()), "scale": 1.0}], lr=1.0)


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


def test_one_step_by_hand():
    # Errors -2 and -4 at x = 1 and 3; the mean of their squares is 10, its slope -(2*2*1 + 2*4*3) / 2 = -14.
    model = line()
    run = Run(model, [points((1, 2), (3, 4))], replace(PLAN, steps=1, lr=0.01), optimizer=descent(model))
    end = run.train()
    # In the middle of the only step the rate is half its peak.
    assert model.weight.item() == pytest.approx(0.07)
    assert model.bias.item() == pytest.approx(0.03)
    assert end.step == 1
    (step, metrics), *rest = run.reports
    assert (step, rest) == (1, [])
    assert metrics["loss"] == metrics["fit_loss"] == 10.0
    assert metrics["fit_accuracy"] == 0.0
    assert metrics["grad_norm"] == pytest.approx(math.hypot(14, 6))


def test_two_uneven_batches_weigh_as_one_twice_as_large():
    """A mean of means would count the two points of the short batch as much as the five of the long one."""
    generator = torch.Generator().manual_seed(0)
    short, long = torch.randn(2, 2, generator=generator), torch.randn(5, 2, generator=generator)
    together, apart = line(0.3), line(0.3)
    plan = replace(PLAN, steps=3, warmup=1.0)
    one = Run(together, [torch.cat([short, long])], plan, optimizer=descent(together))
    two = Run(apart, [short, long], replace(plan, accumulation=2), optimizer=descent(apart))
    assert one.train().tokens == two.train().tokens == 21
    torch.testing.assert_close(apart.weight, together.weight)
    torch.testing.assert_close(apart.bias, together.bias)
    for (_, mine), (_, theirs) in zip(one.reports, two.reports, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-5)


def test_gradients_do_not_pile_up_from_step_to_step():
    """With a rate of nothing every step has the same gradient."""
    run = Run(line(), [points((1, 2), (3, 4))], replace(PLAN, lr=0.0))
    run.train()
    norms = [metrics["grad_norm"] for _, metrics in run.reports]
    assert norms == [norms[0]] * 5


def test_a_long_gradient_is_clipped():
    model = line()
    run = Run(
        model,
        [points((1, 2), (3, 4))],
        replace(PLAN, steps=1, lr=2.0, clip=0.5),  # in the step's middle, half of it
        optimizer=descent(model),
    )
    run.train()
    assert math.hypot(model.weight.item(), model.bias.item()) == pytest.approx(0.5, rel=1e-5)
    assert run.reports[0][1]["grad_norm"] == pytest.approx(math.hypot(14, 6))


def test_the_rate_follows_the_steps():
    run = Run(line(), [points((1, 2))], replace(PLAN, steps=5, warmup=0.4, lr=0.3))
    run.train()
    assert [metrics["lr"] for _, metrics in run.reports] == pytest.approx([0.075, 0.225, 0.25, 0.15, 0.05])


def test_the_rate_follows_the_clock_and_ends_with_it(clock: Clock):
    """Steps of two seconds in a budget of ten: the rate is that of the time, with next to none at the end."""

    def slow(model: nn.Module, batch: Points) -> dict[str, Term]:
        clock.now += 2.0
        return squares(model, batch)

    run = Run(line(), [points((1, 2))], replace(PLAN, steps=None, budget=10.0, warmup=0.0, lr=1.0), terms=slow)
    end = run.train()
    assert (end.step, end.elapsed) == (6, 10.0)
    assert [metrics["lr"] for _, metrics in run.reports] == pytest.approx([1.0, 0.6, 0.4, 0.2, 0.0], abs=0.003)
    assert run.evaluations == [6]


def test_a_long_first_step_is_no_part_of_the_schedule(clock: Clock):
    """It compiles for 50 seconds of 70; the warm-up takes half of the 20 that are left, not half of the whole."""
    steps = iter([52.0, *[2.0] * 100])

    def slow(model: nn.Module, batch: Points) -> dict[str, Term]:
        clock.now += next(steps)
        return squares(model, batch)

    plan = replace(PLAN, steps=None, budget=70.0, warmup=0.5, lr=1.0)
    run = Run(line(), [points((1, 2))], plan, terms=slow)
    end = run.train()
    assert (end.elapsed, end.late) == (70.0, 50.0)
    rates = [metrics["lr"] for _, metrics in run.reports]
    assert rates == pytest.approx([0.0, 0.4, 0.6, 0.8, 1.0, 0.8, 0.6, 0.4, 0.2, 0.0], abs=0.005)


def test_what_changes_in_batches_has_the_schedule_of_the_rate(clock: Clock):
    """A run that compiles for 50 of 70 seconds has not gone 5/7 of its way then."""
    steps, moments = iter([52.0, *[2.0] * 100]), []

    def slow(model: nn.Module, batch: Points) -> dict[str, Term]:
        moments.append(run.moment(0))
        clock.now += next(steps)
        return squares(model, batch)

    run = Run(line(), [points((1, 2))], replace(PLAN, steps=None, budget=70.0), terms=slow)
    run.train()
    # What was agreed on when the step before began: after three of them, how long the first one compiled is known.
    assert moments == pytest.approx([0.0, 0.0, 0.0, *(number / 10 for number in range(2, 10))], abs=0.003)


def test_what_changes_in_batches_follows_the_steps_from_where_a_run_goes_on():
    run = Run(line(), [points((1, 2))], replace(PLAN, steps=10))
    run.train(Progress(step=4, position=Position(0, 4)))
    assert [run.moment(number) for number in range(3)] == pytest.approx([0.45, 0.55, 0.65])


def test_time_from_before_counts_in_a_budget(clock: Clock):
    def slow(model: nn.Module, batch: Points) -> dict[str, Term]:
        clock.now += 2.0
        return squares(model, batch)

    plan = replace(PLAN, steps=None, budget=10.0)
    end = Run(line(), [points((1, 2))], plan, terms=slow).train(Progress(step=100, elapsed=7.0))
    assert (end.step, end.elapsed) == (103, 11.0)


def test_speed_leaves_out_the_pauses(clock: Clock):
    def slow(model: nn.Module, batch: Points) -> dict[str, Term]:
        clock.now += 2.0
        return squares(model, batch)

    def pause(_: Progress) -> None:
        clock.now += 50.0

    plan = replace(PLAN, steps=4, checkpoint_steps=1)
    run = Run(line(), [torch.ones(7, 2)], plan, terms=slow, on_save=pause)
    run.train()
    assert [now.step for now in run.saved] == [1, 2, 3, 4]
    assert [metrics["tokens_per_second"] for _, metrics in run.reports] == [3.5] * 4


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_run_with_its_step(value: float):
    good, bad = points((1, 2)), points((1, value))
    run = Run(line(), [good, good, bad], replace(PLAN, checkpoint_steps=1))
    with pytest.raises(Diverged, match=f"the loss became {value} at step 3") as error:
        run.train()
    assert error.value.step == 3
    assert [now.step for now in run.saved] == [1, 2]


def test_a_gradient_that_is_no_number_is_never_saved():
    """The root's slope at nothing is infinite, though its value is fine."""

    def roots(model: nn.Module, batch: Points) -> dict[str, Term]:
        loss = model(batch[:, :1]).abs().sqrt().sum()
        return {"fit": Term(loss, loss.new_zeros(()), len(batch))}

    run = Run(line(), [points((1, 0))], replace(PLAN, checkpoint_steps=1), terms=roots)
    with pytest.raises(Diverged, match=r"the gradient became (nan|inf) at step 1"):
        run.train()
    assert run.saved == []


def test_checkpoints_come_by_steps_and_at_the_end():
    run = Run(line(), [points((1, 2))], replace(PLAN, steps=7, checkpoint_steps=3))
    run.train()
    assert [now.step for now in run.saved] == [3, 6, 7]
    assert [now.position for now in run.saved] == [Position(0, 3), Position(0, 6), Position(0, 7)]


def test_checkpoints_come_by_time(clock: Clock):
    def slow(model: nn.Module, batch: Points) -> dict[str, Term]:
        clock.now += 2.0
        return squares(model, batch)

    plan = replace(PLAN, steps=7, checkpoint_steps=None, checkpoint_seconds=5.0)
    run = Run(line(), [points((1, 2))], plan, terms=slow)
    run.train()
    # The clock is read before each step: 0, 2, 4, 6 (due), 8, 10, 12 (due, and the end).
    assert [now.step for now in run.saved] == [4, 7]


def test_evaluations_are_evenly_spread():
    run = Run(line(), [points((1, 2))], replace(PLAN, steps=10, evaluations=4))
    run.train()
    assert run.evaluations == [3, 5, 8, 10]


def test_an_evaluation_that_has_seen_enough_ends_the_run():
    """Nothing is saved then: whoever says so keeps what is best himself."""
    model, handler = line(), signal.getsignal(signal.SIGINT)
    run = Run(model, [points((1, 2))], replace(PLAN, steps=10, evaluations=5, checkpoint_steps=3), enough=6)
    end = run.train()
    assert (end.step, end.position) == (6, Position(0, 6))
    assert run.evaluations == [2, 4, 6]
    assert [step for step, _ in run.reports] == [1, 2, 3, 4, 5, 6]
    assert [now.step for now in run.saved] == [3]
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_evaluation_that_has_not_lets_it_go_on_in_training():
    model = nn.Sequential(line(), nn.Dropout(0.0))
    modes = []

    def terms(model: nn.Module, batch: Points) -> dict[str, Term]:
        modes.append(model.training)
        return squares(model, batch)

    run = Run(model, [points((1, 2))], replace(PLAN, steps=4, evaluations=4), terms=terms, enough=99)
    assert run.train().step == 4
    assert run.evaluations == [1, 2, 3, 4]
    assert modes == [True] * 4


def test_reports_are_many_but_not_more_than_steps():
    few = Run(line(), [points((1, 2))], replace(PLAN, steps=11))
    few.train()
    assert [step for step, _ in few.reports] == list(range(1, 12))
    many = Run(line(), [points((1, 2))], replace(PLAN, steps=1500))
    many.train()
    assert [step for step, _ in many.reports] == list(range(3, 1501, 3))


def told_to_stop(number: int, after: int) -> Callable[[Progress], None]:
    def stop(now: Progress) -> None:
        if now.step == after:
            signal.raise_signal(number)

    return stop


def noisy(model: nn.Module, batch: Points) -> dict[str, Term]:
    return squares(model, torch.dropout(batch, 0.5, train=True))


def test_a_run_in_two_parts_equals_one_in_one():
    cycle = list(torch.randn(7, 3, 2, generator=torch.Generator().manual_seed(0)))
    plan = replace(PLAN, steps=9, accumulation=2, checkpoint_steps=4)
    whole = Run(line(), cycle, plan, terms=noisy)
    end = whole.train()

    first = Run(line(), cycle, plan, terms=noisy, on_save=told_to_stop(signal.SIGINT, after=4))
    with pytest.raises(Interrupted, match="stopped and saved at step 5"):
        first.train()
    assert [now.step for now in first.saved] == [4, 5]
    second = Run(first.model, cycle, plan, terms=noisy, optimizer=first.optimizer)
    resumed = second.train(first.saved[-1])
    assert (resumed.step, resumed.position, resumed.tokens) == (9, end.position, end.tokens)
    assert torch.equal(first.model.weight, whole.model.weight)
    assert torch.equal(first.model.bias, whole.model.bias)


@contextmanager
def at_a_closed_terminal(handler: signal.Handlers) -> Iterator[None]:
    """What is to happen then; otherwise it depends on who runs the tests, and how."""
    before = signal.signal(signal.SIGHUP, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_stop_saves_and_puts_the_signals_back(number: signal.Signals):
    run = Run(line(), [points((1, 2))], replace(PLAN, checkpoint_steps=2), on_save=told_to_stop(number, after=2))
    with at_a_closed_terminal(signal.SIG_DFL):
        before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        with pytest.raises(Interrupted, match="stopped and saved at step 3"):
            run.train()
        assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before
    assert [now.step for now in run.saved] == [2, 3]


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_one_of_several_processes_lives_on_to_say_why_it_breaks_off(ranks: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", ranks)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(RuntimeError), signals() as received:
            raise RuntimeError("another has gone")
        if ranks == "1":
            assert signal.getsignal(signal.SIGTERM) is before
        else:
            os.kill(os.getpid(), signal.SIGTERM)
            assert received == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_under_nohup_a_closed_terminal_is_no_reason_to_stop():
    run = Run(line(), [points((1, 2))], PLAN, on_save=told_to_stop(signal.SIGHUP, after=1))
    with at_a_closed_terminal(signal.SIG_IGN):
        run.train()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_no_step_of_a_budget_is_wasted():
    plan = replace(PLAN, steps=None, budget=100.0, warmup=0.1, lr=1.0)
    assert 0 < plan.rate(0, 0.0) == plan.rate(1, 60.0, late=60.0) < 0.05
    assert 0 < plan.rate(99, 101.0, late=60.0) < 0.05
    assert plan.rate(50, 60.0) == replace(plan, warmup=0.0).rate(50, 60.0) * 1 / 0.9


def test_a_second_interrupt_breaks_off():
    def twice(_: Progress) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    run = Run(line(), [points((1, 2))], replace(PLAN, checkpoint_steps=2), on_save=twice)
    with pytest.raises(KeyboardInterrupt):
        run.train()
    assert [now.step for now in run.saved] == [2]


def test_a_finished_run_has_nothing_left_to_do():
    run = Run(line(), [points((1, 2))])
    done = Progress(step=5, position=Position(0, 5))
    assert run.train(done) == done
    assert (run.reports, run.saved, run.evaluations) == ([], [], [])


def test_evaluation_averages_over_all_and_leaves_the_model_alone():
    model = nn.Sequential(line(1.0), nn.Dropout(0.9))
    batches = [points((1, 3), (2, 2)), points((5, 6))]

    def terms(batch: Points) -> dict[str, Term]:
        error = model(batch[:, :1]) - batch[:, 1:]
        return {"mlm": Term(error.square().sum(), (error.abs() < 0.5).sum(), len(batch))}

    metrics = evaluate(model, batches, terms, ("mlm",), World())
    assert metrics == pytest.approx({"loss": 5 / 3, "mlm_loss": 5 / 3, "mlm_accuracy": 1 / 3})
    assert not model.training
    assert all(p.grad is None for p in model.parameters())


def test_an_objective_that_never_came_up_counts_for_nothing():
    metrics = evaluate(line(), [], lambda _: {}, ("mlm", "nsp"), World())
    assert (metrics["loss"], metrics["nsp_accuracy"]) == (0.0, 0.0)


def test_every_step_of_every_rank_and_seed_has_its_own_randomness():
    seeds = [step_seed(seed, step, rank) for seed in range(5) for step in range(200) for rank in range(7)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert step_seed(3, 5, 7) == step_seed(3, 5, 7)


@pytest.mark.parametrize("before", [1, 2])
def test_what_is_random_in_a_step_follows_from_its_number_alone(before: int):
    drawn: list[float] = []

    def draw(model: nn.Module, batch: Points) -> dict[str, Term]:
        drawn.append(torch.rand(()).item())
        return squares(model, batch)

    def expected(step: int) -> float:
        return torch.rand((), generator=torch.Generator().manual_seed(step_seed(7, step, 0))).item()

    torch.manual_seed(before)
    Run(line(), [points((1, 2))], replace(PLAN, seed=7), terms=draw).train(Progress(step=2, position=Position(0, 2)))
    assert drawn == [expected(step) for step in (2, 3, 4)]


@pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))],
)
def test_a_seed_means_what_it_means_to_torch(device: str):
    torch.manual_seed(31)
    expected = torch.rand(5), torch.rand(5, device=device)
    reseed(31, torch.device(device))
    assert all(map(torch.equal, expected, (torch.rand(5), torch.rand(5, device=device))))


@pytest.mark.usefixtures("steps_taken_again")
def test_a_recorded_run_takes_the_same_steps():
    plain, recorded = (
        Run(line(), [points((1, 2), (2, 3)), points((3, 1))], replace(PLAN, clip=0.5, warmup=0.5), recorded=one)
        for one in (False, True)
    )
    assert plain.train().position == recorded.train().position
    for (step, expected), (again_step, found) in zip(plain.reports, recorded.reports, strict=True):
        assert step == again_step
        same = {name: value for name, value in expected.items() if name != "tokens_per_second"}
        assert {name: found[name] for name in same} == pytest.approx(same, rel=1e-5)
    torch.testing.assert_close(recorded.model.state_dict(), plain.model.state_dict())


def test_the_start_is_the_start():
    assert Progress() == Progress(step=0, position=START, tokens=0, elapsed=0.0)
