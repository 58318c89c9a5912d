import dataclasses
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.errors import UserError
from heedful.formats.marian import CONFIG_KEYS, OWN_KEYS, SHARED, load_transformer, save_transformer, their_name
from heedful.models.transformer import SHARES, Transformer, TransformerConfig
from heedful.nn.positions import sinusoidal

CONFIG = TransformerConfig(
    vocab_size=53, encoder_layers=2, decoder_layers=11, dim=10, heads=2, ffn_dim=13, max_length=17
)
SOURCE, TARGET, OUTPUT = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
POSITIONS = "model.encoder.embed_positions.weight"


def model(config: TransformerConfig = CONFIG, **changes: object) -> Transformer:
    made = Transformer(dataclasses.replace(config, **changes)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "model"
    save_transformer(model(), path)
    return path


def document_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def change_config(folder: Path, **changes: object) -> None:
    document = {key: value for key, value in (document_of(folder) | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")


def weights_of(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def change_weights(folder: Path, changes: dict[str, Tensor | None]) -> None:
    """What becomes None goes."""
    kept = {name: tensor for name, tensor in (weights_of(folder) | changes).items() if tensor is not None}
    safetensors.torch.save_file(kept, folder / "model.safetensors")


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_transformer(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def assert_same(one: Transformer, other: Transformer) -> None:
    left, right = one.state_dict(), other.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("pre_norm", [False, True])
def test_what_is_saved_is_loaded_to_the_bit(tmp_path: Path, pre_norm: bool, share: str, bias: bool):
    size = None if share == "all" else 59
    saved = model(pre_norm=pre_norm, share=share, target_vocab_size=size, output_bias=bias)
    save_transformer(saved, tmp_path / "new" / "folder")
    loaded = load_transformer(tmp_path / "new" / "folder")
    assert loaded.config == saved.config
    assert_same(loaded, saved)
    assert torch.equal(loaded.positions, saved.positions)
    assert not loaded.training
    assert all(parameter.requires_grad for parameter in loaded.parameters())


@settings(deadline=None, max_examples=20)
@given(
    heads=st.integers(1, 3),
    width=st.integers(1, 5),
    layers=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    ffn_dim=st.integers(1, 11),
    activation=st.sampled_from(["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]),
    dropout=st.floats(0, 0.9),
    attention_dropout=st.floats(0, 0.9),
    norm_eps=st.sampled_from([1e-5, 1e-6]),
    pre_norm=st.booleans(),
    share=st.sampled_from(SHARES),
    marks=st.permutations(range(7)),
)
def test_every_setting_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    heads: int,
    width: int,
    layers: tuple[int, int],
    marks: list[int],
    **others,
):
    pad, sos, eos, *_ = marks
    config = TransformerConfig(
        vocab_size=7,
        encoder_layers=layers[0],
        decoder_layers=layers[1],
        dim=heads * width,
        heads=heads,
        max_length=5,
        pad=pad,
        sos=sos,
        eos=eos,
        **others,
    )
    folder = tmp_path_factory.mktemp("model")
    saved = model(config)
    save_transformer(saved, folder)
    assert load_transformer(folder).config == config
    assert_same(load_transformer(folder), saved)


def test_every_field_of_the_config_has_a_name():
    """But for the two that say how large the tables are and which of them are one: these are settings of both."""
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    assert CONFIG_KEYS.keys() | OWN_KEYS.keys() | {"share", "target_vocab_size"} == fields


def test_every_parameter_has_its_own_name():
    for share in SHARES:
        names = list(model(share=share, pre_norm=True, output_bias=True).state_dict())
        assert len({their_name(name, share) for name in names}) == len(names)
    for ours, theirs in {
        "encoder.1.attention.query.bias": "model.encoder.layers.1.self_attn.q_proj.bias",
        "decoder.10.cross_attention.output.weight": "model.decoder.layers.10.encoder_attn.out_proj.weight",
        "decoder.0.cross_attention_norm.weight": "model.decoder.layers.0.encoder_attn_layer_norm.weight",
        "decoder_norm.bias": "model.decoder.layer_norm.bias",
        "source_embedding.weight": SHARED,
        "output_bias": "final_logits_bias",
    }.items():
        assert their_name(ours, "all") == theirs
    assert their_name("source_embedding.weight", "output") == SOURCE
    assert their_name("projection.weight", "none") == OUTPUT


def test_sines_come_before_cosines(folder: Path):
    """Ours alternate: our columns 0, 2, 4, 6, 8, then 1, 3, 5, 7, 9."""
    ours, theirs = model().state_dict(), weights_of(folder)
    order = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    assert torch.equal(theirs[SHARED], ours["source_embedding.weight"][:, order])
    layer, other = "encoder.1.", "model.encoder.layers.1."
    for one, two in (("attention.key", "self_attn.k_proj"), ("feed_forward.inner", "fc1")):  # these read the width
        assert torch.equal(theirs[f"{other}{two}.weight"], ours[f"{layer}{one}.weight"][:, order])
        assert torch.equal(theirs[f"{other}{two}.bias"], ours[f"{layer}{one}.bias"])
    for one, two in (
        ("attention.output", "self_attn.out_proj"),
        ("feed_forward.outer", "fc2"),
        ("feed_forward_norm", "final_layer_norm"),
    ):  # these write to it
        assert torch.equal(theirs[f"{other}{two}.weight"], ours[f"{layer}{one}.weight"][order])
        assert torch.equal(theirs[f"{other}{two}.bias"], ours[f"{layer}{one}.bias"][order])


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "marian"),
        ({"share": "none"}, "marian"),
        ({"pre_norm": True}, "pegasus"),
        ({"pre_norm": True, "share": "output"}, "heedful_transformer"),
        ({"norm_eps": 1e-6}, "heedful_transformer"),
        ({"pre_norm": True, "norm_eps": 1e-6}, "heedful_transformer"),
    ],
)
def test_a_model_is_called_what_it_equals(tmp_path: Path, changes: dict[str, object], kind: str):
    save_transformer(model(**changes), tmp_path)
    assert document_of(tmp_path)["model_type"] == kind


def test_the_files_are_those_of_transformers(folder: Path):
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
    ]
    document = document_of(folder)
    assert document["architectures"] == ["MarianMTModel"]
    assert (document["encoder_layers"], document["decoder_layers"]) == (2, 11)
    assert (document["encoder_ffn_dim"], document["decoder_ffn_dim"]) == (13, 13)
    assert (document["decoder_start_token_id"], document["eos_token_id"], document["pad_token_id"]) == (1, 2, 0)
    generation = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    assert generation["suppress_tokens"] == [0, 1]
    assert generation["max_length"] == 18  # a start more than there are positions: the end is never read
    assert generation["early_stopping"] == "never"


@pytest.mark.parametrize("share", ["all", "output"])
def test_a_table_that_is_stored_twice_may_not_differ(tmp_path: Path, share: str):
    save_transformer(model(share=share), tmp_path)
    table = weights_of(tmp_path)[SHARED if share == "all" else TARGET]
    change_weights(tmp_path, {OUTPUT: table.clone()})
    assert_same(load_transformer(tmp_path), model(share=share))
    change_weights(tmp_path, {OUTPUT: table + 1})
    first = SHARED if share == "all" else TARGET
    assert f"{OUTPUT} and {first} differ, but config.json says they are one table" in refusal(tmp_path)


def test_a_shared_table_may_have_any_of_its_names(folder: Path):
    table = weights_of(folder)[SHARED]
    change_weights(folder, {SHARED: None, SOURCE: table})
    assert_same(load_transformer(folder), model())


def test_two_sides_may_read_one_table_and_write_with_another(tmp_path: Path):
    """As older versions of transformers save it: what is read lies under its shared name."""
    saved = model(share="none")
    with torch.no_grad():
        saved.target_embedding.weight.copy_(saved.source_embedding.weight)
    save_transformer(saved, tmp_path)
    weights = weights_of(tmp_path)
    change_weights(tmp_path, {SOURCE: None, TARGET: None, SHARED: weights[SOURCE]})
    change_config(tmp_path, share_encoder_decoder_embeddings=True)
    assert_same(load_transformer(tmp_path), saved)


def test_positions_that_are_stored_must_be_the_sinusoids(folder: Path):
    table = sinusoidal(17, 10)[:, [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]].clone()
    change_weights(folder, {POSITIONS: table.half()})
    assert_same(load_transformer(folder), model())
    for other in (table + 0.1, sinusoidal(17, 10), torch.zeros(3)):
        change_weights(folder, {POSITIONS: other})
        said = f"{POSITIONS} is not the table of sinusoids; only models with those positions can be loaded"
        assert said in refusal(folder)


def test_a_bias_of_zeros_is_left_out_unless_the_folder_asks_for_it(tmp_path: Path):
    saved = model(output_bias=True)
    with torch.no_grad():
        saved.output_bias.zero_()
    save_transformer(saved, tmp_path)
    assert weights_of(tmp_path)["final_logits_bias"].shape == (1, 53)
    assert load_transformer(tmp_path).config.output_bias
    change_config(tmp_path, heedful=None)
    assert not load_transformer(tmp_path).config.output_bias
    change_weights(tmp_path, {"final_logits_bias": torch.ones(1, 53)})
    assert load_transformer(tmp_path).config.output_bias


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "t5"}, "holds a model of type 't5'; only marian, pegasus, heedful_transformer can be loaded"),
        ({"d_model": None}, "config.json has no d_model; the folder is damaged"),
        ({"decoder_start_token_id": None}, "config.json has no decoder_start_token_id; the folder is damaged"),
        ({"d_model": "ten"}, "d_model is 'ten' but must be of type int"),
        ({"encoder_layers": True}, "encoder_layers is True but must be of type int"),
        ({"eos_token_id": [2, 3]}, "eos_token_id is [2, 3] but must be of type int"),
        ({"decoder_ffn_dim": 7}, "encoder_ffn_dim 13 and decoder_ffn_dim 7 differ; only models with the same"),
        ({"decoder_attention_heads": 5}, "encoder_attention_heads 2 and decoder_attention_heads 5 differ"),
        ({"normalize_before": True}, "normalize_before is True; only a marian model that has it False can be loaded"),
        ({"normalize_embedding": True}, "normalize_embedding is True; only a marian model that has it False"),
        ({"scale_embedding": False}, "scale_embedding is False; only a marian model that has it True"),
        ({"activation_function": "tanh"}, "activation 'tanh' is not known; choose from gelu"),
        ({"max_position_embeddings": 0}, "max_length 0 must be at least 1"),
        ({"model_type": "heedful_transformer", "heedful": None}, "has no pre_norm; the folder is damaged"),
    ],
)
def test_a_config_that_cannot_be_loaded_says_why(folder: Path, changes: dict[str, object], said: str):
    change_config(folder, **changes)
    assert said in refusal(folder)


def test_swish_is_silu(tmp_path: Path):
    save_transformer(model(activation="silu"), tmp_path)
    change_config(tmp_path, activation_function="swish")
    assert load_transformer(tmp_path).config.activation == "silu"


def test_weights_that_do_not_fit_are_named_as_in_the_file(folder: Path):
    name = "model.decoder.layers.10.fc2.weight"
    weight = weights_of(folder)[name]
    change_weights(folder, {name: None})
    assert f"lacks the weights {name}" in refusal(folder)
    change_weights(folder, {name: torch.zeros(10, 14)})
    assert "model.decoder.layers.10.fc2.weight has shape (10, 14), but config.json asks for (10, 13)" in refusal(
        folder
    )
    change_weights(folder, {name: weight, "model.decoder.layers.11.fc2.bias": torch.zeros(10)})
    said = "has weights that no Transformer of its config.json has: model.decoder.layers.11.fc2.bias"
    assert said in refusal(folder)


def test_a_folder_without_a_model_is_refused(tmp_path: Path):
    assert "is not a model folder: there is no such folder" in refusal(tmp_path / "nowhere")
    assert "is not a model folder: it has no config.json" in refusal(tmp_path)
