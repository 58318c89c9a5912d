"""How a sentence-transformers folder makes one vector of a text: its `modules.json`, and what lies beside it."""

import json
from collections.abc import Sequence
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
    lower: bool = False
    """Capitals are read as small letters, whatever the tokenizer does."""
    prompt: str = ""
    """What every text is read with before it."""

    def written(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> tuple[Sequence[str], Sequence[str] | None]:
        """Texts, or both texts of pairs, as the encoder is to read them; the prompt is before the first alone."""
        if self.prompt:
            texts = [self.prompt + text for text in texts]
        if self.lower:
            texts = [text.lower() for text in texts]
            pairs = None if pairs is None else [text.lower() for text in pairs]
        return texts, pairs


def read_pooling(folder: Path) -> tuple[Path, Pooling | None]:
    """Where the encoder of a folder lies, and how its states are pooled; nothing is said of other folders."""
    if not (folder / MODULES).is_file():
        return folder, None
    inner, pool, normalise, length, lower, prompt = folder, None, False, None, False, _prompt(folder)
    for module in _read(folder / MODULES, list):
        if not isinstance(module, dict):
            raise UserError(f"{folder / MODULES} is not as sentence-transformers writes it; copy the folder again")
        kind, path = str(module.get("type", "")).rpartition(".")[2], folder / str(module.get("path", ""))
        if kind == "Transformer":
            inner, length, lower = path, _length(path), _lower(path)
        elif kind == "Pooling":
            pool = _pool(path / "config.json", prompted=bool(prompt))
        elif kind == "Normalize":
            normalise = True
        else:
            raise UserError(
                f"{folder / MODULES} asks for a module {kind!r}, which is not known; only pooling and norms are"
            )
    if pool is None:
        raise UserError(f"{folder / MODULES} has no pooling module; copy the folder again")
    return inner, Pooling(pool=pool, normalise=normalise, length=length, lower=lower, prompt=prompt)


def _prompt(folder: Path) -> str:
    """What stands before a text for which nothing else is asked."""
    path = folder / "config_sentence_transformers.json"
    settings = _read(path, dict) if path.is_file() else {}
    name, prompts = settings.get("default_prompt_name"), settings.get("prompts")
    if name is None:
        return ""
    if not isinstance(name, str) or not isinstance(prompts, dict) or not isinstance(prompts.get(name), str):
        raise UserError(f"{path}: default_prompt_name is {name!r}, but prompts has no text of that name")
    return prompts[name]


def _lower(folder: Path) -> bool:
    path = folder / "sentence_bert_config.json"
    return path.is_file() and _read(path, dict).get("do_lower_case") is True


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


def _pool(path: Path, *, prompted: bool) -> Literal["cls", "mean"]:
    settings = _read(path, dict)
    if prompted and settings.get("include_prompt") is False:
        raise UserError(f"{path} leaves the prompt out of the mean (include_prompt), which is not known here")
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
