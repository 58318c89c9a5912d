"""The engines that `heedful export` writes for answer over HTTP as torch does."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from heedful.cli import main
from heedful.serve.loading import Computing

TEXTS = ["the river is fine .", "a baker lives in oslo and the bridge was cold", "anna"]


def exported(folder: Path, home: Path, to: str) -> Path:
    copy = home / "exported"
    shutil.copytree(folder, copy)
    with pytest.raises(SystemExit) as stop:
        main(["export", str(copy), "--to", to])
    assert not stop.value.code
    return copy


def test_onnx(served, serving, encoder: Path, tmp_path: Path):
    with serving({"it": exported(encoder, tmp_path, "onnx")}, computing=Computing("onnx", "cpu")) as other:
        for path in ("/embed", "/embed_all"):
            found, right = (one.ask(path, inputs=TEXTS) for one in (other, served))
            for vector, expected in zip(found, right, strict=True):
                np.testing.assert_allclose(vector, expected, atol=1e-5)
        assert other.get("/info").json()["model_dtype"] == "exported"
        assert "fills blanks" in other.refuses("/fill", 424, {"inputs": "[MASK]"})


def test_ctranslate2(served, serving, translator: Callable[[str], Path], tmp_path: Path):
    folder = exported(translator("good"), tmp_path, "ctranslate2")
    with serving({"it": folder}, computing=Computing("ctranslate2", "cpu")) as other:
        texts = ["two five nine", "seven"]
        found = other.ask("/translate", inputs=texts)
        right = served.ask("/translate", inputs=texts)
        assert [one["translations"][0]["text"] for one in found] == [one["translations"][0]["text"] for one in right]
        assert "GNMT" in other.refuses("/translate", 422, {"inputs": "two", "penalty": "gnmt"})
