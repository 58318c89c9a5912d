"""A Transformer as a folder for ctranslate2, which decodes on CPUs and GPUs without torch.

The folder takes pieces of text and gives pieces: `ctranslate2.Translator(folder).translate_batch([pieces])`. Sources
go in without their end, which ctranslate2 appends (`add_source_eos`), and targets come out without start and end.
What a search must never write is no part of the folder: pass the pad and the start as `suppress_sequences`, whose
probability ctranslate2 then shares out among the other tokens. A `patience` as large as the beam and a
`min_decoding_length` of 0 make its search the one of `decode`, to the last hypothesis and score; the largest
`max_decoding_length` that it can reach is the model's positions.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data.bitext import Marks
from heedful.durable import new_folder
from heedful.errors import UserError
from heedful.models.transformer import Transformer
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import DecoderLayer, EncoderLayer, FeedForward

Spec = Any
"""A part of ctranslate2's specification, whose attributes get arrays though they start as other things."""

KEY = "heedful"
"""Where a folder's config.json holds its card."""

ACTIVATIONS = {
    "gelu": "GELU",
    "gelu_new": "GELUTanh",
    "gelu_pytorch_tanh": "GELUTanh",
    "relu": "RELU",
    "silu": "SWISH",
}
"""Our names and ctranslate2's."""


class Card(NamedTuple):
    """What a folder must say besides, to be used here."""

    longest: int
    """Most tokens of a source or a target."""
    marks: Marks
    weights: str | None
    """The digest of the file with the weights that it was made from."""


def export_ctranslate2(
    model: Transformer,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    folder: Path,
    *,
    int8: bool,
    unk: int = 3,
    weights: str | None = None,
) -> None:
    """Write a new folder: all of it or nothing. With `int8`, matrices have 8 bits and a scale for each row.

    The tokens are the pieces of each id; `unk` is the one that stands for pieces that nobody knows. `weights` is the
    digest of the file that the model was read from, by which an old folder is known as such.
    """
    if not isinstance(model, Transformer):
        raise UserError("ctranslate2 runs Transformers only; decode this model with torch")
    require()
    config = model.config
    for side, tokens, size in (
        ("source", source_tokens, config.vocab_size),
        ("target", target_tokens, config.target_size),
    ):
        if len(tokens) != size:
            raise UserError(f"{len(tokens):,} {side} tokens don't fit a model that knows {size:,}; give one for each")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UserError(f"{folder} exists already; move it away, or choose another folder")
    spec = _spec(model)
    spec.register_source_vocabulary(list(source_tokens))
    spec.register_target_vocabulary(list(target_tokens))
    marks = {
        "unk_token": target_tokens[unk],
        "bos_token": target_tokens[config.sos],
        "eos_token": target_tokens[config.eos],
        "decoder_start_token": target_tokens[config.sos],
        "add_source_eos": True,
        "layer_norm_epsilon": config.norm_eps,
    }
    for key, value in marks.items():
        setattr(spec.config, key, value)
    card = Card(config.max_length - 1, Marks(config.pad, config.sos, config.eos), weights)
    spec.config.add_attribute(KEY, card._asdict())  # ctranslate2 passes over what it does not know
    spec.validate()
    spec.optimize("int8" if int8 else "float32")
    with new_folder(folder) as aside:
        spec.save(str(aside))


def read_card(folder: Path) -> Card | None:
    """What a folder that was written here says of itself; None of any other."""
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8"))[KEY]
        return Card(int(found["longest"]), Marks(*found["marks"]), found["weights"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_tokens(folder: Path) -> tuple[list[str], list[str]]:
    """The pieces of each id, of the source and of the target."""
    names = ("shared_vocabulary.json",) * 2
    if not (folder / names[0]).is_file():
        names = ("source_vocabulary.json", "target_vocabulary.json")
    source, target = (json.loads((folder / name).read_text(encoding="utf-8")) for name in names)
    return source, target


def all_tokens(pieces: Sequence[str], size: int) -> list[str]:
    """A name for each of `size` ids: those that have no piece get one that nobody writes."""
    return [*pieces, *(f"<unused {number}>" for number in range(len(pieces), size))]


def require() -> None:
    """An error that says what to install, unless ctranslate2 is there."""
    try:
        import ctranslate2.specs  # noqa: F401
    except ImportError:
        raise UserError("ctranslate2 is not installed; pip install 'heedful[ctranslate2]'") from None


def _spec(model: Transformer) -> Spec:
    """The model's weights where ctranslate2 looks for them."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    config = model.config
    spec: Spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.pre_norm,
        activation=Activation[ACTIVATIONS[config.activation]],
        alignment_layer=model.aligning_layer,
        alignment_heads=config.heads,
    )
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_table.weight)
    for side, norm in ((spec.encoder, model.encoder_norm), (spec.decoder, model.decoder_norm)):
        side.position_encodings.encodings = _array(model.positions)
        if norm is not None:
            _norm(side.layer_norm, norm)
    spec.decoder.projection.weight = _array(model.output_table)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    for layer, place in zip(model.encoder, spec.encoder.layer, strict=True):
        assert isinstance(layer, EncoderLayer)
        assert isinstance(layer.attention, MultiHeadAttention)
        assert isinstance(layer.attention_norm, nn.LayerNorm)
        _self_attention(place.self_attention, layer.attention, layer.attention_norm)
        _feed_forward(place.ffn, layer.feed_forward, layer.feed_forward_norm)
    for layer, place in zip(model.decoder, spec.decoder.layer, strict=True):
        assert isinstance(layer, DecoderLayer)
        _self_attention(place.self_attention, layer.attention, layer.attention_norm)
        _cross_attention(place.attention, layer.cross_attention, layer.cross_attention_norm)
        _feed_forward(place.ffn, layer.feed_forward, layer.feed_forward_norm)
    return spec


def _self_attention(place: Spec, attention: MultiHeadAttention, norm: nn.LayerNorm) -> None:
    _linear(place.linear[0], attention.query, attention.key, attention.value)
    _linear(place.linear[1], attention.output)
    _norm(place.layer_norm, norm)


def _cross_attention(place: Spec, attention: MultiHeadAttention, norm: nn.LayerNorm) -> None:
    _linear(place.linear[0], attention.query)
    _linear(place.linear[1], attention.key, attention.value)
    _linear(place.linear[2], attention.output)
    _norm(place.layer_norm, norm)


def _feed_forward(place: Spec, feed_forward: FeedForward, norm: nn.LayerNorm) -> None:
    _linear(place.linear_0, feed_forward.inner)
    _linear(place.linear_1, feed_forward.outer)
    _norm(place.layer_norm, norm)


def _linear(place: Spec, *linears: nn.Linear) -> None:
    """One linear layer, or several that read the same, one after the other."""
    place.weight = _array(torch.cat([linear.weight for linear in linears]))
    place.bias = _array(torch.cat([linear.bias for linear in linears]))


def _norm(place: Spec, norm: nn.LayerNorm) -> None:
    place.gamma, place.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    """A copy, since ctranslate2 rounds to 8 bits in place."""
    return tensor.detach().float().cpu().numpy().copy()
