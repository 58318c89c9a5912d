"""From a name to arrays on disk: sizes, classes, what is skipped, and that nothing is decoded twice."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heedful.data import builtin, image_store
from heedful.data.image_sources import find
from heedful.data.image_store import content, default_size, prepare
from heedful.data.images import Images
from heedful.errors import UserError


def folder(root: Path, colours: dict[str, list[int]], size: tuple[int, int] = (8, 8), mode: str = "L") -> Path:
    """Classes of images of one shade each."""
    for name, shades in colours.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number, shade in enumerate(shades):
            fill = shade if mode == "L" else (shade, 0, 0)
            Image.new(mode, size, fill).save(root / name / f"{number:04}.png")
    return root


def shades(images: Images) -> list[int]:
    return images.take(np.arange(len(images)))[:, 0, 0, 0].tolist()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return folder(tmp_path / "pets", {"dog": [7, 11], "cat": [13, 17, 19]})


def refused(name: object, cache: Path, **options: object) -> str:
    with pytest.raises(UserError) as error:
        prepare(str(name), cache=cache, **options)
    assert "\n" not in str(error.value)
    if (cache / "images").exists():
        assert not [entry for entry in (cache / "images").iterdir() if not (entry / "meta.json").is_file()]
    return str(error.value)


def test_a_folder_becomes_an_array(pets: Path, cache: Path):
    found = prepare(str(pets), cache=cache)
    assert isinstance(found.train.pixels, np.memmap)
    assert found.train.pixels.shape == (5, 8, 8, 1)
    assert shades(found.train) == [13, 17, 19, 7, 11]
    assert found.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert found.train.classes == ("cat", "dog")
    assert (found.heldout, found.skipped) == (None, ())


def test_nothing_is_decoded_twice(pets: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    first = prepare(str(pets), cache=cache)
    monkeypatch.setattr(image_store, "read_image", None)
    moved = pets.rename(pets.with_name("animals"))
    again = prepare(str(moved), cache=cache)
    assert again.key == first.key
    assert shades(again.train) == shades(first.train)


def test_a_change_is_noticed(pets: Path, cache: Path):
    keys = {prepare(str(pets), cache=cache).key}
    keys.add(prepare(str(pets), cache=cache, size=4).key)
    keys.add(prepare(str(pets), cache=cache, channels=3).key)
    keys.add(prepare(str(pets), cache=cache, classes=("dog", "cat")).key)
    Image.new("L", (8, 8), 99).save(pets / "cat" / "0001.png")
    keys.add(prepare(str(pets), cache=cache).key)
    (pets / "cat" / "0001.png").rename(pets / "dog" / "0009.png")
    keys.add((last := prepare(str(pets), cache=cache)).key)
    assert len(keys) == 6
    assert shades(last.train) == [13, 19, 7, 11, 99]


def test_a_held_out_folder_has_the_classes_of_the_other(tmp_path: Path, cache: Path):
    folder(tmp_path / "data" / "train", {"a": [1, 2], "b": [3], "c": [4]})
    folder(tmp_path / "data" / "test", {"c": [5], "b": [6]}, size=(16, 16))
    found = prepare(str(tmp_path / "data"), cache=cache)
    assert found.heldout is not None
    assert found.heldout.pixels.shape == (2, 8, 8, 1)
    assert found.heldout.labels.tolist() == [1, 2]
    assert shades(found.heldout) == [6, 5]
    folder(tmp_path / "data" / "test", {"d": [5]})
    assert "has the class 'd', which is none of those trained on: a, b, c" in refused(tmp_path / "data", cache)


@pytest.mark.parametrize(
    ("height", "width", "size"),
    [
        (8, 8, 8), (28, 28, 28), (32, 32, 32), (33, 45, 32), (64, 64, 64), (65, 99, 64), (97, 97, 96),
        (224, 224, 224), (480, 640, 224), (5, 9, 5), (1, 1, 1),
    ],
)  # fmt: skip
def test_the_size_that_is_chosen(height: int, width: int, size: int):
    assert default_size(height, width) == default_size(width, height) == size


def test_the_most_common_size_decides(tmp_path: Path, cache: Path):
    root = folder(tmp_path / "mixed", {"a": [1] * 3}, size=(30, 40))
    folder(root, {"b": [2] * 2}, size=(12, 12))
    folder(root, {"c": [3] * 2}, size=(90, 90), mode="RGB")
    found = prepare(str(root), cache=cache)
    assert found.train.pixels.shape == (7, 28, 28, 3)  # one image in colour makes all so
    assert prepare(str(root), cache=cache, size=6, channels=1).train.pixels.shape == (7, 6, 6, 1)


def test_many_files_stay_in_order(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(image_store, "_AT_ONCE", 7)
    values = {"a": list(range(60)), "b": list(range(60, 101))}
    found = prepare(str(folder(tmp_path / "many", values)), cache=cache)
    assert shades(found.train) == list(range(101))
    assert found.train.labels.tolist() == [0] * 60 + [1] * 41


def test_a_bad_file_is_named_or_skipped_and_counted(pets: Path, cache: Path):
    noise = np.random.default_rng(0).integers(0, 256, (50, 50)).astype(np.uint8)
    Image.fromarray(noise).save(pets / "cat" / "0001.png")
    whole = (pets / "cat" / "0001.png").read_bytes()
    (pets / "cat" / "0001.png").write_bytes(whole[: len(whole) // 2])
    (pets / "dog" / "broken.jpg").write_bytes(b"\xff\xd8\xff\xe0 nothing more")
    told = refused(pets, cache)
    assert told.startswith(f"{pets / 'cat' / '0001.png'}: the image is broken or cut short")
    assert told.endswith("or pass over such files with --skip-bad")
    found = prepare(str(pets), cache=cache, skip_bad=True)
    assert shades(found.train) == [13, 19, 7, 11]
    assert found.train.labels.tolist() == [0, 0, 1, 1]
    assert [flaw.where for flaw in found.skipped] == [
        str(pets / "cat" / "0001.png"),
        str(pets / "dog" / "broken.jpg"),
    ]
    assert refused(pets, cache) == told  # kept in the cache, they are as bad as before
    assert prepare(str(pets), cache=cache, skip_bad=True).skipped == found.skipped
    moved = pets.rename(pets.with_name("animals"))
    assert refused(moved, cache) == told.replace(str(pets), str(moved))


def test_a_class_of_which_nothing_can_be_read(pets: Path, cache: Path):
    for file in (pets / "dog").iterdir():
        file.write_bytes(b"broken")
    assert f"no image of the class 'dog' in {pets} can be read" in refused(pets, cache, skip_bad=True)
    for file in (pets / "cat").iterdir():
        file.write_bytes(b"broken")
    assert "no image of the class 'cat'" in refused(pets, cache, skip_bad=True)


def test_a_bomb_is_named(pets: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 200)
    for side in (15, 40):  # Pillow warns of the first and refuses the second
        Image.new("L", (side, side)).save(pets / "dog" / "0001.png")
        assert f"{pets / 'dog' / '0001.png'}: it unpacks to more than 200 pixels" in refused(pets, cache)


def test_a_single_class_is_no_choice(tmp_path: Path, cache: Path):
    only = folder(tmp_path / "only", {"cat": [1, 2]})
    assert "every image of" in refused(only, cache)
    assert "'cat'; a classifier needs two or more" in refused(only, cache)
    found = prepare(str(only), cache=cache, classes=("dog", "cat"))  # to evaluate on
    assert found.train.labels.tolist() == [1, 1]


def test_options_that_are_refused(pets: Path, cache: Path):
    assert "an image size of 0" in refused(pets, cache, size=0)
    assert "2 channels" in refused(pets, cache, channels=2)


def test_names_of_classes_that_are_not_there_make_no_choice_either(tmp_path: Path, cache: Path):
    pair = make_pair(tmp_path / "pair", np.zeros((2, 8, 8), np.uint8), [1, 1])
    (pair / "classes.txt").write_text("cat\ndog\n")
    assert "of the class 'dog'; a classifier needs two" in refused(pair, cache)


def make_pair(root: Path, pixels: np.ndarray, labels: list) -> Path:
    root.mkdir(exist_ok=True)
    np.save(root / "images.npy", pixels)
    np.save(root / "labels.npy", np.array(labels))
    return root


def test_arrays_go_the_same_way(tmp_path: Path, cache: Path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 8, 8)).astype(np.uint8)
    found = prepare(str(make_pair(tmp_path / "pair", pixels, [4, 2, 4, 2, 2])), cache=cache)
    assert isinstance(found.train.pixels, np.memmap)
    assert (found.train.pixels == pixels.transpose(0, 2, 3, 1)).all()
    assert found.train.classes == ("2", "4")
    assert found.train.labels.tolist() == [1, 0, 1, 0, 0]
    grey = prepare(str(make_pair(tmp_path / "grey", pixels[:, :1] / 255.0, [0, 1, 0, 1, 1])), cache=cache)
    assert (grey.train.pixels[..., 0] == pixels[:, 0]).all()


def test_memory_does_not_grow_with_the_array(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    """40 MB of pixels pass through in pieces of 1 MB, and are mapped in the end."""
    monkeypatch.setattr("heedful.data.pixel_arrays._PIECE", 1 << 20)
    pair = make_pair(tmp_path / "pair", np.zeros((1, 1), np.uint8), [0, 1] * 20_000)
    pixels = np.lib.format.open_memmap(pair / "images.npy", "w+", np.uint8, (40_000, 32, 32))
    pixels[-1] = 7
    pixels.flush()
    del pixels
    tracemalloc.start()
    found = prepare(str(pair), cache=cache)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 << 20
    assert found.train.pixels.shape == (40_000, 32, 32, 1)
    assert (found.train.pixels[-1] == 7).all()


def test_other_labels_are_other_data(tmp_path: Path, cache: Path):
    pixels = np.zeros((3, 8, 8), np.uint8)
    one = prepare(str(make_pair(tmp_path / "pair", pixels, [0, 1, 0])), cache=cache)
    other = prepare(str(make_pair(tmp_path / "pair", pixels, [0, 1, 1])), cache=cache)
    assert one.key != other.key
    assert other.train.labels.tolist() == [0, 1, 1]


def test_a_bad_array_leaves_nothing_behind(tmp_path: Path, cache: Path):
    assert "has pixels from 255 to 255" in refused(
        make_pair(tmp_path / "a", np.full((2, 8, 8), 255.0), [0, 1]), cache
    )
    assert "holds int32" in refused(make_pair(tmp_path / "b", np.zeros((2, 8, 8), np.int32), [0, 1]), cache)
    assert "(2, 64)" in refused(make_pair(tmp_path / "c", np.zeros((2, 64), np.uint8), [0, 1]), cache)


def test_numbers_may_stand_for_the_classes_of_a_model(tmp_path: Path, cache: Path):
    pixels = np.zeros((3, 8, 8), np.uint8)
    pair = make_pair(tmp_path / "pair", pixels, [2, 0, 2])
    found = prepare(str(pair), cache=cache, classes=("zebra", "ant", "owl"))
    assert found.train.labels.tolist() == [2, 0, 2]
    assert prepare(str(pair), cache=cache, classes=("1", "2", "0")).train.labels.tolist() == [1, 2, 1]  # by name
    assert "has the label 2, but there are classes for 0 to 1 only" in refused(pair, cache, classes=("zebra", "ant"))
    assert "has the class '0'" in refused(pair, cache, classes=("1", "2", "3"))


def test_the_digits_are_always_there(cache: Path):
    found = prepare("digits", cache=cache)
    assert found.train.pixels.shape == (1797, 8, 8, 1)
    assert found.train.classes == tuple("0123456789")
    assert found.train.labels[:10].tolist() == list(range(10))
    assert found.train.pixels.max() == 255
    assert not cache.exists()
    assert prepare("digits", cache=cache, size=16, channels=3).train.pixels.shape == (1797, 16, 16, 3)
    backwards = prepare("digits", cache=cache, classes=tuple("9876543210"))
    assert backwards.train.labels[:3].tolist() == [9, 8, 7]
    assert "has the class '2'" in refused("digits", cache, classes=("0", "1"))


def test_digits_of_another_library_are_other_digits(cache: Path, monkeypatch: pytest.MonkeyPatch):
    first, again = prepare("digits", cache=cache), prepare("digits", cache=cache, size=8, channels=1)
    assert (again.key, again.content) == (first.key, first.content)
    others = {first.key, prepare("digits", cache=cache, size=16).key, prepare("digits", cache=cache, channels=3).key}
    others.add(prepare("digits", cache=cache, classes=tuple("9876543210")).key)
    assert len(others) == 4
    pixels, labels = builtin.digits()
    for changed in ((255 - pixels, labels), (pixels, (labels + 1) % 10)):
        monkeypatch.setattr(builtin, "digits", lambda changed=changed: changed)
        found = prepare("digits", cache=cache)
        assert found.content != first.content
        others.add(found.key)
    assert len(others) == 6


def test_content_is_that_of_the_images_to_train_on(pets: Path, cache: Path, tmp_path: Path):
    first = prepare(str(pets), cache=cache)
    assert content(find(str(pets)).train) == first.content
    assert prepare(str(pets), cache=cache, size=4, channels=3).content == first.content
    whole = tmp_path / "whole"
    whole.mkdir()
    pets.rename(whole / "train")
    folder(whole / "test", {"dog": [23]})
    moved = prepare(str(whole), cache=cache)
    assert moved.content == first.content
    assert moved.key != first.key
    (whole / "train" / "dog" / "0000.png").rename(whole / "train" / "cat" / "0009.png")
    assert prepare(str(whole), cache=cache).content != first.content


def test_a_folder_named_digits_goes_first(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch):
    folder(tmp_path / "digits", {"a": [1], "b": [2]})
    monkeypatch.chdir(tmp_path)
    assert prepare("digits", cache=cache).train.classes == ("a", "b")
    (tmp_path / "digits" / "heedful.toml").touch()  # but not a model of them
    assert prepare("digits", cache=cache).train.classes == tuple("0123456789")


def test_a_damaged_store_is_told(pets: Path, cache: Path):
    kept = cache / "images" / prepare(str(pets), cache=cache).key
    pixels = (kept / "train.pixels").read_bytes()
    (kept / "train.pixels").write_bytes(pixels[:-1])
    assert f"the images in {kept} are damaged (train.pixels has 319 bytes instead of 320)" in refused(pets, cache)
    (kept / "train.pixels").write_bytes(pixels)
    meta = json.loads((kept / "meta.json").read_text())
    del meta["size"]
    (kept / "meta.json").write_text(json.dumps(meta))
    assert "delete the folder to read them again" in refused(pets, cache)
