"""What turns a batch into sums, and who may have it compiled."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from heedful.errors import UserError
from heedful.models.bert import BertConfig, BertForPretraining
from heedful.nn import kernels
from heedful.runs import objective
from heedful.runs.device import Compute
from heedful.runs.options import OptimizerPart, PretrainRun, Recipe
from heedful.train import replay_pretraining
from heedful.train.distributed import World

GPU = Compute(torch.device("cuda"), torch.bfloat16)
CONFIG = BertConfig(vocab_size=61, layers=2, dim=32, heads=2, ffn_dim=48, max_length=16)
TRAINING: Any = SimpleNamespace(batch_tokens=1000, length=16, mask_rate=0.3)


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


def test_8_bits_need_widths_that_suit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernels, "HAVE_TRITON", True)
    model = BertForPretraining(replace(CONFIG, ffn_dim=40))
    with pytest.raises(UserError, match="--fp8 needs widths that are multiples of 16, and the model has 32 and 40"):
        objective.terms_of(Recipe(run=PretrainRun(fp8=True)), model, TRAINING, GPU, World())
