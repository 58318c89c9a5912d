"""The cores of this machine."""

import os

from heedful import container

SPINS = "GOMP_SPINCOUNT"
"""How often GNU's threads look whether they can go on before they sleep: by default for milliseconds. A few thousand
times are some microseconds, which is enough between the parts of a layer."""


def cores() -> int:
    """Those that this process may use, or as many as its container's share of their time is worth."""
    here = _usable()
    return max(1, min(here, container.cores() or here))


def keep_to_share() -> None:
    """Have what multiplies start no more threads than a container's share of the cores is worth, before it is there.

    Else it counts the cores alone: its threads use the share up at once, and all stand still until there is more. Nor
    may they wait for each other on a core that others could use, which on a busy machine they themselves wait for.
    """
    if cores() < _usable():
        os.environ.setdefault("OMP_NUM_THREADS", str(cores()))
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault(SPINS, "5000")


def sleep_at_once() -> None:
    """Have the threads that multiply sleep while they wait for each other, before they are there."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.update({"OMP_WAIT_POLICY": "passive", SPINS: "0"})


def _usable() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
