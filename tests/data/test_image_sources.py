"""What a name stands for: class folders, array pairs, archives, IDX files, and their parts."""

import gzip
import lzma
import struct
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heedful.data.image_sources import find, in_order
from heedful.data.stored_arrays import StoredArray
from heedful.errors import UserError


def folder(root: Path, **classes: int) -> Path:
    """So many images for each class."""
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (4, 4), number).save(root / name / f"{number}.png")
    return root


def arrays(root: Path, names: tuple[str, str], labels: Sequence, save=np.save) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    save(root / names[0], np.zeros((len(labels), 8, 8), np.uint8))
    save(root / names[1], np.array(labels))
    return root


def save_xz(path: Path, array: np.ndarray) -> None:
    np.save(path.with_name("made.npy"), array)
    made = path.with_name("made.npy")
    path.write_bytes(lzma.compress(made.read_bytes()))
    made.unlink()


def save_idx(path: Path, array: np.ndarray) -> None:
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def refused(name: Path) -> str:
    with pytest.raises(UserError) as error:
        find(str(name))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_numbers_in_order_and_then_words():
    assert in_order(["b", "10", "9", "-1", "a"]) == ("-1", "9", "10", "a", "b")


def test_class_folders(tmp_path: Path):
    found = find(str(folder(tmp_path / "pets", dog=2, cat=3)))
    assert found.heldout is None
    assert found.train.names == ("cat", "dog")
    assert found.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert [file.relative_to(tmp_path / "pets").as_posix() for file in found.train.images] == [
        "cat/0.png",
        "cat/1.png",
        "cat/2.png",
        "dog/0.png",
        "dog/1.png",
    ]


def test_what_else_lies_in_a_folder_is_passed_over(tmp_path: Path):
    root = folder(tmp_path / "pets", dog=1, cat=1, **{".hidden": 2, "__MACOSX": 3})
    (root / "notes.txt").write_text("hello")
    (root / "cat" / "Thumbs.db").write_bytes(b"x")
    (root / "cat" / "._0.png").write_bytes(b"x")
    folder(root / "cat", kittens=2)
    (root / "dog" / "0.png").rename(root / "dog" / "0.JPEG")
    found = find(str(root))
    assert found.train.names == ("cat", "dog")
    assert found.train.labels.tolist() == [0, 0, 0, 1]  # kittens are cats
    assert found.train.others == (root / "cat" / "Thumbs.db",)
    (root / "dog" / "0.JPEG").rename(root / "0.JPEG")
    (root / "dog" / "1.png").write_bytes(b"x")
    assert find(str(root)).train.others == (root / "0.JPEG", root / "cat" / "Thumbs.db")


@pytest.mark.parametrize("name", ["test", "val", "dev", "validation", "Test"])
def test_folders_of_parts(tmp_path: Path, name: str):
    folder(tmp_path / "train", dog=3, cat=2)
    folder(tmp_path / name, cat=1)
    found = find(str(tmp_path))
    assert len(found.train.labels) == 5
    assert found.heldout is not None
    assert found.heldout.names == ("cat",)


def test_val_is_held_out_before_test(tmp_path: Path):
    for number, name in enumerate(["train", "test", "val"], 1):
        folder(tmp_path / name, a=number, b=number)
    found = find(str(tmp_path))
    assert found.heldout is not None
    assert len(found.heldout.labels) == 6
    assert find(str(tmp_path / "test")).train.where == tmp_path / "test"


def test_a_train_is_also_a_vehicle(tmp_path: Path):
    found = find(str(folder(tmp_path / "vehicles", bus=1, train=2, test=1)))
    assert found.train.names == ("bus", "test", "train")
    assert found.heldout is None


def test_folders_that_are_refused(tmp_path: Path):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no images" in refused(empty)
    root = folder(tmp_path / "pets", cat=2, dog=0)
    assert f"the class folder {root / 'dog'} holds no images" in refused(root)
    assert "no class folders" in refused(root / "cat")
    assert "is one image" in refused(root / "cat" / "0.png")
    assert f"did you mean {root}?" in refused(tmp_path / "pest")
    assert "does not exist" in refused(tmp_path / "no" / "such")
    (tmp_path / "text.txt").write_text("x")
    assert "can't be read as images" in refused(tmp_path / "text.txt")


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (("train_images.npy", "train_labels.npy"), ("test_images.npy", "test_labels.npy")),
        (("x_train.npy", "y_train.npy"), ("x_test.npy", "y_test.npy")),
        (("images-train.npy", "labels-train.npy"), ("images-dev.npy", "labels-dev.npy")),
        (("images.npy", "labels.npy"), ("X.val.npy", "Y.val.npy")),
        (("train_data.npy", "train_image_labels.npy"), ("test_data.npy", "test_image_labels.npy")),
    ],
)
def test_pairs_of_arrays(tmp_path: Path, train: tuple[str, str], test: tuple[str, str]):
    arrays(tmp_path, train, [3, 4, 3])
    arrays(tmp_path, test, [4, 4])
    np.save(tmp_path / "train_index.npy", np.arange(3))
    found = find(str(tmp_path))
    assert isinstance(found.train.images, StoredArray)
    assert found.train.images.where == str(tmp_path / train[0])
    assert found.train.names == ("3", "4")
    assert found.train.labels.tolist() == [0, 1, 0]
    assert found.heldout is not None
    assert found.heldout.names == ("4",)
    assert find(str(tmp_path / train[0])).heldout is None
    assert len(find(str(tmp_path / test[0])).train.labels) == 2


