"""Whether there is a GPU to compute on, and if not, why."""

import re
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

FAILED = re.compile("(CUDA|HIP) initialization: ")
"""How torch begins to say that a GPU can't be used."""
_said: dict[str | tuple[str, type[Warning], int], int] = {}
"""Other warnings that were passed on, once each."""
_heard: list[str] = []
"""What torch said of a GPU that can't be used, which it says once in the life of a process."""


def usable() -> bool:
    """Whether torch finds a GPU that it can use; what it says of one that it can't use is kept for `why_not`."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = torch.cuda.is_available()
    for one in said:
        if begins := FAILED.match(words := str(one.message)):
            _heard.append(words[begins.end() :])
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno, registry=_said)
    return found


def current(device: torch.device) -> AbstractContextManager[Any]:
    """Have kernels go to this GPU: which one is meant is a setting of each thread, the first unless it is told."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def why_not() -> str:
    """Why no GPU can be used, in torch's words; nothing where it did not say, or was not asked."""
    if not _heard:
        return ""
    said = _heard[0].partition("(Triggered")[0]
    return re.split(r"\.\s", said, maxsplit=1)[0].strip(" .\n")


def none_usable(way_out: str) -> str:
    """What is said where one was asked for in vain."""
    why = why_not()
    return f"no CUDA GPU can be used here{why and f' ({why})'}; `heedful doctor` says why, {way_out}"
