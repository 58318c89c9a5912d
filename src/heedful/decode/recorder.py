"""Work on tensors that keep their shapes and places, recorded once and then replayed as one piece (CUDA graphs).

Knows nothing of what the work is. Without a GPU the work is simply done.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch

T = TypeVar("T")

MOST = 64
"""Recordings that are kept."""


class Recorder:
    """What was recorded, by a key that stands for everything the work depends on besides the tensors' values."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.batches: dict[Hashable, Any] = {}
        self.works: dict[Hashable, Callable[[], Any] | None] = {}
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def held(self, key: Hashable, new: T) -> T:
        """Whose tensors the recordings of this key read and write: the first that came."""
        if len(self.works) > MOST:
            self.batches.clear()
            self.works.clear()
        return self.batches.setdefault(key, new)

    def run(self, key: Hashable, work: Callable[[], None]) -> None:
        """Do the work: at first as it stands, which also readies what it needs; then recorded, then replayed."""
        if self.device.type != "cuda":
            work()
        elif key not in self.works:
            self.works[key] = None
            work()
        else:
            replay = self.works[key]
            if replay is None:
                replay = self.works[key] = recorded(work, self.pool)
            replay()


def recorded(work: Callable[[], T], pool: Any) -> Callable[[], T]:
    """Work that was done before, as something to replay; what it returns lies where it lay when it was recorded.

    Recordings that share a pool use the same memory for what they forget, one after the other.
    """
    # A training run forbids kernels that add in any order; these copy, and each place is written once.
    strict = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            found = work()
    finally:
        torch.use_deterministic_algorithms(strict)

    def replay() -> T:
        graph.replay()
        return found

    return replay