def test_packed_arrays(tmp_path: Path):
    arrays(tmp_path, ("images_train.npy.xz", "labels_train.npy.xz"), [0, 1, 1], save_xz)
    assert find(str(tmp_path)).train.labels.tolist() == [0, 1, 1]
    assert find(str(tmp_path / "images_train.npy.xz")).train.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize("ending", ["-idx{}-ubyte.gz", "-idx{}-ubyte", ".idx{}-ubyte"])
def test_the_four_files_of_mnist_and_its_kin(tmp_path: Path, ending: str):
    for part, labels in (("train", [1, 0, 1]), ("t10k", [1, 0])):
        names = (f"{part}-images{ending.format(3)}", f"{part}-labels{ending.format(1)}")
        arrays(tmp_path, names, labels, save_idx)
    found = find(str(tmp_path))
    assert found.train.labels.tolist() == [1, 0, 1]
    assert found.heldout is not None
    assert found.heldout.labels.tolist() == [1, 0]
    only = find(str(tmp_path / f"t10k-images{ending.format(3)}"))
    assert only.train.labels.tolist() == [1, 0]


def test_several_sets_beside_each_other(tmp_path: Path):
    arrays(
        tmp_path, ("emnist-letters-train-images-idx3-ubyte", "emnist-letters-train-labels-idx1-ubyte"), [1], save_idx
    )
    arrays(
        tmp_path, ("emnist-digits-train-images-idx3-ubyte", "emnist-digits-train-labels-idx1-ubyte"), [2], save_idx
    )
    assert "several sets of images (emnist digits, emnist letters)" in refused(tmp_path)
    found = find(str(tmp_path / "emnist-letters-train-images-idx3-ubyte"))
    assert found.train.names == ("1",)
    np.save(tmp_path / "emnist-letters-train-images.npy", np.zeros((1, 8, 8), np.uint8))
    assert "holds two arrays of images; name one that is meant, such as emnist" in refused(tmp_path)
    chosen = find(str(tmp_path / "emnist-letters-train-images.npy")).train
    assert isinstance(chosen.images, StoredArray)
    assert (chosen.names, chosen.images.shape) == (("1",), (1, 8, 8))


@pytest.mark.parametrize(
    ("names", "heldout"),
    [
        (("x", "y"), None),
        (("images", "labels"), None),
        (("X", "y"), None),
        (("data", "target"), None),
        (("x_train", "y_train", "x_test", "y_test"), 2),
        (("train_images", "train_labels", "test_images", "test_labels", "val_images", "val_labels"), 3),
    ],
)
def test_archives(tmp_path: Path, names: tuple[str, ...], heldout: int | None):
    """The last pair has three images, one between has two."""
    counts = [5, 2, 3][: len(names) // 2]
    made = {}
    for (x, y), count in zip(zip(names[::2], names[1::2], strict=True), counts, strict=True):
        made[x], made[y] = np.zeros((count, 8, 8, 3), np.uint8), np.arange(count).reshape(-1, 1)
    np.savez(tmp_path / "some.npz", **made)
    for name in (tmp_path / "some.npz", tmp_path):  # alone in its folder, it is found there
        found = find(str(name))
        assert found.train.labels.tolist() == [0, 1, 2, 3, 4]
        assert (None if found.heldout is None else len(found.heldout.labels)) == heldout


def test_names_of_classes(tmp_path: Path):
    arrays(tmp_path / "pair", ("images.npy", "labels.npy"), [2, 0, 2])
    (tmp_path / "pair" / "classes.txt").write_text("zebra\n\nant\nowl\n")
    found = find(str(tmp_path / "pair"))
    assert found.train.names == ("zebra", "ant", "owl")
    assert found.train.labels.tolist() == [2, 0, 2]
    np.savez(tmp_path / "one.npz", x=np.zeros((2, 8, 8), np.uint8), y=[1, 0], classes=["zebra", "ant"])
    assert find(str(tmp_path / "one.npz")).train.names == ("zebra", "ant")
    np.savez(tmp_path / "two.npz", x=np.zeros((3, 8, 8), np.uint8), y=["owl", "ant", "owl"])
    found = find(str(tmp_path / "two.npz"))
    assert found.train.names == ("ant", "owl")
    assert found.train.labels.tolist() == [1, 0, 1]


def test_labels_of_any_numbers_are_classes(tmp_path: Path):
    found = find(str(arrays(tmp_path, ("x.npy", "y.npy"), [10, -1, 9, 10])))
    assert found.train.names == ("-1", "9", "10")
    assert found.train.labels.tolist() == [2, 0, 1, 2]


def test_arrays_that_are_refused(tmp_path: Path):
    pair = arrays(tmp_path / "pair", ("x.npy", "y.npy"), [0, 1, 2])
    (pair / "classes.txt").write_text("a\nb\n")
    assert "has the label 2, but there are names for 0 to 1 only" in refused(pair)
    (pair / "classes.txt").write_text("a\nb\na\n")
    assert "names the class 'a' twice" in refused(pair)
    (pair / "classes.txt").unlink()
    for labels, told in [
        (np.arange(2), "has 3 images and"),
        (np.zeros((3, 10), int), "has the shape (3, 10)"),
        (np.zeros(3), "holds float64"),
    ]:
        np.save(pair / "y.npy", labels)
        assert told in refused(pair)
    (pair / "y.npy").unlink()
    assert "has no labels beside it" in refused(pair / "x.npy")
    assert "holds no images" in refused(arrays(tmp_path / "none", ("x.npy", "y.npy"), np.zeros(0, int)))


def test_archives_that_are_refused(tmp_path: Path):
    np.savez(tmp_path / "a.npz", np.zeros((2, 8, 8), np.uint8), np.arange(2))
    assert "holds arr_0, arr_1; name the arrays x and y" in refused(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 8, 8), np.uint8), y=np.arange(2), classes=np.arange(2))
    assert "class names as a list of texts" in refused(tmp_path / "b.npz")
    assert "holds 2 npz files" in refused(tmp_path)


