"""Every way in which an image may be given, and what comes of it; on both engines."""

import copy
import dataclasses
import io
import shutil
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

import heedful
from heedful.errors import UserError
from heedful.formats.vit import load_vit, save_vit
from heedful.models.vit import ViT, ViTClassifier, ViTConfig, initialise
from heedful.nn.pixels import Pixels, normalised
from heedful.predict import ImagePredictor, image_engine, images, load_images, load_predictor, load_translator
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.images import ImageExample, Seen
from heedful.predict.reading import Pace
from heedful.runs.export import export

RED, GREEN, BLUE = (230, 40, 30), (30, 220, 45), (20, 35, 240)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module")
def predictor(colours: Path) -> ImagePredictor:
    return heedful.load(colours, "cpu")


@pytest.fixture(scope="module")
def exported(colours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "colours"
    shutil.copytree(colours, folder)
    export(folder, to=None, int8=True, out=None)
    return folder


def some(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 12, 12, 3), np.uint8)


def plain(colour: tuple[int, int, int], size: tuple[int, int] = (13, 12)) -> Image.Image:
    return Image.new("RGB", size, colour)


def test_a_file_an_image_and_an_array_are_one(predictor: ImagePredictor, tmp_path: Path):
    assert isinstance(predictor, ImagePredictor)
    image = plain(GREEN)
    image.save(tmp_path / "one.png")
    file = tmp_path / "one.png"
    found = [predictor.see(one) for one in (file, str(file), file.read_bytes(), image, np.array(image))]
    assert isinstance(found[0], Seen)
    assert [one.label for one in found] == ["green"] * 5
    assert found[1:] == found[:-1]


def test_scores_are_the_models(predictor: ImagePredictor, colours: Path):
    pictures = some(7)
    model = load_vit(colours)
    assert isinstance(model, ViTClassifier)
    with torch.inference_mode():
        expected = model(normalised(torch.from_numpy(pictures), Pixels())).softmax(-1).numpy()
    found = predictor.see(list(pictures))
    assert len({one.label for one in found}) > 1
    for one, row in zip(found, expected, strict=True):
        np.testing.assert_allclose(list(one.scores.values()), row, rtol=1e-4)
        assert list(one.scores) == ["red", "green", "blue"]
        assert one.label == predictor.labels[row.argmax()]
        assert one.score == one.scores[one.label] == max(one.scores.values())
        assert sum(one.scores.values()) == pytest.approx(1.0)
    assert predictor.see(pictures) == found  # (N, H, W, C) is several


def test_the_best_come_first():
    seen = Seen("b", 0.5, {"a": 0.2, "b": 0.5, "c": 0.3})
    assert list(seen.best(2).items()) == [("b", 0.5), ("c", 0.3)]
    assert list(seen.best(9)) == ["b", "c", "a"]


def test_however_many_at_once(predictor: ImagePredictor, monkeypatch: pytest.MonkeyPatch):
    whole = predictor.see(some(7))
    monkeypatch.setattr(images, "CHUNK", 3)
    monkeypatch.setattr(image_engine, "BATCH_TOKENS", {"cpu": 21})  # two images of ten tokens
    for one, other in zip(predictor.see(some(7)), whole, strict=True):
        assert one.scores == pytest.approx(other.scores, rel=1e-5)
    assert predictor.see([]) == []


class Busy(TorchImageEngine):
    """Computes as on a GPU: by itself, while the host does something else."""

    on_gpu = True


