"""Training an image classifier by its command: it learns, opens elsewhere, and killed at any moment ends the same."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from heedful.data.image_sources import find
from heedful.data.image_store import content
from heedful.formats.vit import load_vit
from heedful.nn.pixels import normalised

Run = Callable[[str, list[str | Path]], Any]
Shell = Any  # tests/e2e/conftest.py has it
LATE = "from heedful.runs import vision, vision_judge\n"
"""What a patched command loads first."""


def squares(count: int, seed: int, size: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Grey images of noise with a bright square in one of four corners, which is their class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    pixels = rng.integers(0, 100, (count, size, size)).astype(np.uint8)
    half = size // 2
    for image, label in zip(pixels, labels, strict=True):
        image[label // 2 * half :, label % 2 * half :][:half, :half] += 120
    return pixels, labels


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """149 images to train on, 67 to evaluate on, and names for their classes."""
    folder = tmp_path_factory.mktemp("arrays")
    for part, count, seed in (("train", 149, 0), ("test", 67, 1)):
        pixels, labels = squares(count, seed)
        np.save(folder / f"{part}_images.npy", pixels)
        np.save(folder / f"{part}_labels.npy", labels)
    (folder / "classes.txt").write_text("north west\nnorth east\nsouth west\nsouth east\n", encoding="utf-8")
    return folder


SMALL = ("--size", "micro", "--batch", "16", "--steps", "31", "--evaluations", "5", "--device", "cpu")
SMALL += ("--checkpoint-every", "6", "--crop", "0", "--optimizer", "muon", "--lr", "3e-3")


def told(folder: Path) -> list[tuple[str, int, float]]:
    """What metrics.jsonl says, without the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(line["kind"], line["step"], line["loss"]) for line in lines]


@pytest.fixture(scope="module")
def command(arrays: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str | Path]:
    return ["train-vision", arrays, *SMALL, "--cache", tmp_path_factory.mktemp("cache")]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, command: list[str | Path], heedful: Run) -> Path:
    """The run that nothing happened to, with everything random that there is."""
    out = tmp_path_factory.mktemp("reference") / "out"
    done = heedful("", [*command, "--out", out])
    assert (done.code, done.err) == (0, "")
    assert "images: 149 to train on and 67 held out, 8 x 8 pixels, grey, 4 classes" in done.out
    assert "model: 4 layers, 64 wide, 4 heads, 4 x 4 patches of 2 x 2 pixels, 0.2M parameters, on cpu" in done.out
    return out


def test_it_learns_and_says_how_well(reference: Path, arrays: Path):
    result = json.loads((reference / "evaluation.json").read_text(encoding="utf-8"))
    assert result["trained_on"] == content(find(str(arrays)).train)
    assert result["metric"] == "accuracy"
    assert result["examples"] == 67
    assert result["scores"]["accuracy"] > 0.8  # a quarter by chance
    assert [one["label"] for one in result["classes"]] == ["north west", "north east", "south west", "south east"]
    assert sum(one["count"] for one in result["classes"]) == 67
    right = sum(one["recall"] * one["count"] for one in result["classes"])
    assert result["scores"]["accuracy"] == pytest.approx(right / 67)
    heldout = [json.loads(line) for line in (reference / "metrics.jsonl").read_text().splitlines()]
    accuracies = {line["step"]: line["accuracy"] for line in heldout if line["kind"] == "heldout"}
    assert len(accuracies) == 5
    assert result["scores"]["accuracy"] == max(accuracies.values()) == accuracies[result["step"]]


