"""Memory that is too small: told apart from all else that may be wrong, and said in a line."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from heedful.errors import UserError

REFUSED = ("DefaultCPUAllocator", "Cannot allocate memory", "std::bad_alloc")
"""What is said where a CPU's memory is refused."""
REFUSED_BY_GPU = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What libraries say of a GPU's memory that torch did not ask for itself."""


def short_of_memory(error: Exception) -> str | None:
    """Whose memory was too small, if that is what is wrong."""
    said = str(error)
    if isinstance(error, torch.OutOfMemoryError) or any(one in said for one in REFUSED_BY_GPU):
        return "the GPU's memory"
    if isinstance(error, MemoryError) or any(one in said for one in REFUSED):
        return "this machine's free memory"
    return None


@contextmanager
def enough_memory(what: str = "this", way_out: str | None = None) -> Iterator[None]:
    """Tell of a lack of memory for something, and of a way out; by default the one of who only asks a model."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if (whose := short_of_memory(error)) is None:
            raise
        usual = "end what else uses it"
        if "GPU" in whose:
            usual += " (nvidia-smi names it), or use the device cpu"
        raise UserError(f"{whose} is too small for {what}; {way_out or usual}") from None
