"""How a sentence-transformers folder makes one vector of a text: its `modules.json` and `1_Pooling/config.json`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heedful.errors import UserError

MODULES = "modules.json"


@dataclass(frozen=True, kw_only=True)
class Pooling:
    """How a text becomes a vector."""

    pool: Literal["cls", "mean"] = "mean"
    normalise: bool = True
    length: int | None = None
    """The tokens after which such a folder cuts a text."""


def read_pooling(folder: Path) -> tuple[Path, Pooling | None]:
    """Where the encoder of a folder lies, and how its states are pooled; nothing is said of other folders."""
    if not (folder / MODULES).is_file():
        return folder, None
    inner, pool, normalise, length = folder, None, False, None
    for module in _read(folder / MODULES, list):
        if not isinstance(module, dict):
            raise UserError(f"{folder / MODULES} is not as sentence-transformers writes it; copy the folder again")
        kind, path = str(module.get("type", "")).rpartition(".")[2], folder / str(module.get("path", ""))
        if kind == "Transformer":
            inner, length = path, _length(path)
        elif kind == "Pooling":
            pool = _pool(path / "config.json")
        elif kind == "Normalize":
            normalise = True
        else:
            raise UserError(
                f"{folder / MODULES} asks for a module {kind!r}, which is not known; only pooling and norms are"
            )
    if pool is None:
        raise UserError(f"{folder / MODULES} has no pooling module; copy the folder again")
    return inner, Pooling(pool=pool, normalise=normalise, length=length)


def _length(folder: Path) -> int | None:
    """Where a folder says that texts are cut: beside the encoder, or in newer versions with the tokenizer."""
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        found = _read(folder / name, dict).get(key) if (folder / name).is_file() else None
        if found is None:
            continue
        if not isinstance(found, int | float) or found < 1:
            raise UserError(f"{folder / name}: {key} is {found!r} but must be a number of tokens")
        return int(found)
    return None


def _pool(path: Path) -> Literal["cls", "mean"]:
    settings = _read(path, dict)
    chosen = {name.removeprefix("pooling_mode_") for name, value in settings.items() if value is True}
    chosen &= {"cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken"}
    mode = settings.get("pooling_mode")  # newer versions: one name or several
    if mode is not None:
        chosen = set(map(str, mode)) if isinstance(mode, list) else {str(mode)}
    if chosen in ({"mean_tokens"}, {"mean"}):
        return "mean"
    if chosen in ({"cls_token"}, {"cls"}):
        return "cls"
    raise UserError(f"{path} pools by {', '.join(sorted(chosen)) or 'nothing'}; only the mean and [CLS] are known")


def _read(path: Path, kind: type) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing; copy the folder again") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}); copy the folder again") from None
    if not isinstance(found, kind):
        raise UserError(f"{path} is not as sentence-transformers writes it; copy the folder again")
    return found
