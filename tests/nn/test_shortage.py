"""Memory that is too small is told in a line, whoever says so; other mistakes stay what they are."""

import pytest
import torch

from heedful.errors import UserError
from heedful.nn.shortage import GPUS, HOSTS, enough_memory, short_of_memory, too_small


@pytest.mark.parametrize(
    ("error", "whose"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB"), GPUS),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"), GPUS),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), GPUS),
        (RuntimeError("CUDA failed with error out of memory"), GPUS),
        (RuntimeError("Triton Error [CUDA]: out of memory"), GPUS),
        (RuntimeError("HIP out of memory. Tried to allocate 3 GiB"), GPUS),
        (RuntimeError("HIP error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"), GPUS),
        (RuntimeError("NCCL error in: x.cpp:3\nLast error:\nCuda failure 2 'out of memory'"), GPUS),
        (RuntimeError("mkl_malloc: failed to allocate memory"), HOSTS),
        (RuntimeError("[x.cpp:3] DefaultCPUAllocator: can't allocate memory"), HOSTS),
        (MemoryError(), HOSTS),
        (RuntimeError("shapes do not fit"), None),
    ],
)
def test_whose_memory_was_too_small(error: Exception, whose: str | None):
    assert short_of_memory(error) == whose
    if whose is None:
        assert too_small(error) is None
        with pytest.raises(RuntimeError, match="shapes"), enough_memory("it", "use less"):
            raise error
        return
    hint = " (nvidia-smi names it), or use the device cpu" if whose == GPUS else ""
    assert too_small(error) == f"{whose} is too small for this; end what else uses it{hint}"
    with pytest.raises(UserError) as caught, enough_memory("it", "use less"):
        raise error
    assert str(caught.value) == f"{whose} is too small for it; use less"


def test_what_may_have_other_reasons_is_said_too():
    """A folder whose libraries may not run, say, is told by the loader in the same words."""
    unloaded = ImportError("libx.so: failed to map segment from shared object")
    assert too_small(unloaded) == f"{HOSTS} is too small for this ({unloaded}); end what else uses it"
    many = ImportError(f"numpy has much to say\n\n{unloaded}\n")
    assert too_small(many) == too_small(unloaded)
    inferred = MemoryError()
    inferred.__cause__ = RuntimeError("could not create a primitive")
    said = too_small(inferred, "it", "use less")
    assert said == f"{HOSTS} is too small for it (could not create a primitive); use less"
