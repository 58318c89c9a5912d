"""ViT folders in Hugging Face's layout: `config.json`, `preprocessor_config.json` and `model.safetensors` with
transformers' names.

This file holds the one table of names. What transformers' ViT cannot be (the mean of the patches, a stem, shifted
patches, locality) gets a model type of its own with our own names, so that nobody opens it there and gets other
numbers.
"""

import dataclasses
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.formats.documents import read_document, read_labels, setting, write_document, write_weights
from heedful.formats.preprocessor import read_preprocessor, write_preprocessor
from heedful.formats.weights import check_weights, read_weights
from heedful.models.vit import ViT, ViTClassifier, ViTConfig

TYPE, OWN_TYPE = "vit", "heedful_vit"
TYPES = (TYPE, OWN_TYPE)
"""The types of model that this module opens."""
OWN_NOTE = "options that no architecture of transformers equals; heedful opens it"
NAMES = {
    "vit.patches.projection": "vit.embeddings.patch_embeddings.projection",
    "vit.layers.#.attention.query": "vit.encoder.layer.#.attention.attention.query",
    "vit.layers.#.attention.key": "vit.encoder.layer.#.attention.attention.key",
    "vit.layers.#.attention.value": "vit.encoder.layer.#.attention.attention.value",
    "vit.layers.#.attention.output": "vit.encoder.layer.#.attention.output.dense",
    "vit.layers.#.attention_norm": "vit.encoder.layer.#.layernorm_before",
    "vit.layers.#.feed_forward.inner": "vit.encoder.layer.#.intermediate.dense",
    "vit.layers.#.feed_forward.outer": "vit.encoder.layer.#.output.dense",
    "vit.layers.#.feed_forward_norm": "vit.encoder.layer.#.layernorm_after",
    "vit.final_norm": "vit.layernorm",
    "vit.pooler": "vit.pooler.dense",
    "output": "classifier",
}
"""Our modules and transformers'; # stands for the layer's number. Parameters keep their last name."""
PARAMETERS = {"vit.cls": "vit.embeddings.cls_token", "vit.positions": "vit.embeddings.position_embeddings"}
"""The parameters whose last name differs too, and that have axes of one before them."""
PATCHES = "vit.patches.projection.weight"
"""Of a convolution there, of a product here: the same numbers in another shape."""
IN_MEMORY = {
    "vit.layers.#.attention.q_proj": "vit.layers.#.attention.query",
    "vit.layers.#.attention.k_proj": "vit.layers.#.attention.key",
    "vit.layers.#.attention.v_proj": "vit.layers.#.attention.value",
    "vit.layers.#.attention.o_proj": "vit.layers.#.attention.output",
    "vit.layers.#.layernorm_before": "vit.layers.#.attention_norm",
    "vit.layers.#.mlp.fc1": "vit.layers.#.feed_forward.inner",
    "vit.layers.#.mlp.fc2": "vit.layers.#.feed_forward.outer",
    "vit.layers.#.layernorm_after": "vit.layers.#.feed_forward_norm",
}
"""What newer versions of transformers call their modules, though they write the older names; and ours."""
FOREIGN = ("vit.embeddings.mask_token", "decoder.")
"""What only pretraining by hidden patches needs."""
QKV_BIASES = tuple(f"attention.{part}.bias" for part in ("query", "key", "value"))
CONFIG_KEYS = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "channels": "num_channels",
    "layers": "num_hidden_layers",
    "dim": "hidden_size",
    "heads": "num_attention_heads",
    "ffn_dim": "intermediate_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
    "init_std": "initializer_range",
}
DEFAULTS: dict[str, Any] = {theirs: getattr(ViTConfig(), ours) for ours, theirs in CONFIG_KEYS.items()}
"""What a folder means that says nothing: in both libraries the published base."""
EXTRA = "stochastic_depth"
"""What our folders say besides, which transformers passes over: it matters in training alone."""


def save_vit(model: ViT | ViTClassifier, folder: str | Path) -> None:
    """Write `config.json`, `preprocessor_config.json` and `model.safetensors`, the last when the others are there."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config, published = model.config, opens_elsewhere(model)
    architecture = "ViTForImageClassification" if isinstance(model, ViTClassifier) else "ViTModel"
    document = {
        "architectures": [architecture if published else f"Heedful{architecture}"],
        "model_type": TYPE if published else OWN_TYPE,
        "dtype": "float32",
        **(_published(config) if published else {"note": OWN_NOTE, **_fields(config)}),
    }
    if isinstance(model, ViTClassifier):
        document["id2label"] = dict(enumerate(model.labels))
        document["label2id"] = {label: number for number, label in enumerate(model.labels)}
    write_document(folder / "config.json", document)
    write_preprocessor(folder, config.pixels, config.image_size, config.channels)
    write_weights(folder, _theirs(model) if published else model.state_dict())


def load_vit(folder: str | Path) -> ViT | ViTClassifier:
    """The model in a ViT's folder, ours or anyone's, ready to use: with the head and the pooler that its weights
    have."""
    folder = Path(folder)
    document = read_document(folder)
    config = _config(folder, document)
    weights = read_weights(folder)
    own = document["model_type"] == OWN_TYPE
    if not own:
        weights = _ours(weights, config)
    head = weights.get("output.weight")
    with torch.device("meta"):
        if head is None:
            weights = {name.removeprefix("vit."): tensor for name, tensor in weights.items()}
            model = ViT(config, pooler="pooler.weight" in weights)
        else:  # an old version keeps a pooler that nothing reads
            weights = {name: tensor for name, tensor in weights.items() if not name.startswith("vit.pooler.")}
            model = ViTClassifier(config, read_labels(folder, document, len(head)))
    prefix = "" if isinstance(model, ViTClassifier) else "vit."
    check_weights(
        folder,
        weights,
        {name: tensor.shape for name, tensor in model.state_dict().items()},
        "ViT",
        lambda name: name if own else their_name(prefix + name).removeprefix(prefix),
    )
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, assign=True)
    for parameter in model.parameters():
        parameter.requires_grad_()
    return model.eval()


def read_vit_config(folder: str | Path) -> ViTConfig:
    """The shape of the model in a folder, and how pictures become what it reads."""
    return _config(Path(folder), read_document(Path(folder)))


def opens_elsewhere(model: ViT | ViTClassifier) -> bool:
    """Whether transformers has an architecture that equals the model's."""
    return model.config.published


