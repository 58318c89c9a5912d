"""The tables of weights in a folder: safetensors, alone or in parts, or an old pickle read without running code."""

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from heedful.errors import UserError


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor that a folder holds, by name."""
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
