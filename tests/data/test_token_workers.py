"""Workers give what this process would, and are gone when it, or who asked for them, is."""

import fcntl
import gc
import os
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful.data import token_workers
from heedful.data.inputs import TextInputs, text_inputs
from heedful.data.token_workers import TokenWorkers
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError

TEXTS = [
    "The river runs quietly past the old stone mill.",
    "강가에 있는 오래된 물레방아가 천천히 돌아갑니다.",
    "",
    "A baker carries warm bread across the wooden bridge. " * 5,
    "[SEP] is text",
    "mill",
    "x" * 300,
]
PAIRS = [text[::-1] for text in TEXTS]


Start = Callable[..., TokenWorkers]


@pytest.fixture
def workers(trained: Tokenizer, started: Start) -> TokenWorkers:
    """Two that are ready."""
    made = started(trained, count=2, few=1)
    assert made.ready
    return made


def processes(workers: TokenWorkers) -> list[subprocess.Popen[bytes]]:
    return list(workers._workers)


def same(some: TextInputs, others: TextInputs) -> bool:
    def plain(one: TextInputs) -> tuple[list[list[int]], list[int], list[int]]:
        assert one.inputs.ids.dtype == np.int32
        return [each.ids.tolist() for each in one.inputs], one.inputs.seconds.tolist(), one.tokens.tolist()

    return plain(some) == plain(others)


@pytest.mark.parametrize("pairs", [None, PAIRS])
@pytest.mark.parametrize("length", [13, 512])
@pytest.mark.parametrize("count", [0, 1, 2, 5, 7])
def test_inputs_are_those_of_this_process(
    workers: TokenWorkers, trained: Tokenizer, pairs: list[str] | None, length: int, count: int
):
    seconds = None if pairs is None else pairs[:count]
    found = workers.text_inputs(TEXTS[:count], seconds, length)
    assert same(found, text_inputs(trained, TEXTS[:count], seconds, length))
    assert workers.ready


def test_texts_are_read_elsewhere(workers: TokenWorkers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(token_workers, "text_inputs", None)  # which nobody here may call
    assert len(workers.text_inputs(TEXTS, None, 64).tokens) == len(TEXTS)


def test_several_threads_get_their_own_answers(workers: TokenWorkers, trained: Tokenizer):
    wrong = []

    def ask(text: str) -> None:
        for times in range(1, 20):
            given = [f"{text} {number}" for number in range(times)]
            if not same(workers.text_inputs(given, None, 64), text_inputs(trained, given, None, 64)):
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(text,)) for text in ("river", "mill", "bread", "stone")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert workers.ready


class Marked(str):
    """A text that knows more, as a piece of a parsed page does."""

    def __new__(cls, text: str) -> "Marked":
        made = super().__new__(cls, text)
        made.page = threading.Lock()  # which no other process can have
        return made


def test_texts_may_be_of_a_class_of_their_own(workers: TokenWorkers, trained: Tokenizer):
    texts = [Marked(text) for text in TEXTS]
    assert same(workers.text_inputs(texts, texts, 64), text_inputs(trained, TEXTS, TEXTS, 64))
    assert workers.ready


