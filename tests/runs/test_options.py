import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from heedful.cli import WITH_RECIPES
from heedful.errors import UserError
from heedful.runs.options import (
    CONTINUED_RATE,
    LEARNING_RATES,
    RIVALS,
    ModelPart,
    ObjectivePart,
    OptimizerPart,
    PretrainRun,
    Recipe,
    VocabularyPart,
    load_recipe,
    resolved,
)
from heedful.runs.recipe_files import without


def test_defaults_are_written_out():
    made = resolved(Recipe())
    assert made.model == ModelPart(size="small", max_length=512, dropout=0.1, attention_dropout=0.1)
    assert (made.optimizer.lr, made.run.budget, made.run.steps) == (LEARNING_RATES["small"], "10m", None)
    assert resolved(made) == made


@pytest.mark.parametrize("size", LEARNING_RATES)
def test_every_size_has_its_rate(size: Any):
    assert resolved(Recipe(model=ModelPart(size=size))).optimizer.lr == LEARNING_RATES[size]


def test_what_is_said_stays():
    model = ModelPart(size="mini", max_length=17, dropout=0.0, attention_dropout=0.3)
    said = Recipe(model=model, optimizer=OptimizerPart(lr=0.7), run=PretrainRun(steps=11))
    assert resolved(said) == said


def test_the_form_of_a_new_model_stays():
    model = ModelPart(pre_norm=True, positions="rotary", rotary_base=7.0, gated=True, bias=False, segments=0)
    found = resolved(Recipe(model=model)).model
    assert found == replace(model, size="small", max_length=512, dropout=0.1, attention_dropout=0.1)


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"size": "tiny"}, "size"),
        ({"pre_norm": True}, "pre-norm"),
        ({"positions": "rotary"}, "positions"),
        ({"positions": "rotary", "rotary_base": 7.0}, "rotary-base"),
        ({"gated": True}, "gated"),
        ({"bias": False}, "no-bias"),
        ({"segments": 0}, "segments"),
        ({"init": "scaled"}, "init"),
    ],
)
def test_a_model_to_go_on_with_keeps_its_form(changes: dict[str, Any], flag: str):
    with pytest.raises(UserError, match=f"with --from, the model keeps its own .*; leave --{flag} out"):
        Recipe(start_from="model", model=ModelPart(**changes))
    modern = without(Recipe(model=ModelPart(**changes)), RIVALS["from"])
    assert replace(modern, start_from="model").model == ModelPart()


def test_a_model_to_go_on_with_keeps_its_own():
    made = resolved(Recipe(start_from="model", model=ModelPart(dropout=0.3)))
    assert made.model == ModelPart(dropout=0.3)
    assert made.optimizer.lr == CONTINUED_RATE


def test_what_a_flag_puts_aside_is_known():
    parts = {part.name: part.default_factory for part in fields(Recipe) if callable(part.default_factory)}
    for rivals in RIVALS.values():
        for rival in rivals:
            part, _, name = rival.partition(".")
            assert name in {field.name for field in fields(parts[part])}


def test_fields_put_aside_are_as_if_never_said():
    classic = load_recipe("classic")
    left = without(classic, RIVALS["budget"])
    assert (classic.run.steps, left.run.steps) == (1_000_000, None)
    assert without(left, ("model.size",)).model.size is None
    assert left.optimizer == classic.optimizer
    Recipe(start_from="model", vocabulary=without(classic, RIVALS["from"]).vocabulary)


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        (OptimizerPart, {"beta1": 1.0}, "beta1 1.0 must be at least 0 and less than 1"),
        (OptimizerPart, {"beta2": -0.1}, "beta2 -0.1 must be at least 0 and less than 1"),
        (OptimizerPart, {"weight_decay": -0.01}, "--weight-decay -0.01 must not be negative"),
        (OptimizerPart, {"weight_decay": float("nan")}, "--weight-decay nan must not be negative"),
        (OptimizerPart, {"schedule": "cosine", "decay": 0.3}, "leave it out: cosine falls all along"),
        (OptimizerPart, {"schedule": "trapezoid", "warmup": 0.5, "decay": 0.6}, "at most 0.5 after a warmup of 0.5"),
        (OptimizerPart, {"schedule": "trapezoid", "decay": float("nan")}, "decay nan .* must be above 0"),
        (ObjectivePart, {"final_mask_rate": 0.0}, "--final-mask-rate 0.0 must lie between 0 and 1"),
        (ModelPart, {"segments": 3}, "segments 3 must be 2, 1, or 0 for none"),
        (ModelPart, {"rotary_base": 0.0}, "--rotary-base 0.0 must be at least 1"),
        (ModelPart, {"rotary_base": 7.0}, "--rotary-base is for rotary positions; add --positions rotary"),
        (PretrainRun, {"seed": -1}, "seed -1 must lie between 0 and"),
        (PretrainRun, {"seed": 2**63}, "must lie between 0 and 2"),
        (Recipe, {"model": ModelPart(segments=1)}, "next sentences need --segments 2, or 0"),
        (Recipe, {"start_from": "m", "vocabulary": VocabularyPart(cased=True)}, "leave --cased out"),
        (Recipe, {"vocabulary": VocabularyPart(tokenizer="t", cased=True)}, "leave --cased out"),
        (
            Recipe,
            {"run": PretrainRun(shard=True), "optimizer": OptimizerPart(batch_tokens="auto")},
            "--batch-tokens auto tries a model in one piece; with --shard give a number, or leave --shard out",
        ),
    ],
)
def test_what_can_not_be_is_refused(part: type, values: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        part(**values)


@pytest.mark.parametrize("command", WITH_RECIPES)
def test_a_folder_that_a_run_made_is_a_recipe(command: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    def seed(recipe: Path) -> int:
        return WITH_RECIPES[command](["--recipe", str(recipe), "--out", "x"]).settings.run.seed

    made, other = tmp_path / "made", tmp_path / "other"
    made.mkdir()
    other.mkdir()
    (made / "heedful.toml").write_text("[run]\nseed = 7\n\n[made]\nheedful = '0'\n", encoding="utf-8")
    shutil.copy(made / "heedful.toml", tmp_path / "a name without an ending")
    for recipe in (made, made / "heedful.toml", tmp_path / "a name without an ending"):
        assert seed(recipe) == 7
    with pytest.raises(UserError, match=r"there is no recipe '.*other'; .*name a \.toml file or the folder of a run"):
        seed(other)
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UserError, match=r"folder\.toml is a folder, not a TOML file"):
        seed(tmp_path / "folder.toml")
    with pytest.raises(SystemExit):
        WITH_RECIPES[command](["--help"])
    assert "or the folder of a run" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_the_ends_of_the_ranges_are_allowed():
    OptimizerPart(beta1=0.0, beta2=0.0, weight_decay=0.0)
    OptimizerPart(schedule="trapezoid", warmup=0.9, decay=0.1)
    OptimizerPart(schedule="trapezoid", warmup=0.0, decay=1.0)
    PretrainRun(seed=2**63 - 1)
