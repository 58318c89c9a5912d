"""The queue: who goes together, in which order, what is refused, and that one who fails harms nobody."""

import asyncio
import gc
import io
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch

from heedful.errors import UserError
from heedful.serve.batching import Gone, Lane, Wanted, weigh
from heedful.serve.limits import Limits
from heedful.serve.logs import Log
from heedful.serve.metrics import Meters
from heedful.serve.refusals import Refusal


class Thing(NamedTuple):
    """An example that costs as many tokens as it says."""

    name: str
    cost: int = 1

    @property
    def weight(self) -> int:
        return 4 * self.cost


@dataclass
class Echo:
    """Gives back what it gets, and remembers its batches; holds the worker until it is let go."""

    key: str = "echo"
    batches: list[list[str]] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    busy: threading.Event = field(default_factory=threading.Event)

    def prepare(self, examples: Sequence[Thing]) -> list[Any]:
        return [Refusal(413, "no") if one.name == "refused" else one for one in examples]

    def tokens(self, prepared: Thing) -> int:
        if prepared.cost < 0:
            raise OverflowError("the secret cost")
        return prepared.cost

    def answer(self, prepared: Sequence[Thing], wanted: Wanted) -> list[str]:
        self.busy.set()
        for one in prepared:
            if one.name == "long":
                while wanted():
                    time.sleep(0.005)
                raise Gone
        assert self.go.wait(10)
        self.batches.append([one.name for one in prepared])
        for one in prepared:
            if one.name == "broken":
                raise ZeroDivisionError("the secret text")
            if one.name == "huge":
                raise torch.OutOfMemoryError("the secret size")
            if one.name == "mistaken":
                raise UserError("this can't be (--flag)")
        return [one.name.upper() for one in prepared]


async def stays() -> bool:
    return False


async def leaves() -> bool:
    return True


class Queue:
    """A lane in a loop of its test."""

    def __init__(self, tokens: int = 10, **limits: Any) -> None:
        self.meters = Meters()
        self.said = io.StringIO()
        self.lane = Lane("it", tokens, Limits(**limits), self.meters, Log(file=self.said))
        self.work = Echo()

    def ask(self, *things: Thing, work: Echo | None = None, seconds: float = 20, gone: Any = stays) -> asyncio.Task:
        until = asyncio.get_running_loop().time() + seconds
        return asyncio.create_task(self.lane.ask(work or self.work, things, until, gone))

    def metric(self, name: str, **labels: str) -> float | None:
        return self.meters.registry.get_sample_value(name, {"model": "it", **labels})


def run(test: Any, queue: Queue) -> None:
    async def whole() -> None:
        queue.lane.start(asyncio.get_running_loop())
        try:
            await asyncio.wait_for(test(), 20)
        finally:
            queue.work.go.set()
            queue.lane.close()
            await asyncio.to_thread(queue.lane._thread.join, 10)
            assert not queue.lane._thread.is_alive()

    asyncio.run(whole())


async def held(queue: Queue) -> asyncio.Task:
    """A first request that keeps the worker busy, so that all that follow wait."""
    first = queue.ask(Thing("first"))
    assert await asyncio.to_thread(queue.work.busy.wait, 10)
    return first


def test_those_who_wait_go_together_up_to_the_tokens():
    queue = Queue(tokens=10)

    async def test() -> None:
        first = await held(queue)
        waiting = [queue.ask(Thing(name, cost)) for name, cost in (("a", 3), ("b", 5), ("c", 2), ("d", 1), ("e", 11))]
        await asyncio.sleep(0)
        queue.work.go.set()
        assert await asyncio.gather(first, *waiting) == [["FIRST"], ["A"], ["B"], ["C"], ["D"], ["E"]]
        assert queue.work.batches == [["first"], ["a", "c", "b"], ["d"], ["e"]]  # those most like a first
        assert queue.metric("heedful_batch_tokens_sum") == 1 + 10 + 1 + 11
        assert queue.metric("heedful_batch_inputs_count") == 4
        assert queue.metric("heedful_queue_inputs") == 0

    run(test, queue)


def test_a_large_request_is_split_and_put_together_in_order():
    queue = Queue(tokens=4)
    queue.work.go.set()

    async def test() -> None:
        names = [f"n{number}" for number in range(11)]
        assert await queue.ask(*(Thing(name, 2) for name in names)) == [name.upper() for name in names]
        assert [len(batch) for batch in queue.work.batches] == [2, 2, 2, 2, 2, 1]

    run(test, queue)


def test_other_kinds_wait_for_the_oldest():
    queue = Queue(tokens=10)
    other = Echo(key="other", batches=queue.work.batches, go=queue.work.go, busy=queue.work.busy)

    async def test() -> None:
        first = await held(queue)
        tasks = [queue.ask(Thing("a"), work=other), queue.ask(Thing("b")), queue.ask(Thing("c"), work=other)]
        await asyncio.sleep(0)
        queue.work.go.set()
        await asyncio.gather(first, *tasks)
        assert queue.work.batches == [["first"], ["a", "c"], ["b"]]

    run(test, queue)


def test_one_that_fails_harms_no_other_and_its_words_are_not_logged():
    queue = Queue(tokens=100)

    async def test() -> None:
        first = await held(queue)
        names = ("a", "broken", "refused", "mistaken", "huge", "b")
        tasks = [queue.ask(Thing(name)) for name in names]
        await asyncio.sleep(0)
        queue.work.go.set()
        await first
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert found[0] == ["A"]
        assert found[5] == ["B"]
        assert [one.status for one in found[1:5] if isinstance(one, Refusal)] == [424, 413, 422, 424]
        assert str(found[3]) == "this can't be"
        assert all(name in queue.said.getvalue() for name in ("ZeroDivisionError", "OutOfMemoryError"))
        assert "secret" not in queue.said.getvalue() + str(found[1]) + str(found[4])
        assert queue.metric("heedful_failures_total") == 2

    run(test, queue)


