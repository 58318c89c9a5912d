"""Where to compute, in what precision, and with how much memory: what this machine can do without harm."""

import math
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

import psutil
import torch
from torch import nn

from heedful import container
from heedful.errors import UserError
from heedful.nn import fp8, gpus, kernels
from heedful.nn.shortage import enough_memory

try:
    import resource
except ImportError:  # Windows
    resource = None

Model = TypeVar("Model", bound=nn.Module)

SPARED = 0.05
"""Share of the free memory that training leaves alone: the system kills somebody before the last of it is taken."""
REFUSED = re.compile(r"can't start new thread|could not (create|execute) a primitive$")
"""What Python and oneDNN say where no memory is left for a stack or a kernel; but of other troubles too."""
THREADS, STACK = 16, 8 << 20
"""What may still be started besides the threads that multiply; of each stack much is set aside and little used, so
they may take up to half of what is spared."""


class Compute(NamedTuple):
    """A device and the type of its matrix products."""

    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> torch.autocast:
        """Runs matrix products in the chosen type; does nothing for fp32."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype is not torch.float32)

    @property
    def compiles(self) -> bool:
        """Whether layers can be compiled here: it needs a GPU with half precision, Triton and a C compiler."""
        return self.dtype is torch.bfloat16 and kernels.HAVE_TRITON

    def require_fp8(self) -> None:
        """Refuse to multiply in 8 bits where that can't be."""
        if self.device.type != "cuda":
            raise UserError("--fp8 is for GPUs, and a CPU is used here; go on with --no-fp8")
        if not fp8.possible(self.device):
            raise UserError(f"{torch.cuda.get_device_name(self.device)} does not multiply in 8 bits; use --no-fp8")
        if not self.compiles:
            raise UserError("--fp8 needs Triton and a C compiler (gcc or clang); `heedful doctor` says what is here")

    def holding(self, model: Model) -> Model:
        """The model, moved to the device."""
        parameters = sum(parameter.numel() for parameter in model.parameters())
        way_out = "end what else uses it (nvidia-smi names it), or take a smaller model"
        with enough_memory(f"the model's {parameters / 1e6:.1f}M parameters", way_out):
            return model.to(self.device)

    def repeatable(self) -> None:
        """Have a GPU add in the same order every time, as a CPU does, for runs that are equal to the bit."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (no stub knows it)
            torch.use_deterministic_algorithms(True)


def choose(device: str, precision: str, local_rank: int = 0) -> Compute:
    """The device and precision asked for, or the best safe ones.

    A CPU always computes in fp32: half precision is slower on most, and some announce instructions for it
    that kill the process when used.
    """
    if device == "cuda" and not gpus.usable():
        raise UserError(gpus.none_usable("--device cpu does without"))
    if device == "cpu" or not gpus.usable():
        if precision == "bf16":
            raise UserError("bf16 is for GPUs: a CPU is slower with it, and some die of it; leave --precision out")
        return Compute(torch.device("cpu"), torch.float32)
    if precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise UserError(f"{torch.cuda.get_device_name()} has no bf16; use --precision fp32")
    half = precision != "fp32" and torch.cuda.is_bf16_supported(including_emulation=False)
    return Compute(torch.device("cuda", local_rank), torch.bfloat16 if half else torch.float32)


@contextmanager
def within_memory(device: torch.device, processes: int | None) -> Iterator[None]:
    """Have training on a CPU refused memory that is not there, so that it can say so, where the system would kill it.

    So many processes share what is free now. Knows only how Linux does that; elsewhere, and where nobody knows how
    many there are, nothing is done.
    """
    if resource is None or sys.platform != "linux" or device.type != "cpu" or processes is None:
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    # The threads that multiply end the whole process if they are refused, so they start before there is a limit.
    torch.ones(torch.get_num_threads() << 16).sum()
    # What a container may swap its limit does not tell, so none of that is counted there.
    swap = psutil.swap_memory().free if container.memory() is None else 0
    share = free_memory(device, processes, swap)
    room = min((1 - SPARED) * share + THREADS * STACK, (1 - SPARED / 2) * share)
    bounds = [psutil.Process().memory_info().data + int(room), before, most]
    limited = False
    with suppress(OSError, ValueError):  # not every system lets it be set
        least = min(bound for bound in bounds if bound != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_DATA, (least, most))
        limited = True
    try:
        yield
    except RuntimeError as error:
        if limited and REFUSED.search(str(error)):
            raise MemoryError(str(error)) from error
        raise
    finally:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def free_memory(device: torch.device, processes: int = 1, swap: int = 0) -> int:
    """Bytes that can be taken now: of a GPU, or of the host and what a container or a limit (ulimit) leaves of it.

    So many `processes` share the host's, to which `swap` is added; a limit is each one's own.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    shared = min(psutil.virtual_memory().available, math.inf if (ours := container.memory()) is None else ours)
    return max(0, min([int(shared + swap) // processes, *_left_by_limits()]))


def _left_by_limits() -> Iterator[int]:
    """What each limit of this process leaves of its memory, where there is one."""
    if resource is None or sys.platform != "linux":
        return
    now = psutil.Process().memory_info()
    for limit, taken in ((resource.RLIMIT_AS, now.vms), (resource.RLIMIT_DATA, now.data)):
        if (soft := resource.getrlimit(limit)[0]) != resource.RLIM_INFINITY:
            yield soft - taken
