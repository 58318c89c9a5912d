"""Memory that is too small: told apart from all else that may be wrong, and said in a line."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from heedful.errors import UserError

GPUS, HOSTS = "the GPU's memory", "this machine's free memory"
"""Whose memory it may be."""
REFUSED = ("DefaultCPUAllocator", "Cannot allocate memory", "std::bad_alloc")
"""What is said where a CPU's memory is refused."""
REFUSED_BY_GPU = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What libraries say of a GPU's memory that torch did not ask for itself."""


def short_of_memory(error: Exception) -> str | None:
    """Whose memory was too small, if that is what is wrong."""
    said = str(error)
    if isinstance(error, torch.OutOfMemoryError) or any(one in said for one in REFUSED_BY_GPU):
        return GPUS
    if isinstance(error, MemoryError) or any(one in said for one in REFUSED):
        return HOSTS
    return None


def too_small(error: Exception, what: str = "this", way_out: str | None = None) -> str | None:
    """What to tell of a lack of memory for something, if that is what is wrong, and a way out of it.

    By default that is the way out of who only asks a model.
    """
    if (whose := short_of_memory(error)) is None:
        return None
    usual = "end what else uses it"
    if whose == GPUS:
        usual += " (nvidia-smi names it), or use the device cpu"
    return f"{whose} is too small for {what}; {way_out or usual}"


@contextmanager
def enough_memory(what: str, way_out: str) -> Iterator[None]:
    """Make a lack of memory for something a user's mistake, with a way out of its own."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if (line := too_small(error, what, way_out)) is None:
            raise
        raise UserError(line) from None
