import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.formats import modernbert
from heedful.formats.huggingface import MIXED_TYPE, load_model, read_config, save_model
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.models.heads import TASKS, BertForTask, Head

OPTIONS: dict[str, Any] = {"pre_norm": True, "positions": "rotary", "gated": True, "bias": False, "segments": 0}
PLAIN = BertConfig(vocab_size=61, layers=11, dim=12, heads=3, ffn_dim=13, max_length=17)
MODERN = dataclasses.replace(PLAIN, **OPTIONS)
MIXES = [
    *({name: value} for name, value in OPTIONS.items()),
    {"pre_norm": True, "gated": True},
    {"positions": "rotary", "bias": False, "rotary_base": 321.0, "pool": "mean"},
    {"pre_norm": True, "positions": "rotary", "gated": True, "bias": False, "tied": False},
]


def filled(model: nn.Module) -> Any:
    """Every parameter is one of its kind, so that none can stand for another."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
    return model.eval()


def head_for(task: str) -> Head:
    return Head(task=task, labels=("start", "end") if task == "answer" else ("x", "y", "z"), length=11, pairs=False)


def document_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def change_config(folder: Path, **changes: object) -> None:
    document = document_of(folder) | changes
    kept = {key: value for key, value in document.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")


def weights_of(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_same(one: nn.Module, other: nn.Module) -> None:
    assert type(one) is type(other)
    assert one.state_dict().keys() == other.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(filled(BertForPretraining(MODERN, nsp=False)), tmp_path)
    return tmp_path


def test_what_makes_a_modernbert():
    assert modernbert.fits(Bert(MODERN, pooler=False))
    assert modernbert.fits(BertForPretraining(dataclasses.replace(MODERN, bias=True), nsp=False))
    assert all(modernbert.fits(BertForTask(MODERN, head_for(task))) for task in TASKS)
    assert not modernbert.fits(Bert(MODERN))
    assert not modernbert.fits(BertForPretraining(MODERN))
    assert not modernbert.fits(BertForPretraining(MODERN, mlm=False))
    for name in OPTIONS.keys() - {"bias"}:
        without = dataclasses.replace(MODERN, **{name: getattr(PLAIN, name)})
        assert not modernbert.fits(Bert(without, pooler=False))


@pytest.mark.parametrize(("task", "class_"), [("classify", "Sequence"), ("tag", "Token"), ("regress", "Sequence")])
def test_what_a_folder_says(tmp_path: Path, task: str, class_: str):
    save_model(BertForTask(MODERN, head_for(task)), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    document = document_of(tmp_path)
    assert document["model_type"] == "modernbert"
    assert document["architectures"] == [f"ModernBertFor{class_}Classification"]
    assert document["layer_types"] == ["full_attention"] * 11
    assert document["id2label"] == {"0": "x", "1": "y", "2": "z"}
    assert "type_vocab_size" not in document


def test_query_key_and_value_are_one_matrix(folder: Path):
    weights, model = weights_of(folder), load_model(folder)
    attention = model.bert.layers[10].attention
    joined = weights["model.layers.10.attn.Wqkv.weight"]
    assert torch.equal(joined, torch.cat([attention.query.weight, attention.key.weight, attention.value.weight]))
    assert "model.layers.0.attn_norm.weight" not in weights
    assert "model.layers.1.attn_norm.weight" in weights
    assert {name for name in weights if not name.startswith("model.")} == {
        *("head.dense.weight", "head.norm.weight", "decoder.bias")
    }


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_words_come_back(tmp_path: Path, tied: bool, bias: bool):
    model = filled(BertForPretraining(dataclasses.replace(MODERN, tied=tied, bias=bias), nsp=False))
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    assert_same(loaded, model)


@pytest.mark.parametrize("tied", [False, True])
def test_a_vector_that_all_tokens_share_becomes_a_part_of_each(tmp_path: Path, tied: bool):
    model = filled(BertForPretraining(dataclasses.replace(MODERN, segments=1, tied=tied), nsp=False))
    save_model(model, tmp_path)
    assert document_of(tmp_path)["model_type"] == "modernbert"
    found = load_model(tmp_path).eval()
    assert found.config == dataclasses.replace(MODERN, tied=tied)
    ids = torch.randint(0, 61, (5, 7), generator=torch.Generator().manual_seed(3))
    before, after = model(ids).mlm_logits, found(ids).mlm_logits
    assert_close(found.bert(ids).hidden, model.bert(ids).hidden)
    assert_close(after.log_softmax(-1), before.log_softmax(-1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bare", [False, True])
def test_so_it_does_in_a_mix_that_has_no_equal(tmp_path: Path, bare: bool):
    config = dataclasses.replace(MODERN, segments=1, gated=False)
    model = filled(Bert(config, pooler=False) if bare else BertForPretraining(config, nsp=False))
    save_model(model, tmp_path)
    assert document_of(tmp_path)["model_type"] == MIXED_TYPE
    found = load_model(tmp_path).eval()
    assert found.config == dataclasses.replace(config, segments=0)
    ids = torch.randint(0, 61, (5, 7), generator=torch.Generator().manual_seed(3))
    after, before = ((one if bare else one.bert)(ids).hidden for one in (found, model))
    assert_close(after, before)


def test_a_bert_keeps_its_only_segment(tmp_path: Path):
    model = filled(BertForPretraining(dataclasses.replace(PLAIN, segments=1), nsp=False))
    save_model(model, tmp_path)
    assert document_of(tmp_path)["model_type"] == "bert"
    assert load_model(tmp_path).config == model.config


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("task", TASKS)
def test_heads_come_back(tmp_path: Path, task: str, pool: str):
    model = filled(BertForTask(dataclasses.replace(MODERN, pool=pool), head_for(task)))
    save_model(model, tmp_path)
    loaded = load_model(tmp_path)
    assert (loaded.head, loaded.config) == (model.head, model.config)
    assert_same(loaded, model)


def test_an_encoder_alone_comes_back(tmp_path: Path):
    model = filled(Bert(MODERN, pooler=False))
    save_model(model, tmp_path)
    assert document_of(tmp_path)["architectures"] == ["ModernBertModel"]
    assert "embeddings.tok_embeddings.weight" in weights_of(tmp_path)
    assert_same(load_model(tmp_path), model)


@settings(max_examples=20, deadline=None)
@given(
    layers=st.integers(1, 3),
    heads=st.integers(1, 3),
    pairs=st.integers(1, 3),
    ffn_dim=st.integers(1, 11),
    activation=st.sampled_from(["gelu", "gelu_new", "relu", "silu"]),
    dropout=st.floats(0, 0.9),
    attention_dropout=st.floats(0, 0.9),
    norm_eps=st.floats(1e-12, 1e-3),
    rotary_base=st.floats(1, 1e6),
    bias=st.booleans(),
    tied=st.booleans(),
    pool=st.sampled_from(["cls", "mean"]),
    modern=st.booleans(),
)
def test_every_setting_comes_back(
    tmp_path_factory: pytest.TempPathFactory, heads: int, pairs: int, modern: bool, **others: Any
):
    options = OPTIONS if modern else {"positions": "rotary"}
    sizes = {"vocab_size": 7, "dim": 2 * heads * pairs, "heads": heads, "max_length": 5, "init_std": 0.03}
    config = BertConfig(**{**options, **others, **sizes})
    folder = tmp_path_factory.mktemp("model")
    save_model(BertForPretraining(config, nsp=False), folder)
    assert load_model(folder).config == read_config(folder) == config


@pytest.mark.parametrize("changes", MIXES)
@pytest.mark.parametrize("kind", ["encoder", "pretraining", "words", *TASKS])
def test_any_other_mix_comes_back_and_says_that_it_has_no_equal(tmp_path: Path, kind: str, changes: dict[str, Any]):
    config = dataclasses.replace(PLAIN, **changes)
    if kind in TASKS:
        model = BertForTask(config, head_for(kind))
    else:
        model = Bert(config) if kind == "encoder" else BertForPretraining(config, nsp=kind == "pretraining")
    save_model(filled(model), tmp_path)
    document = document_of(tmp_path)
    assert document["model_type"] == MIXED_TYPE
    assert document["note"] == "a mix of options that no architecture of transformers equals; heedful opens it"
    assert document["architectures"][0].startswith("HeedfulBert")
    loaded = load_model(tmp_path)
    assert loaded.config == config
    assert_same(loaded, model)
    if isinstance(loaded, BertForTask):
        assert loaded.head == model.head


@pytest.mark.parametrize("mlm", [True, False])
def test_a_head_for_next_sentences_has_no_equal_either(tmp_path: Path, mlm: bool):
    model = filled(BertForPretraining(MODERN, mlm=mlm))
    save_model(model, tmp_path)
    assert document_of(tmp_path)["model_type"] == MIXED_TYPE
    loaded = load_model(tmp_path)
    assert loaded.config == model.config
    assert_same(loaded, model)


def test_a_mix_that_does_not_say_what_it_is_is_damaged(tmp_path: Path):
    save_model(Bert(dataclasses.replace(PLAIN, pre_norm=True)), tmp_path)
    change_config(tmp_path, gated=...)
    assert "has no gated; the folder is damaged" in refusal(tmp_path)
    change_config(tmp_path, gated="yes")
    assert "gated is 'yes' but must be of type bool" in refusal(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention"] * 10 + ["sliding_attention"]},
        {"layer_types": "full_attention"},
        {"layer_types": ..., "global_attn_every_n_layers": 3},
        {"layer_types": ..., "global_attn_every_n_layers": ...},
    ],
)
def test_local_attention_is_refused(folder: Path, changes: dict[str, Any]):
    change_config(folder, **changes)
    assert "has layers with local attention, which is not known here" in refusal(folder)


def test_a_folder_of_an_older_version(folder: Path):
    """It says how many layers are local and how far, and the base, under other names."""
    change_config(folder, layer_types=..., rope_parameters=..., global_rope_theta=777)
    assert load_model(folder).config == dataclasses.replace(MODERN, rotary_base=777.0)
    change_config(folder, global_rope_theta=...)
    assert load_model(folder).config.rotary_base == 160_000.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": None}, "has no vocab_size; the folder is damaged"),
        ({"hidden_size": "12"}, "hidden_size is '12' but must be of type int"),
        ({"attention_bias": True}, "attention_bias is True but norm_bias False; they must agree"),
        ({"decoder_bias": False}, "decoder_bias is false"),
        ({"classifier_activation": "relu"}, "classifier_activation and hidden_activation differ"),
        ({"hidden_activation": "tanh", "classifier_activation": "tanh"}, "activation 'tanh' is not known"),
        ({"rope_scaling": {"factor": 2}}, "scales its rotary positions"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "scales its rotary positions"),
        (
            {"rope_parameters": {"full_attention": {"rope_theta": "far"}}},
            "rope_theta is 'far' but must be of type float",
        ),
        ({"classifier_pooling": "max"}, "pool 'max' is not known"),
        ({"global_attn_every_n_layers": "one", "layer_types": ...}, "global_attn_every_n_layers is 'one'"),
        ({"num_hidden_layers": 12, "layer_types": ...}, "lacks the weights model.layers.11."),
        ({"num_hidden_layers": 10, "layer_types": ...}, "no ModernBERT of its config.json has: model.layers.10."),
        ({"vocab_size": 67}, "model.embeddings.tok_embeddings.weight has shape (61, 12), but config.json asks for"),
    ],
)
def test_what_can_not_be_opened_is_told(folder: Path, changes: dict[str, Any], message: str):
    change_config(folder, **changes)
    assert message in refusal(folder)


def test_a_matrix_of_three_that_lacks_one(folder: Path):
    weights = weights_of(folder)
    name = "model.layers.3.attn.Wqkv.weight"
    safetensors.torch.save_file(weights | {name: weights[name][:24].clone()}, folder / "model.safetensors")
    assert f"{name} has shape (8, 12), but config.json asks for (12, 12)" in refusal(folder)


def test_the_head_of_another_task_is_left_out_with_a_warning(tmp_path: Path):
    model = filled(BertForTask(MODERN, head_for("classify")))
    save_model(model, tmp_path)
    change_config(tmp_path, architectures=["ModernBertForMultipleChoice"])
    with pytest.warns(UserWarning, match="the weights of the head 'classifier' are left out"):
        loaded = load_model(tmp_path)
    expected = Bert(MODERN, pooler=False)
    expected.load_state_dict({k: v for k, v in model.bert.state_dict().items() if not k.startswith("pooler.")})
    assert_same(loaded, expected)
