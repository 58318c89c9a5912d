"""The cores of this machine."""

import os

from heedful import container


def cores() -> int:
    """Those that this process may use, or as many as its container's share of their time is worth."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(here, container.cores() or here))
