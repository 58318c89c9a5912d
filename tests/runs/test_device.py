"""Where a model is put."""

import subprocess
import sys

import psutil
import pytest
import torch
from torch import nn

from heedful.errors import UserError
from heedful.nn.shortage import short_of_memory
from heedful.runs import device
from heedful.runs.device import Compute, free_memory, within_memory

CPU = Compute(torch.device("cpu"), torch.float32)
GPU = Compute(torch.device("cuda"), torch.bfloat16)


class TooLarge(nn.Linear):
    """Stands in for a model that a GPU has no room for."""

    def to(self, *_: object, **__: object) -> nn.Module:  # pyrefly: ignore
        raise RuntimeError("CUDA error: out of memory")


def test_a_model_is_moved():
    model = nn.Linear(2, 3)
    assert CPU.holding(model) is model


def test_a_gpu_without_room_is_told_in_a_line():
    with pytest.raises(UserError, match=r"GPU's memory is too small for the model's 1\.0M parameters; end what else"):
        CPU.holding(TooLarge(1000, 1000))


@pytest.mark.parametrize(
    ("compute", "capability", "said"),
    [
        (CPU, (0, 0), "--fp8 is for GPUs, and a CPU is used here; go on with --no-fp8"),
        (GPU, (8, 6), "Some GPU does not multiply in 8 bits; use --no-fp8"),
        (GPU._replace(dtype=torch.float32), (9, 0), "--fp8 needs Triton and a C compiler"),
    ],
)
def test_who_can_not_multiply_in_8_bits_is_told(
    compute: Compute, capability: tuple[int, int], said: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    with pytest.raises(UserError, match=said):
        compute.require_fp8()


def test_who_can_multiply_in_8_bits_may(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    monkeypatch.setattr(device.kernels, "HAVE_TRITON", True)
    GPU.require_fp8()


@pytest.mark.parametrize(("left", "found"), [(None, 1009), (601, 601), (2**80, 1009)])
def test_a_container_may_not_take_all_that_is_free(monkeypatch: pytest.MonkeyPatch, left: int | None, found: int):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1009}))
    monkeypatch.setattr(device.container, "memory", lambda: left)
    assert free_memory(CPU.device) == found
    assert free_memory(CPU.device, 3, swap=300) == (found + 300) // 3


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_nor_may_a_process_more_than_its_limit_leaves(monkeypatch: pytest.MonkeyPatch, name: str):
    resource = pytest.importorskip("resource")
    limits = {getattr(resource, name): 1 << 50}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits.get(which, resource.RLIM_INFINITY),) * 2)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1 << 51}))
    monkeypatch.setattr(device.container, "memory", lambda: None)
    now = psutil.Process().memory_info()
    taken = {"RLIMIT_AS": now.vms, "RLIMIT_DATA": now.data}[name]
    assert free_memory(CPU.device) == pytest.approx((1 << 50) - taken, abs=64 << 20)
    assert free_memory(CPU.device, 3) == pytest.approx(min((1 << 50) - taken, (1 << 51) // 3), abs=64 << 20)
    assert free_memory(CPU.device, 2, swap=1 << 51) == pytest.approx((1 << 50) - taken, abs=64 << 20)  # its own
    limits[getattr(resource, name)] = 1  # less than there is
    assert free_memory(CPU.device) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
def test_a_run_on_a_cpu_is_refused_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(psutil, "swap_memory", lambda: type("Memory", (), {"free": 0}))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 3 << 30}))
    monkeypatch.setattr(device.container, "memory", lambda: None)
    with within_memory(CPU.device, 3):
        torch.empty(1 << 26)  # a quarter of a GiB
        with pytest.raises(RuntimeError) as caught:
            torch.empty(1 << 29)  # two, where each of three may have one
    assert short_of_memory(caught.value) == "this machine's free memory"
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with within_memory(CPU.device, None):  # nobody knows how many share it
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


MANY_THREADS = """
import psutil, torch
from heedful.runs import device
torch.set_num_threads(64)
device.free_memory = lambda *_: 200 << 20
psutil.swap_memory = lambda: type("Memory", (), {"free": 0})
with device.within_memory(torch.device("cpu"), 1):
    print(torch.ones(64 << 16).sum().item())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
def test_stacks_of_many_threads_are_no_memory_that_is_taken():
    """Half a gigabyte is set aside for them, and a few kilobytes are used."""
    run = subprocess.run([sys.executable, "-c", MANY_THREADS], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", f"{float(64 << 16)}\n")


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
@pytest.mark.parametrize(("free", "granted"), [(600, 585), (100_000, 95_128)])
def test_what_is_granted_is_less_than_what_is_free(monkeypatch: pytest.MonkeyPatch, free: int, granted: int):
    """In MiB: 95% and stacks of 128, but never more than half of the 5% for them."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(psutil, "swap_memory", lambda: type("Memory", (), {"free": 0}))
    monkeypatch.setattr(device, "free_memory", lambda *_: free << 20)
    with within_memory(CPU.device, 1):
        room = resource.getrlimit(resource.RLIMIT_DATA)[0] - psutil.Process().memory_info().data
    assert room >> 20 == pytest.approx(granted, abs=16)


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
@pytest.mark.parametrize(("left", "granted"), [(None, (512 + 8192) * 0.95 + 128), (512, 512 * 0.975)])
def test_what_a_machine_can_swap_is_not_granted_to_a_container(
    monkeypatch: pytest.MonkeyPatch, left: int | None, granted: float
):
    """In MiB; the system would kill a run that believes in it."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(psutil, "swap_memory", lambda: type("Memory", (), {"free": 8 << 30}))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 512 << 20}))
    monkeypatch.setattr(device.container, "memory", lambda: left and left << 20)
    with within_memory(CPU.device, 1):
        room = resource.getrlimit(resource.RLIMIT_DATA)[0] - psutil.Process().memory_info().data
    assert room >> 20 == pytest.approx(granted, abs=16)


def test_a_gpu_has_its_own_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device, "free_memory", lambda *_: 1)
    with within_memory(torch.device("cuda"), 1):
        torch.zeros(1 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
@pytest.mark.parametrize("said", ["can't start new thread", "could not execute a primitive"])
def test_what_may_have_other_reasons_is_a_matter_of_memory_only_where_that_is_limited(said: str):
    """There are limits of threads too, and for them a smaller batch is no help."""
    refused = RuntimeError(said)
    with pytest.raises(MemoryError) as caught, within_memory(CPU.device, 1):
        raise refused
    assert short_of_memory(caught.value) == "this machine's free memory"
    for place, processes in ((torch.device("cuda"), 1), (CPU.device, None)):
        with pytest.raises(RuntimeError) as other, within_memory(place, processes):
            raise refused
        assert short_of_memory(other.value) is None
    with pytest.raises(RuntimeError, match="shapes"), within_memory(CPU.device, 1):
        raise RuntimeError("shapes do not fit")
