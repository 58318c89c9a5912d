"""Where a model is put."""

from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from heedful.errors import UserError
from heedful.runs import device
from heedful.runs.device import Compute, free_memory

CPU = Compute(torch.device("cpu"), torch.float32)


class TooLarge(nn.Linear):
    """Stands in for a model that a GPU has no room for."""

    def to(self, *_: object, **__: object) -> nn.Module:  # pyrefly: ignore
        raise torch.OutOfMemoryError


def test_a_model_is_moved():
    model = nn.Linear(2, 3)
    assert CPU.holding(model) is model


def test_a_gpu_without_room_is_told_in_a_line():
    with pytest.raises(UserError, match=r"no room for the model's 1\.0M parameters; end what else uses it"):
        CPU.holding(TooLarge(1000, 1000))


@pytest.mark.parametrize("names", device._LIMIT_FILES)
def test_a_container_may_not_take_all_that_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, str, str]
):
    monkeypatch.setattr(device, "LIMITS", tmp_path)
    free = psutil.virtual_memory().available
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": free}))
    assert free_memory(CPU.device) == free
    stat = "anon 13\ninactive_file 17\nactive_file 5\ntotal_active_file 7\n"
    for limit, left in (("1009", 1009 - 701 + 17 + 5), ("600", 0), (str(2**80), free), ("max", free)):
        for name, content in zip(names, (limit, "701", stat), strict=True):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(f"{content}\n")
        assert free_memory(CPU.device) == left
