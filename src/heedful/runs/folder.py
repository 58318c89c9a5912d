"""The folder of a run: taken by one run alone, and given back by a run that never began."""

import contextlib
import hashlib
import json
import platform
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch

import heedful
from heedful.arguments import flag
from heedful.config import differences, literal, read_toml, to_toml
from heedful.durable import alone, sweep, write_file
from heedful.errors import UserError
from heedful.runs.recipe_files import CHOSEN, RUN_FILE, how_made

VERSIONS = ("heedful", "torch", "python")
"""What is noted of how a run was made; besides a digest of its recipe, what of that it has chosen, and its cache."""
RESULT_FILE = "evaluation.json"
"""How good the model of a run is, that was evaluated while it trained."""
DIVERGED_FILE = "diverged.txt"
"""Why a run came to nothing, where it did: to resume it would end the same way."""
R = TypeVar("R")
MOST = 4
"""Options that a message names."""
FREE_ON_RESUME = ("run.tensorboard", "run.keep", "run.checkpoint_every", "run.fp8")
"""What a resumed run may be told anew without becoming another run."""

TYPED = {
    "corpus": "CORPUS",
    "data": "DATA",
    "train": "TRAIN",
    "start_from": "MODEL",
    "optimizer.name": "--optimizer",
    "learning.name": "--optimizer",
}
"""Fields that are not typed by their names."""


