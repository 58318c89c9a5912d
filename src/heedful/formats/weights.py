"""The tables of weights in a folder: safetensors, alone or in parts, or an old pickle read without running code."""

import errno
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from heedful.errors import UserError


def read_weights(folder: Path, *, outline: bool = False) -> dict[str, Tensor]:
    """Every tensor that a folder holds, by name; for an `outline` their shapes, and no numbers."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        parts = _read_index(index)
        return {name: tensor for part in parts for name, tensor in _read_safetensors(folder / part, outline).items()}
    if (folder / "model.safetensors").is_file():
        return _read_safetensors(folder / "model.safetensors", outline)
    if (folder / "pytorch_model.bin").is_file():
        return _read_pickle(folder / "pytorch_model.bin", outline)
    raise UserError(f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin")


def folded(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A model's parameters with the vector of its only segment as a part of every token's own.

    Where these score words too, all scores change alike.
    """
    (segments,) = (name for name in state if name.endswith("embeddings.segments.weight"))
    tokens = segments.replace(".segments.", ".tokens.")
    others = {name: tensor for name, tensor in state.items() if name != segments}
    return others | {tokens: state[tokens] + state[segments]}


def _read_index(path: Path) -> list[str]:
    """The names of the files that the weights are spread over."""
    try:
        parts = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
        return sorted(Path(part).name for part in parts)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise UserError(f"{path} is not an index of weights; copy the folder again") from None


def _read_safetensors(path: Path, outline: bool) -> dict[str, Tensor]:
    try:
        if not outline:
            return safetensors.torch.load_file(path)
        with safetensors.safe_open(path, "pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (not a dict)
        return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    except FileNotFoundError:
        if path.is_file():  # which is said of one that may not be read, too
            raise PermissionError(errno.EACCES, "it may not be read", str(path)) from None
        raise UserError(f"{path} is missing, though the folder's index names it; copy the folder again") from None
    except safetensors.SafetensorError as error:
        raise UserError(
            f"{path} is truncated, corrupted or not a safetensors file ({error}); copy or save it again"
        ) from None


def _read_pickle(path: Path, outline: bool) -> dict[str, Tensor]:
    try:
        weights = torch.load(path, map_location="meta" if outline else "cpu", weights_only=True)
    except Exception:  # a damaged file raises anything from IndexError to struct.error
        raise UserError(
            f"{path} is damaged or a pickle that holds more than tensors, and loading it could run code; "
            "save it again as model.safetensors"
        ) from None
    if not isinstance(weights, Mapping) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise UserError(f"{path} is not a table of tensors; save the model's weights as model.safetensors")
    return dict(weights)


def check_weights(
    folder: Path,
    weights: Mapping[str, Tensor],
    shapes: Mapping[str, torch.Size],
    kind: str,
    their_name: Callable[[str], str] = str,
) -> None:
    """Say which weights are missing, unknown or of another shape than the model's, under the folder's names."""
    missing, unknown = sorted(shapes.keys() - weights.keys()), sorted(weights.keys() - shapes.keys())
    if missing:
        raise UserError(f"{folder} lacks the weights {_listed([their_name(name) for name in missing])}")
    if unknown:
        listed = _listed([their_name(name) for name in unknown])
        raise UserError(f"{folder} has weights that no {kind} of its config.json has: {listed}")
    for name, shape in shapes.items():
        if weights[name].shape != shape:
            raise UserError(
                f"{folder}: {their_name(name)} has shape {tuple(weights[name].shape)}, "
                f"but config.json asks for {tuple(shape)}"
            )


def _listed(names: list[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
