import dataclasses
import json
import os
import pickle
import re
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.errors import UserError
from heedful.formats.huggingface import (
    CONFIG_KEYS,
    MEAN_CODE,
    MIXED_KEYS,
    load_model,
    read_config,
    save_model,
    their_name,
)
from heedful.models.bert import Bert, BertConfig, BertForPretraining, initialise
from heedful.models.heads import TASKS, BertForTask, Head

CONFIG = BertConfig(vocab_size=61, layers=11, dim=10, heads=2, ffn_dim=13, max_length=17, segments=3)
EMBEDDING = "bert.embeddings.word_embeddings.weight"


def model(config: BertConfig = CONFIG, **heads: bool) -> BertForPretraining:
    made = BertForPretraining(config, **heads)
    initialise(made, 0.3, torch.Generator().manual_seed(1))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    save_model(model(), path)
    return path


def weights_of(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def rewrite(folder: Path, weights: dict[str, Tensor]) -> None:
    safetensors.torch.save_file(weights, folder / "model.safetensors")


def change_config(folder: Path, **changes: object) -> None:
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(document | changes), encoding="utf-8")


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def assert_same(one: torch.nn.Module, other: torch.nn.Module) -> None:
    left, right = one.state_dict(), other.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("mlm", "nsp"), [(True, True), (True, False), (False, True)])
def test_what_is_saved_is_loaded_to_the_bit(tmp_path: Path, mlm: bool, nsp: bool, tied: bool):
    saved = model(dataclasses.replace(CONFIG, tied=tied), mlm=mlm, nsp=nsp)
    save_model(saved, tmp_path / "new" / "folder")
    loaded = load_model(tmp_path / "new" / "folder")
    assert isinstance(loaded, BertForPretraining)
    assert loaded.config == saved.config
    assert_same(loaded, saved)
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())


@pytest.mark.parametrize("pooler", [True, False])
def test_an_encoder_alone_stays_alone(tmp_path: Path, pooler: bool):
    saved = Bert(CONFIG, pooler)
    save_model(saved, tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, Bert)
    assert_same(loaded, saved)


@settings(deadline=None, max_examples=20)
@given(
    heads=st.integers(1, 3),
    width=st.integers(1, 5),
    layers=st.integers(1, 3),
    ffn_dim=st.integers(1, 11),
    segments=st.integers(1, 3),
    activation=st.sampled_from(["gelu", "gelu_new", "relu", "silu"]),
    dropout=st.floats(0, 0.9),
    norm_eps=st.floats(1e-12, 1e-3),
    tied=st.booleans(),
)
def test_every_setting_comes_back(tmp_path_factory: pytest.TempPathFactory, heads: int, width: int, **others):
    config = BertConfig(vocab_size=7, dim=heads * width, heads=heads, max_length=5, init_std=0.03, **others)
    folder = tmp_path_factory.mktemp("model")
    save_model(model(config), folder)
    assert load_model(folder).config == config


def test_every_field_of_the_config_has_a_name():
    """transformers' for a BERT as published; else our own, for it has none."""
    assert CONFIG_KEYS.keys() | set(MIXED_KEYS) == {field.name for field in dataclasses.fields(BertConfig)}
    assert CONFIG_KEYS.keys().isdisjoint(MIXED_KEYS)


def test_every_parameter_has_its_own_name():
    with torch.device("meta"):
        names = list(model(dataclasses.replace(CONFIG, tied=False)).state_dict())
    theirs = [their_name(name) for name in names]
    assert len(set(theirs)) == len(names)
    assert their_name("bert.layers.10.attention.query.bias") == "bert.encoder.layer.10.attention.self.query.bias"
    assert their_name("bert.layers.1.feed_forward_norm.weight") == "bert.encoder.layer.1.output.LayerNorm.weight"
    assert their_name("mlm.bias") == "cls.predictions.bias"
    assert their_name("mlm.decoder") == "cls.predictions.decoder.weight"


def test_the_file_holds_exactly_the_named_parameters(folder: Path):
    assert set(weights_of(folder)) == {their_name(name) for name in model().state_dict()}


def test_the_files_are_those_of_transformers(folder: Path):
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert document["model_type"] == "bert"
    assert document["num_hidden_layers"] == 11
    assert document["type_vocab_size"] == 3


def test_a_config_that_says_little_means_the_published_base(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "vocab_size": 61}', encoding="utf-8")
    assert read_config(tmp_path) == BertConfig(vocab_size=61)


