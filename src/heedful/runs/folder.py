"""The folder of a run: taken by one run alone, and given back by a run that never began."""

import contextlib
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import heedful
from heedful.arguments import flag
from heedful.config import differences, to_toml
from heedful.durable import alone, sweep, write_file
from heedful.errors import UserError
from heedful.runs.options import RUN_FILE

RESULT_FILE = "evaluation.json"
"""How good the model of a run is, that was evaluated while it trained."""
DIVERGED_FILE = "diverged.txt"
"""Why a run came to nothing, where it did: to resume it would end the same way."""
FREE_ON_RESUME = ("run.tensorboard", "run.keep", "run.checkpoint_every")
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
        raise UserError(f"{out} exists and is not empty; choose another --out")
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".heedful-", dir=there):
            pass
    except PermissionError:
        raise  # which has its own line
    except OSError as error:
        raise UserError(f"{out} can't be made in {there} ({error.strerror}); choose another --out") from None


def claim(out: Path, recipe: Any) -> bool:
    """Take a new or empty folder for a run, and note in it what the run is; whether the folder is new."""
    require_free(out)
    content = _note(recipe)
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    write_file(out / RUN_FILE, content)
    return new


def amend(out: Path, recipe: Any) -> None:
    """Note anew what the run is, now that more of it has been decided."""
    write_file(out / RUN_FILE, _note(recipe))


def _note(recipe: Any) -> bytes:
    made = {"heedful": heedful.__version__, "torch": torch.__version__, "python": platform.python_version()}
    lines = "".join(f'{name} = "{version}"\n' for name, version in made.items())
    return f"{to_toml(recipe)}\n[made]\n{lines}".encode()


def require_unfinished(out: Path, to: str | None = None) -> None:
    """Refuse to resume what is no run, or a complete one: `to` do what with its model, how."""
    if not out.is_dir():
        raise UserError(f"{out} holds no run to resume: there is no such folder; name the --out that the run had")
    if not (out / RUN_FILE).is_file():
        raise UserError(f"{out} holds no run to resume: it has no {RUN_FILE}; name the --out that the run had")
    if (out / "model.safetensors").is_file():
        raise UserError(f"the run in {out} is complete; to {to or f'go on training its model, use --from {out}'}")


def reclaim(out: Path, recipe: Any, read: Callable[[Path], Any]) -> None:
    """Take the folder of an interrupted run to go on with the same run, which is noted in it."""
    require_unfinished(out)
    changed = [name for name in differences(read(out / RUN_FILE), recipe) if name not in FREE_ON_RESUME]
    if changed:
        raise UserError(
            f"the run in {out} was started with another {', '.join(map(_typed, changed))}; "
            "leave it out to resume, or start a new run in another --out"
        )
    with alone(out):
        sweep(out)
    (out / DIVERGED_FILE).unlink(missing_ok=True)  # it is tried again


def note_diverged(out: Path, line: str) -> None:
    """Note in the folder of a run why it came to nothing, for those who ask later."""
    with contextlib.suppress(OSError):  # the line is said, whatever becomes of the note
        write_file(out / DIVERGED_FILE, f"{line}\n".encode())


def _typed(name: str) -> str:
    """A field of a recipe as it is typed."""
    return TYPED.get(name) or flag(name.rpartition(".")[2])


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