def their_name(name: str) -> str:
    """transformers' name for one of our parameters; its own where there is none."""
    return PARAMETERS.get(name) or _renamed(name, NAMES)


def _published(config: ViTConfig) -> dict[str, Any]:
    return {
        **{theirs: getattr(config, ours) for ours, theirs in CONFIG_KEYS.items()},
        "qkv_bias": True,
        "encoder_stride": config.patch_size,
        "pooler_act": "tanh",
        "pooler_output_size": config.dim,
        "heedful": {EXTRA: getattr(config, EXTRA)},
    }


def _fields(config: ViTConfig) -> dict[str, Any]:
    """Every setting under our own name, but those that `preprocessor_config.json` has."""
    return {name: value for name, value in dataclasses.asdict(config).items() if name != "pixels"}


def _config(folder: Path, document: dict[str, Any]) -> ViTConfig:
    path, kind = folder / "config.json", document.get("model_type")
    if kind not in TYPES:
        raise UserError(f"{folder} holds a model of type {kind!r}; only {' and '.join(TYPES)} can be loaded")
    kinds = ViTConfig.__annotations__
    if kind == OWN_TYPE:
        names = [field.name for field in dataclasses.fields(ViTConfig) if field.name != "pixels"]
        known = {name: setting(path, document, name, kinds[name]) for name in names}
    else:
        whole = DEFAULTS | {key: value for key, value in document.items() if value is not None}
        for key in ("image_size", "patch_size"):
            whole[key] = _square(path, key, whole[key])
        known = {ours: setting(path, whole, theirs, kinds[ours]) for ours, theirs in CONFIG_KEYS.items()}
        extra = document.get("heedful")
        if isinstance(extra, dict) and EXTRA in extra:
            known[EXTRA] = setting(path, extra, EXTRA, float)
        if document.get("pooler_act", "tanh") != "tanh":
            raise UserError(f"{path}: pooler_act is {document['pooler_act']!r}; only poolers with tanh can be loaded")
    pixels = read_preprocessor(folder)
    try:
        return ViTConfig(**known, pixels=pixels)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _square(path: Path, key: str, value: object) -> object:
    """One number for both sides; transformers allows two."""
    if not isinstance(value, list):
        return value
    if len(value) != 2 or value[0] != value[1]:
        raise UserError(f"{path}: {key} is {value!r}; only square images and patches can be loaded")
    return value[0]


def _theirs(model: ViT | ViTClassifier) -> dict[str, Tensor]:
    """The weights under transformers' names and in its shapes."""
    prefix = "vit." if isinstance(model, ViT) else ""
    config = model.config
    weights = {}
    for name, tensor in model.state_dict().items():
        full = prefix + name
        if full == PATCHES:
            tensor = tensor.view(config.dim, config.channels, config.patch_size, config.patch_size)
        elif full in PARAMETERS:
            tensor = tensor.view(1, -1, config.dim)
        weights[their_name(full).removeprefix(prefix)] = tensor
    return weights


def _ours(theirs: Mapping[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
    """The weights under our names and in our shapes, with the prefix of an encoder that has a head."""
    bare = not any(name.startswith("vit.") for name in theirs)
    back = {their: our for our, their in NAMES.items()} | IN_MEMORY
    parameters = {their: our for our, their in PARAMETERS.items()}
    weights = {}
    for name, tensor in theirs.items():
        full = f"vit.{name}" if bare and not name.startswith(("classifier.", *FOREIGN)) else name
        if full.startswith(FOREIGN):
            warnings.warn(f"the weights {name!r} are left out; only pretraining needs them", stacklevel=3)
            continue
        ours = parameters.get(full) or _renamed(full, back)
        if ours == PATCHES:
            tensor = tensor.flatten(1) if tensor.dim() > 1 else tensor
        elif ours == "vit.cls":
            tensor = tensor.flatten()
        elif ours == "vit.positions":
            tensor = tensor.flatten(0, -2) if tensor.dim() > 1 else tensor
        weights[ours] = tensor
    for number in range(config.layers):  # they can be left out there (qkv_bias); nothing is what zeros add
        keys = [f"vit.layers.{number}.{ending}" for ending in QKV_BIASES]
        if not any(key in weights for key in keys):
            weights |= {key: torch.zeros(config.dim) for key in keys}
    return weights


def _renamed(name: str, modules: Mapping[str, str]) -> str:
    """A parameter's name with its module renamed, if the module is known."""
    module, _, ending = name.rpartition(".")
    number = re.search(r"\.(\d+)\.", module + ".")
    pattern = re.sub(r"\.\d+\.", ".#.", module)
    if pattern not in modules:
        return name
    return f"{modules[pattern].replace('#', number[1]) if number else modules[pattern]}.{ending}"
