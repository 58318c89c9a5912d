"""Folders of the recurrent encoder-decoder: `config.json` and `model.safetensors`, both with our own names.

No library of the ecosystem has such a model, so there is no other layout to follow.
"""

import dataclasses
from pathlib import Path
from typing import Any

import torch

from heedful.errors import UserError
from heedful.formats.documents import read_document, setting, write_document, write_weights
from heedful.formats.weights import check_weights, read_weights
from heedful.models.rnn import Rnn, RnnConfig

RNN_TYPE = "heedful_rnn"


def save_rnn(model: Rnn, folder: str | Path) -> None:
    """Write `config.json` and `model.safetensors`; the weights take their name last, when they are whole."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    document = {"architectures": ["HeedfulRnn"], "model_type": RNN_TYPE, "is_encoder_decoder": True}
    write_document(folder / "config.json", document | dataclasses.asdict(model.config))
    write_weights(folder, model.state_dict())


def load_rnn(folder: str | Path) -> Rnn:
    """The model in a folder, ready to use."""
    folder = Path(folder)
    config = _config(folder, read_document(folder))
    weights = read_weights(folder)
    with torch.device("meta"):
        model = Rnn(config)
    check_weights(folder, weights, {name: tensor.shape for name, tensor in model.state_dict().items()}, "RNN")
    model.to_empty(device="cpu")
    model.load_state_dict(weights)
    return model.eval()


def _config(folder: Path, document: dict[str, Any]) -> RnnConfig:
    kind = document.get("model_type")
    if kind != RNN_TYPE:
        raise UserError(f"{folder} holds a model of type {kind!r}; only {RNN_TYPE!r} can be loaded")
    known = {}
    for field in dataclasses.fields(RnnConfig):
        optional = field.type == (int | None)
        if not optional or document.get(field.name) is not None:
            of_type = int if optional else field.type
            assert isinstance(of_type, type)
            known[field.name] = setting(folder / "config.json", document, field.name, of_type)
    try:
        return RnnConfig(**known)
    except UserError as error:
        raise UserError(f"{folder / 'config.json'}: {error}") from None
