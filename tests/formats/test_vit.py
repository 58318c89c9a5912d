import dataclasses
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import heedful
from heedful.errors import UserError
from heedful.formats.vit import NAMES, load_vit, opens_elsewhere, read_vit_config, save_vit, their_name
from heedful.models.vit import ViT, ViTClassifier, ViTConfig
from heedful.nn.pixels import Pixels

CONFIG = ViTConfig(
    image_size=12,
    patch_size=4,
    channels=3,
    layers=2,
    dim=22,
    heads=2,
    ffn_dim=17,
    dropout=0.1,
    attention_dropout=0.2,
    stochastic_depth=0.3,
    norm_eps=1e-6,
    init_std=0.05,
    pixels=Pixels(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), resample="lanczos", edge=13),
)
LABELS = ("개미", "bee", "cat", "dog", "elk")
OPTIONS = {
    "mean": {"pool": "mean"},
    "shifted": {"shifted_patches": True},
    "stem": {"convolutional_stem": True},
    "local": {"locality": True},
    "several": {"pool": "mean", "shifted_patches": True, "locality": True},
}


def document_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def change(folder: Path, name: str = "config.json", **changes: object) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def weights_of(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def write_weights(folder: Path, weights: dict[str, Tensor]) -> None:
    safetensors.torch.save_file(weights, folder / "model.safetensors")


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load_vit(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def assert_same(one: nn.Module, other: nn.Module) -> None:
    left, right = one.state_dict(), other.state_dict()
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_vit(ViTClassifier(CONFIG, LABELS), tmp_path)
    return tmp_path


@pytest.mark.parametrize("options", [{}, *OPTIONS.values()], ids=["plain", *OPTIONS])
def test_a_model_comes_back_to_the_bit(tmp_path: Path, options: dict):
    config = dataclasses.replace(CONFIG, **options)
    pixels = torch.randn(3, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    for number, model in enumerate((ViTClassifier(config, LABELS), ViT(config), ViT(config, pooler=True))):
        saved, folder = model.eval(), tmp_path / str(number)
        save_vit(saved, folder)
        before = torch.get_rng_state()
        loaded = load_vit(folder)
        assert torch.equal(torch.get_rng_state(), before)
        assert type(loaded) is type(saved)
        assert loaded.config == read_vit_config(folder) == config
        assert_same(loaded, saved)
        assert not loaded.training
        assert all(parameter.requires_grad for parameter in loaded.parameters())
        if isinstance(loaded, ViTClassifier):
            assert loaded.labels == LABELS
        with torch.no_grad():
            found, expected = loaded(pixels), saved(pixels)
        assert torch.equal(found[0], expected[0])
        assert sorted(path.name for path in folder.iterdir()) == [
            "config.json",
            "model.safetensors",
            "preprocessor_config.json",
        ]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_has_no_equal_says_so(tmp_path: Path, options: dict):
    """transformers must not open it as its own ViT, and get other numbers."""
    model = ViTClassifier(dataclasses.replace(CONFIG, **options), LABELS)
    assert not opens_elsewhere(model)
    save_vit(model, tmp_path)
    document = document_of(tmp_path)
    assert document["model_type"] == "heedful_vit"
    assert document["architectures"] == ["HeedfulViTForImageClassification"]
    assert document["note"] == "options that no architecture of transformers equals; heedful opens it"
    assert {name: document[name] for name in options} == options


def test_the_published_one_has_its_name(folder: Path):
    assert opens_elsewhere(ViT(CONFIG))
    document = document_of(folder)
    assert (document["model_type"], document["architectures"]) == ("vit", ["ViTForImageClassification"])
    assert document["heedful"] == {"stochastic_depth": 0.3}
    assert document["id2label"] == {str(number): label for number, label in enumerate(LABELS)}
    weights = weights_of(folder)
    assert weights["vit.embeddings.patch_embeddings.projection.weight"].shape == (22, 3, 4, 4)
    assert weights["vit.embeddings.cls_token"].shape == (1, 1, 22)
    assert weights["vit.embeddings.position_embeddings"].shape == (1, 10, 22)
    assert {their_name(name) for name in ViTClassifier(CONFIG, LABELS).state_dict()} == weights.keys()
    assert len(set(NAMES.values())) == len(NAMES)


def test_any_folder_is_opened_by_the_type_it_names(folder: Path):
    model = heedful.load_model(folder)
    assert isinstance(model, ViTClassifier)
    heedful.save_model(model, folder / "again")
    assert_same(load_vit(folder / "again"), model)


def test_what_a_folder_does_not_say_is_the_published_base(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "vit"}', encoding="utf-8")
    assert read_vit_config(tmp_path) == ViTConfig()
    assert ViTConfig() == ViTConfig.of_size("base")


def test_both_sides_may_be_given_if_they_are_the_same(folder: Path):
    change(folder, image_size=[12, 12], patch_size=[4, 4])
    assert load_vit(folder).config == CONFIG


def test_an_old_pooler_beside_a_head_is_left_out(folder: Path):
    saved = load_vit(folder)
    more = {"vit.pooler.dense.weight": torch.zeros(22, 22), "vit.pooler.dense.bias": torch.zeros(22)}
    write_weights(folder, weights_of(folder) | more)
    assert_same(load_vit(folder), saved)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "deit"}, "holds a model of type 'deit'; only vit and heedful_vit can be loaded"),
        ({"hidden_size": 22.5}, "config.json: hidden_size is 22.5 but must be of type int"),
        ({"hidden_act": "tanh"}, "config.json: activation 'tanh' is not known; choose from gelu"),
        ({"image_size": [12, 16]}, "config.json: image_size is [12, 16]; only square images and patches"),
        ({"patch_size": [4]}, "config.json: patch_size is [4]; only square images and patches"),
        ({"patch_size": 5}, "config.json: patch_size 5 does not divide image_size 12; choose from 1, 2, 3, 4, 6, 12"),
        ({"image_size": "large"}, "config.json: image_size is 'large' but must be of type int"),
        ({"pooler_act": "relu"}, "config.json: pooler_act is 'relu'; only poolers with tanh can be loaded"),
        (
            {"heedful": {"stochastic_depth": "deep"}},
            "config.json: stochastic_depth is 'deep' but must be of type float",
        ),
        ({"heedful": {"stochastic_depth": 2}}, "config.json: stochastic_depth 2 must be at least 0 and below 1"),
        ({"id2label": {str(number): "ant" for number in range(5)}}, "config.json: id2label has 'ant' twice"),
        ({"id2label": {str(number): str(number) for number in (0, 1, 2, 3, 5)}}, "config.json: id2label has no '4'"),
        ({"num_channels": 1}, "config.json: mean has 3 numbers, but images have channels 1; give one for all"),
        ({"num_hidden_layers": 3}, "lacks the weights vit.encoder.layer.2."),
        (
            {"num_hidden_layers": 1},
            "has weights that no ViT of its config.json has: vit.encoder.layer.1.attention.attention.key.bias, ",
        ),
        (
            {"image_size": 16},
            "vit.embeddings.position_embeddings has shape (10, 22), but config.json asks for (17, 22)",
        ),
    ],
)
def test_a_config_that_cannot_be_loaded_says_why(folder: Path, changes: dict[str, object], said: str):
    change(folder, **changes)
    assert said in refusal(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dim": None}, "config.json has no dim; the folder is damaged"),
        ({"locality": 1}, "config.json: locality is 1 but must be of type bool"),
        ({"pool": "max"}, "config.json: pool 'max' is not known"),
        ({"convolutional_stem": True}, "lacks the weights vit.patches.stages.0.0.weight"),
    ],
)
def test_one_of_our_own_type_too(tmp_path: Path, changes: dict[str, object], said: str):
    save_vit(ViTClassifier(dataclasses.replace(CONFIG, pool="mean"), LABELS), tmp_path)
    change(tmp_path, **changes)
    assert said in refusal(tmp_path)


