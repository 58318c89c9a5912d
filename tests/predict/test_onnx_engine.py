import dataclasses
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import heedful
from heedful.data.inputs import Input
from heedful.durable import file_digest
from heedful.errors import UserError
from heedful.formats.huggingface import load_model, save_model
from heedful.formats.onnx import read_card
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.models.heads import BertForTask, Head
from heedful.predict import onnx as engines
from heedful.predict.engine import TorchEngine
from heedful.predict.onnx import OnnxEngine, computed, open_session, rectangle
from heedful.runs import export as runs
from heedful.runs.export import export

CONFIG = BertConfig(vocab_size=97, layers=2, dim=24, heads=3, ffn_dim=41, max_length=37)
TAGS = ("O", "B-가", "I-가")
HEADS = {
    "classify": Head(task="classify", labels=("a", "b", "c", "d", "e")),
    "regress": Head(task="regress", labels=("price", "weight")),
    "tag": Head(task="tag", labels=TAGS, length=31, overlap=7),
    "answer": Head(task="answer", labels=("start", "end"), length=29, overlap=5, may_be_empty=True),
}
KINDS = (*HEADS, "words", "encoder")


def make(kind: str) -> nn.Module:
    """A model of each kind in which every parameter counts; one reads the mean, and one has one segment."""
    if kind in HEADS:
        config = dataclasses.replace(CONFIG, pool="mean") if kind == "regress" else CONFIG
        model: nn.Module = BertForTask(config, HEADS[kind])
    elif kind == "words":
        model = BertForPretraining(CONFIG)
    else:
        model = Bert(dataclasses.replace(CONFIG, segments=1))
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)
        if kind == "regress":
            model.get_submodule("output").weight.mul_(1e6)  # prices in a small currency
    return model.eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each kind, exported; what the command said lies beside it."""
    found = {}
    for kind in KINDS:
        found[kind] = tmp_path_factory.mktemp("models") / kind
        save_model(make(kind), found[kind])  # type: ignore[arg-type]
        said = export(found[kind], to="onnx", int8=True, out=None)
        (found[kind] / "said").write_text(said)
    return found


def ragged(count: int = 23, *, pairs: bool = True, longest: int = 37) -> list[Input]:
    generator = np.random.default_rng(3)
    inputs = []
    for number in range(count):
        length = int(generator.integers(2, longest + 1)) if number else longest
        second = length // 2 if pairs and number % 2 else length
        inputs.append(Input(generator.integers(0, 97, length).astype(np.int32), second))
    return inputs


def both(folder: Path, int8: bool = False) -> tuple[TorchEngine, OnnxEngine]:
    return TorchEngine(load_model(folder)), OnnxEngine(folder, int8=int8)


def alike(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    assert len(found) == len(expected)
    largest = max(1.0, *(float(np.abs(one).max()) for one in expected))
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=1e-4 * largest)


@pytest.mark.parametrize("tokens", [1, 90, 4096])
@pytest.mark.parametrize("kind", HEADS)
def test_scores_are_torchs_in_whatever_batches(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, kind: str, tokens: int
) -> None:
    monkeypatch.setattr(engines, "BATCH_TOKENS", tokens)
    theirs, ours = both(folders[kind])
    inputs = ragged()
    expected = theirs.scores(inputs)
    assert np.ptp(np.concatenate([one.ravel() for one in expected])) > 0.5  # else anything would do
    alike(ours.scores(inputs), expected)


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_torchs(folders: dict[str, Path], kind: str, pool: Any) -> None:
    theirs, ours = both(folders[kind])
    inputs = ragged(pairs=kind != "encoder")
    found = ours.vectors(inputs, pool)
    assert found.shape == (23, 24)
    assert found.dtype == np.float32
    alike(found, theirs.vectors(inputs, pool))


def test_segments_and_the_pool_are_read(folders: dict[str, Path]) -> None:
    _, ours = both(folders["classify"])
    one = ragged(1)[0]
    moved = one._replace(second=11)
    assert np.abs(ours.scores([one])[0] - ours.scores([moved])[0]).max() > 0.01
    assert np.abs(ours.vectors([one], "cls") - ours.vectors([one], "mean")).max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_knows_its_model(folders: dict[str, Path], kind: str) -> None:
    for int8 in (False, True):
        theirs, ours = both(folders[kind], int8)
        assert ours.head == theirs.head == HEADS.get(kind)
        assert (ours.max_length, ours.vocab_size) == (37, 97)


def test_nothing_asked_nothing_said(folders: dict[str, Path]) -> None:
    _, ours = both(folders["classify"])
    assert ours.scores([]) == []
    assert ours.vectors([], "mean").shape == (0, 24)


def test_words_are_not_scored_for_vectors(folders: dict[str, Path]) -> None:
    ours = OnnxEngine(folders["words"], int8=False)
    assert [output.name for output in ours.session.get_outputs()] == ["last_hidden_state"]


def test_a_rectangle_by_hand() -> None:
    found = rectangle([Input(np.array([5, 6, 7], np.int32), 1), Input(np.array([8, 9], np.int32), 2)])
    assert {name: array.tolist() for name, array in found.items()} == {
        "input_ids": [[5, 6, 7], [8, 9, 0]],
        "attention_mask": [[1, 1, 1], [1, 1, 0]],
        "token_type_ids": [[0, 1, 1], [0, 0, 0]],
    }
    assert {array.dtype for array in found.values()} == {np.dtype(np.int64)}


def test_padding_counts_towards_a_batch(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def spy(inputs: Sequence[Input]) -> dict[str, np.ndarray]:
        found = rectangle(inputs)
        sizes.append(found["input_ids"].size)
        return found

    monkeypatch.setattr(engines, "rectangle", spy)
    monkeypatch.setattr(engines, "BATCH_TOKENS", 90)
    OnnxEngine(folders["tag"], int8=False).scores(ragged())
    assert max(sizes) <= 90
    assert len(sizes) < 23


def test_bytes_agree_on_most(folders: dict[str, Path]) -> None:
    inputs = ragged(300)
    theirs, ours = both(folders["classify"], int8=True)
    expected, found = np.array(theirs.scores(inputs)), np.array(ours.scores(inputs))
    assert len(np.unique(expected.argmax(1))) > 2
    assert (expected.argmax(1) == found.argmax(1)).mean() > 0.9
    assert np.abs(expected - found).max() > 1e-4  # it is another file
    theirs, ours = both(folders["tag"], int8=True)
    expected, found = np.concatenate(theirs.scores(inputs)), np.concatenate(ours.scores(inputs))
    assert (expected.argmax(1) == found.argmax(1)).mean() > 0.9


def test_limits_are_torchs_in_the_same_words(folders: dict[str, Path]) -> None:
    long = [Input(np.zeros(38, np.int32), 38)]
    pair = [Input(np.zeros(7, np.int32), 3)]
    for engine in both(folders["encoder"]):
        with pytest.raises(UserError, match=r"^a sequence of 38 tokens is beyond the model's 37 positions$"):
            engine.vectors(long, "mean")
        with pytest.raises(UserError, match=r"^the model has one segment, so it can't read pairs"):
            engine.vectors(pair, "mean")


def copied(folders: dict[str, Path], tmp_path: Path, kind: str = "classify") -> Path:
    return Path(shutil.copytree(folders[kind], tmp_path / "model"))


@pytest.mark.parametrize(("int8", "flag"), [(False, ""), (True, " --int8")])
def test_no_file_yet(folders: dict[str, Path], tmp_path: Path, int8: bool, flag: str) -> None:
    folder = copied(folders, tmp_path)
    shutil.rmtree(folder / "onnx")
    line = f"{folder} has no ONNX file; write it with `heedful export {folder} --to onnx{flag}`"
    with pytest.raises(UserError, match=f"^{re.escape(line)}$"):
        OnnxEngine(folder, int8=int8)


@pytest.mark.parametrize("int8", [False, True])
def test_other_weights_since(folders: dict[str, Path], tmp_path: Path, int8: bool) -> None:
    folder = copied(folders, tmp_path)
    assert OnnxEngine(folder, int8=int8).card.source == file_digest(folder / "model.safetensors")
    shutil.copy(folders["tag"] / "model.safetensors", folder)
    with pytest.raises(UserError, match=r"was made from other weights than .*; write it again with `heedful export"):
        OnnxEngine(folder, int8=int8)
    (folder / "model.safetensors").unlink()  # a folder for this engine alone
    assert OnnxEngine(folder, int8=int8).head == HEADS["classify"]


def test_files_of_others_and_damaged_ones(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders, tmp_path)
    path = folder / "onnx" / "model.onnx"
    whole = path.read_bytes()
    path.write_bytes(whole[:999])
    with pytest.raises(UserError, match=r"model\.onnx can't be read by onnxruntime \(InvalidProtobuf\)"):
        OnnxEngine(folder, int8=False)
    proto = onnx.load_from_string(whole)
    del proto.metadata_props[:]
    onnx.save(proto, path)
    with pytest.raises(UserError, match=r"model\.onnx was not written by heedful; move it away"):
        OnnxEngine(folder, int8=False)
    with pytest.raises(UserError, match=r"model\.onnx exists and was not written by heedful; move it away"):
        export(folder, to="onnx", int8=False, out=None)
    assert path.read_bytes() == proto.SerializeToString()


def test_a_missing_runtime_is_named(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"^onnxruntime is not installed; pip install 'heedful\[onnx\]'$"):
        OnnxEngine(folders["tag"], int8=False)


def test_onnx_is_for_the_cpu(folders: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=r"computes on the CPU, not on cuda:1; leave the device out$"):
        heedful.load(folders["tag"], "cuda:1", engine="onnx")


@pytest.mark.parametrize("kind", KINDS)
def test_export_says_how_near_it_is(folders: dict[str, Path], kind: str) -> None:
    folder = folders[kind] / "onnx"
    first, second = (folders[kind] / "said").read_text().splitlines()
    found = re.fullmatch(rf"wrote {folder}/model\.onnx \(\d\d kB; differs from torch by at most (.*)\)", first)
    assert found
    assert 0 <= float(found[1]) < 1e-5
    found = re.fullmatch(
        rf"wrote {folder}/model_int8\.onnx \(\d\d kB; its states have a cosine of (.*) with torch's\)", second
    )
    assert found
    assert 0.98 < float(found[1]) <= 1
    assert sorted(path.name for path in folder.iterdir()) == ["model.onnx", "model_int8.onnx"]


def test_export_elsewhere_and_again(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders, tmp_path)
    shutil.rmtree(folder / "onnx")
    out = tmp_path / "there" / "mine.onnx"
    export(folder, to="onnx", int8=True, out=out)
    once = out.read_bytes()
    export(folder, to="onnx", int8=False, out=out)
    assert out.read_bytes() == once
    assert sorted(path.name for path in out.parent.iterdir()) == ["mine.onnx", "mine_int8.onnx"]
    assert not (folder / "onnx").exists()


def test_export_of_the_encoder_within_a_folder(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(folders["encoder"], tmp_path / "0_Transformer", ignore=shutil.ignore_patterns("onnx"))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    kinds = (("0_Transformer", "Transformer"), ("1_Pooling", "Pooling"))
    modules = [f'{{"path": "{path}", "type": "sentence_transformers.models.{kind}"}}' for path, kind in kinds]
    (tmp_path / "modules.json").write_text(f"[{', '.join(modules)}]")
    export(tmp_path, to="onnx", int8=False, out=None)
    assert OnnxEngine(tmp_path / "0_Transformer", int8=False).head is None


@pytest.mark.parametrize(("error", "said"), [(0.03, "[1-9]e-0[23]"), (8e-4, "[1-9]e-04"), (np.nan, "nan")])
def test_a_file_that_computes_something_else_is_taken_back(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: float, said: str
) -> None:
    def other(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs = right(path, arrays)
        return {**outputs, "last_hidden_state": outputs["last_hidden_state"] + error}

    right = runs._outputs
    monkeypatch.setattr(runs, "_outputs", other)
    folder = copied(folders, tmp_path)
    with pytest.raises(UserError, match=rf"is taken back: it differs from torch by {said}, more than 1e-04"):
        export(folder, to="onnx", int8=True, out=tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    assert not (tmp_path / "out_int8.onnx").exists()


def test_export_refuses_what_it_can_not_do(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["tag"]
    with pytest.raises(UserError, match=r"^format 'tflite' is not known; choose from onnx, ctranslate2$"):
        export(folder, to="tflite", int8=False, out=None)
    with pytest.raises(UserError, match=r"is a folder; name a file$"):
        export(folder, to="onnx", int8=False, out=tmp_path)
    with pytest.raises(UserError, match="there is no such folder; name the folder that"):
        export(tmp_path / "nowhere", to="onnx", int8=False, out=None)
    assert not (tmp_path / "nowhere").exists()
    note = tmp_path / "x_int8.onnx"
    note.write_text("mine")
    with pytest.raises(UserError, match=r"was not written by heedful"):
        export(folder, to="onnx", int8=True, out=tmp_path / "x.onnx")
    assert note.read_text() == "mine"
    assert not (tmp_path / "x.onnx").exists()
    assert read_card(note) is None


def test_memory_that_is_refused_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    """Once, and not as a mistake of the file's: by a model that makes as many zeros as it is told."""
    shape = onnx.helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, [1])
    zeros = onnx.helper.make_tensor_value_info("zeros", onnx.TensorProto.FLOAT, None)
    node = onnx.helper.make_node("ConstantOfShape", ["shape"], ["zeros"])
    graph = onnx.helper.make_graph([node], "zeros", [shape], [zeros])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[opset]).SerializeToString()
    session = open_session(model)
    assert computed(session, ["zeros"], {"shape": np.array([7])})[0].shape == (7,)
    with pytest.raises(MemoryError, match="allocate"):
        computed(session, ["zeros"], {"shape": np.array([1 << 46])})
    with pytest.raises(Exception, match="rank"):
        computed(session, ["zeros"], {"shape": np.array([[7]])})
    assert capfd.readouterr().err == ""

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("std::bad_alloc")

    monkeypatch.setattr(onnxruntime, "InferenceSession", full)
    with pytest.raises(MemoryError):
        open_session(model)
