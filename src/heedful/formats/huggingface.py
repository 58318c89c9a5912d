"""BERT folders in Hugging Face's layout: `config.json` and `model.safetensors` with transformers' names.

This file holds the one table of names. Weights are read as safetensors, or from an old `pytorch_model.bin`
with `weights_only=True`, so that no code ever runs from a file.
"""

import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from heedful.durable import write_file
from heedful.errors import UserError
from heedful.models.bert import Bert, BertConfig, BertForPretraining

NAMES = {
    "bert.embeddings.tokens": "bert.embeddings.word_embeddings",
    "bert.embeddings.positions": "bert.embeddings.position_embeddings",
    "bert.embeddings.segments": "bert.embeddings.token_type_embeddings",
    "bert.embeddings.norm": "bert.embeddings.LayerNorm",
    "bert.layers.#.attention.query": "bert.encoder.layer.#.attention.self.query",
    "bert.layers.#.attention.key": "bert.encoder.layer.#.attention.self.key",
    "bert.layers.#.attention.value": "bert.encoder.layer.#.attention.self.value",
    "bert.layers.#.attention.output": "bert.encoder.layer.#.attention.output.dense",
    "bert.layers.#.attention_norm": "bert.encoder.layer.#.attention.output.LayerNorm",
    "bert.layers.#.feed_forward.inner": "bert.encoder.layer.#.intermediate.dense",
    "bert.layers.#.feed_forward.outer": "bert.encoder.layer.#.output.dense",
    "bert.layers.#.feed_forward_norm": "bert.encoder.layer.#.output.LayerNorm",
    "bert.pooler": "bert.pooler.dense",
    "mlm.dense": "cls.predictions.transform.dense",
    "mlm.norm": "cls.predictions.transform.LayerNorm",
    "mlm": "cls.predictions",
    "nsp": "cls.seq_relationship",
}
"""Our modules and transformers'; # stands for the layer's number. Parameters keep their last name."""

PARAMETERS = {"mlm.decoder": "cls.predictions.decoder.weight"}
"""The parameters whose last name differs too."""

WORD_BIASES = ("cls.predictions.bias", "cls.predictions.decoder.bias")
"""Two names of one bias. Where the decoder is tied transformers adds the first, else the second."""

OLD_ENDINGS = {"gamma": "weight", "beta": "bias"}
FOREIGN_HEADS = ("classifier.", "qa_outputs.")
CONFIG_KEYS = {
    "vocab_size": "vocab_size",
    "layers": "num_hidden_layers",
    "dim": "hidden_size",
    "heads": "num_attention_heads",
    "ffn_dim": "intermediate_size",
    "max_length": "max_position_embeddings",
    "segments": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
    "init_std": "initializer_range",
    "tied": "tie_word_embeddings",
}


def load_model(folder: str | Path) -> Bert | BertForPretraining:
    """The model in a BERT folder, ours or anyone's, ready to use: with the heads that its weights have."""
    folder = Path(folder)
    config = read_config(folder)
    weights = _ours(_read_weights(folder), config.tied)
    mlm, nsp = "mlm.bias" in weights, "nsp.weight" in weights
    pooler = "bert.pooler.weight" in weights
    if nsp and not pooler:
        raise UserError(f"{folder} has a next-sentence head but no pooler to feed it; its weights are incomplete")
    with torch.device("meta"):
        model = BertForPretraining(config, mlm=mlm, nsp=nsp, pooler=pooler)
    _check(folder, weights, model)
    model.load_state_dict(weights, assign=True)
    for parameter in model.parameters():
        parameter.requires_grad_()
    model.eval()
    return model if mlm or nsp else model.bert


def save_model(model: Bert | BertForPretraining, folder: str | Path) -> None:
    """Write `config.json` and `model.safetensors`; the weights take their name last, when they are whole."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {ours: getattr(model.config, ours) for ours in CONFIG_KEYS}
    document = {
        "architectures": [_architecture(model)],
        "model_type": "bert",
        "pad_token_id": 0,
        "dtype": "float32",
        **{theirs: config[ours] for ours, theirs in CONFIG_KEYS.items()},
    }
    write_file(folder / "config.json", (json.dumps(document, indent=2) + "\n").encode())
    prefix = "bert." if isinstance(model, Bert) else ""
    weights = {
        their_name(prefix + name).removeprefix(prefix): tensor.detach().float().cpu().contiguous()
        for name, tensor in model.state_dict().items()
    }
    if not model.config.tied and WORD_BIASES[0] in weights:
        weights[WORD_BIASES[1]] = weights[WORD_BIASES[0]].clone()
    write_file(folder / "model.safetensors", safetensors.torch.save(weights, {"format": "pt"}))


def their_name(name: str) -> str:
    """transformers' name for one of our parameters."""
    if name in PARAMETERS:
        return PARAMETERS[name]
    module, _, ending = name.rpartition(".")
    number = re.search(r"\.(\d+)\.", module)
    their_module = NAMES[re.sub(r"\.\d+\.", ".#.", module)]
    return f"{their_module.replace('#', number[1]) if number else their_module}.{ending}"


