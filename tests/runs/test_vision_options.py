from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.commands.making import vision_options
from heedful.config import differences, to_toml
from heedful.data.augmentation import NONE, Augmentation
from heedful.errors import UserError
from heedful.models.vit import SIZES
from heedful.runs.vision import make_plan
from heedful.runs.vision_options import (
    RATES,
    USUAL,
    ImagesPart,
    VisionLearningPart,
    VisionModelPart,
    VisionOptions,
    VisionRecipe,
    VisionRun,
    check,
    check_patches,
    load_recipe,
    read_recipe,
    resolved,
    usual_batch,
    usual_size,
)

RECIPES = sorted(path.stem for path in (Path(str(files("heedful"))) / "recipes/vision").glob("*.toml"))
shares = st.floats(0, 0.9)


@given(
    st.builds(
        VisionRecipe,
        data=st.text(min_size=1, max_size=9).filter(str.isprintable),
        dev=st.none() | st.just("dev"),
        images=st.builds(ImagesPart, image_size=st.none() | st.integers(1, 1024), skip_bad=st.booleans()),
        model=st.builds(VisionModelPart, size=st.none() | st.sampled_from(sorted(SIZES)), stochastic_depth=shares),
        augmentation=st.builds(Augmentation, crop=shares, flip=st.booleans(), mixup=shares, mixed=shares),
        learning=st.builds(VisionLearningPart, lr=st.none() | st.floats(1e-9, 1), smoothing=shares),
        run=st.builds(VisionRun, steps=st.none() | st.integers(1, 10**9), evaluations=st.integers(1, 97)),
    )
)
def test_a_recipe_comes_back_from_toml_as_it_was(tmp_path_factory: pytest.TempPathFactory, recipe: VisionRecipe):
    path = tmp_path_factory.mktemp("recipe") / "heedful.toml"
    path.write_text(f'{to_toml(recipe)}\n[made]\nheedful = "0"\n', encoding="utf-8")
    assert read_recipe(path) == recipe


def test_the_recipes_that_come_along_can_be_read_and_are_told_of(capsys: pytest.CaptureFixture):
    assert RECIPES == ["cifar_small", "digits", "fashion_mnist", "plain"]
    with pytest.raises(SystemExit):
        vision_options(["--help"])
    said = " ".join(capsys.readouterr().out.replace("│", "").split())
    for name in RECIPES:
        check(load_recipe(name))
        assert name in said


def test_plain_is_a_vit_without_any_of_it():
    plain = load_recipe("plain")
    assert replace(plain.augmentation, magnitude=NONE.magnitude, mixed=NONE.mixed) == NONE
    assert (plain.learning.smoothing, plain.learning.name) == (0.0, "adamw")
    assert (plain.model.stochastic_depth, plain.model.init_std) == (0.0, 0.02)
    part = plain.model
    assert not any((part.shifted_patches, part.convolutional_stem, part.locality))