def test_the_next_are_decoded_while_a_gpu_computes(
    predictor: ImagePredictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert isinstance(predictor.engine, TorchImageEngine)
    files = [tmp_path / f"{number}.png" for number in range(7)]
    for file, colour in zip(files, (RED, GREEN, BLUE, GREEN, RED, BLUE, GREEN), strict=True):
        plain(colour).save(file)
    whole, decoded, real = predictor.see(files), threading.Event(), images.read_image

    def read(file: Path, *rest: Any) -> np.ndarray:
        if file == files[2]:
            decoded.set()
        return real(file, *rest)

    class Waiting(Busy):
        """Has not computed the first two before the third is decoded."""

        def scores(self, pictures: np.ndarray) -> np.ndarray:
            assert decoded.wait(20)
            return super().scores(pictures)

    monkeypatch.setattr(images, "GPU_CHUNK", 2)
    monkeypatch.setattr(images, "read_image", read)
    before = list(warnings.filters)
    found = ImagePredictor(Waiting(predictor.engine.model)).see(files)
    assert [one.label for one in found] == ["red", "green", "blue", "green", "red", "blue", "green"]
    for one, other in zip(found, whole, strict=True):
        assert one.scores == pytest.approx(other.scores, rel=1e-5)
    assert list(warnings.filters) == before


def test_no_more_at_once_than_there_is_room_for(predictor: ImagePredictor, monkeypatch: pytest.MonkeyPatch):
    assert isinstance(predictor.engine, TorchImageEngine)
    hasty = ImagePredictor(Busy(predictor.engine.model))
    assert (predictor.pace, hasty.pace) == (Pace(64, ahead=False), Pace(1024, ahead=True))
    monkeypatch.setattr(images, "ROOM", 12 * 12 * 3 * 37 + 5)
    assert (predictor.pace.chunk, hasty.pace.chunk) == (37, 37)
    monkeypatch.setattr(images, "ROOM", 1)
    assert hasty.pace == Pace(1, ahead=True)


MODES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "palette.png": lambda image: image.quantize(5),
    "opaque.png": lambda image: image.convert("RGBA"),
    "cmyk.jpg": lambda image: image.convert("CMYK"),
    "photo.jpeg": lambda image: image,
    "bitmap.bmp": lambda image: image,
    "moving.gif": lambda image: image.quantize(7),
    "web.webp": lambda image: image,
}


@pytest.mark.parametrize("name", MODES)
def test_every_mode_keeps_its_colour(predictor: ImagePredictor, tmp_path: Path, name: str):
    for colour, label in ((RED, "red"), (GREEN, "green"), (BLUE, "blue")):
        image = MODES[name](plain(colour, (17, 23)))
        image.save(tmp_path / name)
        assert predictor.see(tmp_path / name).label == label
        assert predictor.see(image).label == label


@pytest.mark.parametrize(
    "image",
    [
        Image.new("L", (12, 12), 128),
        Image.new("LA", (12, 12), (128, 255)),
        Image.fromarray(np.full((12, 12), 128 * 257, np.uint16)),
        np.full((12, 12), 128, np.uint8),
        np.full((12, 12, 1), 128, np.uint8),
        np.full((12, 12, 4), (128, 128, 128, 255), np.uint8),
    ],
)
def test_every_grey_is_the_same(predictor: ImagePredictor, image: Image.Image | np.ndarray):
    assert predictor.see(image) == predictor.see(np.full((12, 12, 3), 128, np.uint8))


def prepared(pixels: Pixels, image: Image.Image | Path, size: int = 4) -> np.ndarray:
    """What a model reads of an image."""
    config = ViTConfig(image_size=size, patch_size=2, layers=1, dim=6, heads=1, ffn_dim=5, pixels=pixels)
    reader = ImagePredictor(TorchImageEngine(ViTClassifier(config, ("a", "b")))).reader()
    (found,) = reader.prepare([ImageExample("it", image)])
    assert isinstance(found, np.ndarray)
    return found


def test_the_folder_says_what_of_an_image_is_read(tmp_path: Path):
    wide = plain(RED, (16, 8))
    wide.paste(GREEN, (4, 0, 12, 8))  # the square in the middle
    wide.paste(BLUE, (6, 2, 10, 6))  # and within it
    wide.save(tmp_path / "wide.png")
    for image in (wide, tmp_path / "wide.png"):
        whole = prepared(Pixels(resample="nearest"), image)
        assert [tuple(one) for one in whole[0]] == [RED, GREEN, GREEN, RED]
        middle = prepared(Pixels(resample="nearest", edge=4), image)
        assert [tuple(one) for one in middle[0]] == [GREEN] * 4
        assert [tuple(one) for one in middle[1]] == [GREEN, BLUE, BLUE, GREEN]
        assert (prepared(Pixels(resample="nearest", edge=8), image) == BLUE).all()
        assert (prepared(Pixels(resample="nearest", edge=3), image) == middle).all()  # there is no more than all


def test_a_photo_that_lies_on_its_side_is_turned(tmp_path: Path):
    photo, exif = plain(RED, (8, 8)), Image.Exif()
    photo.paste(BLUE, (0, 4, 8, 8))  # below
    exif[0x0112] = 6  # a quarter to the right makes it upright
    photo.save(tmp_path / "photo.png", exif=exif)
    with Image.open(tmp_path / "photo.png") as opened:
        for image in (tmp_path / "photo.png", opened):
            found = prepared(Pixels(edge=4), image)
            assert (found[:, 0] == BLUE).all()
            assert (found[:, 3] == RED).all()