def test_a_full_queue_refuses_and_says_when_to_come_again():
    queue = Queue(max_queue=3, max_inputs=3)

    async def test() -> None:
        first = await held(queue)
        waiting = queue.ask(Thing("a"), Thing("b"))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="max-queue") as refusal:
            await queue.ask(Thing("c"), Thing("d"))
        assert refusal.value.status == 429
        assert int(refusal.value.headers["retry-after"]) >= 1
        queue.work.go.set()
        assert await first == ["FIRST"]
        assert await waiting == ["A", "B"]

    run(test, queue)


def test_what_would_take_too_long_is_refused_at_once():
    queue = Queue(max_seconds=5)

    async def test() -> None:
        first = await held(queue)
        waiting = queue.ask(Thing("a", 100))
        await asyncio.sleep(0)
        queue.lane.pace = 5.1 / weigh([Thing("a", 100)])
        with pytest.raises(Refusal, match="max-seconds") as refusal:
            await queue.ask(Thing("b"))
        assert refusal.value.status == 429
        queue.work.go.set()
        await asyncio.gather(first, waiting)

    run(test, queue)


def test_who_waits_too_long_is_told_so_and_forgotten():
    queue = Queue()

    async def test() -> None:
        first = await held(queue)
        with pytest.raises(Refusal, match="max-seconds") as refusal:
            await queue.ask(Thing("late"), Thing("later"), seconds=0.05)
        assert refusal.value.status == 503
        assert queue.lane.waiting == 0
        queue.work.go.set()
        await first
        assert queue.work.batches == [["first"]]

    run(test, queue)


def test_who_has_left_is_forgotten(monkeypatch):
    monkeypatch.setattr("heedful.serve.batching.LOOK", 0.01)
    queue = Queue()

    async def test() -> None:
        first = await held(queue)
        with pytest.raises(Gone):
            await queue.ask(Thing("gone"), gone=leaves)
        assert queue.lane.waiting == 0
        queue.work.go.set()
        await first
        assert await queue.ask(Thing("b")) == ["B"]
        assert queue.work.batches == [["first"], ["b"]]

    run(test, queue)


def test_an_idle_worker_begins_at_once():
    queue = Queue()
    queue.work.go.set()

    async def test() -> None:
        await queue.ask(Thing("warm"))
        begun = time.perf_counter()
        for _ in range(20):
            await queue.ask(Thing("a"))
        assert (time.perf_counter() - begun) / 20 < 0.05

    run(test, queue)


def test_a_closed_lane_finishes_what_waits_and_takes_nothing_more():
    queue = Queue()

    async def test() -> None:
        first = await held(queue)
        waiting = queue.ask(Thing("a"))
        await asyncio.sleep(0)
        queue.lane.close()
        with pytest.raises(Refusal, match="about to stop") as refusal:
            await queue.ask(Thing("b"))
        assert refusal.value.status == 503
        queue.work.go.set()
        assert await asyncio.gather(first, waiting) == [["FIRST"], ["A"]]

    run(test, queue)


def test_what_nobody_waits_for_any_more_stops(monkeypatch):
    monkeypatch.setattr("heedful.serve.batching.LOOK", 0.01)
    queue = Queue(tokens=100)
    queue.work.go.set()

    async def test() -> None:
        with pytest.raises(Refusal, match="max-seconds"):
            await queue.ask(Thing("long"), Thing("a"), seconds=0.05)
        with pytest.raises(Gone):
            await queue.ask(Thing("long"), gone=leaves)
        assert await queue.ask(Thing("b")) == ["B"]  # whose turn comes, as the others were given up
        assert queue.work.batches == [["b"]]
        assert queue.metric("heedful_failures_total") == 0

    run(test, queue)


def test_a_mistake_of_ours_is_told_and_the_thread_lives_on():
    queue = Queue()
    queue.work.go.set()

    async def test() -> None:
        with pytest.raises(Refusal, match="OverflowError") as refusal:
            await queue.ask(Thing("a"), Thing("b", -5))
        assert refusal.value.status == 424
        assert queue.lane.waiting == 0
        assert await queue.ask(Thing("c")) == ["C"]
        assert "OverflowError" in queue.said.getvalue()
        assert "secret" not in queue.said.getvalue()
        assert queue.metric("heedful_failures_total") == 1

    run(test, queue)


def test_an_answer_that_comes_too_late_is_nobodys_trouble(monkeypatch):
    monkeypatch.setattr("heedful.serve.batching.LOOK", 0.01)
    queue = Queue()
    said: list[str] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: said.append(told["message"]))
        late = queue.ask(Thing("broken"), gone=leaves)
        assert await asyncio.to_thread(queue.work.busy.wait, 10)
        with pytest.raises(Gone):
            await late
        queue.work.go.set()
        assert await queue.ask(Thing("b")) == ["B"]
        del late
        gc.collect()

    run(test, queue)
    gc.collect()
    assert said == []


def test_one_request_that_is_larger_than_the_queue_is_taken_alone():
    queue = Queue(max_queue=3, max_inputs=3)
    queue.work.go.set()

    async def test() -> None:
        assert await queue.ask(*(Thing(name) for name in "abcd")) == ["A", "B", "C", "D"]

    run(test, queue)
