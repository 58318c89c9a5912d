"""The cores of this machine."""

import os

from heedful import container


def cores() -> int:
    """Those that this process may use, or as many as its container's share of their time is worth."""
    here = _usable()
    return max(1, min(here, container.cores() or here))


def keep_to_share() -> None:
    """Have what multiplies start no more threads than a container's share of the cores is worth, before it is there.

    Else it counts the cores alone: its threads use the share up at once, and all stand still until there is more.
    """
    if cores() < _usable():
        os.environ.setdefault("OMP_NUM_THREADS", str(cores()))


def _usable() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