def test_what_no_worker_can_be_told_is_read_here(workers: TokenWorkers):
    with pytest.raises(UserError, match="is not a text"):
        workers.text_inputs([threading.Lock(), "the mill"], None, 64)  # pyrefly: ignore
    assert not workers.ready


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux tells of processes and pipes")
def test_an_answer_is_whole_although_the_worker_was_stopped(
    workers: TokenWorkers, trained: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    """A write that a signal breaks off has written a part."""
    receive = token_workers._receive

    def later(worker: subprocess.Popen[bytes]) -> Any:
        assert worker.stdout is not None
        until(lambda: waiting(worker.stdout) == fcntl.fcntl(worker.stdout, fcntl.F_GETPIPE_SZ))
        for number, state in ((signal.SIGSTOP, "T"), (signal.SIGCONT, "S")):
            os.kill(worker.pid, number)
            until(lambda state=state: Path(f"/proc/{worker.pid}/stat").read_text().split()[2] == state)
        return receive(worker)

    monkeypatch.setattr(token_workers, "_receive", later)
    texts = ["the old mill " * 20] * 4000
    assert same(workers.text_inputs(texts, None, 64), text_inputs(trained, texts, None, 64))
    assert workers.ready


def waiting(pipe: Any) -> int:
    """Bytes that have been written and not read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end
        time.sleep(0.001)


def starting() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "token workers"]


def test_they_are_started_for_many_texts_alone(trained: Tokenizer):
    workers = TokenWorkers(trained, count=1, many=10, few=3)
    expected = text_inputs(trained, TEXTS, None, 64)
    for _ in range(9):
        workers.text_inputs(TEXTS[:2], None, 64)  # few, however often
    for _ in range(2):
        assert same(workers.text_inputs(TEXTS, None, 64), expected)  # 14 texts, but nobody knew that more would come
        assert not processes(workers)
    assert same(workers.text_inputs(TEXTS, None, 64), expected)  # whether here or there
    for thread in starting():
        thread.join()
    assert workers.ready
    assert same(workers.text_inputs(TEXTS, None, 64), expected)


def test_they_are_started_at_once_where_many_texts_are_expected(trained: Tokenizer):
    workers = TokenWorkers(trained, count=1, many=10)
    workers.expect(9)
    assert not starting()
    workers.expect(10)
    for thread in starting():
        thread.join()
    assert workers.ready
    workers.expect(10)
    assert not starting()
    assert len(processes(workers)) == 1


def test_few_texts_are_read_here(trained: Tokenizer, started: Start, monkeypatch: pytest.MonkeyPatch):
    workers = started(trained, count=1, few=3)
    monkeypatch.setattr(token_workers, "_send", None)  # which nobody may call
    assert same(workers.text_inputs(TEXTS[:2], None, 64), text_inputs(trained, TEXTS[:2], None, 64))
    assert workers.ready


def test_they_are_started_once(trained: Tokenizer, started: Start):
    workers = started(trained, count=1, many=0, few=1)
    assert len(workers.text_inputs(TEXTS, None, 64).tokens) == len(TEXTS)
    assert not starting()
    assert len(processes(workers)) == 1


def test_none_are_started_where_there_are_few_cores(
    trained: Tokenizer, started: Start, monkeypatch: pytest.MonkeyPatch
):
    for cores, count in ((2, 0), (7, 0), (8, 4), (16, 12), (96, 16)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert TokenWorkers(trained).count == count
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    alone = started(trained, many=0, few=1)
    assert not alone.ready
    assert same(alone.text_inputs(TEXTS, None, 64), text_inputs(trained, TEXTS, None, 64))
    assert not starting()
    assert not processes(alone)


def test_none_are_started_by_a_program_without_python(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert token_workers.usual() == 12
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert token_workers.usual() == 0
    monkeypatch.setattr(sys, "frozen", False)
    monkeypatch.setattr(sys, "executable", "")
    assert token_workers.usual() == 0


def test_when_one_dies_texts_are_read_here(workers: TokenWorkers, trained: Tokenizer):
    first, second = processes(workers)
    second.kill()
    second.wait()
    for _ in range(2):
        assert same(workers.text_inputs(TEXTS, None, 64), text_inputs(trained, TEXTS, None, 64))
        assert not workers.ready
        assert first.poll() is not None


def test_when_one_dies_in_the_middle_of_an_answer_texts_are_read_here(workers: TokenWorkers, trained: Tokenizer):
    """Its answer does not fit into the pipe: nobody has read the rest when it is killed."""
    many = ["the old stone mill " * 20] * 3000
    _, last = processes(workers)
    receive, begun = token_workers._receive, []

    def late(worker: subprocess.Popen[bytes]) -> tuple[np.ndarray, ...]:
        if worker is last:
            begun.extend(select.select([worker.stdout], [], [], 30)[0])
            worker.kill()
            worker.wait()
        return receive(worker)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_workers, "_receive", late)
        assert same(workers.text_inputs(many, None, 64), text_inputs(trained, many, None, 64))
    assert begun
    assert not workers.ready


def test_a_text_that_is_none_fails_as_it_does_here(workers: TokenWorkers):
    for _ in range(2):
        with pytest.raises(UserError, match=r"lone \\ud800 surrogate' is not UTF-8 at character 8"):
            workers.text_inputs(["a lone \ud800 surrogate", "mill", "river"], None, 64)
        assert workers.ready  # for better ones
        assert len(workers.text_inputs(TEXTS, None, 64).tokens) == len(TEXTS)


def test_an_interrupted_answer_is_not_taken_for_another(
    workers: TokenWorkers, trained: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(token_workers, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            workers.text_inputs(TEXTS[:3], None, 64)
    assert same(workers.text_inputs(TEXTS[3:], None, 64), text_inputs(trained, TEXTS[3:], None, 64))


def test_an_interrupt_is_not_theirs(workers: TokenWorkers):
    for worker in processes(workers):
        worker.send_signal(signal.SIGINT)
    assert len(workers.text_inputs(TEXTS, None, 64).tokens) == len(TEXTS)
    assert workers.ready


def test_what_can_not_be_started_is_done_without(trained: Tokenizer, started: Start, monkeypatch: pytest.MonkeyPatch):
    for program in ("/bin/false", "/nowhere/python"):
        monkeypatch.setattr(sys, "executable", program)
        workers = started(trained, count=2, few=1)
        assert not workers.ready
        assert all(worker.poll() is not None for worker in processes(workers))
        assert same(workers.text_inputs(TEXTS, None, 64), text_inputs(trained, TEXTS, None, 64))


def test_modules_are_found_where_this_process_finds_them(
    trained: Tokenizer, started: Start, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "path", [Path(one) for one in sys.path])  # not all are strings
    assert started(trained, count=1).ready


def test_they_end_with_who_asked(trained: Tokenizer, started: Start):
    workers = started(trained, count=2)
    both = processes(workers)
    assert [worker.poll() for worker in both] == [None, None]
    del workers
    gc.collect()
    assert None not in [worker.poll() for worker in both]


@pytest.mark.parametrize("moment", ["before", "_send", "_receive"])
def test_the_end_of_the_program_while_they_start_ends_them(
    trained: Tokenizer, monkeypatch: pytest.MonkeyPatch, moment: str
):
    workers = TokenWorkers(trained, count=2)
    if moment == "before":
        workers._end()
    else:
        done = getattr(token_workers, moment)

        def ending(*given: Any) -> Any:
            workers._end()
            return done(*given)

        monkeypatch.setattr(token_workers, moment, ending)
    workers._start()
    assert not workers.ready
    assert None not in [worker.poll() for worker in processes(workers)]


BEGIN = """
import threading
def start(workers):
    workers.expect(workers.many)
    for thread in threading.enumerate():
        if thread.name == "token workers":
            thread.join()
"""
"""Starts workers, and waits for them."""
PYTHON = [sys.executable, "-W", "ignore::DeprecationWarning", "-c"]
"""From 3.12 on, Python says of every fork beside threads that it may go wrong; here it is seen that it does not."""

FORKING = (
    BEGIN
    + """
import os
from heedful.data import tokenizer
from heedful.data.token_workers import TokenWorkers
made = tokenizer.train(lambda: ["the old mill", "the old bridge"] * 3, 40, exactly=False)
workers = TokenWorkers(made, count=2, few=1)
start(workers)
idle = TokenWorkers(made, count=2, many=0, few=1)
workers._turn.acquire()  # as if a thread asked while the fork is made
child = os.fork()
if child:
    workers._turn.release()
else:
    start(idle)
texts = ["the mill"] * (5 if child else 7)
wrong = sum(len(workers.text_inputs(texts, None, 64).tokens) != len(texts) for _ in range(200))
print(wrong, workers.ready, len(idle._workers), flush=True)
if child:
    os.waitpid(child, 0)
    print(workers.ready and len(workers.text_inputs(texts, None, 64).tokens), flush=True)
"""
)


def test_a_fork_reads_its_texts_itself():
    run = subprocess.run([*PYTHON, FORKING], capture_output=True, text=True, timeout=60, check=False)
    *both, last = run.stdout.splitlines()
    assert (run.returncode, run.stderr, sorted(both), last) == (0, "", ["0 False 0", "0 True 0"], "5")


WAITING = (
    BEGIN
    + """
import contextlib, os
from heedful.data import token_workers, tokenizer
made = tokenizer.train(lambda: ["the old mill", "the old bridge"] * 3, 40, exactly=False)
workers = token_workers.TokenWorkers(made, count=2, few=1)
start(workers)
reading = threading.Event()
def told(stream, size, read=token_workers._read):
    reading.set()
    return read(stream, size)
token_workers._read = told
def wait():
    with contextlib.suppress(EOFError):  # in the end
        token_workers._receive(workers._workers[0])
threading.Thread(target=wait, daemon=True).start()
reading.wait()
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1])
"""
)


def test_a_fork_ends_although_a_thread_was_waiting_for_an_answer():
    """Its copies of what that thread had taken are never given back."""
    run = subprocess.run([*PYTHON, WAITING], capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", "0\n")


def test_without_threads_texts_are_read_here(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch):
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    workers = TokenWorkers(trained, count=2, many=0, few=1)
    assert len(workers.text_inputs(["the mill"] * 5, None, 64).tokens) == 5


def test_a_fork_does_not_keep_them(workers: TokenWorkers):
    """It has the other ends of their pipes, so that their input does not end."""
    ends = [worker.stdin.fileno() for worker in processes(workers) if worker.stdin is not None]
    fork = subprocess.Popen(["sleep", "60"], pass_fds=ends)
    workers._end()
    assert None not in [worker.poll() for worker in processes(workers)]
    fork.kill()
    fork.wait()


SCRIPT = (
    BEGIN
    + """
