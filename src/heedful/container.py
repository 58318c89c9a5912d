"""What a container may take of its machine, as Linux tells it: nothing else in it says so."""

from pathlib import Path

LIMITS = Path("/sys/fs/cgroup")
"""Where it is told, if this process is in one."""
SHARES = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
"""In the two versions that there are: the time of all cores that may be taken in each period, and the period."""
MEMORY = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
"""In the two versions: the limit, what is taken, and for what."""
NO_LIMIT = 2**60
"""Bytes beyond what any machine has, which the older version says where there is no limit."""
_FILES = ("inactive_file ", "active_file ")


def cores() -> int | None:
    """The cores that its share of time is worth, rounded up; None without a limit."""
    for names in SHARES:
        try:
            time, period = " ".join(_read(name) for name in names).split()
            if int(time) > 0:
                return -(-int(time) // int(period))
        except (OSError, ValueError, ZeroDivisionError):  # no such file, or no limit
            continue
    return None


def memory() -> int | None:
    """Bytes that may still be taken; None without a limit."""
    for names in MEMORY:
        try:
            limit, taken, told = (_read(name) for name in names)
            if int(limit) >= NO_LIMIT:
                continue
            # Files that were read lie in memory until somebody needs it.
            files = sum(int(line.split()[1]) for line in told.splitlines() if line.startswith(_FILES))
            return max(0, int(limit) - int(taken) + files)
        except (OSError, ValueError):  # no such file, or no limit
            continue
    return None


def _read(name: str) -> str:
    return (LIMITS / name).read_text(encoding="ascii")
