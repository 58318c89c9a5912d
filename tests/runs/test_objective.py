"""What turns a batch into sums, and who may have it compiled."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from heedful.errors import UserError
from heedful.formats.huggingface import save_model
from heedful.models.bert import BertConfig, BertForPretraining
from heedful.nn import kernels
from heedful.runs import objective
from heedful.runs.device import Compute
from heedful.runs.options import ModelPart, ObjectivePart, OptimizerPart, PretrainRun, Recipe
from heedful.train import replay_pretraining
from heedful.train.distributed import World

GPU = Compute(torch.device("cuda"), torch.bfloat16)
CONFIG = BertConfig(vocab_size=61, layers=2, dim=32, heads=2, ffn_dim=48, max_length=16)
TRAINING: Any = SimpleNamespace(batch_tokens=1000, length=16, mask_rate=0.3, most=lambda rate: (70, int(1000 * rate)))


@pytest.mark.parametrize(
    ("changes", "sharded", "expected"),
    [({}, False, True), ({"compile": False}, False, False), ({}, True, False)],
)
def test_who_compiles(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], sharded: bool, expected: bool):
    monkeypatch.setattr(kernels, "HAVE_TRITON", True)
    recipe = Recipe(run=PretrainRun(**changes))
    ranks = World(sharded=sharded)
    assert objective.compiles(recipe, GPU, ranks) is expected
    assert not objective.compiles(recipe, Compute(torch.device("cpu"), torch.float32), ranks)


@pytest.mark.parametrize(("fp8", "words"), [(True, 1000 * 0.3 * 4), (False, None)])
def test_8_bits_are_scaled_by_the_words_of_a_step(monkeypatch: pytest.MonkeyPatch, fp8: bool, words: float | None):
    monkeypatch.setattr(kernels, "HAVE_TRITON", True)
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(replay_pretraining, "PretrainingReplay", lambda *_, **named: made.append(named))
    recipe = Recipe(run=PretrainRun(fp8=fp8), optimizer=OptimizerPart(accumulation=4))
    objective.terms_of(recipe, BertForPretraining(CONFIG), TRAINING, GPU, World())
    assert made == [{"recording": False, "fp8_words": words}]


@pytest.mark.parametrize(("final", "most"), [(None, 300), (0.15, 300), (0.4, 400)])
def test_steps_have_room_for_the_most_words_that_a_run_will_ask(
    monkeypatch: pytest.MonkeyPatch, final: float | None, most: int
):
    monkeypatch.setattr(kernels, "HAVE_TRITON", True)
    made: list[replay_pretraining.Shape] = []
    monkeypatch.setattr(replay_pretraining, "PretrainingReplay", lambda _, shape, *__, **___: made.append(shape))
    recipe = Recipe(objective=ObjectivePart(mask_rate=0.3, final_mask_rate=final))
    objective.terms_of(recipe, BertForPretraining(CONFIG), TRAINING, GPU, World())
    assert made == [replay_pretraining.Shape.of(1000, 70, most, 16)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ffn_dim": 40}, "multiples of 16, and .*model has 32 and 40; use --no-fp8"),
        ({"activation": "relu"}, "--fp8 needs GELU, and .*model has relu; use --no-fp8"),
    ],
)
def test_8_bits_need_a_model_that_suits(tmp_path: Path, changes: dict[str, Any], said: str):
    for name, config in (("model", replace(CONFIG, **changes)), ("other", CONFIG)):
        save_model(BertForPretraining(config), tmp_path / name)
    objective.check_fp8(Recipe(run=PretrainRun(fp8=True), start_from=str(tmp_path / "other")))
    objective.check_fp8(Recipe(run=PretrainRun(fp8=True)))
    objective.check_fp8(Recipe(start_from=str(tmp_path / "model")))
    with pytest.raises(UserError, match=said):
        objective.check_fp8(Recipe(run=PretrainRun(fp8=True), start_from=str(tmp_path / "model")))


@pytest.mark.parametrize(
    ("shape", "length", "refused"),
    [
        ({"bias": False}, 129, True),
        ({"bias": False}, 128, False),
        ({"bias": False, "gated": True}, 129, False),
        ({}, 129, False),
    ],
)
def test_8_bits_need_something_to_multiply(shape: dict[str, Any], length: int, refused: bool):
    asked = Recipe(model=ModelPart(**shape), objective=ObjectivePart(length=length), run=PretrainRun(fp8=True))
    with pytest.raises(UserError, match="--fp8 finds nothing to multiply") if refused else nullcontext():
        objective.check_fp8(asked)


def test_8_bits_need_heads_of_a_usual_width(tmp_path: Path):
    save_model(BertForPretraining(replace(CONFIG, bias=False)), tmp_path / "model")
    with pytest.raises(UserError, match="heads of a usual width; use --no-fp8"):
        objective.check_fp8(Recipe(run=PretrainRun(fp8=True), start_from=str(tmp_path / "model")))