def read_config(folder: Path) -> BertConfig:
    """The shape of the model in a folder."""
    path = folder / "config.json"
    if not folder.is_dir():
        raise UserError(f"{folder} is not a model folder: there is no such folder")
    if not path.is_file():
        raise UserError(f"{folder} is not a model folder: it has no config.json")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); the folder is damaged") from None
    kind = document.get("model_type") if isinstance(document, dict) else None
    if kind != "bert":
        raise UserError(f"{folder} holds a model of type {kind!r}; only 'bert' can be loaded")
    if document.get("position_embedding_type", "absolute") != "absolute":
        raise UserError(
            f"{folder} uses {document['position_embedding_type']} positions; only absolute ones are known"
        )
    if document.get("is_decoder"):
        raise UserError(f"{folder} is a decoder; only encoders can be loaded")
    known = {ours: document[theirs] for ours, theirs in CONFIG_KEYS.items() if document.get(theirs) is not None}
    if "vocab_size" not in known:
        raise UserError(f"{path} has no vocab_size; the folder is damaged")
    for ours, value in known.items():
        kind = BertConfig.__annotations__[ours]
        if not isinstance(value, int | float if kind is float else kind):
            raise UserError(f"{path}: {CONFIG_KEYS[ours]} is {value!r} but must be of type {kind.__name__}")
    return BertConfig(**known)


def _architecture(model: Bert | BertForPretraining) -> str:
    if isinstance(model, Bert):
        return "BertModel"
    if model.mlm is not None and model.nsp is not None:
        return "BertForPreTraining"
    return "BertForMaskedLM" if model.mlm is not None else "BertForNextSentencePrediction"


def _read_weights(folder: Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        parts = _read_index(index)
        return {name: tensor for part in parts for name, tensor in _read_safetensors(folder / part).items()}
    if (folder / "model.safetensors").is_file():
        return _read_safetensors(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").is_file():
        return _read_pickle(folder / "pytorch_model.bin")
    raise UserError(f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin")


def _read_index(path: Path) -> list[str]:
    """The names of the files that the weights are spread over."""
    try:
        parts = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
        return sorted(Path(part).name for part in parts)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UserError(f"{path} is not an index of weights; copy the folder again") from None


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path} is missing, though the folder's index names it; copy the folder again") from None
    except safetensors.SafetensorError as error:
        raise UserError(
            f"{path} is truncated, corrupted or not a safetensors file ({error}); copy or save it again"
        ) from None


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged file raises anything from IndexError to struct.error
        raise UserError(
            f"{path} is damaged or a pickle that holds more than tensors, and loading it could run code; "
            "save it again as model.safetensors"
        ) from None
    if not isinstance(weights, Mapping) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise UserError(f"{path} is not a table of tensors; save the model's weights as model.safetensors")
    return dict(weights)


def _ours(theirs: Mapping[str, Tensor], tied: bool) -> dict[str, Tensor]:
    """The weights under our names: a bare encoder's gain their prefix, old endings are renewed."""
    bare = not any(name.startswith("bert.") for name in theirs)
    back = {their: our for our, their in NAMES.items()} | {their: our for our, their in PARAMETERS.items()}
    bias = next((name for name in WORD_BIASES[:: 1 if tied else -1] if name in theirs), None)
    for head in sorted({name.split(".")[0] for name in theirs if name.startswith(FOREIGN_HEADS)}):
        warnings.warn(f"the weights of the head {head!r} are left out", stacklevel=3)
    weights: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        full = f"bert.{name}" if bare and not name.startswith(("cls.", *FOREIGN_HEADS)) else name
        if full.startswith(FOREIGN_HEADS):
            continue
        if full == bias:
            full = WORD_BIASES[0]
        elif full in WORD_BIASES or full.endswith("position_ids"):
            continue  # a second name; a buffer of old versions
        module, _, ending = full.rpartition(".")
        number = re.search(r"\.(\d+)\.", module)
        pattern = re.sub(r"\.\d+\.", ".#.", module)
        if full in back:
            our_name = back[full]
        elif pattern in back:
            our_module = back[pattern].replace("#", number[1]) if number else back[pattern]
            our_name = f"{our_module}.{OLD_ENDINGS.get(ending, ending)}"
        else:
            our_name = full
        weights[our_name] = tensor.float()
    return weights


def _check(folder: Path, weights: dict[str, Tensor], model: nn.Module) -> None:
    """Make the weights fit the model exactly, or say which do not."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if "mlm.decoder" not in shapes:
        weights.pop("mlm.decoder", None)  # tied: a second copy of the token embeddings
    missing, unknown = sorted(shapes.keys() - weights.keys()), sorted(weights.keys() - shapes.keys())
    if missing:
        raise UserError(f"{folder} lacks the weights {_listed([their_name(name) for name in missing])}")
    if unknown:
        listed = _listed([_their_name_if_any(name) for name in unknown])
        raise UserError(f"{folder} has weights that no BERT of its config.json has: {listed}")
    for name, shape in shapes.items():
        if weights[name].shape != shape:
            raise UserError(
                f"{folder}: {their_name(name)} has shape {tuple(weights[name].shape)}, "
                f"but config.json asks for {tuple(shape)}"
            )


def _their_name_if_any(name: str) -> str:
    try:
        return their_name(name)
    except KeyError:
        return name


def _listed(names: list[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
