import dataclasses
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import heedful
from heedful.errors import UserError
from heedful.formats.folders import LOADERS, Model, kind_of
from heedful.formats.translators import load_translator, save_translator
from heedful.models.bert import Bert, BertConfig
from heedful.models.rnn import CELLS, Rnn, RnnConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.models.vit import ViT, ViTConfig
from heedful.nn.scores import SCORES

RNN = RnnConfig(vocab_size=31, layers=2, dim=14, max_length=11)
TRANSFORMER = TransformerConfig(
    vocab_size=31, encoder_layers=1, decoder_layers=1, dim=14, heads=2, ffn_dim=17, max_length=11
)
VIT = ViTConfig(image_size=6, patch_size=3, layers=1, dim=14, heads=2, ffn_dim=17)
MODELS = {
    "bert": Bert(BertConfig(vocab_size=31, layers=1, dim=14, heads=2, ffn_dim=17, max_length=11)),
    "marian": Transformer(TRANSFORMER),
    "pegasus": Transformer(dataclasses.replace(TRANSFORMER, pre_norm=True)),
    "heedful_transformer": Transformer(dataclasses.replace(TRANSFORMER, norm_eps=1e-6)),
    "heedful_rnn": Rnn(RNN),
    "vit": ViT(VIT),
    "heedful_vit": ViT(dataclasses.replace(VIT, pool="mean")),
}
TRANSLATORS = ("marian", "pegasus", "heedful_transformer", "heedful_rnn")


def document_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def assert_same(one: nn.Module, other: nn.Module) -> None:
    left, right = one.state_dict(), other.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_translator(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


@pytest.mark.parametrize("kind", MODELS)
def test_a_folder_is_opened_by_the_type_it_names(tmp_path: Path, kind: str):
    model: Model = MODELS[kind]
    heedful.save_model(model, tmp_path)
    assert document_of(tmp_path)["model_type"] == kind
    loaded = heedful.load_model(tmp_path)
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    assert_same(loaded, model)
    assert not loaded.training


def test_every_type_is_opened_by_somebody():
    assert LOADERS.keys() == MODELS.keys() | {"heedful_bert", "heedful_mixed_bert", "modernbert"}


def test_an_unknown_type_is_refused_with_those_that_are_known(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    with pytest.raises(UserError) as caught:
        heedful.load_model(tmp_path)
    known = (
        "bert, modernbert, heedful_bert, heedful_mixed_bert, marian, pegasus, heedful_transformer, heedful_rnn, vit, "
        "heedful_vit"
    )
    said = f"{tmp_path} holds a model of type 'gpt2'; those that can be loaded are {known}"
    assert str(caught.value) == said
    (tmp_path / "config.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match="holds a model of type None"):
        heedful.load_model(tmp_path)


@pytest.mark.parametrize("kind", MODELS)
def test_a_folder_tells_what_it_is_good_for(tmp_path: Path, kind: str):
    heedful.save_model(MODELS[kind], tmp_path)
    expected = "translator" if kind in TRANSLATORS else "image classifier" if "vit" in kind else "encoder"
    assert kind_of(tmp_path) == expected


def test_a_folder_of_another_kind_tells_nothing(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    with pytest.raises(UserError, match="holds a model of type 'gpt2'"):
        kind_of(tmp_path)


@pytest.mark.parametrize("kind", TRANSLATORS)
def test_translators_are_saved_and_opened(tmp_path: Path, kind: str):
    model = MODELS[kind]
    assert isinstance(model, Transformer | Rnn)
    save_translator(model, tmp_path)
    assert_same(load_translator(tmp_path), model)


def test_a_bert_is_no_translator(tmp_path: Path):
    heedful.save_model(MODELS["bert"], tmp_path)
    known = "marian, pegasus, heedful_transformer, heedful_rnn"
    assert refusal(tmp_path) == (
        f"{tmp_path} holds a model of type 'bert', which does not translate; those that do are {known}"
    )


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("cell", CELLS)
def test_every_rnn_comes_back_to_the_bit(tmp_path: Path, cell: str, score: str):
    config = dataclasses.replace(
        RNN, cell=cell, score=score, share="none", target_vocab_size=29, embedding_dim=13, dropout=0.3, init_range=0.2
    )
    saved = Rnn(config).eval()
    save_translator(saved, tmp_path)
    loaded = load_translator(tmp_path)
    assert loaded.config == config
    assert_same(loaded, saved)
    source = torch.randint(3, 29, (3, 7), generator=torch.Generator().manual_seed(1))
    target = torch.randint(3, 29, (3, 5), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(source, dtype=torch.bool)
    with torch.no_grad():
        assert torch.equal(loaded(source, mask, target), saved(source, mask, target))
    assert all(parameter.requires_grad for parameter in loaded.parameters())


@pytest.mark.parametrize("kind", ["marian", "heedful_rnn"])
def test_opening_a_folder_draws_no_random_numbers(tmp_path: Path, kind: str):
    heedful.save_model(MODELS[kind], tmp_path)
    before = torch.get_rng_state()
    heedful.load_model(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dim": None}, "config.json has no dim; the folder is damaged"),
        ({"dim": 14.5}, "config.json: dim is 14.5 but must be of type int"),
        ({"target_vocab_size": "many"}, "config.json: target_vocab_size is 'many' but must be of type int"),
        ({"bidirectional": 1}, "config.json: bidirectional is 1 but must be of type bool"),
        ({"cell": "rnn"}, "config.json: cell 'rnn' is not known; choose from lstm, gru"),
    ],
)
def test_an_rnns_config_that_cannot_be_loaded_says_why(tmp_path: Path, changes: dict[str, object], said: str):
    save_translator(Rnn(RNN), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(document_of(tmp_path) | changes), encoding="utf-8")
    assert said in refusal(tmp_path)


def test_an_rnns_weights_that_do_not_fit_are_named(tmp_path: Path):
    save_translator(Rnn(RNN), tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    join = weights.pop("join.weight")
    safetensors.torch.save_file(weights, tmp_path / "model.safetensors")
    assert "lacks the weights join.weight" in refusal(tmp_path)
    safetensors.torch.save_file(weights | {"join.weight": join[:3]}, tmp_path / "model.safetensors")
    assert "join.weight has shape (3, 28), but config.json asks for (14, 28)" in refusal(tmp_path)
    safetensors.torch.save_file(weights | {"join.weight": join, "more": join.clone()}, tmp_path / "model.safetensors")
    assert "has weights that no RNN of its config.json has: more" in refusal(tmp_path)