def test_a_grey_model_reads_colours(tmp_path: Path):
    config = ViTConfig(image_size=4, patch_size=2, channels=1, layers=1, dim=6, heads=1, ffn_dim=5)
    save_vit(ViTClassifier(config, ("a", "b")), tmp_path)
    grey = load_images(tmp_path, "cpu")
    assert grey.see(plain((100, 100, 100))) == grey.see(np.full((5, 7), 100, np.uint8))


def cut_short(path: Path) -> Path:
    whole = io.BytesIO()
    Image.fromarray(some(1)[0]).resize((64, 64)).save(whole, "JPEG")
    path.write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    return path


def test_what_is_no_image_is_told(predictor: ImagePredictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broken = cut_short(tmp_path / "broken.jpg")
    asked: list[tuple[object, str]] = [
        (broken, f"{broken}: the image is broken or cut short"),
        (tmp_path / "none.png", "none.png does not exist; name an image file"),
        (tmp_path, "is a folder; give its files"),
        (3, "3 is neither an image nor a list of them"),
        ([plain(RED), None], "None is no image; give a file, an image of Pillow, or a uint8 array"),
        (np.zeros((3, 5)), "an array of float64 is no image; give uint8 from 0 to 255"),
        (np.zeros((3, 5, 2), np.uint8), r"an array of shape \(3, 5, 2\) is no image; give \(H, W\) or"),
        (np.zeros(7, np.uint8), r"an array of shape \(7,\) is no image"),
        (np.zeros((1, 2, 3, 4, 5), np.uint8), r"an array of shape \(2, 3, 4, 5\) is no image"),
        (Image.new("F", (3, 3)), "an image of 3 x 3: its pixels are floating-point numbers; save it with 8"),
    ]
    for image, line in asked:
        with pytest.raises(UserError, match=line):
            predictor.see(image)  # pyrefly: ignore
    with Image.open(broken) as opened, pytest.raises(UserError, match=f"{broken}: the image is broken or cut short"):
        predictor.see([plain(RED), opened])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 150)
    plain(RED).save(tmp_path / "large.png")
    with pytest.raises(UserError, match=r"large\.png: it unpacks to more than 150 pixels; make it smaller"):
        predictor.see(tmp_path / "large.png")


def test_kernels_go_to_the_device_that_has_the_weights(colours: Path, monkeypatch: pytest.MonkeyPatch):
    """Of several GPUs the first is meant in each thread, unless it is told."""
    told: list[torch.device] = []
    monkeypatch.setattr(image_engine, "current", lambda device: told.append(device) or nullcontext())
    engine, picture = TorchImageEngine(load_vit(colours)), np.zeros((12, 12, 3), np.uint8)
    engine.scores(picture[None])
    engine.attention(picture)
    assert told == [torch.device("cpu")] * 2


def test_threads_may_ask_at_once(predictor: ImagePredictor):
    expected = [predictor.see(some(count)) for count in range(1, 6)]
    before = list(warnings.filters)
    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(lambda count: predictor.see(some(count)), range(1, 6))) == expected
    assert list(warnings.filters) == before


@pytest.mark.parametrize(("int8", "near"), [(False, 1e-4), (True, 0.15)])  # int8 rounds as the CPU can
def test_the_other_engine_sees_the_same(predictor: ImagePredictor, exported: Path, int8: bool, near: float):
    other = heedful.load(exported, engine="onnx", int8=int8)
    assert other.labels == predictor.labels
    pictures = some(image_engine.ONNX_IMAGES + 3)
    for one, expected in zip(other.see(pictures), predictor.see(pictures), strict=True):
        assert one.scores == pytest.approx(expected.scores, abs=near)
    assert other.see([]) == []


