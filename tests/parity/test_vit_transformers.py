"""Our ViT against transformers' on the same weights, in both directions through folders."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

from heedful.formats.vit import load_vit, read_vit_config, save_vit
from heedful.models.vit import ViT, ViTClassifier, ViTConfig, initialise
from heedful.nn.pixels import Pixels, normalised

TOLERANCE = 1e-5
SMALL = ViTConfig(image_size=20, patch_size=4, channels=3, layers=3, dim=34, heads=2, ffn_dim=53)
LABELS = ("ant", "bee", "cat", "dog", "elk", "fox", "gnu")


def fill_at_random(model: nn.Module) -> None:
    """Every parameter counts: biases are not zero, norms not one."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.15, generator=generator)
            if "norm" in name and name.endswith("weight"):
                parameter.add_(1.0)


def their_config(config: ViTConfig, **changes: object) -> transformers.ViTConfig:
    return transformers.ViTConfig(
        image_size=config.image_size,
        patch_size=config.patch_size,
        num_channels=config.channels,
        num_hidden_layers=config.layers,
        hidden_size=config.dim,
        num_attention_heads=config.heads,
        intermediate_size=config.ffn_dim,
        hidden_act=config.activation,
        layer_norm_eps=config.norm_eps,
        **changes,
    )


def theirs(kind: type[transformers.PreTrainedModel], config: ViTConfig = SMALL, **changes: object) -> nn.Module:
    model = kind(their_config(config, **changes)).eval()
    fill_at_random(model)
    return model


def ours(config: ViTConfig = SMALL) -> ViTClassifier:
    model = ViTClassifier(config, LABELS).eval()
    fill_at_random(model)
    return model


def opened_there(kind: type, folder: Path, **options: object) -> nn.Module:
    """The folder's model, which must fit exactly."""
    model, info = kind.from_pretrained(folder, output_loading_info=True, **options)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.eval()


def images(config: ViTConfig, count: int = 3, height: int | None = None, width: int | None = None) -> Tensor:
    size = (height or config.image_size, width or config.image_size)
    return torch.randn(count, config.channels, *size, generator=torch.Generator().manual_seed(sum(size)))


def gap(one: Tensor, other: Tensor) -> float:
    assert one.shape == other.shape
    assert other.abs().max() > 0.05  # else zeros would do
    return (one - other).abs().max().item()


@settings(deadline=None, max_examples=12)
@given(
    side=st.integers(1, 5),
    patch_size=st.integers(1, 5),
    channels=st.sampled_from([1, 3]),
    layers=st.integers(1, 3),
    heads=st.sampled_from([1, 2, 3, 5]),
    width=st.sampled_from([7, 11]),
    ffn_dim=st.sampled_from([13, 29]),
    activation=st.sampled_from(["gelu", "relu", "silu", "gelu_new"]),
    norm_eps=st.sampled_from([1e-12, 1e-5]),
)
@torch.inference_mode()
def test_states_are_theirs_whatever_the_sizes(
    tmp_path_factory: pytest.TempPathFactory,
    side: int,
    patch_size: int,
    channels: int,
    layers: int,
    heads: int,
    width: int,
    ffn_dim: int,
    activation: str,
    norm_eps: float,
):
    config = ViTConfig(
        image_size=side * patch_size,
        patch_size=patch_size,
        channels=channels,
        layers=layers,
        dim=heads * width,
        heads=heads,
        ffn_dim=ffn_dim,
        activation=activation,
        norm_eps=norm_eps,
    )
    folder = tmp_path_factory.mktemp("sizes")
    peer = theirs(transformers.ViTModel, config)
    peer.save_pretrained(folder)
    model = load_vit(folder)
    assert isinstance(model, ViT)
    assert model.config == config
    pixels = images(config)
    expected, found = peer(pixels), model(pixels)
    assert gap(found.hidden, expected.last_hidden_state) <= TOLERANCE
    assert gap(found.pooled, expected.pooler_output) <= TOLERANCE


@torch.inference_mode()
def test_every_size_of_image_gets_the_positions_that_it_gets_there(tmp_path: Path):
    peer = theirs(transformers.ViTForImageClassification, num_labels=7)
    peer.save_pretrained(tmp_path)
    model = load_vit(tmp_path)
    assert isinstance(model, ViTClassifier)
    for height, width in ((20, 20), (28, 28), (12, 12), (36, 16), (20, 8)):
        pixels = images(SMALL, 2, height, width)
        expected = peer(pixels, interpolate_pos_encoding=True).logits
        assert gap(model(pixels), expected) <= TOLERANCE, (height, width)


