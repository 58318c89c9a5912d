"""ModernBERT folders: the encoder with all of its newer options, under the names that transformers has for it.

It has no pooler, no head for next sentences and no segments, and one matrix for query, key and value. Of its layers
only those are known here that look at the whole input; a folder with windows of local attention is refused.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.formats.documents import setting
from heedful.formats.weights import folded
from heedful.models.bert import Bert, BertConfig, BertForPretraining
from heedful.models.heads import BertForTask, Head

TYPE = "modernbert"
NAMES = {
    "bert.embeddings.tokens": "model.embeddings.tok_embeddings",
    "bert.embeddings.norm": "model.embeddings.norm",
    "bert.layers.#.attention.joined": "model.layers.#.attn.Wqkv",
    "bert.layers.#.attention.output": "model.layers.#.attn.Wo",
    "bert.layers.#.attention_norm": "model.layers.#.attn_norm",
    "bert.layers.#.feed_forward.inner": "model.layers.#.mlp.Wi",
    "bert.layers.#.feed_forward.outer": "model.layers.#.mlp.Wo",
    "bert.layers.#.feed_forward_norm": "model.layers.#.mlp_norm",
    "bert.final_norm": "model.final_norm",
    "output": "classifier",
}
"""Our modules and transformers'; # stands for the layer's number. Parameters keep their last name."""
PARAMETERS = {"mlm.decoder": "decoder.weight", "mlm.bias": "decoder.bias"}
"""The parameters whose last name differs too."""
TRANSFORM = "head."
"""What every head reads a state with: ours is of the head for words, of the pooler or of the head for tokens."""
OWN_TRANSFORMS = ("mlm.transform.", "bert.pooler.", "transform.")
THIRDS = ("query", "key", "value")
CONFIG_KEYS = {
    "vocab_size": "vocab_size",
    "layers": "num_hidden_layers",
    "dim": "hidden_size",
    "heads": "num_attention_heads",
    "ffn_dim": "intermediate_size",
    "max_length": "max_position_embeddings",
    "activation": "hidden_activation",
    "dropout": "mlp_dropout",
    "attention_dropout": "attention_dropout",
    "norm_eps": "norm_eps",
    "init_std": "initializer_range",
    "tied": "tie_word_embeddings",
    "pool": "classifier_pooling",
    "bias": "norm_bias",
}
BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")
"""What there are biases in; here, in all of them or in none."""
DEFAULTS: dict[str, Any] = {
    "num_hidden_layers": 22,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "hidden_activation": "gelu",
    "mlp_dropout": 0.0,
    "attention_dropout": 0.0,
    "norm_eps": 1e-5,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "classifier_pooling": "cls",
    "norm_bias": False,
}
"""What a folder means that says nothing."""
THETA, EVERY = 160_000.0, 3
"""The base of rotary positions, and which layers see everything, where a folder says nothing."""


def fits(model: Bert | BertForPretraining | BertForTask) -> bool:
    """Whether a model is a ModernBERT: its encoder is, and it has none of the heads that ModernBERT lacks."""
    if not model.config.modern:
        return False
    if isinstance(model, BertForTask):
        return True
    encoder = model if isinstance(model, Bert) else model.bert
    return encoder.pooler is None and (isinstance(model, Bert) or model.mlm is not None)


def document(config: BertConfig, like: str) -> dict[str, Any]:
    """What config.json says of a model whose BERT is called `like`, in the keys of old and new transformers."""
    base = config.rotary_base
    return {
        "architectures": [f"Modern{like}"],
        "model_type": TYPE,
        **{theirs: getattr(config, ours) for ours, theirs in CONFIG_KEYS.items()},
        **dict.fromkeys(BIASES, config.bias),
        "decoder_bias": True,
        "embedding_dropout": config.dropout,
        "classifier_dropout": config.dropout,
        "classifier_activation": config.activation,
        "layer_types": ["full_attention"] * config.layers,
        "global_attn_every_n_layers": 1,
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": base}},
        "global_rope_theta": base,
        "local_rope_theta": base,
        # The tokenizer beside it knows its own tokens; those that this type would assume are of another vocabulary.
        **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
    }


def read_config(folder: Path, document: Mapping[str, Any]) -> BertConfig:
    """The shape of the model in a folder, as long as it can be had here."""
    path = folder / "config.json"
    whole = DEFAULTS | {key: value for key, value in document.items() if value is not None}
    kinds = BertConfig.__annotations__
    known = {ours: setting(path, whole, theirs, kinds[ours]) for ours, theirs in CONFIG_KEYS.items()}
    layers = whole.get("layer_types")
    if layers is None:
        every = setting(path, {"global_attn_every_n_layers": EVERY, **whole}, "global_attn_every_n_layers", int)
        layers = ["full_attention" if number % max(1, every) == 0 else "local" for number in range(known["layers"])]
    if not isinstance(layers, list) or any(layer != "full_attention" for layer in layers):
        raise UserError(
            f"{folder} has layers with local attention, which is not known here; "
            "only a ModernBERT whose layers all see the whole input can be loaded"
        )
    for key in BIASES:
        if bool(whole.get(key, False)) != known["bias"]:
            raise UserError(
                f"{path}: {key} is {whole.get(key, False)} but norm_bias {known['bias']}; they must agree"
            )
    if not whole.get("decoder_bias", True):
        raise UserError(f"{path}: decoder_bias is false, but words are scored with a bias here")
    if whole.get("classifier_activation", "gelu") != known["activation"]:
        raise UserError(f"{path}: classifier_activation and hidden_activation differ, but must be one here")
    return BertConfig(
        **known,
        segments=0,
        pre_norm=True,
        positions="rotary",
        rotary_base=_base(path, whole),
        gated=True,
    )


def _base(path: Path, whole: Mapping[str, Any]) -> float:
    rope = whole.get("rope_parameters")
    rope = rope.get("full_attention", rope) if isinstance(rope, dict) else None
    rope = rope if isinstance(rope, dict) else {}
    scaled = whole.get("rope_scaling") is not None
    if scaled or rope.get("rope_type", "default") != "default":
        raise UserError(f"{path} scales its rotary positions, which is not known here")
    found = {"rope_theta": rope.get("rope_theta", whole.get("global_rope_theta", THETA))}
    return float(setting(path, found, "rope_theta", float))


def theirs(model: Bert | BertForPretraining | BertForTask) -> dict[str, Tensor]:
    """A model's weights under transformers' names."""
    bare = isinstance(model, Bert)
    own = folded(model.state_dict()) if model.config.segments == 1 else model.state_dict()
    state = {f"bert.{name}" if bare else name: tensor for name, tensor in own.items()}
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if ".attention.query." in name:
            parts = [state[name.replace(".query.", f".{third}.")] for third in THIRDS]
            name, tensor = name.replace(".query.", ".joined."), torch.cat(parts)
        elif ".attention.key." in name or ".attention.value." in name:
            continue
        found[their_name(name).removeprefix("model." if bare else "")] = tensor
    return found


def their_name(name: str) -> str:
    """transformers' name for one of our parameters."""
    if name in PARAMETERS:
        return PARAMETERS[name]
    for own in OWN_TRANSFORMS:
        if name.startswith(own):
            return TRANSFORM + name.removeprefix(own)
    name = re.sub(r"\.attention\.(query|key|value)\.", ".attention.joined.", name)
    module, _, ending = name.rpartition(".")
    number = re.search(r"\.(\d+)\.", module)
    their_module = NAMES.get(re.sub(r"\.\d+\.", ".#.", module), module)
    return f"{their_module.replace('#', number[1]) if number else their_module}.{ending}"


