"""A command that a message suggests can be given to a shell as it stands, whatever a folder is called."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import UserError
from heedful.formats import word2vec
from heedful.formats.documents import read_document
from heedful.predict import ctranslate2
from heedful.predict.image_engine import OnnxImageEngine
from heedful.predict.onnx import OnnxEngine
from heedful.runs import info
from heedful.runs.image_evaluate import own_images

NAME = "내 글; it's"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that a shell takes for several words unless it is quoted."""
    monkeypatch.chdir(tmp_path)
    Path(NAME).mkdir()
    return Path(NAME)


def suggested(ask: Callable[..., Any], folder: Path, **options: Any) -> list[list[str]]:
    """The commands that an error has in backticks, or at its end, as a shell takes them apart."""
    with pytest.raises(UserError) as told:
        ask(folder, **options)
    message = str(told.value)
    found = re.findall("`(heedful [^`]* [^`]*)`", message) or [message[message.rindex("heedful ") :]]
    return [shlex.split(one) for one in found]


def test_of_word_vectors_where_a_model_is_asked_for(folder: Path):
    (folder / word2vec.FILE).touch()
    nearest, contrast = suggested(read_document, folder)
    assert nearest == ["heedful", "nearest", NAME, "WORD"]
    assert contrast[-2:] == ["--vectors", NAME]


def test_of_runs_that_are_not_finished(folder: Path):
    (folder / "heedful.toml").touch()
    assert suggested(read_document, folder)[0][:3] == ["heedful", "info", NAME]
    go_on = dict(info.describe(folder))["go on with"]
    assert shlex.split(go_on) == [
        "heedful",
        "pretrain",
        "--resume",
        "--out",
        NAME,
    ]
    (folder / "checkpoints").mkdir()
    assert suggested(word2vec.load, folder) == [["heedful", "info", NAME]]


@pytest.mark.parametrize("engine", [OnnxEngine, OnnxImageEngine, ctranslate2.find])
def test_of_what_was_not_exported(folder: Path, engine: Callable[..., Any]):
    (folder / "config.json").write_text('{"model_type": "marian"}', encoding="utf-8")
    to = "ctranslate2" if engine is ctranslate2.find else "onnx"
    assert suggested(engine, folder, int8=True) == [["heedful", "export", NAME, "--to", to, "--int8"]]


def test_of_images_to_evaluate_on(folder: Path):
    (folder / "heedful.toml").write_text('data = "내 사진"\n', encoding="utf-8")
    assert suggested(own_images, folder) == [["heedful", "evaluate", NAME, "내 사진"]]
