"""Whatever is wrong with images, or with what is asked of them, ends as one line that says what to do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

Shell = Any  # tests/e2e/conftest.py has it
SHORT = ("--steps", "2", "--batch", "7", "--size", "micro", "--device", "cpu")
KINDS = "a folder of class folders (.png .jpg .jpeg .bmp .webp .gif), .npy pairs, .npz or IDX files"


def pictures(folder: Path, name: str, count: int, ending: str = "png", seed: int = 0) -> Path:
    """A class folder of noise, brighter for some names than for others."""
    rng = np.random.default_rng([seed, len(name)])
    (folder / name).mkdir(parents=True)
    for number in range(count):
        pixels = rng.integers(0, 80 + 20 * len(name), (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(folder / name / f"{number}.{ending}")
    return folder / name


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Two classes of good images."""
    pictures(tmp_path / "photos", "cat", 11)
    pictures(tmp_path / "photos", "horse", 13)
    return tmp_path / "photos"


def command(shell: Shell, *data: str | Path) -> list[str | Path]:
    return ["train-vision", *data, "--out", shell.home / "out", "--cache", shell.home / "cache", *SHORT]


def test_good_images_go_well(shell: Shell, photos: Path):
    said = shell.goes_on(*command(shell, photos))
    assert "images: 22 to train on and 2 held out, 8 x 8 pixels, RGB, 2 classes" in said
    assert f"saved {shell.home / 'out'}" in said


def test_data_that_is_not_there(shell: Shell, photos: Path):
    missing = shell.home / "nowhere" / "images"
    assert shell.fails(*command(shell, missing)) == f"{missing} does not exist; name {KINDS}"
    near = photos.with_name("photoz")
    assert shell.fails(*command(shell, near)) == f"{near} does not exist; did you mean {photos}?"


def test_a_single_class(shell: Shell):
    folder = pictures(shell.home / "photos", "cat", 5).parent
    expected = f"every image of {folder} is of the class 'cat'; a classifier needs two or more"
    assert shell.fails(*command(shell, folder)) == expected


def test_an_empty_class_folder(shell: Shell, photos: Path):
    (photos / "dog").mkdir()
    said = shell.fails(*command(shell, photos))
    assert said.startswith(f"the class folder {photos / 'dog'} holds no images")
    assert said.endswith("fill or remove it")


def test_images_without_class_folders(shell: Shell, photos: Path):
    said = shell.fails(*command(shell, photos / "cat"))
    assert said == f"{photos / 'cat'} holds images but no class folders; put those of each class into one: cat/1.png"


def test_a_class_with_one_image_each_leaves_nothing_to_hold_out(shell: Shell):
    for name in ("cat", "horse"):
        pictures(shell.home / "few", name, 1)
    said = shell.fails(*command(shell, shell.home / "few"))
    assert said.startswith("2 images of 2 classes are too few to hold some out")


@pytest.mark.parametrize("kind", ["cut short", "no image", "a bomb"])
def test_a_broken_file_is_named_or_passed_over(shell: Shell, photos: Path, kind: str):
    bad = photos / "cat" / "bad.jpg"
    if kind == "cut short":
        rng = np.random.default_rng(5)
        Image.fromarray(rng.integers(0, 255, (61, 67, 3), np.uint8)).save(bad)
        bad.write_bytes(bad.read_bytes()[:-700])
        problem = "the image is broken or cut short"
    elif kind == "no image":
        bad.write_bytes(b"not a picture at all")
        problem = "it is no png, jpeg, bmp, webp or gif, or its beginning is broken"
    else:
        bad = bad.with_suffix(".png")
        Image.new("1", (20_000, 20_000)).save(bad)
        problem = "it unpacks to more than 89,478,485 pixels"
    said = shell.fails(*command(shell, photos))
    assert said.startswith(f"{bad}: {problem}")
    assert said.endswith("or pass over such files with --skip-bad")
    out = shell.goes_on(*command(shell, photos), "--skip-bad")
    assert f"skipped 1 bad file: {bad}: {problem}" in out
    assert "--skip-bad" not in out  # which was done already
    assert "images: 22 to train on and 2 held out" in out


