"""Where a model computes, and how exactly."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import heedful
from heedful.errors import UserError
from heedful.predict import load_predictor
from heedful.predict.engine import TorchEngine, check_range

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TEXTS = ["The river runs past the mill.", "A baker carries bread.", "강가에 있는 물레방아."]
HALVES = {"auto": torch.float16, "fp16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_cpu_is_never_asked_for_half_precision(
    precision: str, small_folder: Callable[[str], Path], translator: Callable[[str], Path]
):
    for folder in (small_folder("classify"), translator("good")):
        with pytest.raises(UserError, match=f"{precision} is for GPUs: a CPU is slower with it, and some die of it"):
            heedful.load(folder, "cpu", precision=precision)


@pytest.mark.parametrize("precision", ["auto", "fp32"])
def test_a_cpu_computes_in_full_precision(precision: str, small_folder: Callable[[str], Path]):
    engine = heedful.load(small_folder("classify"), "cpu", precision=precision).engine
    assert isinstance(engine, TorchEngine)
    assert {one.dtype for one in engine.model.parameters()} == {torch.float32}


def test_what_was_exported_has_its_own_precision(
    small_folder: Callable[[str], Path], translator: Callable[[str], Path]
):
    with pytest.raises(UserError, match="the engine onnx computes as it was exported; leave precision out"):
        heedful.load(small_folder("classify"), engine="onnx", precision="fp32")
    with pytest.raises(UserError, match="the engine ctranslate2 computes as it was exported; leave precision out"):
        heedful.load(translator("good"), engine="ctranslate2", precision="fp32")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"device": "tpu"}, "device 'tpu' is unknown; there are auto, cpu, cuda, cuda:N"),
        ({"device": "cuda:x"}, "device 'cuda:x' is unknown; there are auto, cpu, cuda, cuda:N"),
        ({"precision": "fp99"}, "precision 'fp99' is unknown; there are auto, fp32, fp16, bf16"),
        ({"engine": "jax"}, "engine 'jax' is unknown; there are torch, onnx, ctranslate2"),
    ],
)
def test_choices_that_there_are_not(options: dict[str, str], said: str, small_folder: Callable[[str], Path]):
    for load in (heedful.load, load_predictor):
        with pytest.raises(UserError, match=said):
            load(small_folder("encoder"), **options)  # pyrefly: ignore


def test_a_device_may_be_torchs(small_folder: Callable[[str], Path]):
    assert heedful.load(small_folder("encoder"), torch.device("cpu")).embed("the mill").shape == (24,)


def test_a_gpu_that_there_is_not_is_named(small_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="there is no cuda:1: this machine has 1 GPU, the first of them cuda:0"):
        heedful.load(small_folder("encoder"), "cuda:1")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_numbered_gpu_that_is_not_there(small_folder: Callable[[str], Path]):
    with pytest.raises(UserError, match="no CUDA GPU can be used here"):
        heedful.load(small_folder("encoder"), "cuda:0")


@pytest.mark.parametrize("wrong", [5, None, b"x", [5]])
def test_what_is_no_folder(wrong: object):
    with pytest.raises(UserError, match="is not a folder; give its path"):
        heedful.load(wrong)  # pyrefly: ignore


def test_numbers_beyond_fp16_are_an_error():
    check_range(True)
    with pytest.raises(UserError, match="too large for fp16; use --precision bf16 or fp32"):
        check_range(False)


@needs_gpu
@pytest.mark.parametrize("precision", HALVES)
def test_on_a_gpu_vectors_are_nearly_those_of_full_precision(precision: str, small_folder: Callable[[str], Path]):
    exact = heedful.load(small_folder("classify"), "cpu").embed(TEXTS)
    predictor = heedful.load(small_folder("classify"), "cuda", precision=precision)
    assert isinstance(predictor.engine, TorchEngine)
    assert {one.dtype for one in predictor.engine.model.parameters()} == {HALVES[precision]}
    found = predictor.embed(TEXTS)
    assert found.dtype == np.float32
    assert (found * exact).sum(1).min() > (0.999 if precision == "bf16" else 0.9999)


@needs_gpu
def test_on_a_gpu_numbers_beyond_fp16_are_an_error(small_folder: Callable[[str], Path]):
    predictor = heedful.load(small_folder("classify"), "cuda", precision="fp16")
    assert isinstance(predictor.engine, TorchEngine)
    with torch.no_grad():
        predictor.engine.encoder.layers[0].feed_forward.outer.weight.fill_(60_000.0)
    with pytest.raises(UserError, match="too large for fp16"):
        predictor.embed(TEXTS)


@needs_gpu
@pytest.mark.parametrize("kind", ["good", "rnn"])
@pytest.mark.parametrize("precision", HALVES)
def test_on_a_gpu_translations_are_those_of_full_precision(
    kind: str, precision: str, translator: Callable[[str], Path]
):
    texts = ["three one four", "nine", "", "two seven one eight two", "six zero"]
    if (kind, precision) == ("rnn", "bf16"):
        with pytest.raises(UserError, match="runs recurrent networks in fp16 or fp32, not in bf16"):
            heedful.load(translator(kind), "cuda", precision=precision)
        return
    exact = heedful.load(translator(kind), "cpu")
    found = heedful.load(translator(kind), "cuda", precision=precision)
    targets = [one.text for one in exact.translate(texts)]
    if kind == "good":  # the other has learnt nothing, so that all it might say is about as good
        assert [one.text for one in found.translate(texts)] == targets
    for one, other in zip(found.score(texts, targets), exact.score(texts, targets), strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=0.2)


@needs_gpu
@pytest.mark.parametrize("precision", HALVES)
def test_on_a_gpu_large_numbers_keep_their_digits(precision: str, small_folder: Callable[[str], Path]):
    exact = heedful.load(small_folder("regress"), "cpu")
    predictor = heedful.load(small_folder("regress"), "cuda", precision=precision)
    for one in (exact, predictor):
        with torch.no_grad():
            one.engine.model.output.bias.add_(400_000.0)
    expected, found = ([*one.regress(text).values()] for one in (exact, predictor) for text in TEXTS[:1])
    np.testing.assert_allclose(found, expected, atol=0.5)