def test_what_an_array_lacks_is_named(tmp_path: Path):
    lone = np.zeros((5, 8, 8), np.uint8)
    for name in ("images.npy", "solo.npy", "x_train.npy", "My-labels.npy"):
        np.save(tmp_path / name, lone)
    assert refused(tmp_path / "images.npy").endswith(f"no labels beside it; put them into {tmp_path / 'labels.npy'}")
    assert refused(tmp_path / "x_train.npy").endswith(f"put them into {tmp_path / 'y_train.npy'}")
    assert refused(tmp_path / "My-labels.npy").endswith(
        f"no images beside it; put them into {tmp_path}/My-images.npy"
    )
    assert "solo.npy is named neither as images nor as labels; name the two alike" in refused(tmp_path / "solo.npy")
    (tmp_path / "none.npy").write_text("a text", encoding="utf-8")
    assert "none.npy is no npy array" in refused(tmp_path / "none.npy")
    np.savez(tmp_path / "images.npz", images=lone)
    assert "images.npz holds images but no labels; name the arrays x and y" in refused(tmp_path / "images.npz")
    np.save(tmp_path / "labels.npy", np.array(["a", "b", "a", "b", "c"], object))
    said = refused(tmp_path / "images.npy")
    assert "labels.npy holds Python objects, which are not read; save texts after .astype(str)" in said


def test_classes_are_composed(tmp_path: Path):
    whole, jamo = (unicodedata.normalize(form, "고양이") for form in ("NFC", "NFD"))
    mac = find(str(folder(tmp_path / "mac", **{jamo: 2, "dog": 1}))).train
    assert mac.names == ("dog", whole)
    assert mac.labels.tolist() == [0, 1, 1]
    both = find(str(folder(tmp_path / "both", **{jamo: 2, whole: 3, "dog": 1}))).train
    assert both.names == ("dog", whole)
    assert both.labels.tolist() == [0, 1, 1, 1, 1, 1]
    assert isinstance(both.images, tuple)
    assert len(set(both.images)) == 6
    named = find(str(arrays(tmp_path / "arrays", ("x.npy", "y.npy"), [jamo, "dog", whole]))).train
    assert named.names == ("dog", whole)
    assert named.labels.tolist() == [1, 0, 1]


def test_an_empty_class_folder_is_named_as_it_is_written(tmp_path: Path):
    jamo = unicodedata.normalize("NFD", "고양이")
    (folder(tmp_path, dog=1) / jamo).mkdir()
    assert f"the class folder {tmp_path / jamo} holds no images" in refused(tmp_path)


def test_of_several_pairs_a_file_finds_its_own(tmp_path: Path):
    arrays(tmp_path, ("images.npy", "labels.npy"), [0, 1, 0])
    arrays(tmp_path, ("X.npy", "Y.npy"), [2, 3])
    assert "holds two arrays of images; name one that is meant" in refused(tmp_path)
    for name, labels in {"images.npy": ("0", "1"), "labels.npy": ("0", "1"), "X.npy": ("2", "3")}.items():
        assert find(str(tmp_path / name)).train.names == labels
