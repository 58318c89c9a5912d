import json
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image as mpl_image
from PIL import Image

import heedful
from heedful.data.flaws import Flaw
from heedful.errors import UserError
from heedful.predict import ImagePredictor
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.images import ImageExample, ImageReader
from heedful.runs import fonts, patch_pictures, see
from heedful.runs.see import Wanted, find

COLOURS = {"red": (230, 40, 30), "green": (30, 220, 45), "blue": (20, 35, 240)}


@pytest.fixture(scope="module")
def predictor(colours: Path) -> ImagePredictor:
    return heedful.load(colours, "cpu")


@pytest.fixture
def album(tmp_path: Path) -> Path:
    """Pictures in folders, and things that are none."""
    folder = tmp_path / "album"
    for name, colour in {"b/red.png": "red", "b/a.JPG": "green", "c.png": "blue", ".hidden.png": "red"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (17, 13), COLOURS[colour]).save(folder / name)
    (folder / "notes.txt").write_text("no picture", encoding="utf-8")
    (folder / "empty").mkdir()
    return folder


def test_names_become_files(album: Path):
    every = [album / "b" / "a.JPG", album / "b" / "red.png", album / "c.png"]
    assert find([str(album)]) == every
    assert find([str(album / "c.png"), str(album / "b")]) == [every[2], *every[:2]]
    assert find([str(album / "*.png")]) == [every[2]]
    assert find([str(album / "*")]) == every  # the folder it matches, not the notes beside it
    assert find([str(album / "**" / "*.png")]) == [every[1], every[2]]
    assert find([str(album / "notes.txt")]) == [album / "notes.txt"]  # whoever names it means it


def test_a_name_with_the_letters_of_a_pattern_is_a_name(album: Path):
    odd = album / "what [1]?.png"
    Image.new("RGB", (3, 3)).save(odd)
    assert find([str(odd)]) == [odd]


def test_names_that_are_nothing(album: Path):
    asked = {
        "d.png": "d.png does not exist; did you mean .*/c.png?",
        "zebra.gif": "zebra.gif does not exist; name an image file",
        "nowhere/x.png": "x.png does not exist; name an image file",
        "*.webp": r"no image is named like .*/\*\.webp \(\.png \.jpg",
        "*.txt": r"no image is named like .*/\*\.txt",
        "empty": r"empty holds no images \(\.png .*\); name another folder, or files",
    }
    for name, line in asked.items():
        with pytest.raises(UserError, match=line):
            find([str(album / name)])
    with pytest.raises(UserError, match="there is no image to look at; name files, folders or patterns"):
        find([])


def test_a_line_for_each(predictor: ImagePredictor, album: Path):
    said: list[str] = []
    assert see.see(predictor, find([str(album)]), Wanted(top=2), said.append) is None
    names = [line.partition(": ")[0] for line in said]
    assert names == [str(album / "b" / "a.JPG"), str(album / "b" / "red.png"), str(album / "c.png")]
    assert [line.partition(": ")[2].split()[0] for line in said] == ["green", "red", "blue"]
    assert all(line.count("%") == 2 for line in said)


def test_json_has_the_best(predictor: ImagePredictor, album: Path):
    said: list[str] = []
    see.see(predictor, [album / "c.png"], Wanted(top=2, json=True), said.append)
    (table,) = map(json.loads, said)
    answer = predictor.see(album / "c.png")
    assert table == {
        "image": str(album / "c.png"),
        "label": "blue",
        "score": answer.score,
        "scores": answer.best(2),
    }
    assert next(iter(table["scores"])) == "blue"


def test_a_bad_file_is_named_or_passed_over(predictor: ImagePredictor, album: Path):
    files, said = [album / "c.png", album / "notes.txt", album / "b" / "red.png"], list[str]()
    problem = "it is no png, jpeg, bmp, webp or gif, or its beginning is broken; save it again"
    with pytest.raises(UserError) as told:
        see.see(predictor, files, Wanted(), said.append)
    assert str(told.value) == f"{files[1]}: {problem}, or pass over such files with --skip-bad"
    assert len(said) == 1  # what came before it was answered

    said.clear()
    remark = see.see(predictor, files, Wanted(skip_bad=True), said.append)
    assert remark == f"passed over 1 file: {files[1]}: {problem}"
    assert [line.split()[1] for line in said] == ["blue", "red"]

    said.clear()
    see.see(predictor, files, Wanted(skip_bad=True, json=True), said.append)
    assert json.loads(said[1]) == {"image": str(files[1]), "error": problem}

    with pytest.raises(UserError, match=r"no image can be read: 2 files, the first: .*notes\.txt: it is no png"):
        see.see(predictor, [files[1]] * 2, Wanted(skip_bad=True), said.append)


