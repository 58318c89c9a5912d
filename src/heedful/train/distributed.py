"""Several processes, one run: who we are, and sums over everybody. Without torchrun, a world of one.

Gradients are summed in one flat piece in a fixed order, so that a run can be repeated to the bit. What the ranks tell
each other besides goes through the CPU, and waits for nobody's GPU.
"""

import os
import platform
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn

from heedful import launch
from heedful.errors import OfOneProcess, UserError

T = TypeVar("T")

WAIT = timedelta(days=30)
"""For each other: the leading rank may prepare the text or evaluate meanwhile, however long that takes."""
MEETING = timedelta(minutes=30)
"""Until all are there: they begin at the same time, but for what a slow disk takes to import from."""
PATIENCE = 30.0
"""Seconds of it in which nothing is said."""
PEER = re.compile(r"(?i)connection (closed|reset|refused)|broken pipe")
"""What is said when a peer has gone."""
LOST = re.compile(rf"{PEER.pattern}|timed out|nccl|gloo")
"""The same, or another trouble with the connection, which is then quoted."""
TOLD = "told"
"""The note of who ends by a mistake that it tells."""


class PeerLost(OfOneProcess):
    """A process of the run has ended without which this one can't go on."""


class World(NamedTuple):
    """The processes of a run, and this one among them."""

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    sharded: bool = False
    """Every rank holds a part of each parameter; its gradient comes summed already (see train/sharding.py)."""

    @property
    def leads(self) -> bool:
        """Whether this process prints and writes."""
        return self.rank == 0

    @property
    def here(self) -> int | None:
        """How many of them are on this machine; None where nobody says."""
        if self.ranks == 1:
            return 1
        return launch.told("LOCAL_WORLD_SIZE", 0) or None

    def launcher(self) -> str:
        """How such processes are started."""
        if self.ranks == 1:
            return "heedful"
        here = min(self.here or self.ranks, self.ranks)
        nodes = "" if here == self.ranks else f"--nnodes {self.ranks // here} --rdzv-backend … "
        return f"torchrun {nodes}--nproc-per-node {here} -m heedful"

    def barrier(self) -> None:
        """Wait for everybody."""
        self.sum_numbers([0.0])

    def share(self, value: T) -> T:
        """The leading rank's value, for everybody."""
        box = [value]
        if self.ranks > 1:
            dist.broadcast_object_list(box, device=torch.device("cpu"))
        return box[0]

    def share_tensors(self, tensors: list[Tensor]) -> None:
        """Make everybody's tensors those of the leading rank."""
        if self.ranks > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def gather(self, value: T) -> list[T]:
        """Everybody's value, for everybody."""
        found = [value] * self.ranks
        if self.ranks > 1:
            dist.all_gather_object(found, value)
        return found

    def in_turn(self, make: Callable[[], T]) -> T:
        """What everybody makes, the leading rank first: a mistake is found and told once, files are there by then."""
        if self.leads:
            made = make()
            self.barrier()
            return made
        self.barrier()
        try:
            return make()
        except (UserError, OSError) as error:
            way_out = "every node must see the same files under the same names"
            raise UserError(f"this fails where the first process did not ({error}); {way_out}") from None

    def ending(self, error: Exception) -> BaseException:
        """How a rank ends when all end alike: the leading one tells why, the others are silent."""
        if self.leads:
            return error
        return SystemExit(2 if isinstance(error, UserError) else 130)

    def sum_numbers(self, numbers: list[float]) -> list[float]:
        """Each number's sum over the ranks. Exact for integers; waits for nobody's GPU."""
        if self.ranks == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def sum_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Replace every gradient by its sum over the ranks."""
        if self.ranks == 1 or self.sharded:
            return
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        flat = torch._utils._flatten_dense_tensors(gradients)
        dist.all_reduce(flat)
        summed = torch._utils._unflatten_dense_tensors(flat, gradients)
        for parameter, gradient in zip(parameters, summed, strict=True):
            parameter.grad = gradient

    def whole(self, tensor: Any) -> Tensor:
        """A tensor of which every rank may hold a part, put together for everybody."""
        return tensor.full_tensor() if self.sharded else tensor


@contextmanager
def world(device: str) -> Iterator[World]:
    """Join the processes that torchrun started, for as long as the run lasts."""
    ranks, local_rank = launch.told("WORLD_SIZE", 1), launch.told("LOCAL_RANK", 0)
    if device == "cuda":
        _require_gpus(local_rank)
    if ranks < 2:
        yield World()
        return
    if (rank := launch.told("RANK", 0)) >= ranks:
        raise OfOneProcess(f"RANK is {rank}, but of {ranks} processes the last is {ranks - 1}; torchrun sets it")
    if not dist.is_gloo_available():
        raise UserError("this torch has no gloo, which several processes need; run with one process")
    try:
        with _waiting(f"waiting for the others of this run's {ranks} processes to begin"):
            rank, meeting = _join("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    except (RuntimeError, ValueError) as error:
        why = str(error).partition("\n")[0]
        way_out = "start them by torchrun, or unset WORLD_SIZE for one alone"
        if "EADDRINUSE" in why:
            way_out = "another program, or run, has that port: give torchrun another --master-port"
        line = f"the {ranks} processes of this run can't find each other ({why}); {way_out}"
        raise OfOneProcess(line) from None
    try:
        yield World(rank, ranks, local_rank)
    except (UserError, OSError) as error:
        _outlast_sigterm()
        with suppress(RuntimeError):
            if _outlives(rank):
                meeting.set(TOLD, "")
        if rank == 0 or isinstance(error, OSError):
            raise
        raise OfOneProcess(str(error)) from None
    except RuntimeError as error:
        _outlast_sigterm()
        if not (isinstance(error, dist.DistError) or LOST.search(str(error))):
            raise
        if _outlives(rank) and _told(meeting):
            raise SystemExit(2) from None
        why = "" if PEER.search(str(error)) else f" ({str(error).partition(chr(10))[0]})"
        raise PeerLost(f"another process of this run has ended{why}, and said why unless it was killed") from None
    finally:
        dist.destroy_process_group()


def _told(meeting: dist.Store) -> bool:
    """Whether a process has said why it ends, so that nobody needs to guess."""
    try:
        return meeting.check([TOLD])
    except RuntimeError:  # its keeper has gone too
        return False


def _outlast_sigterm() -> None:
    """Ignore it until the end: torchrun sends it as soon as another process has gone, and why is yet to be said."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _outlives(rank: int) -> bool:
    """Whether notes are kept by somebody who does not end with the other processes: torchrun, or this one itself."""
    return rank == 0 or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _join(backend: str) -> tuple[int, dist.Store]:
    """Join the other processes; which of them this one is, and what they can leave notes in."""
    store, rank, ranks = next(dist.rendezvous("env://", timeout=MEETING))
    store.set_timeout(MEETING)
    meeting = dist.PrefixStore(_meeting(store, rank, ranks), store)
    store.set_timeout(WAIT)
    dist.init_process_group(backend, store=meeting, rank=rank, world_size=ranks, timeout=WAIT)
    return rank, meeting


