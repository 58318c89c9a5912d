import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import heedful
from heedful.config import to_toml
from heedful.data import pixel_arrays
from heedful.data.image_sources import find
from heedful.data.image_store import content, digits_part
from heedful.data.images import Images, split
from heedful.errors import UserError
from heedful.formats.vit import save_vit
from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.predict import ImagePredictor
from heedful.predict.image_engine import TorchImageEngine
from heedful.runs import image_evaluate as run
from heedful.runs.vision_options import ImagesPart, VisionRecipe, VisionRun

COLOURS = {"red": (230, 40, 30), "green": (30, 220, 45), "blue": (20, 35, 240)}


@pytest.fixture(scope="module")
def predictor(colours: Path) -> ImagePredictor:
    return heedful.load(colours, "cpu")


def paint(file: Path, colour: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (19, 13), COLOURS[colour]).save(file)
    return file


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Two of three reds are red, one of one blue is green."""
    folder = tmp_path / "album"
    for name, colour in {"red/1": "red", "red/2": "red", "red/3": "green", "blue/1": "green"}.items():
        paint(folder / f"{name}.png", colour)
    return folder


def test_scores_by_hand(predictor: ImagePredictor, album: Path, tmp_path: Path):
    found = run.evaluate(predictor, str(album), every=True)
    assert found.report.scores["accuracy"] == 2 / 4
    # red: precision 1, recall 2/3, F1 0.8; green: nothing of it is right, like blue
    assert found.report.scores["macro_f1"] == pytest.approx(0.8 / 3)
    assert found.report.confusion is not None
    assert found.report.confusion.tolist() == [[2, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert sorted((one.where, one.truth, one.answer) for one in found.mistakes) == [
        (str(album / "blue" / "1.png"), "blue", "green"),
        (str(album / "red" / "3.png"), "red", "green"),
    ]
    assert [one.confidence for one in found.mistakes] == sorted(one.confidence for one in found.mistakes)[::-1]
    lines = run.lines(found)
    assert lines[:3] == [f"4 images of {album}", "", "accuracy  50.00%"]
    assert sum(line.endswith(".png)") for line in lines) == 2
    table = run.as_json(found)
    assert (table["examples"], table["skipped"], table["labels"]) == (4, 0, ["red", "green", "blue"])
    run.write_predictions(found, tmp_path / "p.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["truth"], row["label"]) for row in rows] == [
        ("blue", "green"),
        ("red", "red"),
        ("red", "red"),
        ("red", "green"),
    ]
    assert rows[0]["where"] == str(album / "blue" / "1.png")
    assert list(rows[0]["probabilities"]) == ["red", "green", "blue"]
    assert rows[0]["probability"] == rows[0]["probabilities"]["green"]


def test_the_worst_come_first_and_no_more_than_asked(predictor: ImagePredictor, album: Path):
    assert run.evaluate(predictor, str(album), worst=0).mistakes == []
    every = run.evaluate(predictor, str(album), worst=9).mistakes
    assert run.evaluate(predictor, str(album), worst=1).mistakes == every[:1]


def test_the_part_that_is_held_out_counts(predictor: ImagePredictor, album: Path, tmp_path: Path):
    whole = tmp_path / "whole"
    shutil.copytree(album, whole / "train")
    paint(whole / "test" / "blue" / "1.png", "blue")
    found = run.evaluate(predictor, str(whole))
    assert (found.report.scores["accuracy"], run.lines(found)[0]) == (1.0, f"1 image of {whole / 'test'}")


@pytest.mark.parametrize("first", [False, True])
def test_arrays_of_another_size(predictor: ImagePredictor, tmp_path: Path, first: bool):
    order = ["blue", "red", "green", "blue", "red"]
    images = np.stack([np.full((7, 11, 3), COLOURS[name], np.uint8) for name in order])
    labels = np.array(["blue", "red", "red", "blue", "green"])
    np.savez(tmp_path / "few.npz", x=images.transpose(0, 3, 1, 2) if first else images, y=labels)
    found = run.evaluate(predictor, str(tmp_path / "few.npz"))
    assert found.report.scores["accuracy"] == 3 / 5
    assert sorted(one.where.rpartition("[")[2] for one in found.mistakes) == ["2]", "4]"]
    numbers = np.array([2, 0, 1, 2, 0])  # of the model's classes, where the array has no names
    np.savez(tmp_path / "numbers.npz", x=images, y=numbers)
    assert run.evaluate(predictor, str(tmp_path / "numbers.npz")).report.scores["accuracy"] == 1.0


def test_the_same_where_the_next_are_read_meanwhile(
    predictor: ImagePredictor, album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (album / "red" / "2.png").write_bytes(b"none")
    order = ["blue", "red", "green", "red", "red"]
    images = np.stack([np.full((7, 11, 3), COLOURS[name], np.uint8) for name in order])
    np.savez(tmp_path / "few.npz", x=images, y=np.array(["blue", "red", "red", "blue", "green"]))
    names = [str(album), str(tmp_path / "few.npz")]
    alone = [run.evaluate(predictor, name, skip_bad=True) for name in names]
    monkeypatch.setattr(pixel_arrays, "_PIECE", 2 * 12 * 12 * 3)
    pieces, real = [threading.Event() for _ in range(3)], run.pixel_pieces

    def noted(*given: Any) -> Iterator[np.ndarray]:
        for piece, pixels in zip(pieces, real(*given), strict=True):
            piece.set()
            yield pixels

    class Waiting(TorchImageEngine):
        """Computes as on a GPU; of the array, nothing before its second piece is there."""

        on_gpu = True

        def scores(self, pictures: np.ndarray) -> np.ndarray:
            assert not pieces[0].is_set() or pieces[1].wait(20)
            return super().scores(pictures)

    monkeypatch.setattr(run, "pixel_pieces", noted)
    monkeypatch.setattr("heedful.predict.images.GPU_CHUNK", 2)
    assert isinstance(predictor.engine, TorchImageEngine)
    hasty = ImagePredictor(Waiting(predictor.engine.model))
    for name, expected in zip(names, alone, strict=True):
        found = run.evaluate(hasty, name, skip_bad=True)
        assert found.examples == expected.examples
        assert [one.label for one in found.answers] == [one.label for one in expected.answers]
        assert found.skipped == expected.skipped
    assert pieces[2].is_set()


def test_classes_that_the_model_does_not_know(predictor: ImagePredictor, album: Path, tmp_path: Path):
    paint(album / "purple" / "1.png", "red")
    with pytest.raises(UserError, match="the class 'purple', which is none of those trained on: red, green, blue"):
        run.evaluate(predictor, str(album))
    np.savez(tmp_path / "n.npz", x=np.zeros((2, 5, 7, 3), np.uint8), y=np.array([0, 3]))
    with pytest.raises(UserError, match=r"has the label 3, but there are classes for 0 to 2 only"):
        run.evaluate(predictor, str(tmp_path / "n.npz"))


def test_a_bad_file_is_named_or_passed_over(predictor: ImagePredictor, album: Path, tmp_path: Path):
    bad = album / "red" / "2.png"
    bad.write_bytes(bad.read_bytes()[:40])
    with pytest.raises(UserError, match=r"2.png: .*, or pass over such files with --skip-bad"):
        run.evaluate(predictor, str(album))
    found = run.evaluate(predictor, str(album), skip_bad=True)
    assert (len(found.examples), found.report.scores["accuracy"]) == (3, 1 / 3)
    assert run.lines(found)[1].startswith(f"passed over 1 file: {bad}: ")
    assert run.as_json(found)["skipped"] == 1
    broken = tmp_path / "broken"
    for name in ("red", "blue"):
        (broken / name).mkdir(parents=True)
        (broken / name / "1.png").write_bytes(b"none")
    with pytest.raises(UserError, match=r"no image of .* can be read: 2 files, the first: "):
        run.evaluate(predictor, str(broken), skip_bad=True)


def trained_on(model: Path, images: Path) -> None:
    """Let a model's folder say that it was trained on these."""
    result = {"trained_on": content(find(str(images)).train)}
    (model / "evaluation.json").write_text(json.dumps(result), encoding="utf-8")


