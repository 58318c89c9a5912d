"""Several processes, one run: who we are, and sums over everybody. Without torchrun, a world of one.

Gradients are summed in one flat piece in a fixed order, so that a run can be repeated to the bit.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from heedful.errors import UserError

T = TypeVar("T")


class World(NamedTuple):
    """The processes of a run, and this one among them."""

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0

    @property
    def leads(self) -> bool:
        """Whether this process prints and writes."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for everybody."""
        if self.ranks > 1:
            dist.barrier()

    def share(self, value: T) -> T:
        """The leading rank's value, for everybody."""
        box = [value]
        if self.ranks > 1:
            dist.broadcast_object_list(box, device=torch.device("cpu"))
        return box[0]

    def sum_numbers(self, numbers: list[float]) -> list[float]:
        """Each number's sum over the ranks. Exact for integers; waits for nobody's GPU."""
        if self.ranks == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def sum_gradients(self, parameters: list[nn.Parameter]) -> None:
        """Replace every gradient by its sum over the ranks."""
        if self.ranks == 1:
            return
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        flat = torch._utils._flatten_dense_tensors(gradients)
        dist.all_reduce(flat)
        summed = torch._utils._unflatten_dense_tensors(flat, gradients)
        for parameter, gradient in zip(parameters, summed, strict=True):
            parameter.grad = gradient


@contextmanager
def world(device: str) -> Iterator[World]:
    """Join the processes that torchrun started, for as long as the run lasts."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        yield World()
        return
    if not dist.is_gloo_available():
        raise UserError("this torch has no gloo, which several processes need; run with one process")
    # The others wait while the leading rank prepares the text, however long that takes.
    dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", timeout=timedelta(days=30))
    try:
        yield World(dist.get_rank(), ranks, int(os.environ.get("LOCAL_RANK", "0")))
    except RuntimeError as error:
        if not re.search(r"(?i)connection (closed|reset)|broken pipe|timed out|nccl", str(error)):
            raise
        raise UserError("another process of this run has ended; what it said tells why") from None
    finally:
        dist.destroy_process_group()
