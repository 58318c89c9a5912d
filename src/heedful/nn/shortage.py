"""Memory that is too small: told apart from all else that may be wrong, and said in a line.

Knows torch's error by its name alone, for there may be too little memory to import it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from heedful.errors import UserError

GPUS, HOSTS = "the GPU's memory", "this machine's free memory"
"""Whose memory it may be."""
REFUSED = re.compile(
    r"DefaultCPUAllocator|cannot allocate memory|failed to allocate memory|std::bad_alloc|failed to map segment", re.I
)
"""What torch, ctranslate2, onnxruntime and the loader of libraries say where a CPU's memory is refused."""
REFUSED_BY_GPU = re.compile(
    r"\b(cuda|hip)\b.*\bout of memory|(cu|hip)(blas|dnn)_status_alloc_failed|hipErrorOutOfMemory", re.I
)
"""What libraries say of a GPU's memory that torch did not ask for itself: CUDA, NCCL, Triton, ctranslate2."""


def short_of_memory(error: Exception) -> str | None:
    """Whose memory was too small, if that is what is wrong."""
    said = str(error)
    if type(error).__name__ == "OutOfMemoryError" or REFUSED_BY_GPU.search(said):
        return GPUS
    if isinstance(error, MemoryError) or REFUSED.search(said):
        return HOSTS
    return None


def too_small(error: Exception, what: str = "this", way_out: str | None = None) -> str | None:
    """What to tell of a lack of memory for something, if that is what is wrong, and a way out of it.

    By default that is the way out of who only asks a model.
    """
    if (whose := short_of_memory(error)) is None:
        return None
    said = error if isinstance(error, ImportError) else error.__cause__
    if said is not None:  # which may have other reasons; numpy has the words of the loader at the end of many
        what = f"{what} ({str(said).strip().splitlines()[-1]})"
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