def test_of_what_it_was_trained_on_only_what_was_held_out(colours: Path, album: Path, tmp_path: Path):
    for number in range(7):
        paint(album / "green" / f"{number}.png", "green")
    model = tmp_path / "model"
    shutil.copytree(colours, model)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    names = ["blue", "green", "red"]  # in the order of the folders, as training has them
    config["id2label"] = {str(number): name for number, name in enumerate(names)}
    (model / "config.json").write_text(json.dumps(config), encoding="utf-8")
    predictor = heedful.load(model, "cpu")
    labels = np.array([0] + [1] * 7 + [2] * 3)
    files = [*(album / "blue").iterdir(), *sorted((album / "green").iterdir()), *sorted((album / "red").iterdir())]
    images = Images.of(np.zeros((11, 1, 1, 1), np.uint8), labels, tuple(names))

    def examined(recipe: VisionRecipe, given: Path = album) -> tuple[list[str], str]:
        (model / "heedful.toml").write_text(to_toml(recipe), encoding="utf-8")
        found = run.evaluate(predictor, str(given), folder=model)
        return [one.where for one in found.examples], run.lines(found)[0]

    trained_on(model, album)
    for seed, share in ((0, None), (5, 0.4)):
        recipe = VisionRecipe(data=str(album), run=VisionRun(seed=seed), images=ImagesPart(held_out=share))
        expected = [str(files[row]) for row in split(images, share, seed)[1].rows]
        where, line = examined(recipe)
        assert where == expected
        assert 0 < len(where) < 11
        assert line.endswith(f" of {album}, those held out while training")
    # Of what was passed over while training, nothing was held out.
    files[4].write_bytes(b"none")
    trained_on(model, album)
    sound = np.delete(np.arange(11), 4)
    recipe = VisionRecipe(data=str(album), images=ImagesPart(held_out=0.4, skip_bad=True))
    assert examined(recipe)[0] == [str(files[row]) for row in split(images.part(sound), 0.4, 0)[1].rows]
    # Its images are known by what they are, not by where they lie.
    moved = album.rename(album.with_name("moved"))
    where, line = examined(recipe, moved)
    assert where == [str(moved / files[row].relative_to(album)) for row in split(images.part(sound), 0.4, 0)[1].rows]
    assert line.endswith(f" of {moved}, those held out while training")
    moved.rename(album)
    # Tested on others while it trained, or now: all count.
    paint(files[4], "green")
    trained_on(model, album)
    assert len(examined(VisionRecipe(data=str(album), dev=str(tmp_path / "other")))[0]) == 11
    paint(album / "green" / "new.png", "green")
    where, line = examined(VisionRecipe(data=str(tmp_path / "other")))
    assert (len(where), line) == (12, f"12 images of {album}")
    # Under the same name there are others now.
    where, line = examined(VisionRecipe(data=str(album)))
    changed = "changed since the model was trained on it: it may have seen some of them"
    assert (len(where), line) == (12, f"12 images of {album}, {changed}")
    for unsaid in ("{}", "[]", "none"):  # a folder that does not say what it was trained on
        (model / "evaluation.json").write_text(unsaid, encoding="utf-8")
        assert examined(VisionRecipe(data=str(album)))[1] == line


