import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from heedful.data.images import Images
from heedful.errors import UserError
from heedful.formats.vit import load_vit
from heedful.models.vit import ViTClassifier
from heedful.nn.pixels import Pixels
from heedful.runs import info, vision
from heedful.runs.device import choose
from heedful.runs.vision import build, train_vision
from heedful.runs.vision_judge import VisionJudge
from heedful.runs.vision_material import VisionMaterial, gather
from heedful.runs.vision_options import (
    ImagesPart,
    VisionLearningPart,
    VisionModelPart,
    VisionOptions,
    VisionRecipe,
    VisionRun,
    load_recipe,
)
from heedful.train import log
from heedful.train.log import Log
from heedful.train.loop import Diverged
from heedful.train.replay_images import ImageReplay

CPU = choose("cpu", "auto")


def material(tmp_path: Path, recipe: VisionRecipe = VisionRecipe()) -> VisionMaterial:  # noqa: B008 (frozen)
    return gather(recipe, tmp_path, Log(tmp_path, leads=True), gpu=False)


def test_digits_are_split_by_the_seed(tmp_path: Path, capsys: pytest.CaptureFixture):
    found = material(tmp_path)
    assert "images: 1,618 to train on and 179 held out, 8 x 8 pixels, grey, 10 classes" in capsys.readouterr().out
    assert not set(found.train.rows) & set(found.heldout.rows)
    assert len(set(found.train.rows) | set(found.heldout.rows)) == 1797
    again = material(tmp_path)
    assert (found.heldout.rows == again.heldout.rows).all()
    other = material(tmp_path, VisionRecipe(run=VisionRun(seed=1)))
    assert (found.heldout.rows != other.heldout.rows).any()
    pixels = found.train.take(np.arange(len(found.train))) / 255
    assert found.read_as.mean == pytest.approx((pixels.mean(),))
    assert found.read_as.std == pytest.approx((pixels.std(),))


def test_a_share_can_be_held_out_of_the_training_part_alone(tmp_path: Path):
    rng = np.random.default_rng(0)
    for part, count in (("train", 50), ("test", 7)):
        np.save(tmp_path / f"{part}_x.npy", rng.integers(0, 255, (count, 8, 8)).astype(np.uint8))
        np.save(tmp_path / f"{part}_y.npy", np.arange(count) % 2)
    data = str(tmp_path)
    given = material(tmp_path / "cache", VisionRecipe(data=data))
    assert (len(given.train), len(given.heldout)) == (50, 7)
    own = material(tmp_path / "cache", VisionRecipe(data=data, images=ImagesPart(held_out=0.2)))
    assert (len(own.train), len(own.heldout)) == (40, 10)
    dev = material(tmp_path / "cache", VisionRecipe(data=data, dev=data))
    assert (len(dev.train), len(dev.heldout)) == (50, 7)
    assert dev.digest != given.digest


def test_what_is_left_out_is_said(tmp_path: Path, capsys: pytest.CaptureFixture):
    rng = np.random.default_rng(0)
    for name, count in (("many", 30), ("one", 1)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 255, (8, 8)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / name / f"{number}.png")
    (tmp_path / "pets" / "one" / "a.tiff").write_bytes(b"x")
    material(tmp_path / "cache", VisionRecipe(data=str(tmp_path / "pets")))
    said = capsys.readouterr().out
    assert "passed over 1 file that is no .png .jpg .jpeg .bmp .webp .gif of a class: " in said
    assert "a.tiff" in said
    assert "no image of one is held out to evaluate on\n" in said


def test_a_model_starts_from_its_seed_and_knows_its_images(tmp_path: Path):
    found = material(tmp_path)
    model, again = build(found), build(found)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    other = build(replace(found, recipe=replace(found.recipe, run=VisionRun(seed=1))))
    assert not torch.equal(model.output.weight, other.output.weight)
    config = model.config
    assert (config.layers, config.dim, config.image_size, config.patch_size, config.channels) == (4, 64, 8, 2, 1)
    assert (config.pixels.mean, config.pixels.std, config.pixels.edge) == (
        *(found.read_as.mean, found.read_as.std),
        8,
    )
    assert config.init_std == 1 / 8
    wide = model.state_dict()["vit.layers.0.feed_forward.inner.weight"]
    assert float(wide.std()) == pytest.approx(0.125, rel=0.05)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # torch's own
def test_a_compiled_run_repeats_and_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recipe = VisionRecipe(
        model=VisionModelPart(size="mini", patch_size=2, stochastic_depth=0.2, dropout=0.1),
        learning=VisionLearningPart(batch=64),
        run=VisionRun(steps=6, evaluations=2, checkpoint_every="2", device="cuda"),
    )

    def weights(name: str, *, resume: bool = False) -> bytes:
        torch.compiler.reset()
        train_vision(VisionOptions(settings=recipe, out=tmp_path / name, resume=resume, cache=tmp_path / "cache"))
        return (tmp_path / name / "model.safetensors").read_bytes()

    whole = weights("whole")
    assert weights("again") == whole
    real, calls = ImageReplay.__call__, []

    def broken_off(self: ImageReplay, pixels: torch.Tensor) -> torch.Tensor:
        calls.append(self.options is not None)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return real(self, pixels)

    with monkeypatch.context() as patch:
        patch.setattr(ImageReplay, "__call__", broken_off)
        with pytest.raises(KeyboardInterrupt):
            weights("parts")
    assert all(calls)
    assert weights("parts", resume=True) == whole