@torch.inference_mode()
def test_attention_weights_are_theirs(tmp_path: Path):
    save_vit(ours(), tmp_path)
    peer = opened_there(transformers.AutoModelForImageClassification, tmp_path, attn_implementation="eager")
    pixels = images(SMALL)
    expected = peer(pixels, output_attentions=True).attentions
    found = ours().vit(pixels, explain=True).weights
    assert found is not None
    assert len(found) == len(expected) == SMALL.layers
    for one, other in zip(found, expected, strict=True):
        assert one.shape == (3, SMALL.heads, 26, 26)
        assert gap(one, other) <= TOLERANCE


@torch.inference_mode()
def test_the_mean_of_patches_is_theirs_where_nobody_looks_at_cls(tmp_path: Path):
    """transformers has no ViT without `[CLS]`; one whose patches may not look at it has the same patches."""
    peer = theirs(transformers.ViTModel)
    peer.save_pretrained(tmp_path)
    state = load_vit(tmp_path).state_dict()
    without = {name: tensor for name, tensor in state.items() if not name.startswith(("cls", "pooler."))}
    model = ViT(dataclasses.replace(SMALL, pool="mean")).eval()
    model.load_state_dict(without | {"positions": state["positions"][1:]})
    pixels = images(SMALL)
    mask = torch.ones(3, 26, dtype=torch.long)
    mask[:, 0] = 0
    expected = peer(pixels, attention_mask=mask).last_hidden_state[:, 1:]
    found = model(pixels)
    assert gap(found.hidden, expected) <= TOLERANCE
    assert gap(found.pooled, expected.mean(1)) <= TOLERANCE


@pytest.mark.parametrize("channels", [1, 3])
@torch.inference_mode()
def test_our_folder_opens_there_and_answers_the_same(tmp_path: Path, channels: int):
    config = dataclasses.replace(
        SMALL,
        channels=channels,
        stochastic_depth=0.2,
        pixels=Pixels(mean=(0.3,), std=(0.25,), resample="bicubic"),
    )
    model = ours(config)
    save_vit(model, tmp_path)
    peer = opened_there(transformers.AutoModelForImageClassification, tmp_path)
    assert isinstance(peer, transformers.ViTForImageClassification)
    assert peer.config.id2label == dict(enumerate(LABELS))
    assert peer.config.label2id == {label: number for number, label in enumerate(LABELS)}
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    generator = np.random.default_rng(3)
    shape = (20, 20, 3) if channels == 3 else (20, 20)
    pictures = [generator.integers(0, 256, shape, dtype=np.uint8) for _ in range(2)]
    read = processor([Image.fromarray(picture) for picture in pictures], return_tensors="pt")["pixel_values"]
    bytes_ = torch.from_numpy(np.stack(pictures)).reshape(2, 20, 20, channels)
    pixels = normalised(bytes_, config.pixels)
    assert gap(pixels, read) <= TOLERANCE
    assert gap(model(pixels), peer(read).logits) <= TOLERANCE
    # A picture of another size arrives at the model's, by the resampling that the config names.
    large = Image.fromarray(generator.integers(0, 256, (45, 31, 3)[: len(shape)], dtype=np.uint8))
    resized = np.asarray(large.resize((20, 20), Image.Resampling.BICUBIC)).reshape(1, 20, 20, channels)
    read = processor(large, return_tensors="pt")["pixel_values"]
    assert gap(normalised(torch.from_numpy(resized.copy()), config.pixels), read) <= TOLERANCE


def test_a_crop_is_their_crop(tmp_path: Path):
    """The shorter side gets a length, the middle is cut out."""
    save_vit(ours(dataclasses.replace(SMALL, pixels=Pixels(edge=24))), tmp_path)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    picture = Image.fromarray(np.random.default_rng(5).integers(0, 256, (48, 96, 3), dtype=np.uint8))
    read = processor(picture, return_tensors="pt")["pixel_values"]
    small = np.asarray(picture.resize((48, 24), Image.Resampling.BILINEAR))[2:22, 14:34]
    assert gap(normalised(torch.from_numpy(small.copy())[None], Pixels()), read) <= TOLERANCE


@torch.inference_mode()
def test_bare_encoders_go_there_and_back(tmp_path: Path):
    for pooler in (True, False):
        model = ViT(SMALL, pooler=pooler).eval()
        fill_at_random(model)
        folder = tmp_path / str(pooler)
        save_vit(model, folder)
        peer = opened_there(transformers.ViTModel, folder, add_pooling_layer=pooler)
        pixels = images(SMALL)
        expected = peer(pixels)
        assert gap(model(pixels).hidden, expected.last_hidden_state) <= TOLERANCE
        if pooler:
            assert gap(model(pixels).pooled, expected.pooler_output) <= TOLERANCE
        peer.save_pretrained(tmp_path / f"{pooler} again")
        again = load_vit(tmp_path / f"{pooler} again")
        assert isinstance(again, ViT)
        assert (again.pooler is not None) is pooler
        for (name, one), other in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
            assert torch.equal(one, other), name


