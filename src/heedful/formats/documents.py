"""The two files that every model folder has: `config.json`, and the weights beside it.

Knows nothing of what a family of models calls its settings.
"""

import json
import shlex
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from heedful.durable import write_file
from heedful.errors import UserError
from heedful.formats import word2vec

WAY_OUT = "name the folder that a training command wrote, or one of Hugging Face's layout"


def require_folder(folder: Path) -> None:
    """Refuse a name that no folder has."""
    if not folder.is_dir():
        why = "it is a file" if folder.exists() else "there is no such folder"
        raise UserError(f"{folder} is not a model folder: {why}; {WAY_OUT}")


def read_document(folder: Path) -> dict[str, Any]:
    """A folder's config.json, which says at least what type of model it is."""
    path, quoted = folder / "config.json", shlex.quote(str(folder))
    require_folder(folder)
    if not path.is_file() and (folder / word2vec.FILE).is_file():
        raise UserError(
            f"{folder} holds word vectors, not a model; ask them with `heedful nearest {quoted} WORD`, "
            f"or set them beside a model with `heedful contrast MODEL TEXT TEXT --word WORD --vectors {quoted}`"
        )
    if not path.is_file() and (folder / "heedful.toml").is_file():
        raise UserError(f"{folder} holds a run that is not finished; `heedful info {quoted}` says how to go on")
    if not path.is_file():
        raise UserError(f"{folder} is not a model folder: it has no config.json; {WAY_OUT}")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); the folder is damaged") from None
    return document if isinstance(document, dict) else {}


def setting(path: Path, document: Mapping[str, Any], key: str, kind: type) -> Any:
    """A value of a config.json, whose type is checked; whole numbers serve as fractions."""
    value = document.get(key)
    if value is None:
        raise UserError(f"{path} has no {key}; the folder is damaged")
    fits = isinstance(value, int | float if kind is float else kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"{path}: {key} is {value!r} but must be of type {kind.__name__}")
    return value


def read_labels(folder: Path, document: Mapping[str, Any], outputs: int) -> tuple[str, ...]:
    """The names that a config.json has for a head's outputs, or those that transformers would make up.

    In NFC as the labels of data are, unless two names differ in nothing else.
    """
    names = document.get("id2label")
    if not isinstance(names, dict) or len(names) != outputs:
        names = {str(number): f"LABEL_{number}" for number in range(outputs)}
    try:
        labels = tuple(str(names[str(number)]) for number in range(outputs))
    except KeyError as error:
        raise UserError(f"{folder / 'config.json'}: id2label has no {error}; the folder is damaged") from None
    if len(set(labels)) < outputs:
        twice = next(label for label in labels if labels.count(label) > 1)
        raise UserError(f"{folder / 'config.json'}: id2label has {twice!r} twice; give every output its own name")
    composed = tuple(unicodedata.normalize("NFC", label) for label in labels)
    return composed if len(set(composed)) == outputs else labels


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON for people to read."""
    write_file(path, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())


def write_weights(folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write `model.safetensors` in full precision; it takes its name when it is whole."""
    whole = {name: tensor.detach().float().cpu().contiguous() for name, tensor in weights.items()}
    write_file(folder / "model.safetensors", safetensors.torch.save(whole, {"format": "pt"}))
