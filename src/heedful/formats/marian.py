"""Encoder-decoder folders in Hugging Face's layout: Marian as published, Pegasus where the norms come first.

This file holds the one table of names. transformers' sinusoids put all sines before all cosines, ours alternate: the
width of the residuals is permuted on the way out and back, which changes no number that the model gives. What neither
of the two can be (norms first with several tables, norms with another epsilon) gets a model type of its own, which
only this file opens.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.formats.documents import read_document, setting, write_document, write_weights
from heedful.formats.weights import check_weights, read_weights
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.nn.positions import sinusoidal

OWN_TYPE = "heedful_transformer"
ARCHITECTURES = {
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    OWN_TYPE: "HeedfulTransformer",
}
"""What transformers calls the types of model that are read and written here."""

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_BLOCK = {
    **{f"attention.{ours}": f"self_attn.{theirs}" for ours, theirs in _ATTENTION.items()},
    "attention_norm": "self_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
_SECOND = {
    **{f"cross_attention.{ours}": f"encoder_attn.{theirs}" for ours, theirs in _ATTENTION.items()},
    "cross_attention_norm": "encoder_attn_layer_norm",
}
NAMES = {
    **{f"encoder.#.{ours}": f"model.encoder.layers.#.{theirs}" for ours, theirs in _BLOCK.items()},
    **{f"decoder.#.{ours}": f"model.decoder.layers.#.{theirs}" for ours, theirs in (_BLOCK | _SECOND).items()},
    "encoder_norm": "model.encoder.layer_norm",
    "decoder_norm": "model.decoder.layer_norm",
}
"""Our modules and transformers'; # stands for the layer's number. Parameters keep their last name."""

SHARED, BIAS = "model.shared.weight", "final_logits_bias"
_SOURCE, _TARGET, _OUTPUT = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"
TABLES = {
    "all": {"source_embedding.weight": (SHARED, _SOURCE, _TARGET, _OUTPUT)},
    "output": {"source_embedding.weight": (_SOURCE,), "target_embedding.weight": (_TARGET, _OUTPUT)},
    "none": {
        "source_embedding.weight": (_SOURCE, SHARED),
        "target_embedding.weight": (_TARGET, SHARED),
        "projection.weight": (_OUTPUT,),
    },
}
"""By what is shared, the names that each table may have in a file; the first is the one that is written."""

CONFIG_KEYS = {
    "vocab_size": "vocab_size",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "dim": "d_model",
    "heads": "encoder_attention_heads",
    "ffn_dim": "encoder_ffn_dim",
    "activation": "activation_function",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "max_length": "max_position_embeddings",
    "pad": "pad_token_id",
    "sos": "decoder_start_token_id",
    "eos": "eos_token_id",
}
TWINS = {"encoder_attention_heads": "decoder_attention_heads", "encoder_ffn_dim": "decoder_ffn_dim"}
"""What transformers lets differ between the two sides, and we don't."""
OWN_KEYS = {"pre_norm": bool, "norm_eps": float, "output_bias": bool}
"""What our folders say besides, which transformers passes over."""
NORM_EPS = 1e-5
"""The epsilon that every norm of transformers' two models has."""
EXPECTED = {"scale_embedding": (True, False), "normalize_embedding": (False, False)}
"""What these settings must be, and what they are where nothing is said."""
LONGEST = 512
"""Tokens after which transformers' search stops, if nobody says otherwise; it often goes that far."""
NEAR = 2e-3
"""How far a stored table of positions may be from the sinusoids; half precision rounds that much."""