@torch.inference_mode()
def test_theirs_opens_here_however_it_was_written(tmp_path: Path):
    """Without biases of query, key and value; with the names of the modules in memory; in half precision."""
    pixels = images(SMALL)
    peer = theirs(transformers.ViTForImageClassification, qkv_bias=False, num_labels=7)
    expected = peer(pixels).logits
    peer.save_pretrained(tmp_path / "no biases")
    found = load_vit(tmp_path / "no biases")
    assert gap(found(pixels), expected) <= TOLERANCE
    assert found.labels == tuple(f"LABEL_{number}" for number in range(7))

    folder = tmp_path / "in memory"
    peer.save_pretrained(folder)
    safetensors.torch.save_file(peer.state_dict(), folder / "model.safetensors")
    names = safetensors.torch.load_file(folder / "model.safetensors")
    assert "vit.layers.0.attention.q_proj.weight" in names
    assert gap(load_vit(folder)(pixels), expected) <= TOLERANCE

    half = theirs(transformers.ViTForImageClassification, num_labels=7)
    expected = half(pixels).logits
    half.half().save_pretrained(tmp_path / "half")
    found = load_vit(tmp_path / "half")
    assert {parameter.dtype for parameter in found.parameters()} == {torch.float32}
    assert gap(found(pixels), expected) <= 1e-2


@torch.inference_mode()
def test_what_was_pretrained_by_hidden_patches_opens_as_an_encoder(tmp_path: Path):
    peer = theirs(transformers.ViTForMaskedImageModeling, encoder_stride=4)
    peer.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="are left out; only pretraining needs them") as said:
        model = load_vit(tmp_path)
    assert len(said) == 3  # the mask's token, and the decoder's weight and bias
    assert isinstance(model, ViT)
    pixels = images(SMALL)
    assert gap(model(pixels).hidden, peer.vit(pixels).last_hidden_state) <= TOLERANCE


def test_their_processor_is_understood(tmp_path: Path):
    theirs(transformers.ViTForImageClassification).save_pretrained(tmp_path)
    assert read_vit_config(tmp_path).pixels == Pixels()
    picture = np.random.default_rng(7).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    for changes in (
        {},
        {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225], "resample": 3},
        {"do_normalize": False},
        {"do_rescale": False, "image_mean": [120.0] * 3, "image_std": [60.0, 61.0, 62.0]},
        {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3},
    ):
        processor = ViTImageProcessorPil(size={"height": 20, "width": 20}, **changes)
        processor.save_pretrained(tmp_path)
        pixels = read_vit_config(tmp_path).pixels
        expected = processor(picture, return_tensors="pt")["pixel_values"]
        assert gap(normalised(torch.from_numpy(picture)[None], pixels), expected) <= 2e-5 * expected.abs().max()
        assert pixels.resample == ("bicubic" if "resample" in changes else "bilinear")


def test_a_start_is_as_theirs(tmp_path: Path):
    """The same spread of every weight, the same zeros and ones."""
    config = dataclasses.replace(SMALL, dim=102, image_size=40, init_std=0.02)
    transformers.ViTForImageClassification(their_config(config, num_labels=101)).save_pretrained(tmp_path)
    peer = load_vit(tmp_path)
    assert isinstance(peer, ViTClassifier)
    model = ViTClassifier(config, peer.labels)
    initialise(model, torch.Generator().manual_seed(3))
    drawn = 0
    for (name, found), expected in zip(model.named_parameters(), peer.parameters(), strict=True):
        if expected.unique().numel() == 1:
            assert torch.equal(found, expected), name
        else:
            drawn += 1
            assert found.std().item() == pytest.approx(expected.std().item(), rel=0.25), name
            assert found.std().item() == pytest.approx(0.02, rel=0.2), name
    assert drawn == 6 * SMALL.layers + 4


def test_a_folder_says_what_theirs_says(tmp_path: Path):
    """Every key that transformers writes for such a model is in ours, with the same value."""
    save_vit(ours(), tmp_path / "ours")
    changes: dict[str, object] = {"id2label": dict(enumerate(LABELS)), "encoder_stride": 4}
    changes["label2id"] = {label: number for number, label in enumerate(LABELS)}
    theirs(transformers.ViTForImageClassification, **changes).save_pretrained(tmp_path / "theirs")
    one, other = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("ours", "theirs"))
    other.pop("transformers_version")
    assert {key: one.get(key) for key in other} == other