@contextmanager
def _waiting(line: str) -> Iterator[None]:
    """Say on standard error what takes so long, once it does. Ctrl-C ends it at once: torch would not heed it."""
    said = f"heedful: {launch.signed(line)}\n"
    timer = threading.Timer(PATIENCE, lambda: print(said, end="", file=sys.stderr, flush=True))
    timer.daemon = True
    before = signal.getsignal(signal.SIGINT)
    try:
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        timer.start()
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


def _meeting(store: dist.Store, rank: int, ranks: int) -> str:
    """A name that only the processes that are alive have agreed on.

    torchrun keeps its store when it starts processes again, and with it the addresses of those that have ended. So
    the leading rank offers a name that is new, everybody answers with one of their own, and goes by the offer once
    their answer is confirmed; an offer by who has ended never is.
    """
    mine = uuid4().hex
    if rank == 0:
        store.set("offer", mine)
        for other in range(1, ranks):
            answer = store.get(f"{mine}/{other}").decode()  # which waits for it
            store.set(f"{mine}/{other}/{answer}", "confirmed")
        return mine
    until = time.monotonic() + MEETING.total_seconds()
    while time.monotonic() < until:
        offer = store.get("offer").decode()
        store.set(f"{offer}/{rank}", mine)
        time.sleep(0.05)
        if store.check([f"{offer}/{rank}/{mine}"]):
            return offer
    raise RuntimeError("the first process does not answer")


def restarts() -> int:
    """How often torchrun has started this run again because a process of it ended."""
    return launch.told("TORCHELASTIC_RESTART_COUNT", 0)


def may_restart() -> bool:
    """Whether torchrun starts this run again, or has done so: with --max-restarts."""
    return restarts() > 0 or launch.told("TORCHELASTIC_MAX_RESTARTS", 0) > 0


def _require_gpus(local_rank: int) -> None:
    """A process without a GPU of its own would share one, or fail later and less clearly."""
    here, gpus = launch.told("LOCAL_WORLD_SIZE", local_rank + 1), torch.cuda.device_count()
    if here > gpus:
        raise World(local_rank, here).ending(
            UserError(
                f"{here} processes were started on {platform.node()}, which has {gpus} "
                f"{'GPU' if gpus == 1 else 'GPUs'}; use --nproc-per-node {gpus}, or --device cpu"
            )
        )