def save_transformer(model: Transformer, folder: str | Path, *, never: Sequence[int] = ()) -> None:
    """Write `config.json`, `generation_config.json` and `model.safetensors`, the last when the others are there.

    `never` is what `generate` should not write, besides padding and the start.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config
    kind = _model_type(config)
    document = {
        "architectures": [ARCHITECTURES[kind]],
        "model_type": kind,
        "is_encoder_decoder": True,
        "dtype": "float32",
        **{theirs: getattr(config, ours) for ours, theirs in CONFIG_KEYS.items()},
        "decoder_attention_heads": config.heads,
        "decoder_ffn_dim": config.ffn_dim,
        "decoder_vocab_size": config.target_size,
        "share_encoder_decoder_embeddings": config.share == "all",
        "tie_word_embeddings": config.share != "none",
        "scale_embedding": True,
        "normalize_before": config.pre_norm,
        "static_position_embeddings": True,
        "forced_eos_token_id": config.eos,
        "heedful": {key: getattr(config, key) for key in OWN_KEYS},
    }
    weights = {
        their_name(name, config.share): _permuted(name, tensor, _order(config.dim))
        for name, tensor in model.state_dict().items()
    }
    if BIAS in weights:
        weights[BIAS] = weights[BIAS][None]  # (1, V)
    if kind == "pegasus":  # it asks for them, though it knows them
        positions = model.positions.index_select(1, _order(config.dim).to(model.positions.device))
        weights |= {f"model.{side}.embed_positions.weight": positions.clone() for side in ("encoder", "decoder")}
    write_document(folder / "config.json", document)
    write_document(folder / "generation_config.json", _generation(config, never))
    write_weights(folder, weights)


def load_transformer(folder: str | Path) -> Transformer:
    """The Transformer in a folder, ours or anyone's Marian or Pegasus, ready to use."""
    folder = Path(folder)
    document = read_document(folder)
    config = _config(folder, document)
    theirs = read_weights(folder)
    if not any(name.startswith("model.") for name in theirs):  # saved without what scores the vocabulary
        theirs = {f"model.{name}": tensor for name, tensor in theirs.items()}
    if BIAS in theirs and (config.output_bias or bool(theirs[BIAS].any())):
        config = dataclasses.replace(config, output_bias=True)
    weights = _ours(folder, theirs, config)
    with torch.device("meta"):
        model = Transformer(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    check_weights(folder, weights, shapes, "Transformer", lambda name: their_name(name, config.share))
    order = _order(config.dim).argsort()
    model.load_state_dict({name: _permuted(name, tensor, order) for name, tensor in weights.items()}, assign=True)
    model.positions = sinusoidal(config.max_length, config.dim)
    for parameter in model.parameters():
        parameter.requires_grad_()
    return model.eval()


def their_name(name: str, share: str) -> str:
    """transformers' name for one of our parameters; its own where we have none."""
    if name in TABLES[share]:
        return TABLES[share][name][0]
    if name == "output_bias":
        return BIAS
    return _renamed(name, NAMES)


def _renamed(name: str, modules: Mapping[str, str]) -> str:
    """A parameter's name with its module renamed, if the module is known."""
    module, _, ending = name.rpartition(".")
    number = re.search(r"\.(\d+)\.", module)
    pattern = re.sub(r"\.\d+\.", ".#.", module)
    if pattern not in modules:
        return name
    return f"{modules[pattern].replace('#', number[1]) if number else modules[pattern]}.{ending}"


def _order(dim: int) -> Tensor:
    """Where each of transformers' columns stands among ours: the sines, then the cosines."""
    return torch.cat([torch.arange(0, dim, 2), torch.arange(1, dim, 2)])


def _permuted(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    """A parameter with the width of the residuals in another order."""
    module, _, ending = name.rpartition(".")
    order = order.to(tensor.device)
    if module.endswith(("norm", "attention.output", "feed_forward.outer")):  # writes to the residuals
        return tensor.index_select(0, order)
    return tensor.index_select(1, order) if ending == "weight" else tensor


def _model_type(config: TransformerConfig) -> str:
    if config.norm_eps != NORM_EPS or (config.pre_norm and config.share != "all"):
        return OWN_TYPE
    return "pegasus" if config.pre_norm else "marian"


def _generation(config: TransformerConfig, never: Sequence[int]) -> dict[str, Any]:
    """What makes transformers search as we do: five beams, the mean score of a token, nothing given up early.

    Its lengths count the start and the end, and it searches to the last step that could still matter.
    """
    return {
        "num_beams": 5,
        "length_penalty": 1.0,
        "early_stopping": "never",
        "max_length": min(config.max_length + 1, LONGEST),
        "decoder_start_token_id": config.sos,
        "eos_token_id": config.eos,
        "forced_eos_token_id": config.eos,
        "pad_token_id": config.pad,
        "suppress_tokens": sorted({config.pad, config.sos, *never}),
    }


def _config(folder: Path, document: dict[str, Any]) -> TransformerConfig:
    path, kind = folder / "config.json", document.get("model_type")
    if kind not in ARCHITECTURES:
        raise UserError(f"{folder} holds a model of type {kind!r}; only {', '.join(ARCHITECTURES)} can be loaded")
    kinds = TransformerConfig.__annotations__
    known = {ours: setting(path, document, theirs, kinds[ours]) for ours, theirs in CONFIG_KEYS.items()}
    for one, other in TWINS.items():
        if document.get(other, document[one]) != document[one]:
            raise UserError(
                f"{path}: {one} {document[one]} and {other} {document[other]} differ; "
                "only models with the same on both sides can be loaded"
            )
    own = document.get("heedful") if isinstance(document.get("heedful"), dict) else {}
    assert isinstance(own, dict)
    if kind == OWN_TYPE:
        known |= {key: setting(path, own, key, kind) for key, kind in OWN_KEYS.items()}
    else:
        known |= {"pre_norm": kind == "pegasus", "norm_eps": NORM_EPS, "output_bias": bool(own.get("output_bias"))}
    expected = EXPECTED | {"normalize_before": (known["pre_norm"], known["pre_norm"])}
    for key, (wanted, assumed) in expected.items():
        if bool(document.get(key, assumed)) != wanted:
            raise UserError(f"{path}: {key} is {not wanted}; only a {kind} model that has it {wanted} can be loaded")
    known["activation"] = {"swish": "silu"}.get(known["activation"], known["activation"])
    tied = document.get("tie_word_embeddings", True)
    shared = document.get("share_encoder_decoder_embeddings", True)
    target = document.get("decoder_vocab_size") or known["vocab_size"]
    try:
        return TransformerConfig(
            **known,
            share=("all" if shared else "output") if tied else "none",
            target_vocab_size=None if target == known["vocab_size"] else target,
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _ours(folder: Path, theirs: Mapping[str, Tensor], config: TransformerConfig) -> dict[str, Tensor]:
    """The weights under our names, still in transformers' order; what says a thing twice must say the same."""
    left = {name: tensor.float() for name, tensor in theirs.items()}
    for name in [name for name in left if name.endswith("embed_positions.weight")]:
        _check_positions(folder, name, left.pop(name))
    weights = {}
    bias = left.pop(BIAS, None)
    if bias is not None and config.output_bias:
        weights["output_bias"] = bias.flatten()
    for ours, names in TABLES[config.share].items():
        found = [name for name in names if name in left]
        if found:
            weights[ours] = left[found[0]]
        for name in found[1:]:
            if config.share != "none" and not torch.equal(left[name], left[found[0]]):
                raise UserError(f"{folder}: {name} and {found[0]} differ, but config.json says they are one table")
    for name in (SHARED, _SOURCE, _TARGET, _OUTPUT):
        left.pop(name, None)
    back = {their: our for our, their in NAMES.items()}
    return weights | {_renamed(name, back): tensor for name, tensor in left.items()}


def _check_positions(folder: Path, name: str, table: Tensor) -> None:
    """Make sure that a stored table of positions is the one that we compute."""
    if table.dim() == 2:
        rows, dim = table.shape
        if torch.allclose(table, sinusoidal(rows, dim).index_select(1, _order(dim)), rtol=0.0, atol=NEAR):
            return
    raise UserError(f"{folder}: {name} is not the table of sinusoids; only models with those positions can be loaded")
