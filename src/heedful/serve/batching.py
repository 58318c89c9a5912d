"""A model's queue and the one thread that works it off: what waits is answered together, up to so many tokens.

Requests that ask for the same kind of thing share a batch, whoever sent them. The oldest input decides the kind, and
those that come nearest to it in length go with it, since little is lost to padding then; as the oldest always goes,
nobody waits for long. A thread that is idle begins at once, so nobody waits for others to come. The event loop is
never held up: it hands over examples and gets a future. Knows nothing of HTTP or of what is computed.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from threading import Condition, Thread
from typing import Any, NamedTuple, Protocol

from heedful.errors import UserError
from heedful.serve.limits import Limits
from heedful.serve.logs import Log
from heedful.serve.metrics import Meters
from heedful.serve.refusals import Refusal, refused

LOOK = 0.5
"""Seconds after which is looked whether a client that waits is still there."""
CHARACTERS = 4
"""About so many make a token, where nobody has counted yet."""
BESIDES = 16
"""What an input costs beside its characters, counted in characters."""
AHEAD = 6
"""Batches' worth of tokens that are prepared, to choose among."""
PACE_SHARE = 0.2
"""How much of the measured pace is that of the latest batch."""


Wanted = Callable[[], bool]
"""Whether anybody still waits for what is computed."""


class Work(Protocol):
    """One way to ask a model. What differs between requests of one key is in their examples."""

    @property
    def key(self) -> Hashable:
        """Requests with the same key are answered together."""
        ...

    def prepare(self, examples: Sequence[Any]) -> list[Any]:
        """What the model reads for each example, or a `Refusal`."""
        ...

    def tokens(self, prepared: Any) -> int:
        """What one of them costs."""
        ...

    def answer(self, prepared: Sequence[Any], wanted: Wanted) -> list[Any]:
        """What the model says of each. What takes long looks between its steps whether it is wanted, or raises
        `Gone`."""
        ...


class Gone(Exception):  # noqa: N818 (nobody did anything wrong)
    """The client has left."""


def insist(wanted: Wanted) -> None:
    """Break off where nobody waits any more."""
    if not wanted():
        raise Gone


class Job:
    """What one request waits for."""

    __slots__ = (
        "begun",
        "costs",
        "examples",
        "found",
        "future",
        "left",
        "prepared",
        "since",
        "waiting",
        "wanted",
        "weight",
        "work",
    )

    def __init__(self, work: Work, examples: Sequence[Any], weight: int, future: "asyncio.Future[list[Any]]") -> None:
        self.work = work
        self.examples = examples
        self.weight = weight
        self.future = future
        self.since = time.perf_counter()
        self.prepared: list[Any] | None = None
        self.costs: list[int] = []
        self.waiting = list(range(len(examples)))
        """Which of its inputs have not gone into a batch yet."""
        self.wanted = True
        """Somebody still waits for it."""
        self.begun = False
        self.left = len(examples)
        """How many have no answer yet."""
        self.found: list[Any] = [None] * len(examples)

    @property
    def share(self) -> float:
        """The weight of one of its inputs."""
        return self.weight / len(self.examples)


class Unit(NamedTuple):
    """One input of a job."""

    job: Job
    number: int

    @property
    def cost(self) -> int:
        """In tokens."""
        return self.job.costs[self.number]