def test_transformers_opens_the_folder_and_says_the_same(reference: Path, arrays: Path):
    from transformers import ViTForImageClassification, ViTImageProcessor

    theirs = ViTForImageClassification.from_pretrained(reference)
    assert theirs.config.id2label[2] == "south west"
    processor = ViTImageProcessor.from_pretrained(reference)
    pixels, labels = np.load(arrays / "test_images.npy"), np.load(arrays / "test_labels.npy")
    read = processor(
        [Image.fromarray(image) for image in pixels], return_tensors="pt", input_data_format="channels_last"
    )
    model = load_vit(reference)
    mine = normalised(torch.from_numpy(pixels)[..., None], model.config.pixels)
    torch.testing.assert_close(read["pixel_values"], mine, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        logits = theirs(read["pixel_values"]).logits
        torch.testing.assert_close(logits, model(mine), atol=1e-4, rtol=1e-4)
    result = json.loads((reference / "evaluation.json").read_text(encoding="utf-8"))
    assert float((logits.argmax(-1).numpy() == labels).mean()) == pytest.approx(result["scores"]["accuracy"])


KILLS = {
    "in the second step": ('at(vision, "vision_terms", call=2)', 0),
    "in the middle of a checkpoint": ('at(checkpoint, "write_file", match="00000012", call=2)', 0),
    "when a checkpoint has just taken its name": (
        'at(pathlib.Path, "rename", match=".step-00000012", after=True)',
        6,
    ),
    "after an evaluation that is in no checkpoint": ('at(vision.VisionJudge, "look", after=True)', 12),
    "while an old checkpoint is removed": ('at(checkpoint.shutil, "rmtree", match="step-")', 12),
    "before the best model is saved": ('at(vision, "save_vit")', None),
    "between its config and its weights": ('at(pathlib.Path, "replace", match=".model.safetensors")', None),
}
"""What is patched, and where the run that is then killed goes on from. Each goes on where the last one died."""


def test_killed_again_and_again_it_ends_with_the_same_weights(
    tmp_path: Path, command: list[str | Path], reference: Path, heedful: Run
):
    out = tmp_path / "out"
    again: list[str | Path] = ["train-vision", "--resume", "--out", out, *command[-2:]]
    for moment, (patch, step) in KILLS.items():
        one = heedful(LATE + patch, again if out.exists() else [*command, "--out", out])
        assert (one.code, one.err) == (-signal.SIGKILL, ""), (moment, one)
        went_on = re.search(r"resuming at step (\d+)", one.out)
        assert step is None or int(went_on[1] if went_on else 0) == step, (moment, one)
    done = heedful("", again)
    assert (done.code, done.err) == (0, "")
    assert (out / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()
    assert (out / "evaluation.json").read_bytes() == (reference / "evaluation.json").read_bytes()
    assert told(out) == told(reference)
    assert {path.name for path in out.iterdir()} == {path.name for path in reference.iterdir()}


def test_interrupted_it_says_how_to_go_on_and_goes_on_exactly(
    tmp_path: Path, command: list[str | Path], reference: Path, heedful: Run
):
    out = tmp_path / "out"
    interrupt = 'at(vision, "vision_terms", call=9, act=lambda: os.kill(os.getpid(), signal.SIGINT))'
    stopped = heedful(LATE + interrupt, [*command, "--out", out])
    assert stopped.code == 130
    go_on = f"train-vision --resume --out {out}"
    expected = rf"heedful: stopped and saved at step (9|10); go on with: heedful {re.escape(go_on)}\n"
    assert re.fullmatch(expected, stopped.err)
    done = heedful("", go_on.split())
    assert (done.code, done.err) == (0, "")
    assert re.search(r"resuming at step (9|10)", done.out)
    assert (out / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()
    assert told(out) == told(reference)


def test_a_run_goes_on_with_the_images_it_began_with(
    tmp_path: Path, command: list[str | Path], arrays: Path, heedful: Run
):
    out, changed = tmp_path / "out", tmp_path / "arrays"
    changed.mkdir()
    for file in arrays.iterdir():
        (changed / file.name).write_bytes(file.read_bytes())
    killed = heedful(LATE + 'at(vision, "vision_terms", call=8)', [command[0], changed, *command[2:], "--out", out])
    assert killed.code == -signal.SIGKILL
    pixels = np.load(changed / "train_images.npy")
    pixels[5, 3, 3] ^= 1
    np.save(changed / "train_images.npy", pixels)
    again = heedful("", ["train-vision", "--resume", "--out", out, *command[-2:]])
    said = "the data has changed since the run began, so it can't be resumed; start again in another --out"
    assert (again.code, again.err) == (2, f"heedful: {said}\n")


def test_it_stops_early_when_nothing_gets_better(shell: Shell, command: list[str | Path]):
    stubborn = ("--lr", "1e-12", "--patience", "2", "--steps", "20", "--evaluations", "20")
    said = shell.goes_on(*command, *stubborn, "--out", shell.home / "out")
    assert "stopping early: no better accuracy in 2 evaluations" in said


def test_class_folders_of_all_sizes_train_for_a_time(shell: Shell):
    pixels, labels = squares(41, 5, size=20)
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        folder = shell.home / "photos" / "train" / f"corner {label}"
        folder.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(image).resize((20 + number % 2 * 7, 20))
        picture.convert(("L", "RGBA", "P")[number % 3]).save(folder / f"{number}.png")
    (shell.home / "photos" / "val").symlink_to(shell.home / "photos" / "train")
    photos: tuple[str | Path, ...] = (shell.home / "photos", "--cache", shell.home / "cache")
    asked = ("--budget", "1s", "--evaluations", "2", "--flip", "--zoom", "0.5", "--erasing", "0.5", "--channels", "3")
    said = shell.goes_on("train-vision", *photos, "--out", shell.home / "out", "--size", "micro", *asked)
    assert "images: 41 to train on and 41 held out, 20 x 20 pixels, RGB, 4 classes" in said
    assert "1 batch of 41 images an epoch, for 1s" in said
    config = json.loads((shell.home / "out" / "config.json").read_text(encoding="utf-8"))
    assert (config["image_size"], config["patch_size"], config["num_channels"]) == (20, 2, 3)


def test_a_model_that_transformers_does_not_know_is_marked_so(shell: Shell, command: list[str | Path]):
    asked = ("--steps", "2", "--evaluations", "1", "--pool", "mean", "--convolutional-stem", "--locality")
    said = shell.goes_on(*command, *asked, "--out", shell.home / "out")
    assert "mean of the patches, convolutional stem, locality" in said
    model = load_vit(shell.home / "out")
    assert model.config.variations == ("mean of the patches", "convolutional stem", "locality")