def test_the_next_are_read_while_a_gpu_computes(
    predictor: ImagePredictor, album: Path, monkeypatch: pytest.MonkeyPatch
):
    files = [*find([str(album / "b"), str(album / "c.png")]), album / "notes.txt", *find([str(album)])]
    expected, said = list[str](), list[str]()
    remark = see.see(predictor, files, Wanted(skip_bad=True, top=1), expected.append)
    prepared = threading.Semaphore(0)
    real = ImageReader.prepare

    def prepare(self: ImageReader, examples: Sequence[ImageExample]) -> list[np.ndarray | Flaw]:
        prepared.release()
        return real(self, examples)

    class Waiting(TorchImageEngine):
        """Computes as on a GPU; the first two not before the next two were asked for."""

        on_gpu = True
        begun = False

        def scores(self, pictures: np.ndarray) -> np.ndarray:
            if not Waiting.begun:
                Waiting.begun = prepared.acquire(timeout=20) and prepared.acquire(timeout=20)
                assert Waiting.begun
            return super().scores(pictures)

    monkeypatch.setattr(ImageReader, "prepare", prepare)
    monkeypatch.setattr("heedful.predict.images.GPU_CHUNK", 2)
    assert isinstance(predictor.engine, TorchImageEngine)
    hasty = ImagePredictor(Waiting(predictor.engine.model))
    assert see.see(hasty, files, Wanted(skip_bad=True, top=1), said.append) == remark
    assert said == expected
    said.clear()
    with pytest.raises(UserError, match=r"notes\.txt: it is no png"):
        see.see(hasty, files, Wanted(top=1), said.append)
    assert said == expected[:3]  # what came before it was answered


def test_a_picture_has_a_row_for_each(predictor: ImagePredictor, album: Path, tmp_path: Path):
    def height(count: int) -> int:
        remark = see.see(predictor, [album / "c.png"] * count, Wanted(picture=tmp_path / "p.png"), lambda _: None)
        most = see.MOST_DRAWN
        assert remark == (f"the picture shows the first {most} of {count} images" if count > most else None)
        return mpl_image.imread(tmp_path / "p.png").shape[0]

    one, two, most = height(1), height(2), height(see.MOST_DRAWN)
    assert one < two < most == height(see.MOST_DRAWN + 3)


def test_a_picture_says_what_it_lacks(
    predictor: ImagePredictor, album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fonts, "choose", lambda text: fonts.Fonts(["sans-serif"], {"한"}))
    wanted = Wanted(picture=tmp_path / "p.png")
    assert see.see(predictor, [album / "c.png"], wanted, lambda _: None) == fonts.lacks("한")