def test_weights_that_do_not_fit_are_named(folder: Path):
    whole = weights_of(folder)
    for name in ("vit.embeddings.cls_token", "vit.encoder.layer.1.attention.attention.key.bias", "classifier.bias"):
        write_weights(folder, {key: tensor for key, tensor in whole.items() if key != name})
        assert f"lacks the weights {name}" in refusal(folder)
    write_weights(folder, whole | {"vit.layernorm.weight": torch.ones(3)})
    assert "vit.layernorm.weight has shape (3,), but config.json asks for (22,)" in refusal(folder)
    for name in ("vit.embeddings.patch_embeddings.projection.weight", "vit.embeddings.position_embeddings"):
        write_weights(folder, whole | {name: torch.ones(3)})
        assert f"{name} has shape (3,)" in refusal(folder)
    write_weights(folder, whole | {"vit.more": torch.ones(3)})
    assert "has weights that no ViT of its config.json has: vit.more" in refusal(folder)


def test_a_folder_that_is_none(tmp_path: Path):
    assert "there is no such folder" in refusal(tmp_path / "nowhere")
    assert "it has no config.json" in refusal(tmp_path)
    save_vit(ViT(CONFIG), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 11)
    assert "is truncated, corrupted or not a safetensors file" in refusal(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert "has no weights" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert "config.json is not valid JSON" in refusal(tmp_path)