def test_no_folder(tmp_path: Path):
    assert "is not a model folder: there is no such folder" in refusal(tmp_path / "nowhere")
    assert "is not a model folder: it has no config.json" in refusal(tmp_path)


def test_no_config(folder: Path):
    (folder / "config.json").unlink()
    assert "is not a model folder: it has no config.json" in refusal(folder)


@pytest.mark.parametrize("content", [b"", b'{"model_type": "bert"', b"\xff\xfe{}"])
def test_a_config_that_is_not_json(folder: Path, content: bytes):
    (folder / "config.json").write_bytes(content)
    message = refusal(folder)
    assert "config.json is not valid JSON" in message
    assert "damaged" in message


def test_a_config_of_another_model(folder: Path):
    change_config(folder, model_type="gpt2")
    assert "holds a model of type 'gpt2'; only 'bert' and 'modernbert' can be loaded" in refusal(folder)


def test_a_config_that_is_no_table(folder: Path):
    (folder / "config.json").write_text("[1, 2]", encoding="utf-8")
    assert "type None; only 'bert'" in refusal(folder)


def test_a_config_without_a_vocabulary(folder: Path):
    change_config(folder, vocab_size=None)
    assert "has no vocab_size" in refusal(folder)


def test_a_config_with_a_value_of_another_kind(folder: Path):
    change_config(folder, hidden_size="10")
    assert "hidden_size is '10' but must be of type int" in refusal(folder)


def test_positions_that_are_not_absolute(folder: Path):
    change_config(folder, position_embedding_type="relative_key")
    assert "uses relative_key positions; only absolute ones are known" in refusal(folder)


def test_a_decoder(folder: Path):
    change_config(folder, is_decoder=True)
    assert "is a decoder; only encoders can be loaded" in refusal(folder)


def test_no_weights(folder: Path):
    (folder / "model.safetensors").unlink()
    assert "has no weights: neither model.safetensors nor pytorch_model.bin" in refusal(folder)


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.5, 0.9999])
def test_truncated_weights(folder: Path, share: float):
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    message = refusal(folder)
    assert "model.safetensors is truncated, corrupted or not a safetensors file" in message
    assert "copy or save it again" in message


def test_a_pickle_that_is_called_safetensors(folder: Path):
    torch.save(model().state_dict(), folder / "model.safetensors")
    assert "model.safetensors is truncated, corrupted or not a safetensors file" in refusal(folder)