class Lane:
    """A queue and its thread."""

    def __init__(self, name: str, batch_tokens: int, limits: Limits, meters: Meters, log: Log) -> None:
        self.name = name
        self.batch_tokens = batch_tokens
        self.limits = limits
        self.log = log
        self.loop: asyncio.AbstractEventLoop | None = None
        self.waiting = 0
        """Inputs in the queue."""
        self.pace = 0.0
        """Seconds that a character takes, about."""
        self._weight = 0.0
        self._jobs: deque[Job] = deque()
        self._turn = Condition()
        self._closed = False
        self._queue = meters.queue.labels(name)
        self._waited = meters.waited.labels(name)
        self._tokens = meters.tokens.labels(name)
        self._inputs = meters.inputs.labels(name)
        self._computed = meters.computed.labels(name)
        self._failures = meters.failures.labels(name)
        self._thread = Thread(target=self._run, name=f"lane-{name}", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to work; answers are given back in the loop."""
        self.loop = loop
        self._thread.start()

    def close(self) -> None:
        """Take nothing more; what waits is still answered."""
        with self._turn:
            self._closed = True
            self._turn.notify()

    @property
    def expected(self) -> float:
        """Seconds until what waits now will be done, about."""
        return self._weight * self.pace

    async def ask(
        self, work: Work, examples: Sequence[Any], until: float, gone: Callable[[], Awaitable[bool]]
    ) -> list[Any]:
        """The answer to each example, by a moment of the loop's clock; raises the first `Refusal` there is."""
        loop = asyncio.get_running_loop()
        job = Job(work, examples, weigh(examples), loop.create_future())
        self._submit(job)
        try:
            while True:
                await asyncio.wait((job.future,), timeout=max(0.0, min(LOOK, until - loop.time())))
                if job.future.done():
                    return job.future.result()
                if loop.time() >= until:
                    seconds = self.limits.max_seconds
                    raise Refusal(
                        503,
                        f"the answer took longer than the {seconds:g} seconds that a request may take (max-seconds); "
                        "ask for less at once, or try again later",
                        wait=self.expected,
                        limit="max-seconds",
                    )
                if await gone():
                    raise Gone
        finally:
            if not job.future.cancel() and not job.future.cancelled():
                job.future.exception()  # which counts as having heard of it
            self._drop(job)

    def _submit(self, job: Job) -> None:
        with self._turn:
            if self._closed:
                raise Refusal(503, "the server is about to stop; try again later", wait=5)
            count = len(job.examples)
            if self.waiting and self.waiting + count > self.limits.max_queue:  # one that is alone is always taken
                raise Refusal(
                    429,
                    f"{self.waiting} inputs wait for {self.name}, and {self.limits.max_queue} may (max-queue); "
                    "try again later",
                    wait=self.expected,
                    limit="max-queue",
                )
            if self.expected > self.limits.max_seconds:
                raise Refusal(
                    429,
                    f"what waits for {self.name} takes longer than the {self.limits.max_seconds:g} seconds that a "
                    "request may take (max-seconds); try again later",
                    wait=self.expected - self.limits.max_seconds / 2,
                    limit="max-seconds",
                )
            self._jobs.append(job)
            self._count(count, job.weight)
            self._turn.notify()

    def _drop(self, job: Job) -> None:
        """Forget what nobody waits for any more."""
        job.wanted = False
        with self._turn:
            if job in self._jobs:
                self._jobs.remove(job)
                self._count(-len(job.waiting), -job.share * len(job.waiting))

    def _count(self, inputs: int, weight: float) -> None:
        self.waiting += inputs
        self._weight = max(0.0, self._weight + weight) if self.waiting else 0.0
        self._queue.set(self.waiting)

    def _run(self) -> None:
        while self._wait():
            jobs: list[Job] = []
            try:
                while jobs := self._fresh():
                    self._prepare(jobs)
                units = self._take()
                jobs = [job for job, _ in units]
                if units:
                    self._answer(units)
            except Exception as error:  # of ours, not of a model; the thread must live on
                self._failed(jobs or list(self._jobs), error)

    def _failed(self, jobs: list[Job], error: Exception) -> None:
        """Tell those who wait, once each."""
        self._failures.inc()
        self.log.failure("failure", error, model=self.name)
        jobs = list(dict.fromkeys(jobs))
        for job in jobs:
            self._drop(job)
        self._deliver(jobs, [_failure(self.name, error)] * len(jobs))

    def _wait(self) -> bool:
        """Until there is something to do; whether there will be."""
        with self._turn:
            while not self._jobs and not self._closed:
                self._turn.wait()
            return bool(self._jobs)

    def _fresh(self) -> list[Job]:
        """Those of the oldest kind that must be prepared before a batch can be chosen."""
        fresh: list[Job] = []
        with self._turn:
            if not self._jobs:
                return fresh
            key, tokens = self._jobs[0].work.key, 0
            for job in self._jobs:
                if job.work.key != key:
                    continue
                if job.prepared is None:
                    fresh.append(job)
                    tokens += job.weight // CHARACTERS
                else:
                    tokens += sum(job.costs[number] for number in job.waiting)
                if tokens >= AHEAD * self.batch_tokens:
                    break
        return fresh

    def _prepare(self, jobs: list[Job]) -> None:
        work, examples = jobs[0].work, [one for job in jobs for one in job.examples]
        prepared = iter(self._careful(work.prepare, examples))
        refusals: list[tuple[Job, Refusal]] = []
        for job in jobs:
            ready = [next(prepared) for _ in job.examples]
            wrong = next((one for one in ready if isinstance(one, Refusal)), None)
            if wrong is not None:
                refusals.append((job, wrong))
                self._drop(job)
            else:
                job.costs = [work.tokens(one) for one in ready]
                job.prepared = ready
        if refusals:
            self._deliver([job for job, _ in refusals], [wrong for _, wrong in refusals])

    def _take(self) -> list[Unit]:
        """The next batch: the oldest input, and those of its kind that are most like it in length."""
        with self._turn:
            if not self._jobs:
                return []
            key = self._jobs[0].work.key
            ready = [job for job in self._jobs if job.prepared is not None and job.work.key == key]
            units = [Unit(job, number) for job in ready for number in job.waiting]
            chosen = likest(units, self.batch_tokens)
            for job, number in chosen:
                job.waiting.remove(number)
                if not job.waiting:
                    self._jobs.remove(job)
                self._count(-1, -job.share)
        return chosen

    def _answer(self, units: list[Unit]) -> None:
        work, begun = units[0].job.work, time.perf_counter()

        def wanted() -> bool:
            return any(job.wanted for job, _ in units)

        found = self._careful(
            lambda items: work.answer(items, wanted), [(job.prepared or [])[number] for job, number in units]
        )
        took = time.perf_counter() - begun
        done: list[Job] = []
        for (job, number), answer in zip(units, found, strict=True):
            job.found[number] = answer
            job.left -= 1
            if not job.begun:
                job.begun = True
                self._waited.observe(begun - job.since)
            if not job.left:
                done.append(job)
        pace = took / sum(job.share for job, _ in units)
        self.pace = pace if not self.pace else (1 - PACE_SHARE) * self.pace + PACE_SHARE * pace
        self._tokens.observe(sum(unit.cost for unit in units))
        self._inputs.observe(len(units))
        self._computed.observe(took)
        self._deliver(done, [next((one for one in job.found if isinstance(one, Refusal)), job.found) for job in done])

    def _careful(self, ask: Callable[[Sequence[Any]], list[Any]], items: Sequence[Any]) -> list[Any]:
        """What is found for each item. If that fails, each is tried alone, so that one harms no other."""
        try:
            found = ask(items)
            assert len(found) == len(items), "a model must answer everything"
            return found
        except Gone:
            return [Refusal(503, "nobody waits for this any more")] * len(items)
        except Exception as error:  # whatever it is, the thread must live on
            if len(items) > 1:
                return [self._careful(ask, [item])[0] for item in items]
            if isinstance(error, UserError):
                return [refused(error)]
            if isinstance(error, Refusal):
                return [error]
            self._failures.inc()
            self.log.failure("failure", error, model=self.name)
            return [_failure(self.name, error)]

    def _deliver(self, jobs: list[Job], answers: Sequence[list[Any] | Refusal]) -> None:
        """Wake those who wait, all at once."""
        assert self.loop is not None

        def wake() -> None:
            for job, answer in zip(jobs, answers, strict=True):
                if job.future.done():
                    continue
                if isinstance(answer, Refusal):
                    job.future.set_exception(answer)
                else:
                    job.future.set_result(answer)

        if jobs and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(wake)


def _failure(name: str, error: Exception) -> Refusal:
    return Refusal(424, f"{name} failed on this input ({type(error).__name__}); it may be too large")


def weigh(examples: Sequence[Any]) -> int:
    """What examples cost, in characters."""
    return sum(BESIDES + getattr(one, "weight", 0) for one in examples)


def likest(units: Sequence[Unit], room: int) -> list[Unit]:
    """The first unit, and as many of those that cost about as much as there is room for."""
    if not units:
        return []
    first, *others = units
    size, left = first.cost, room - first.cost
    chosen = [first]
    for unit in sorted(others, key=lambda one: abs(one.cost - size)):
        left -= unit.cost
        if left < 0:
            break
        chosen.append(unit)
    return chosen
