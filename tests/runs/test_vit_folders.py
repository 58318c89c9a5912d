"""What export and info do with the folder of an image classifier."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from heedful.config import to_toml
from heedful.errors import UserError
from heedful.formats.vit import load_vit, save_vit
from heedful.formats.vit_onnx import read_image_card
from heedful.models.vit import ViT, ViTClassifier, ViTConfig
from heedful.nn.pixels import Pixels
from heedful.runs import export as exporting
from heedful.runs import info
from heedful.runs.export import export
from heedful.runs.vision_options import VisionRecipe

SMALL = {"image_size": 10, "patch_size": 5, "layers": 1, "dim": 6, "heads": 2, "ffn_dim": 7}


@pytest.fixture
def folder(colours: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(colours, tmp_path / "model"))


def test_export_writes_proves_and_writes_again(folder: Path):
    path = folder / "onnx" / "model.onnx"
    said = export(folder, to=None, int8=False, out=None)
    assert said.startswith(f"wrote {path} (")
    assert float(said.rpartition(" ")[2].rstrip(")")) <= exporting.TOLERANCE
    card = read_image_card(path)
    assert card is not None
    assert (card.labels, card.image_size) == (("red", "green", "blue"), 12)
    first, second = export(folder, to="onnx", int8=True, out=None).splitlines()  # over what was written here
    assert first.startswith(f"wrote {path} (")
    assert second.startswith(f"wrote {folder / 'onnx' / 'model_int8.onnx'} (")
    assert float(second.partition("cosine of ")[2].split()[0]) > 0.99
    assert dict(info.describe(folder))["exported"] == "for onnx"


def test_what_computes_otherwise_is_taken_back(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exporting, "_outputs", lambda path, arrays: {"logits": np.full((3, 3), np.nan)})
    with pytest.raises(UserError, match="is taken back: it differs from torch by nan"):
        export(folder, to=None, int8=False, out=None)
    assert not list((folder / "onnx").iterdir())


def test_what_can_not_be_exported(folder: Path, tmp_path: Path):
    with pytest.raises(UserError, match="is an image classifier, which goes to onnx; export it with --to onnx"):
        export(folder, to="ctranslate2", int8=False, out=None)
    foreign = tmp_path / "foreign.onnx"
    foreign.write_bytes(b"theirs")
    with pytest.raises(UserError, match=r"foreign\.onnx exists and was not written by heedful; move it away"):
        export(folder, to=None, int8=False, out=foreign)
    assert foreign.read_bytes() == b"theirs"
    bare = tmp_path / "bare"
    save_vit(ViT(ViTConfig(**SMALL)), bare)
    with pytest.raises(UserError, match="is an encoder of images without a head; only classifiers can be exported"):
        export(bare, to=None, int8=False, out=None)
    assert not (bare / "onnx").exists()


def test_what_a_folder_holds(colours: Path):
    count = sum(parameter.numel() for parameter in load_vit(colours).parameters())
    assert info.describe(colours) == [
        ("model", "ViT of its own size: 2 layers, 24 wide, 3 heads, 3 x 3 patches of 4 x 4 pixels"),
        ("parameters", f"{count:,}"),
        ("head", "tells images apart"),
        ("labels", "3: red, green, blue"),
        ("reads", "12 x 12 pixels, RGB; images of other shapes are cut to the middle"),
        ("exported", "no"),
    ]


def test_what_a_folder_holds_for_programs(colours: Path):
    assert info.as_json(colours) == {
        "model": "ViT of its own size: 2 layers, 24 wide, 3 heads, 3 x 3 patches of 4 x 4 pixels",
        "shape": {"layers": 2, "dim": 24, "heads": 3, "patch_size": 4},
        "parameters": sum(parameter.numel() for parameter in load_vit(colours).parameters()),
        "head": "tells images apart",
        "labels": ["red", "green", "blue"],
        "reads": {"pixels": 12, "channels": 3},
        "exported": [],
    }


def test_what_differs_from_the_published(tmp_path: Path):
    config = ViTConfig(**SMALL, channels=1, pool="mean", locality=True, pixels=Pixels(edge=13))
    labels = tuple(map(str, range(13)))
    save_vit(ViTClassifier(config, labels), tmp_path)
    found = dict(info.describe(tmp_path))
    assert found["model"].endswith("2 x 2 patches of 5 x 5 pixels, mean of the patches, locality")
    assert found["labels"] == "13: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …"
    assert found["reads"] == "10 x 10 pixels, grey; images of other shapes are cut closer"
    assert found["transformers"] == "has no architecture that equals this one; heedful opens it"


def test_an_encoder_alone(tmp_path: Path):
    save_vit(ViT(ViTConfig.of_size("tiny", image_size=32)), tmp_path)
    found = dict(info.describe(tmp_path))
    assert found["model"].startswith("ViT tiny: 12 layers, 192 wide, 3 heads, 8 x 8 patches of 4 x 4 pixels")
    assert found["head"] == "none: an encoder alone"
    assert found["reads"].endswith("are stretched")
    assert "labels" not in found


def test_how_it_was_made(folder: Path):
    (folder / "heedful.toml").write_text(to_toml(VisionRecipe(data="album")), encoding="utf-8")
    trained = {"kind": "train", "step": 7, "tokens": 1303, "images": 130}
    tested = {"kind": "heldout", "step": 7, "tokens": 1303, "accuracy": 0.5}
    lines = "".join(json.dumps(report) + "\n" for report in (trained, tested))
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    (folder / "evaluation.json").write_text(json.dumps({"scores": {"accuracy": 0.9876}}), encoding="utf-8")
    found = dict(info.describe(folder))
    assert (found["trained on"], found["steps"], found["held out"]) == ("album", "7, 130 images", "accuracy 98.8%")
    told = info.as_json(folder)
    assert (told["trained on"], told["steps"], told["images"], told["held out"]) == (
        ["album"],
        7,
        130,  # of 9 patches and [CLS]
        {"accuracy": 0.9876},
    )
    (folder / "config.json").unlink()
    found = dict(info.describe(folder))
    assert found["run"] == "unfinished, no checkpoint yet"
    assert found["go on with"] == f"heedful train-vision --resume --out {folder}"