def test_the_digits_that_are_always_there(tmp_path: Path):
    config = ViTConfig(image_size=8, patch_size=4, channels=1, layers=1, dim=8, heads=1, ffn_dim=5)
    save_vit(ViTClassifier(config, tuple("0123456789")), tmp_path)
    predictor = heedful.load(tmp_path, "cpu")
    assert len(run.evaluate(predictor, "digits", folder=tmp_path).examples) == 1797
    (tmp_path / "heedful.toml").write_text(to_toml(VisionRecipe()), encoding="utf-8")
    result = {"trained_on": content(digits_part())}
    (tmp_path / "evaluation.json").write_text(json.dumps(result), encoding="utf-8")
    found = run.evaluate(predictor, "digits", folder=tmp_path)
    assert run.lines(found)[0] == "179 images of digits, those held out while training"
    assert found.examples[0].where.startswith("digits[")


def test_a_model_of_the_digits_needs_no_name_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    model = Path("digits")  # what a first model is often called
    model.mkdir()
    with pytest.raises(
        UserError, match=r"nothing to evaluate digits on; name images as `heedful train-vision` takes$"
    ):
        run.own_images(model)
    (model / "heedful.toml").write_text(to_toml(VisionRecipe()), encoding="utf-8")
    assert run.own_images(model) == "digits"
    config = ViTConfig(image_size=8, patch_size=4, channels=1, layers=1, dim=8, heads=1, ffn_dim=5)
    save_vit(ViTClassifier(config, tuple("0123456789")), model)
    assert len(run.evaluate(heedful.load(model, "cpu"), "digits").examples) == 1797
    (model / "heedful.toml").write_text(to_toml(VisionRecipe(data="album")), encoding="utf-8")
    with pytest.raises(UserError, match="such as those that it was trained on: heedful evaluate digits album"):
        run.own_images(model)


def test_numbers_that_are_taken_as_classes_are_told_of(tmp_path: Path, predictor: ImagePredictor):
    pixels = [np.full((12, 12, 3), COLOURS[name], np.uint8) for name in ("red", "green", "blue")]
    np.savez(tmp_path / "few.npz", x=np.stack(pixels), y=np.array([0, 1, 2]))
    found = run.evaluate(predictor, str(tmp_path / "few.npz"))
    assert found.report.scores["accuracy"] == 1.0
    assert run.lines(found)[0] == f"3 images of {tmp_path / 'few.npz'}; labels 0 to 2 taken as red to blue"