def test_several_broken_files_are_counted(shell: Shell, photos: Path):
    for name in ("x.png", "y.png", "z.png"):
        (photos / "horse" / name).write_bytes(b"nothing")
    out = shell.goes_on(*command(shell, photos), "--skip-bad")
    assert f"skipped 3 bad files, the first: {photos / 'horse' / 'x.png'}: it is no png" in out


def test_a_class_of_which_no_image_can_be_read(shell: Shell, photos: Path):
    (photos / "dog").mkdir()
    (photos / "dog" / "1.png").write_bytes(b"nothing")
    said = shell.fails(*command(shell, photos), "--skip-bad")
    assert said == f"no image of the class 'dog' in {photos} can be read: give others, or leave the class out"


ARRAYS = {
    "flat images": (
        np.zeros((6, 64), np.uint8),
        np.arange(6) % 2,
        "x_train.npy has the shape (6, 64); give images as",
    ),
    "integers of another kind": (np.zeros((6, 8, 8), np.int32), np.arange(6) % 2, "x_train.npy holds int32; give"),
    "floats beyond one": (
        np.full((6, 8, 8), 7.5),
        np.arange(6) % 2,
        "x_train.npy has pixels from 7.5 to 7.5; floats",
    ),
    "no numbers": (np.full((6, 8, 8), np.nan), np.arange(6) % 2, "x_train.npy has the pixel nan, which is no number"),
    "two channels": (np.zeros((6, 8, 8, 2), np.uint8), np.arange(6) % 2, "without an axis of 1, 3 or 4 channels"),
    "a label too few": (np.zeros((6, 8, 8), np.uint8), np.arange(5) % 2, "has 6 images and"),
    "labels that are no labels": (np.zeros((6, 8, 8), np.uint8), np.ones(6) / 3, "y_train.npy holds float64; give"),
    "no images": (np.zeros((0, 8, 8), np.uint8), np.zeros(0, np.int64), "holds no"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_are_no_labelled_images(shell: Shell, name: str):
    pixels, labels, problem = ARRAYS[name]
    folder = shell.home / "arrays"
    folder.mkdir()
    np.save(folder / "x_train.npy", pixels)
    np.save(folder / "y_train.npy", labels)
    assert problem in shell.fails(*command(shell, folder))


def test_labels_are_not_named_beside_images(shell: Shell):
    said = shell.fails(*command(shell, "images.npy", "labels.npy"))
    assert said.startswith(
        "labels.npy is one name too many: DATA is one folder or file; of a pair of arrays name the"
    )
    assert "Unrecognized options: --lables" in shell.fails(*command(shell, "images.npy"), "--lables", "labels.npy")


def test_a_dev_set_with_other_classes(shell: Shell, photos: Path):
    pictures(shell.home / "other", "cat", 3)
    pictures(shell.home / "other", "dog", 3)
    said = shell.fails(*command(shell, photos), "--dev", shell.home / "other")
    expected = "has the class 'dog', which is none of those trained on: cat, horse; give it one of these names"
    assert said == f"{shell.home / 'other'} {expected}, leave it out, or train with it"


ASKED = {
    ("--patch-size", "3"): "--patch-size 3 does not divide the images' 8 pixels; choose from 1, 2, 4, 8",
    ("--patch-size", "0"): "--patch-size 0 must be at least 1",
    ("--image-size", "100000"): "--image-size 100000 must lie between 1 and 1024; 224 is usual",
    ("--image-size", "0"): "--image-size 0 must lie between 1 and 1024; 224 is usual",
    ("--image-size", "512", "--patch-size", "2"): (
        "patches of 2 x 2 are 65,536 of an image of 512 x 512, and 4,096 is the most; choose a larger --patch-size, "
        "or a smaller --image-size"
    ),
    ("--channels", "4"): "channels 4 must be 1, for grey, or 3, for colours",
    ("--held-out", "1.5"): "--held-out 1.5 must lie between 0 and 1",
    ("--epochs", "3"): "--epochs and --steps exclude each other; give one of them",
    ("--mixup", "-1"): "mixup -1 is not 0 or more; try 0.8, or 0 for none",
    ("--stochastic-depth", "1"): "--stochastic-depth 1.0 must be at least 0 and less than 1",
    ("--shifted-patches", "--convolutional-stem"): (
        "--shifted-patches and --convolutional-stem both make the tokens; choose one of them"
    ),
    ("--convolutional-stem", "--patch-size", "1"): (
        "a convolutional stem halves the image, so patch_size 1 must be one of 2, 4, 8, 16 …"
    ),
    ("--patch-size", "8", "--locality", "--pool", "mean"): (
        "with locality a token looks at others, but there is one alone; choose a smaller patch_size"
    ),
    ("--recipe", "fashion"): "there is no recipe 'fashion'; did you mean fashion_mnist?",
    ("--checkpoint-every", "0"): "--checkpoint-every 0 would never go on; write steps like 500 or a time like 5m",
    ("--shard",): "--shard is for pretrain; leave it out: every process then has the whole model",
    ("--dev", "digits", "--held-out", "0.2"): "--dev has the images to evaluate on; leave --held-out out",
}


@pytest.mark.parametrize("asked", ASKED, ids=" ".join)
def test_what_cannot_be_asked_for(shell: Shell, photos: Path, asked: tuple[str, ...]):
    said = shell.fails(*command(shell, photos), *asked)
    assert said.removesuffix(" (heedful train-vision --help says more)").endswith(ASKED[asked])


def test_a_folder_that_is_taken_is_left_as_it_is(shell: Shell, photos: Path):
    out = shell.home / "taken"
    out.mkdir()
    (out / "mine.txt").write_text("precious", encoding="utf-8")
    code, _, said = shell.run("train-vision", photos, "--out", out, *SHORT)
    assert (code, said) == (2, f"heedful: {out} exists and is not empty; choose another --out\n")
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


def test_a_model_is_not_trained_twice(shell: Shell, photos: Path):
    shell.goes_on(*command(shell, photos))
    code, _, said = shell.run(*command(shell, photos))
    assert (code, said) == (2, f"heedful: {shell.home / 'out'} already holds a model; choose another --out\n")
    code, _, said = shell.run("train-vision", "--resume", "--out", shell.home / "out")
    expected = "is complete; to train for longer, start a new one in another --out"
    assert (code, said) == (2, f"heedful: the run in {shell.home / 'out'} {expected}\n")


def test_what_is_no_run_cannot_be_resumed(shell: Shell):
    out = shell.home / "out"
    said = shell.fails("train-vision", "--resume", "--out", out)
    assert said == f"{out} holds no run to resume: there is no such folder; name the --out that the run had"


def test_what_can_be_said_at_once_is_not_said_after_reading(shell: Shell, photos: Path):
    (photos / "cat" / "bad.png").write_bytes(b"broken")  # which would be said if images were read
    run = ("train-vision", photos, "--cache", shell.home / "cache", "--size", "micro", "--device", "cpu")
    said = shell.fails(*run, "--out", shell.home / "out", "--budget", "10x")
    assert "'10x' is not a duration; write it like 90s, 10m or 1h30m" in said
    said = shell.fails(*run, "--out", shell.home / "out", "--steps", "2", "--checkpoint-every", "soon")
    assert "'soon' is not a duration" in said
    (shell.home / "file").touch()
    said = shell.fails(*run, "--out", shell.home / "file" / "out", "--steps", "2")
    assert f"{shell.home / 'file' / 'out'} can't be made in {shell.home / 'file'}" in said


def test_a_rate_that_is_far_too_high_ends_in_words(shell: Shell, photos: Path):
    asked = [*command(shell, photos), "--steps", "40", "--lr", "1e30", "--clip", "1e30", "--checkpoint-every", "100"]
    code, _, said = shell.run(*asked)
    assert code == 2
    assert said.startswith("heedful: the ")
    assert "there is no checkpoint yet; try a lower --lr (now 1e+30)" in said