def test_a_file_that_is_not_the_models(exported: Path, colours: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"has no ONNX file; write it with `heedful export .*/colours --to onnx`"):
        load_images(colours, engine="onnx")
    folder = tmp_path / "other"
    shutil.copytree(exported, folder)
    model = load_vit(folder)
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    save_vit(model, folder)
    with pytest.raises(UserError, match="was made from other weights than"):
        load_images(folder, engine="onnx")
    (folder / "onnx" / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(UserError, match="can't be read by onnxruntime"):
        load_images(folder, engine="onnx")


def test_a_file_of_texts_is_no_classifier_of_images(exported: Path, tmp_path: Path):
    folder = tmp_path / "mixed"
    shutil.copytree(exported, folder)
    path = folder / "onnx" / "model.onnx"
    proto = onnx.load(path)
    for card in ('{"task": "classify"}', None):
        del proto.metadata_props[:]
        if card is not None:
            entry = proto.metadata_props.add()
            entry.key, entry.value = "heedful", card
        onnx.save(proto, path)
        with pytest.raises(UserError, match="is no image classifier that heedful wrote; move it away and write it"):
            load_images(folder, engine="onnx")


def test_folders_of_another_kind(colours: Path, encoder: Path, translator: Callable[[str], Path], tmp_path: Path):
    for load in (load_predictor, heedful.predict.load_predictor):
        with pytest.raises(UserError, match=r"reads images, not texts; use `heedful see`, in Python heedful\.load"):
            load(colours)
    with pytest.raises(UserError, match="does not translate, it is a model of type 'vit'; ask it with `heedful see`"):
        load_translator(colours)
    with pytest.raises(UserError, match="reads texts, not images, it is a model of type 'bert'; ask it with"):
        load_images(encoder)
    with pytest.raises(UserError, match="it is a model of type 'marian'; ask it with `heedful translate`"):
        load_images(translator("two"))
    with pytest.raises(UserError, match=r"ctranslate2 is for translators; for .* there are torch and onnx"):
        load_images(colours, engine="ctranslate2")
    with pytest.raises(UserError, match="int8 is for the onnx engine"):
        heedful.load(colours, int8=True)
    with pytest.raises(UserError, match="the engine onnx computes as it was exported; leave precision out"):
        heedful.load(colours, engine="onnx", precision="fp16")
    with pytest.raises(UserError, match="there is no such folder"):
        load_images(tmp_path / "nowhere")
    save_vit(ViT(dataclasses.replace(load_vit(colours).config)), tmp_path)
    with pytest.raises(UserError, match="is an encoder of images without a head, so it knows no classes; train one"):
        heedful.load(tmp_path)


@pytest.mark.parametrize(
    "options", [{}, {"pool": "mean", "locality": True, "shifted_patches": True}, {"convolutional_stem": True}]
)
@pytest.mark.parametrize(("dtype", "near"), [(torch.float16, 5e-3), (torch.bfloat16, 5e-2)])
def test_weights_of_half_the_width(options: dict[str, Any], dtype: torch.dtype, near: float):
    """As on a GPU, where query, key and value are one matrix too; a processor knows the types, if slowly."""
    model = ViTClassifier(ViTConfig.of_size("micro", image_size=12, patch_size=4, **options), ("a", "b", "c"))
    initialise(model, torch.Generator().manual_seed(3))
    exact = TorchImageEngine(copy.deepcopy(model)).scores(some(5))
    engine = TorchImageEngine(model.to(dtype))
    for reads in (model, image_engine._joined(model)):
        engine._reads = reads
        found = engine.scores(some(5))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, exact, atol=near * np.abs(exact).max())
    np.testing.assert_allclose(engine.attention(some(1)[0]).sum(-1), 1.0, atol=near)


def test_what_is_too_large_for_half_the_width(colours: Path):
    model = load_vit(colours)
    assert isinstance(model, ViTClassifier)
    with torch.no_grad():
        model.output.weight.mul_(1e6)
    with pytest.raises(UserError, match="too large for fp16; use --precision bf16 or fp32"):
        TorchImageEngine(model.half()).scores(some(2))


@needs_gpu
@pytest.mark.parametrize("locality", [False, True])
def test_a_gpu_computes_in_half_precision(locality: bool, tmp_path: Path):
    config = ViTConfig.of_size("mini", image_size=32, pool="mean" if locality else "cls", locality=locality)
    save_vit(ViTClassifier(config, tuple("abcdefg")), tmp_path)
    exact, fast = load_images(tmp_path, "cpu"), load_images(tmp_path)
    assert next(fast.engine.model.parameters()).dtype == torch.float16
    pictures = np.random.default_rng(0).integers(0, 256, (1031, 37, 41, 3), np.uint8)
    for one, other in zip(fast.see(pictures), exact.see(pictures), strict=True):
        assert one.scores == pytest.approx(other.scores, abs=5e-3)
    full = load_images(tmp_path, precision="fp32").see(pictures[:5])
    assert full[3].scores == pytest.approx(exact.see(pictures[3]).scores, abs=1e-4)
    weights = fast.engine.attention(fast.reader().prepare([ImageExample("it", pictures[0])])[0])
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=5e-3)
