"""How fast to learn when: pure functions of progress, the share of the run that is behind us.

Progress comes from steps or from a time budget; the schedule can't tell, so that in both cases the decay
ends when the run does.
"""

import math
import re

from heedful.errors import UserError

_UNITS = {"h": 3600, "m": 60, "s": 1}


def linear(progress: float, warmup: float, _decay: float = 0.0) -> float:
    """The share of the peak rate: up in a straight line during the warm-up, then down to nothing."""
    if progress < warmup:
        return progress / warmup
    return max(0.0, (1.0 - progress) / (1.0 - warmup)) if warmup < 1.0 else 1.0


def cosine(progress: float, warmup: float, _decay: float = 0.0) -> float:
    """The share of the peak rate: up in a straight line, then down to nothing along half a wave."""
    if progress < warmup:
        return progress / warmup
    return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (progress - warmup) / (1.0 - warmup))) if warmup < 1.0 else 1.0


def trapezoid(progress: float, warmup: float, decay: float) -> float:
    """The share of the peak rate: up in a straight line, flat, and down to nothing in the last share, the decay.

    Where warm-up and decay overlap, the lower of the two lines counts.
    """
    up = progress / warmup if progress < warmup else 1.0
    down = max(0.0, 1.0 - progress) / decay if progress > 1.0 - decay else 1.0
    return min(up, down)


def inverse_root(progress: float, warmup: float, _decay: float = 0.0) -> float:
    """The share of the peak rate: up in a straight line, then down with the root (Vaswani et al. 2017, 5.3)."""
    if progress < warmup:
        return progress / warmup
    return (warmup / progress) ** 0.5 if progress > 0 else 1.0


SCHEDULES = {"linear": linear, "cosine": cosine, "trapezoid": trapezoid, "inverse-root": inverse_root}


def between(progress: float, first: float, last: float) -> float:
    """What goes in a straight line from one number to another over the run."""
    return first + (last - first) * min(1.0, progress)


def seconds(duration: str, flag: str = "--budget", others: str = "") -> float:
    """A duration as people write it: 90s, 10m, 1h30m. A mistake names the flag, and what `others` it takes."""
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", duration.strip())
    if not parts or not any(parts.groups()):
        raise UserError(f"{flag} {duration!r} is not a duration; write it like 90s, 10m or 1h30m{others}")
    total = sum(float(number or 0) * unit for number, unit in zip(parts.groups(), _UNITS.values(), strict=True))
    if total <= 0:
        raise UserError(f"{flag} {duration!r} is no time at all; write it like 90s, 10m or 1h30m{others}")
    return total