def require_free(out: Path) -> None:
    """Refuse a folder that holds anything, or can't be made."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if (out / RUN_FILE).is_file() and (out / "model.safetensors").is_file():
            raise UserError(f"{out} already holds a model; choose another --out")
        if (out / RUN_FILE).is_file():
            raise UserError(f"{out} already holds a run; go on with --resume, or choose another --out")
        what = "exists and is not empty" if out.is_dir() else "is a file"
        raise UserError(f"{out} {what}; choose another --out")
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".heedful-", dir=there):
            pass
    except PermissionError:
        raise UserError(f"{out} can't be made: {there} may not be written; choose another --out") from None
    except OSError as error:
        raise UserError(f"{out} can't be made in {there} ({error.strerror}); choose another --out") from None


def claim(out: Path, recipe: Any, cache: Path | None = None, told: Any = None) -> bool:
    """Take a new or empty folder for a run, and note in it what the run is; whether the folder is new.

    A `cache` of its own is noted too, and what it was `told` where the recipe says something else now.
    """
    require_free(out)
    content = _note(recipe, cache, {} if told is None else _instead(told, recipe))
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    write_file(out / RUN_FILE, content)
    return new


def amend(out: Path, recipe: Any, cache: Path | None = None, told: Any = None) -> None:
    """Note anew what the run is: it was told to go on otherwise, or chose more, where the recipe was `told` less."""
    chosen = {**({} if told is None else _instead(told, recipe)), **_made(out).get(CHOSEN, {})}
    write_file(out / RUN_FILE, _note(recipe, cache or noted_cache(out), chosen))


def _instead(told: Any, recipe: Any) -> dict[str, Any]:
    """The fields that a run has chosen, and what it was told of them; an empty text for nothing."""
    return {name: "" if (said := _told(told, name)) is None else said for name in differences(told, recipe)}


def noted_cache(out: Path) -> Path | None:
    """Where a run keeps what it prepared, if it was told."""
    made = _made(out)
    return Path(made["cache"]) if "cache" in made else None


def _made(out: Path) -> dict[str, Any]:
    """What is noted of how a run was made."""
    path = out / RUN_FILE
    return how_made(read_toml(path), path) if path.is_file() else {}


def _note(recipe: Any, cache: Path | None, chosen: Mapping[str, Any]) -> bytes:
    told = to_toml(recipe, getattr(recipe, "unknown", ()))
    versions = (heedful.__version__, torch.__version__, platform.python_version())
    made = dict(zip(VERSIONS, versions, strict=True), told=_digest(tomllib.loads(told)))
    if cache is not None:
        made["cache"] = str(cache.absolute())
    lines = "".join(f"{name} = {literal(value)}\n" for name, value in made.items())
    if chosen:
        lines += f"\n[made.{CHOSEN}]\n"
        lines += "".join(f"{literal(name)} = {literal(value)}\n" for name, value in chosen.items())
    return f"{told}\n[made]\n{lines}".encode()


def _digest(tables: dict[str, Any]) -> str:
    """Of what a run was told."""
    told = {name: part for name, part in tables.items() if name != "made"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def require_unfinished(out: Path, to: str | None = None) -> None:
    """Refuse to resume what is no run, or a complete one: `to` do what with its model, how."""
    if not out.is_dir():
        what = "it is a file" if out.exists() else "there is no such folder"
        raise UserError(f"{out} holds no run to resume: {what}; name the --out that the run had")
    if not (out / RUN_FILE).is_file():
        raise UserError(f"{out} holds no run to resume: it has no {RUN_FILE}; name the --out that the run had")
    if (out / "model.safetensors").is_file():
        raise UserError(f"the run in {out} is complete; to {to or f'go on training its model, use --from {out}'}")


def require_kept(out: Path) -> None:
    """Refuse to save in a folder that was moved or emptied while its run went on: the rest of it is elsewhere."""
    if not (out / RUN_FILE).is_file():
        raise UserError(
            f"{out} was moved or emptied while the run went on: it has no {RUN_FILE}, and what is saved there now "
            "would be of no use; start the run again, or go on with it where it was moved to"
        )


def reclaim(out: Path, recipe: Any, read: Callable[[Path], Any]) -> None:
    """Take the folder of an interrupted run to go on with the same run, which is noted in it, or is now."""
    require_unfinished(out)
    tables = read_toml(out / RUN_FILE)
    if not tables or how_made(tables, out / RUN_FILE).get("told") not in (None, _digest(tables)):
        raise UserError(
            f"{out / RUN_FILE} was changed after the run began, so it can't be resumed; undo that, "
            "or start a new run in another --out"
        )
    anew = differences(read(out / RUN_FILE), recipe)
    if changed := [name for name in anew if name not in FREE_ON_RESUME]:
        way_out = f"leave {'it' if len(changed) == 1 else 'them'} out to resume"
        if len(changed) > MOST:
            way_out = "give --resume and --out alone"
        raise UserError(
            f"the run in {out} was started with another {typed(changed)}; {way_out}, "
            "or start a new run in another --out"
        )
    with alone(out):
        sweep(out)
    (out / DIVERGED_FILE).unlink(missing_ok=True)  # it is tried again
    if anew:
        amend(out, recipe)


def told_anew(noted: R, recipe: R) -> R:
    """What a run has noted of itself, but for what a resumed one may be told anew."""
    for name in FREE_ON_RESUME:
        part, _, key = name.partition(".")
        old, new = getattr(noted, part), getattr(recipe, part)
        if hasattr(new, key):  # not every kind of run has each
            noted = replace(noted, **{part: replace(old, **{key: getattr(new, key)})})  # pyrefly: ignore
    return noted


def note_diverged(out: Path, line: str) -> None:
    """Note in the folder of a run why it came to nothing, for those who ask later."""
    with contextlib.suppress(OSError):  # the line is said, whatever becomes of the note
        write_file(out / DIVERGED_FILE, f"{line}\n".encode())


def typed(names: Sequence[str]) -> str:
    """Fields of a recipe as they are typed; of many the first."""
    told = ", ".join(TYPED.get(name) or flag(name.rpartition(".")[2]) for name in names[:MOST])
    return f"{told} and {len(names) - MOST} more" if len(names) > MOST else told


def is_complete(out: Path, recipe: Any, read: Callable[[Path], Any]) -> bool:
    """Whether a folder holds the model of this very run, as far as the recipe had been decided when it began."""
    if not ((out / RUN_FILE).is_file() and (out / "model.safetensors").is_file()):
        return False
    try:
        changed = differences(read(out / RUN_FILE), recipe)
    except UserError:  # a run of another kind
        return False
    return all(name in FREE_ON_RESUME or _told(recipe, name) in (None, "auto", "budget", ()) for name in changed)


def _told(recipe: Any, name: str) -> Any:
    """What a recipe says of a field: `part.field`."""
    for part in name.split("."):
        recipe = getattr(recipe, part)
    return recipe


def give_back(out: Path, *, remove: bool) -> None:
    """Empty the folder of a run that never began, so that the same command can be given again."""
    with contextlib.suppress(OSError):  # why the run did not begin is what matters
        for path in out.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if remove:
            out.rmdir()