class Intruder:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_no_code_runs_from_a_file(folder: Path, tmp_path: Path, zipped: bool):
    (folder / "model.safetensors").unlink()
    content = {EMBEDDING: torch.zeros(61, 10), "more": Intruder(tmp_path / "broken in")}
    torch.save(content, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    message = refusal(folder)
    assert "pytorch_model.bin is damaged or a pickle that holds more than tensors" in message
    assert "could run code" in message
    assert "save it again as model.safetensors" in message
    assert not (tmp_path / "broken in").exists()


def test_no_code_runs_from_a_plain_pickle(folder: Path, tmp_path: Path):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Intruder(tmp_path / "broken in"), protocol=2))
    assert "could run code" in refusal(folder)
    assert not (tmp_path / "broken in").exists()
    pickle.loads((folder / "pytorch_model.bin").read_bytes())
    assert (tmp_path / "broken in").exists()  # it would have


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 0.9999])
def test_truncated_old_weights(folder: Path, share: float, zipped: bool):
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    torch.save(model().state_dict(), path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    assert "pytorch_model.bin is damaged" in refusal(folder)


@settings(deadline=None, max_examples=200)
@given(content=st.binary(max_size=37) | st.binary(max_size=37).map(lambda junk: b"\x80\x02" + junk))
def test_rubbish_for_old_weights(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    folder = tmp_path_factory.getbasetemp() / "rubbish"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "bert", "vocab_size": 61}', encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(content)
    assert "pytorch_model.bin is" in refusal(folder)


@pytest.mark.parametrize("content", [[torch.zeros(3)], {"epoch": 3, "state_dict": {}}])
def test_old_weights_that_are_no_table_of_tensors(folder: Path, content: object):
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")
    assert "pytorch_model.bin is not a table of tensors" in refusal(folder)


def shard(folder: Path, index: str) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")


def test_an_index_that_names_a_file_that_is_not_there(folder: Path):
    shard(folder, json.dumps({"weight_map": {EMBEDDING: "model-00002-of-00001.safetensors"}}))
    message = refusal(folder)
    assert "model-00002-of-00001.safetensors is missing, though the folder's index names it" in message


@pytest.mark.parametrize("index", ["", "{", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_a_damaged_index(folder: Path, index: str):
    shard(folder, index)
    assert "model.safetensors.index.json is not an index of weights" in refusal(folder)


@pytest.mark.parametrize("kind", ["whole", "in parts", "old"])
@pytest.mark.parametrize("nsp", [True, False])
def test_an_outline_has_the_parts_of_a_model_and_no_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nsp: bool, kind: str
):
    save_model(model(nsp=nsp), tmp_path)
    whole = load_model(tmp_path)
    if kind == "in parts":
        shard(tmp_path, json.dumps({"weight_map": {EMBEDDING: "model-00001-of-00001.safetensors"}}))
    elif kind == "old":
        torch.save(weights_of(tmp_path), tmp_path / "pytorch_model.bin")
        (tmp_path / "model.safetensors").unlink()
    monkeypatch.setattr(safetensors.torch, "load_file", None)  # which nobody may call
    found = load_model(tmp_path, outline=True)
    assert isinstance(found, BertForPretraining)
    assert (found.nsp is not None) is nsp
    shapes = {name: tensor.shape for name, tensor in whole.state_dict().items()}
    assert {name: tensor.shape for name, tensor in found.state_dict().items()} == shapes
    assert {parameter.device.type for parameter in found.parameters()} == {"meta"}


def test_an_outline_of_what_is_damaged_is_refused_too(folder: Path):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"model\.safetensors is truncated"):
        load_model(folder, outline=True)
    path.unlink()
    shard_index = {"weight_map": {EMBEDDING: "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(shard_index), encoding="utf-8")
    with pytest.raises(UserError, match="is missing, though the folder's index names it"):
        load_model(folder, outline=True)


def test_missing_weights(folder: Path):
    weights = weights_of(folder)
    gone = [name for name in weights if ".layer.3.attention.self." in name]
    assert len(gone) == 6
    for name in gone:
        del weights[name]
    rewrite(folder, weights)
    message = refusal(folder)
    listed = re.search(r"lacks the weights (.*) and 3 more$", message)
    assert listed
    assert set(listed[1].split(", ")) < set(gone)


def test_unknown_weights(folder: Path):
    rewrite(folder, weights_of(folder) | {"bert.extra.weight": torch.zeros(2)})
    message = refusal(folder)
    assert "has weights that no BERT of its config.json has: bert.extra.weight" in message


def test_more_layers_than_the_config_says(folder: Path):
    change_config(folder, num_hidden_layers=10)
    message = refusal(folder)
    assert "has weights that no BERT of its config.json has: bert.encoder.layer.10." in message
    assert message.endswith(" and 13 more")


def test_fewer_layers_than_the_config_says(folder: Path):
    change_config(folder, num_hidden_layers=12)
    assert "lacks the weights bert.encoder.layer.11." in refusal(folder)


def test_a_shape_that_the_config_does_not_ask_for(folder: Path):
    change_config(folder, vocab_size=67)
    message = refusal(folder)
    assert f"{EMBEDDING} has shape (61, 10), but config.json asks for (67, 10)" in message


def test_a_next_sentence_head_without_its_pooler(folder: Path):
    weights = weights_of(folder)
    del weights["bert.pooler.dense.weight"], weights["bert.pooler.dense.bias"]
    rewrite(folder, weights)
    assert "has a next-sentence head but no pooler to feed it" in refusal(folder)


def task_model(task: str, pool: str = "cls", **more: object) -> BertForTask:
    labels = {"answer": ("start", "end"), "tag": ("O", "B-강", "I-강")}.get(task, ("no", "yes", "maybe"))
    made = BertForTask(dataclasses.replace(CONFIG, pool=pool), Head(task=task, labels=labels, **more))
    initialise(made, 0.3, torch.Generator().manual_seed(2))
    return made


def document_of(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("task", TASKS)
def test_a_head_is_saved_and_loaded_to_the_bit(tmp_path: Path, task: str):
    saved = task_model(task)
    save_model(saved, tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, BertForTask)
    assert loaded.head == saved.head
    assert loaded.config == saved.config
    assert_same(loaded, saved)
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    with torch.no_grad():
        ids = torch.tensor([[2, 7, 3]])
        torch.testing.assert_close(loaded(ids), saved.eval()(ids))


@pytest.mark.parametrize("task", ["tag", "answer"])
def test_what_a_head_was_trained_with_comes_back(tmp_path: Path, task: str):
    saved = task_model(task, length=17, overlap=0, may_be_empty=True)
    save_model(saved, tmp_path)
    assert load_model(tmp_path).head == saved.head
    change_config(tmp_path, heedful=None)
    assert load_model(tmp_path).head == dataclasses.replace(saved.head, length=None, overlap=None, may_be_empty=False)


@pytest.mark.parametrize("pairs", [True, False, None])
@pytest.mark.parametrize("task", ["classify", "multilabel", "regress"])
def test_what_texts_a_head_reads_comes_back(tmp_path: Path, task: str, pairs: bool | None):
    saved = task_model(task, length=13, pairs=pairs)
    save_model(saved, tmp_path)
    found = load_model(tmp_path).head
    assert found == saved.head
    assert found.pairs is pairs
    assert ("pairs" in document_of(tmp_path)["heedful"]) == (pairs is not None)
    change_config(tmp_path, heedful=None)
    assert load_model(tmp_path).head == dataclasses.replace(saved.head, length=None, pairs=None)


@pytest.mark.parametrize("task", TASKS)
def test_a_heads_config_says_what_transformers_wants(tmp_path: Path, task: str):
    save_model(task_model(task), tmp_path)
    document = document_of(tmp_path)
    kind = {"tag": "Token", "answer": "QuestionAnswering"}.get(task, "Sequence")
    assert document["architectures"] == [f"BertFor{kind}" + ("" if task == "answer" else "Classification")]
    problem = {"classify": "single_label_classification", "multilabel": "multi_label_classification"}
    assert document.get("problem_type") == (problem | {"regress": "regression"}).get(task)
    names = {name for name in weights_of(tmp_path) if not name.startswith("bert.")}
    prefix = "qa_outputs" if task == "answer" else "classifier"
    assert names == {f"{prefix}.weight", f"{prefix}.bias"}
    if task == "answer":
        assert "id2label" not in document
    else:
        labels = task_model(task).head.labels
        assert document["id2label"] == {str(number): label for number, label in enumerate(labels)}
        assert document["label2id"] == {label: number for number, label in enumerate(labels)}


THEIRS = {
    "classify": (transformers.BertForSequenceClassification, "single_label_classification"),
    "multilabel": (transformers.BertForSequenceClassification, "multi_label_classification"),
    "regress": (transformers.BertForSequenceClassification, "regression"),
    "tag": (transformers.BertForTokenClassification, None),
    "answer": (transformers.BertForQuestionAnswering, None),
}


def their_model(task: str) -> transformers.PreTrainedModel:
    kind, problem = THEIRS[task]
    config = transformers.BertConfig(
        vocab_size=61,
        num_hidden_layers=2,
        hidden_size=10,
        num_attention_heads=2,
        intermediate_size=13,
        max_position_embeddings=17,
        initializer_range=0.5,
        problem_type=problem,
        **({} if task == "answer" else {"id2label": {0: "x", 1: "y", 2: "z"}, "label2id": {"x": 0, "y": 1, "z": 2}}),
    )
    torch.manual_seed(4)
    return kind(config).eval()


def their_scores(theirs: transformers.PreTrainedModel, ids: Tensor) -> Tensor:
    output = theirs(ids)
    if hasattr(output, "logits"):
        return output.logits
    return torch.stack([output.start_logits, output.end_logits], -1)


@pytest.mark.parametrize("task", THEIRS)
@torch.no_grad()
def test_heads_go_both_ways(tmp_path: Path, task: str):
    theirs = their_model(task)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    assert isinstance(ours, BertForTask)
    assert ours.head == Head(task=task, labels=("start", "end") if task == "answer" else ("x", "y", "z"))
    ids = torch.tensor([[2, 7, 11, 3], [2, 5, 60, 3]])
    torch.testing.assert_close(ours(ids), their_scores(theirs, ids), rtol=1e-5, atol=1e-5)

    save_model(ours, tmp_path / "ours")
    again, notes = THEIRS[task][0].from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(notes.values()), notes
    assert again.config.problem_type == THEIRS[task][1]
    if task != "answer":
        assert again.config.id2label == {0: "x", 1: "y", 2: "z"}
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize("task", ["tag", "answer"])
def test_a_folder_of_an_old_version(tmp_path: Path, task: str):
    """A pickle with gammas and betas, a buffer of positions, a pooler that nothing reads, no names for the labels."""
    theirs = their_model(task)
    theirs.save_pretrained(tmp_path)
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in weights_of(tmp_path).items()
    }
    weights["bert.embeddings.position_ids"] = torch.arange(17)[None]
    weights |= {"bert.pooler.dense.weight": torch.ones(10, 10), "bert.pooler.dense.bias": torch.ones(10)}
    torch.save(weights, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    change_config(tmp_path, id2label=None, label2id=None)
    loaded = load_model(tmp_path)
    assert loaded.head.task == task
    assert loaded.head.labels == (("start", "end") if task == "answer" else ("LABEL_0", "LABEL_1", "LABEL_2"))
    with torch.no_grad():
        ids = torch.tensor([[2, 7, 11, 3]])
        torch.testing.assert_close(loaded(ids), their_scores(theirs, ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("names", [None, {"0": "no"}, ["no", "yes", "maybe"]])
def test_labels_without_names_are_numbered(tmp_path: Path, names: object):
    save_model(task_model("classify"), tmp_path)
    change_config(tmp_path, id2label=names)
    assert load_model(tmp_path).head.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_names_that_are_damaged_are_refused(tmp_path: Path):
    save_model(task_model("classify"), tmp_path)
    change_config(tmp_path, id2label={"0": "no", "1": "yes", "3": "maybe"})
    assert "id2label has no '2'; the folder is damaged" in refusal(tmp_path)
    change_config(tmp_path, id2label={"0": "no", "1": "yes", "2": "no"})
    assert "id2label has 'no' twice; give every output its own name" in refusal(tmp_path)


@pytest.mark.parametrize(("outputs", "task"), [(1, "regress"), (2, "classify"), (3, "classify")])
@pytest.mark.parametrize("named", [True, False])
def test_a_sequence_head_that_says_not_what_it_is_for(tmp_path: Path, outputs: int, task: str, named: bool):
    """As transformers takes it: one output is a number, several are classes."""
    labels = ("a", "b", "c")[:outputs]
    save_model(BertForTask(CONFIG, Head(task="multilabel", labels=labels)), tmp_path)
    change_config(tmp_path, problem_type=None, **({} if named else {"architectures": None}))
    assert load_model(tmp_path).head == Head(task=task, labels=labels)


def test_a_problem_that_nobody_knows(tmp_path: Path):
    save_model(task_model("classify"), tmp_path)
    change_config(tmp_path, problem_type="ranking")
    assert "problem_type 'ranking' is not known; try single_label_classification" in refusal(tmp_path)


def test_a_sequence_head_without_its_pooler(tmp_path: Path):
    save_model(task_model("regress"), tmp_path)
    weights = weights_of(tmp_path)
    del weights["bert.pooler.dense.weight"], weights["bert.pooler.dense.bias"]
    rewrite(tmp_path, weights)
    assert "has a head for sequences but no pooler to feed it" in refusal(tmp_path)


def test_a_head_is_called_by_the_name_that_it_has_in_the_file(tmp_path: Path):
    save_model(task_model("answer"), tmp_path)
    weights = weights_of(tmp_path)
    rewrite(tmp_path, weights | {"qa_outputs.weight": torch.zeros(3, 10)})
    assert "qa_outputs.weight has shape (3, 10), but config.json asks for (2, 10)" in refusal(tmp_path)
    del weights["qa_outputs.bias"]
    rewrite(tmp_path, weights)
    assert refusal(tmp_path).endswith("lacks the weights qa_outputs.bias")


def test_the_words_of_pretraining_are_dropped_beside_a_head(tmp_path: Path):
    saved = task_model("classify")
    save_model(saved, tmp_path)
    rewrite(tmp_path, weights_of(tmp_path) | {"cls.predictions.bias": torch.zeros(61)})
    loaded = load_model(tmp_path)
    assert loaded.head == saved.head
    assert_same(loaded, saved)


def test_the_head_of_another_task_is_left_out_with_a_warning(tmp_path: Path):
    """One output an option: what transformers calls multiple choice."""
    encoder = Bert(CONFIG)
    save_model(encoder, tmp_path)
    weights = {f"bert.{name}": tensor for name, tensor in weights_of(tmp_path).items()}
    rewrite(tmp_path, weights | {"classifier.weight": torch.zeros(1, 10), "classifier.bias": torch.zeros(1)})
    change_config(tmp_path, architectures=["BertForMultipleChoice"])
    with pytest.warns(UserWarning, match="the weights of the head 'classifier' are left out") as caught:
        loaded = load_model(tmp_path)
    assert {Path(warning.filename) for warning in caught} == {Path(__file__)}
    assert isinstance(loaded, Bert)
    assert_same(loaded, encoder)


def test_a_heads_warning_is_said_once(tmp_path: Path):
    save_model(Bert(CONFIG), tmp_path)
    head = {"classifier.weight": torch.zeros(3, 10), "classifier.bias": torch.zeros(3)}
    rewrite(tmp_path, weights_of(tmp_path) | head)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_model(tmp_path)
    assert len(caught) == 1


@pytest.mark.parametrize("task", ["classify", "multilabel", "regress"])
def test_a_folder_that_pools_by_the_mean(tmp_path: Path, task: str):
    saved = task_model(task, "mean")
    save_model(saved, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors", MEAN_CODE]
    document = document_of(tmp_path)
    # Nobody opens it by mistake as a BERT that reads [CLS].
    assert document["model_type"] == "heedful_bert"
    code = (tmp_path / MEAN_CODE).read_text(encoding="utf-8")
    named = {*document["auto_map"].values(), *(f"modeling_heedful.{name}" for name in document["architectures"])}
    assert named == {"modeling_heedful.HeedfulBertConfig", "modeling_heedful.HeedfulBertForSequenceClassification"}
    assert all(f"class {name.partition('.')[2]}(" in code for name in named)
    loaded = load_model(tmp_path)
    assert (loaded.head, loaded.config) == (saved.head, saved.config)
    assert loaded.config.pool == read_config(tmp_path).pool == "mean"
    assert_same(loaded, saved)


@pytest.mark.parametrize("task", ["tag", "answer"])
def test_what_reads_every_token_is_an_ordinary_folder_however_it_would_pool(tmp_path: Path, task: str):
    saved = task_model(task, "mean")
    save_model(saved, tmp_path)
    assert document_of(tmp_path)["model_type"] == "bert"
    loaded = load_model(tmp_path)
    assert loaded.head == saved.head
    assert_same(loaded, saved)


def fail(*_: object, **__: object) -> None:
    raise OSError("no space left")


@pytest.mark.parametrize("owner", [os, Path])
def test_a_failed_save_leaves_the_old_folder_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch, owner: object):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = BertForPretraining(CONFIG)
    with monkeypatch.context() as patch:
        patch.setattr(owner, "fsync" if owner is os else "replace", fail)
        with pytest.raises(OSError, match="no space left"):
            save_model(other, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    save_model(other, folder)
    assert_same(load_model(folder), other)


def test_a_save_that_fails_at_the_weights_keeps_the_old_ones(folder: Path, monkeypatch: pytest.MonkeyPatch):
    before = (folder / "model.safetensors").read_bytes()
    replace = Path.replace

    def fail_at_weights(path: Path, target: Path) -> Path:
        if target.name == "model.safetensors":
            fail()
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail_at_weights)
    with pytest.raises(OSError, match="no space left"):
        save_model(BertForPretraining(CONFIG), folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert_same(load_model(folder), model())


def test_a_model_can_be_saved_over_the_one_it_was_loaded_from(folder: Path):
    loaded = load_model(folder)
    with torch.no_grad():
        loaded.bert.pooler.bias.fill_(3.0)
    save_model(loaded, folder)
    again = load_model(folder)
    assert_same(again, loaded)
    assert again.bert.pooler.bias.tolist() == [3.0] * 10


def test_training_a_loaded_model_does_not_touch_its_file(folder: Path):
    before = (folder / "model.safetensors").read_bytes()
    loaded = load_model(folder)
    with torch.no_grad():
        for parameter in loaded.parameters():
            parameter.add_(1.0)
    assert (folder / "model.safetensors").read_bytes() == before


def test_half_precision_models_are_saved_as_single(tmp_path: Path):
    save_model(model().bfloat16(), tmp_path)
    assert {tensor.dtype for tensor in weights_of(tmp_path).values()} == {torch.float32}