def test_images_are_counted_and_not_their_patches(tmp_path: Path, capsys: pytest.CaptureFixture):
    recipe = VisionRecipe(learning=VisionLearningPart(batch=64), run=VisionRun(steps=2, evaluations=1))
    train_vision(VisionOptions(settings=recipe, out=tmp_path / "out", cache=tmp_path / "cache"))
    assert " images/s" in capsys.readouterr().out
    assert [line["images"] for line in log.read(tmp_path / "out") if line["kind"] == "train"] == [64, 128]
    assert info.as_json(tmp_path / "out")["images"] == 128


class Told(ViTClassifier):
    """Says what it is told to."""

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """The brightness of the first pixel is the class; all other scores are zero."""
        chosen = (pixels[:, 0, 0, 0] * 255).round().long()
        return 3.0 * torch.nn.functional.one_hot(chosen, 3).float()


def judge_of(truth: list[int], said: list[int]) -> VisionJudge:
    pixels = np.zeros((len(truth), 2, 2, 1), np.uint8)
    pixels[:, 0, 0, 0] = said
    images = Images.of(pixels, np.array(truth), ("x", "y", "z"))
    recipe = VisionRecipe(model=VisionModelPart(size="micro", patch_size=1))
    plain = Pixels(mean=(0.0,), std=(1.0,))
    given = VisionMaterial(recipe=recipe, train=images, heldout=images, read_as=plain, digest="", trained_on="")
    return VisionJudge(Told(build(given).config, images.classes), given, CPU)


def test_a_judge_counts_what_is_right():
    report = judge_of([0, 1, 2, 2, 1], [0, 1, 2, 0, 1]).report()
    right, wrong = -math.log(math.e**3 / (math.e**3 + 2)), -math.log(1 / (math.e**3 + 2))
    assert report.scores["accuracy"] == 0.8
    assert report.scores["loss"] == pytest.approx((4 * right + wrong) / 5, rel=1e-6)
    assert [one.recall for one in report.classes] == [1.0, 1.0, 0.5]


def test_a_judge_looks_at_the_model_as_it_is():
    judge = judge_of([0, 1, 2], [0, 1, 0])
    sure = round(math.e**3 / (math.e**3 + 2), 4)
    told = [("image 0", "x", "x", sure), ("image 1", "y", "y", sure), ("image 2", "x", "z", sure)]
    assert judge.look() == (judge.report().scores, told, False)
    assert judge.look().scores["accuracy"] == pytest.approx(2 / 3)
    judge.material.heldout.pixels[:, 0, 0, 0] = [0, 1, 2]
    assert judge.look().scores["accuracy"] == 1.0
    judge.states.offer(3, judge.look().scores)
    assert (judge.states.best.step, judge.states.best.worth) == (3, 1.0)


def test_a_few_images_are_asked_about_spread_over_all():
    looked = judge_of([0] * 13, [0] * 13).look()
    assert [one.input for one in looked.samples] == ["image 0", "image 3", "image 6", "image 9"]


def test_their_recipe_learns_the_digits(tmp_path: Path):
    """In a fraction of the epochs that it takes by itself."""
    recipe = replace(load_recipe("digits"), run=VisionRun(epochs=4, evaluations=2))
    found = train_vision(VisionOptions(settings=recipe, out=tmp_path / "out"))
    assert found["accuracy"] > 0.6
    model = load_vit(tmp_path / "out")
    assert isinstance(model, ViTClassifier)
    assert model.labels == tuple("0123456789")
    held = material(tmp_path, recipe)
    judged = VisionJudge(model, held, CPU).report().scores
    assert judged["accuracy"] == found["accuracy"]


def test_too_little_memory_says_what_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def exhausted(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(vision, "vision_terms", exhausted)
    recipe = VisionRecipe(learning=VisionLearningPart(batch=48), run=VisionRun(steps=2))
    with pytest.raises(UserError, match="too small for this; try --batch 24, in a new --out"):
        train_vision(VisionOptions(settings=recipe, out=tmp_path / "out"))


def test_a_loss_that_is_no_number_says_what_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def diverged(*_: object, **__: object) -> None:
        raise Diverged(7, "loss", math.nan)

    monkeypatch.setattr(vision, "vision_terms", diverged)
    with pytest.raises(UserError, match="became nan at step 7; there is no checkpoint yet; try a lower --lr"):
        train_vision(VisionOptions(settings=VisionRecipe(run=VisionRun(steps=2)), out=tmp_path / "out"))