import os, signal, sys
from heedful.data import tokenizer
from heedful.data.token_workers import TokenWorkers
made = tokenizer.train(lambda: ["the old mill", "the old bridge"] * 3, 40, exactly=False)
workers = TokenWorkers(made, count=2, many=0, few=1)
end, slow = sys.argv[1:]
if end == "early":
    sys.executable = slow
else:
    start(workers)
assert len(workers.text_inputs(["the mill"] * 5, None, 64).tokens) == 5 and workers.ready == (end != "early")
while len(workers._workers) < 2:
    pass
print(*(worker.pid for worker in workers._workers), flush=True)
if end == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""
)


@pytest.mark.parametrize(("end", "code"), [("kill", -signal.SIGKILL), ("exit", 0), ("early", 0)])
def test_they_end_with_a_script_that_has_no_main(end: str, code: int, tmp_path: Path):
    """`multiprocessing` would run such a script again in every process, which would then print more lines.

    One ends early: while its workers are being started.
    """
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    command = [sys.executable, "-c", SCRIPT, end, str(slow)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr, run.stdout.count("\n")) == (code, "", 1)
    assert len(run.stdout.split()) == 2
    for pid in run.stdout.split():
        try:
            process = os.pidfd_open(int(pid))
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([process], [], [], 30)
        os.close(process)
        assert ended