def ours(theirs: Mapping[str, Tensor], head: Head | None) -> dict[str, Tensor]:
    """A folder's weights under our names; a bare encoder's gain their prefix, one matrix becomes three."""
    bare = not any(name.startswith("model.") for name in theirs)
    back = {their: our for our, their in NAMES.items()}
    parameters = {their: our for our, their in PARAMETERS.items()}
    transform = OWN_TRANSFORMS[0 if head is None else 1 if head.reads_sequence else 2]
    words = any(name in theirs for name in PARAMETERS.values())
    weights: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        tensor = tensor.float()
        full = f"model.{name}" if bare and not name.startswith((TRANSFORM, "decoder.", "classifier.")) else name
        module, _, ending = full.rpartition(".")
        number = re.search(r"\.(\d+)\.", module)
        our_module = back.get(re.sub(r"\.\d+\.", ".#.", module), module)
        our_module = our_module.replace("#", number[1]) if number else our_module
        if full in parameters:
            weights[parameters[full]] = tensor
        elif full.startswith(TRANSFORM):
            if head is not None or words:
                weights[transform + full.removeprefix(TRANSFORM)] = tensor
        elif our_module.endswith(".joined"):
            size = max(1, math.ceil(len(tensor) / len(THIRDS)))
            for third, part in zip(THIRDS, tensor.split(size), strict=False):
                weights[f"{our_module.removesuffix('joined')}{third}.{ending}"] = part.clone()
        else:
            weights[f"{our_module}.{ending}"] = tensor
    return weights