def test_a_recipe_says_only_how_it_differs_from_the_usual_one(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text("[augmentation]\nflip = true\n", encoding="utf-8")
    assert read_recipe(path) == VisionRecipe(augmentation=replace(USUAL, flip=True))


def test_flags_override_a_recipe(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text('data = "photos"\n[run]\nepochs = 7\nseed = 3\n[augmentation]\nflip = true\n', encoding="utf-8")
    options = vision_options(["--recipe", str(path), "--budget", "5m", "--no-flip", "--out", "made"])
    run = options.settings.run
    assert (run.epochs, run.steps, run.budget, run.seed) == (None, None, "5m", 3)
    assert options.settings.augmentation == USUAL
    assert options.settings.data == "photos"
    assert vision_options(["other", "--recipe", str(path), "--out", "made"]).settings.data == "other"


def test_without_data_it_is_the_digits_with_their_own_recipe():
    own = load_recipe("digits")
    assert vision_options(["--out", "made"]) == VisionOptions(settings=own, out=Path("made"))
    changed = vision_options(["digits", "--steps", "7", "--no-convolutional-stem", "--out", "made"]).settings
    assert differences(changed, own) == ["model.convolutional_stem", "run.epochs", "run.steps"]
    assert vision_options(["--recipe", "plain", "--out", "made"]).settings == load_recipe("plain")
    assert vision_options(["photos", "--out", "made"]).settings == VisionRecipe(data="photos")


def test_a_run_to_resume_says_what_it_was_told(tmp_path: Path):
    recipe = VisionRecipe(data="photos", run=VisionRun(steps=11))
    (tmp_path / "heedful.toml").write_text(to_toml(recipe), encoding="utf-8")
    options = vision_options(["--resume", "--out", str(tmp_path)])
    assert options.resume
    assert options.settings == recipe


def whole(recipe: VisionRecipe, images: int = 100, side: int = 28, *, gpu: bool = False) -> VisionRecipe:
    return resolved(recipe, side=side, patch=4, images=images, gpu=gpu)


def test_what_is_not_said_follows_from_the_images():
    recipe = whole(VisionRecipe(data="photos"), images=30_000, gpu=True)
    assert (recipe.model.size, recipe.model.patch_size) == ("compact", 4)
    assert recipe.learning.batch == 256
    assert recipe.run.budget == "10m"
    assert recipe.images.image_size is None  # which would be other images to the cache
    assert whole(recipe, images=30_000) == recipe  # and is decided once
    assert [usual_size(side, gpu=gpu) for side in (15, 16) for gpu in (False, True)] == [
        "micro",
        "micro",
        "mini",
        "compact",
    ]
    assert [usual_batch(count) for count in (4_999, 5_000, 19_999, 20_000)] == [64, 128, 128, 256]


def test_what_is_said_stays():
    said = VisionRecipe(
        model=VisionModelPart(size="tiny", patch_size=7),
        learning=VisionLearningPart(lr=0.5, batch=3),
        run=VisionRun(steps=5),
    )
    assert differences(whole(said), said) == []


def test_the_digits_take_epochs_where_nobody_says_how_long():
    recipe = whole(VisionRecipe(), side=8)
    assert recipe.run.budget is None
    assert recipe.run.epochs is not None
    assert whole(VisionRecipe(run=VisionRun(budget="9s")), side=8).run.epochs is None


def test_rates_are_known_for_every_size_and_optimizer():
    for rates in RATES.values():
        assert list(rates) == list(SIZES)
        assert sorted(rates.values(), reverse=True) == list(rates.values())  # lower for larger models


@pytest.mark.parametrize(
    ("run", "steps", "budget"),
    [(VisionRun(epochs=3), 20, None), (VisionRun(steps=7), 7, None), (VisionRun(budget="1m30s"), None, 90.0)],
)
def test_the_plan(run: VisionRun, steps: int | None, budget: float | None):
    plan = make_plan(whole(VisionRecipe(data="photos", run=run)), batches=13, ranks=2)
    assert (plan.steps, plan.budget) == (steps, budget)  # 3 epochs of 13 batches, two a step
    assert (plan.schedule, plan.warmup, plan.evaluations) == ("cosine", 0.1, 10)


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        (VisionLearningPart, {"lr": 0.0}),
        (VisionLearningPart, {"batch": 0}),
        (VisionLearningPart, {"warmup": 1.1}),
        (VisionLearningPart, {"smoothing": 1.0}),
        (VisionLearningPart, {"weight_decay": -0.1}),
        (VisionLearningPart, {"clip": 0.0}),
        (VisionLearningPart, {"patience": -1}),
        (VisionModelPart, {"dropout": 1.0}),
        (VisionModelPart, {"init_std": 0.0}),
        (VisionRun, {"epochs": 0}),
        (VisionRun, {"evaluations": 0}),
        (VisionRun, {"steps": 3, "budget": "1m"}),
        (ImagesPart, {"held_out": 0.0}),
    ],
)
def test_numbers_that_mean_nothing_are_refused(part: Any, wrong: dict[str, Any]):
    with pytest.raises(UserError, match=next(iter(wrong)).replace("_", "-")):
        part(**wrong)


@given(st.integers(1, 300), st.integers(1, 300))
def test_patches_are_taken_or_others_that_fit_are_named(side: int, patch: int):
    try:
        check_patches(side, patch)
    except UserError as error:
        if side % patch == 0:
            assert (side // patch) ** 2 > 4096
            return
        for fitting in str(error).partition("choose from ")[2].split(", "):
            check_patches(side, int(fitting))
    else:
        assert side % patch == 0


def test_help_lists_what_can_be_asked_for(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit):
        vision_options(["--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--shard" not in said
    assert "What is transparent is laid on white, 16 bits become 8" in said
    assert "--keep" in said
