"""Memory that is too small is told in a line, whoever says so; other mistakes stay what they are."""

import pytest
import torch

from heedful.errors import UserError
from heedful.nn.shortage import enough_memory, short_of_memory

GPUS, HOSTS = "the GPU's memory", "this machine's free memory"


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB"), GPUS),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"), GPUS),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), GPUS),
        (RuntimeError("[x.cpp:3] DefaultCPUAllocator: can't allocate memory"), HOSTS),
        (MemoryError(), HOSTS),
        (RuntimeError("shapes do not fit"), None),
    ],
)
def test_whose_memory_was_too_small(error: Exception, whose: str | None):
    assert short_of_memory(error) == whose
    if whose is None:
        with pytest.raises(RuntimeError, match="shapes"), enough_memory():
            raise error
        return
    with pytest.raises(UserError) as caught, enough_memory("the model"):
        raise error
    hint = " (nvidia-smi names it), or use the device cpu" if whose == GPUS else ""
    assert str(caught.value) == f"{whose} is too small for the model; end what else uses it{hint}"
    with pytest.raises(UserError, match=r"too small for this; use less$"), enough_memory(way_out="use less"):
        raise error
