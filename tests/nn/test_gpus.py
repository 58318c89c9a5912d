"""Why there is no GPU is told in torch's words, which it says once."""

import warnings

import pytest
import torch

from heedful.errors import UserError
from heedful.nn import gpus
from heedful.predict import loading
from heedful.runs import doctor
from heedful.runs.device import choose

OLD = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
    "(Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:119.)"
)
WHY = "The NVIDIA driver on your system is too old (found version 11040)"


@pytest.fixture
def old_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    said = iter([OLD])

    def available() -> bool:
        for line in said:
            warnings.warn(line, stacklevel=2)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", available)
    monkeypatch.setattr(gpus, "_heard", [])


@pytest.mark.usefixtures("old_driver")
def test_an_old_driver_is_named():
    assert gpus.why_not() == ""
    for _ in range(2):
        with pytest.raises(UserError) as caught:
            choose("cuda", "auto")
        said = f"no CUDA GPU can be used here ({WHY}); `heedful doctor` says why, --device cpu does without"
        assert str(caught.value) == said
    with pytest.raises(UserError, match=r"is too old .*; `heedful doctor` says why, the device cpu does without"):
        loading._place("cuda", "auto")


@pytest.mark.usefixtures("old_driver")
def test_where_a_cpu_does_instead_it_is_told_of():
    assert choose("auto", "auto").device.type == "cpu"
    assert gpus.why_not() == WHY
    with pytest.warns(UserWarning, match="no GPU is used: The NVIDIA driver"):
        assert loading._place("auto", "auto") == ("cpu", torch.float32)
    assert loading._place("cpu", "auto") == ("cpu", torch.float32)


@pytest.mark.usefixtures("old_driver")
def test_the_doctor_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert dict(doctor.examine())["GPU"] == f"none used: {WHY}; check the driver (nvidia-smi)"


def test_where_torch_says_nothing_nothing_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpus, "_heard", [])
    with pytest.raises(UserError, match=r"^no CUDA GPU can be used here; `heedful doctor` says why"):
        choose("cuda", "auto")


def test_other_warnings_are_no_reason(monkeypatch: pytest.MonkeyPatch):
    def available() -> bool:
        warnings.warn("pynvml is deprecated", FutureWarning, stacklevel=1)
        return True

    monkeypatch.setattr(torch.cuda, "is_available", available)
    monkeypatch.setattr(gpus, "_heard", [])
    with pytest.warns(FutureWarning, match="pynvml is deprecated"):
        assert gpus.usable()
    assert gpus.why_not() == ""
