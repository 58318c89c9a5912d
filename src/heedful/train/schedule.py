"""How fast to learn when: pure functions of progress, the share of the run that is behind us.

Progress comes from steps or from a time budget; the schedule can't tell, so that in both cases the decay
ends when the run does.
"""

import re

from heedful.errors import UserError

_UNITS = {"h": 3600, "m": 60, "s": 1}


def linear(progress: float, warmup: float) -> float:
    """The share of the peak rate: up in a straight line during the warm-up, then down to nothing."""
    if progress < warmup:
        return progress / warmup
    return max(0.0, (1.0 - progress) / (1.0 - warmup)) if warmup < 1.0 else 1.0


def inverse_root(progress: float, warmup: float) -> float:
    """The share of the peak rate: up in a straight line, then down with the root (Vaswani et al. 2017, 5.3)."""
    if progress < warmup:
        return progress / warmup
    return (warmup / progress) ** 0.5 if progress > 0 else 1.0


SCHEDULES = {"linear": linear, "inverse-root": inverse_root}


def seconds(duration: str) -> float:
    """A duration as people write it: 90s, 10m, 1h30m."""
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", duration.strip())
    if not parts or not any(parts.groups()):
        raise UserError(f"{duration!r} is not a duration; write it like 90s, 10m or 1h30m")
    total = sum(float(number or 0) * unit for number, unit in zip(parts.groups(), _UNITS.values(), strict=True))
    if total <= 0:
        raise UserError(f"a duration of {duration!r} is no time at all; write it like 90s, 10m or 1h30m")
    return total
