"""How this process was started: alone, or by torchrun as one of several, which tells each of them in its environment.

For those who speak before torch is there, or without it; who works together asks train/distributed.py.
"""

import os
import platform

from heedful.errors import UserError


def alone() -> bool:
    """Whether there are no others."""
    return os.environ.get("WORLD_SIZE") in (None, "", "0", "1")


def told(name: str, default: int) -> int:
    """What a launcher says of this process by a variable, or what holds where none does."""
    value = os.environ.get(name) or str(default)
    if not value.isdecimal():
        raise UserError(f"{name} is {value!r} but must be a whole number; unset it, or start processes by torchrun")
    return int(value)


def by_torchrun() -> bool:
    """Whether torchrun has started this process, be it as the only one."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def speaks_for_all() -> bool:
    """Whether it is for this process to say what all were told wrongly: of torchrun's the first on each machine."""
    return not by_torchrun() or os.environ.get("LOCAL_RANK", "0") == "0"


def signed(line: str) -> str:
    """A line with the process that it is from, unless that is the first."""
    rank = os.environ.get("RANK", "0")
    if rank == "0" or alone():
        return line
    return f"process {rank} of {os.environ.get('WORLD_SIZE', '1')}, on {platform.node()}: {line}"