def test_heads_of_the_layer_that_was_asked_for(
    predictor: ImagePredictor, album: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn: list[patch_pictures.Drawn] = []
    monkeypatch.setattr(patch_pictures, "draw", lambda images, path: drawn.extend(images))
    for layer in (1, 2, None):
        see.see(predictor, [album / "c.png"], Wanted(picture=tmp_path / "p.png", layer=layer), lambda _: None)
    assert [one.looks.layer for one in drawn] == [1, 2, 2]
    assert not np.allclose(drawn[0].looks.heads, drawn[1].looks.heads)
    assert (drawn[0].name, drawn[0].answer.split()[0]) == ("c.png", "blue")
    assert drawn[0].picture.shape == (12, 12, 3)


def test_wishes_that_can_not_be(predictor: ImagePredictor, tmp_path: Path, album: Path):
    with pytest.raises(UserError, match="top 0 must be at least 1"):
        Wanted(top=0)
    with pytest.raises(UserError, match="--layer says which heads --picture draws; ask for a picture too"):
        Wanted(layer=1)
    with pytest.raises(UserError, match=r"p.jpg can't be drawn; let its name end in \.png, \.svg, \.pdf"):
        Wanted(picture=tmp_path / "p.jpg")
    said: list[str] = []
    with pytest.raises(UserError, match=r"layer 3 is not one of .*; choose from 1 to 2"):
        see.see(predictor, [album / "c.png"], Wanted(picture=tmp_path / "p.png", layer=3), said.append)
    assert said == []


def said_of(predictor: ImagePredictor, *names: object) -> list[str]:
    said: list[str] = []
    see.see(predictor, find([str(name) for name in names]), Wanted(top=1), said.append)
    return said


def test_arrays_have_an_answer_for_each_row(tmp_path: Path, predictor: ImagePredictor):
    painted = np.stack([np.full((17, 13, 3), COLOURS[name], np.uint8) for name in ("blue", "red", "green")])
    labels = np.arange(3)
    np.save(tmp_path / "images.npy", painted)
    np.save(tmp_path / "floats.npy", painted.transpose(0, 3, 1, 2) / 255)
    np.savez(tmp_path / "both.npz", x=painted[:2], y=labels)
    np.savez(tmp_path / "alone.npz", found=painted[1:])
    np.savez(tmp_path / "unclear.npz", one=painted, two=painted)
    np.savez(tmp_path / "parts.npz", x_train=painted, x_test=painted[:1])
    found = said_of(predictor, tmp_path / "images.npy")
    answers = [line.removeprefix(f"{tmp_path}/").split()[:2] for line in found]
    assert answers == [["images.npy[0]:", "blue"], ["images.npy[1]:", "red"], ["images.npy[2]:", "green"]]
    alike = [line.replace("floats", "images") for line in said_of(predictor, tmp_path / "floats.npy")]
    assert alike == found
    assert said_of(predictor, tmp_path / "images.npy[1]") == [found[1]]
    assert [line.partition(": ")[0] for line in said_of(predictor, tmp_path / "both.npz")] == [
        f"{tmp_path}/both.npz:x[0]",
        f"{tmp_path}/both.npz:x[1]",
    ]
    assert [line.split()[1] for line in said_of(predictor, tmp_path / "alone.npz")] == ["red", "green"]
    assert len(said_of(predictor, tmp_path / "parts.npz")) == 4
    refused = {
        "images.npy[3]": "has no image 3; it has 3, counted from 0",
        "images.npy[-1]": "has no image -1; it has 3, counted from 0",
        "unclear.npz": "holds one, two; name the array with the images x or images",
        "parts.npz[0]": r"holds several arrays of images \(.*x_train, .*x_test\); save the one that is meant alone",
    }
    for name, line in refused.items():
        with pytest.raises(UserError, match=line):
            find([str(tmp_path / name)])


def test_rows_are_seen_as_their_files_would_be(tmp_path: Path, predictor: ImagePredictor):
    pixels = np.random.default_rng(5).integers(0, 256, (7, 29, 23, 3), np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    for number, one in enumerate(pixels):
        Image.fromarray(one).save(tmp_path / f"{number}.png")
    rows = said_of(predictor, tmp_path / "images.npy")
    assert [row.partition(": ")[2] for row in rows] == [
        said_of(predictor, tmp_path / f"{number}.png")[0].partition(": ")[2] for number in range(7)
    ]


def test_the_digits_can_be_seen(tmp_path: Path, predictor: ImagePredictor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (one,) = find(["digits[1796]"])
    assert isinstance(one, see.Rows)
    assert (one.stored.shape, one.only) == ((1797, 8, 8), 1796)
    assert said_of(predictor, "digits[1796]")[0].startswith("digits[1796]: ")
    with pytest.raises(UserError, match="digits has no image 1797; it has 1,797, counted from 0"):
        find(["digits[1797]"])
    Path("digits").mkdir()
    Image.new("RGB", (3, 3)).save("digits/one.png")
    assert find(["digits"]) == [Path("digits/one.png")]


@pytest.mark.parametrize("save", [np.save, lambda path, array: np.save(path, np.asfortranarray(array))])
def test_one_colour_image_in_an_array_is_one_image(tmp_path: Path, predictor: ImagePredictor, save):
    save(tmp_path / "one.npy", np.full((13, 17, 3), COLOURS["green"], np.uint8))
    said: list[str] = []
    see.see(predictor, find([str(tmp_path / "one.npy")]), Wanted(), said.append)
    assert len(said) == 1
    assert said[0].startswith(f"{tmp_path / 'one.npy'}[0]: green ")
