"""Checkpoints that survive a kill at any moment: written aside, flushed, renamed, and checked when read.

A checkpoint is a folder `step-00001234` with tensors as safetensors, the run's numbers in `state.json`, and
`checksums.json`, which is written last. Knows nothing of models: tensors and numbers go in and come out.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import safetensors.torch
from torch import Tensor

from heedful.durable import file_digest, new_folder, write_file
from heedful.errors import UserError

T = TypeVar("T")
DAMAGED = "damaged-"
"""What the name of a checkpoint gets that could not be read."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """All that a run needs to go on as if nothing had happened."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    """Tables of tensors: one file each."""
    state: dict[str, Any]
    """What JSON can hold."""


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint, then remove all but the newest `keep`."""
    with writing(folder, checkpoint.step, keep) as aside:
        checksums = {
            f"{name}.safetensors": write_file(aside / f"{name}.safetensors", safetensors.torch.save(_plain(table)))
            for name, table in checkpoint.tensors.items()
        }
        seal(aside, checkpoint.step, checkpoint.state, checksums)
    return _path(folder, checkpoint.step)


@contextlib.contextmanager
def writing(folder: Path, step: int, keep: int) -> Iterator[Path]:
    """A folder for the files of a checkpoint, which counts once it is complete; all but the newest `keep` go then."""
    path = _path(folder, step)
    for stale in steps(folder):
        if stale.name >= path.name:  # damaged, or the run would not be at an earlier step again
            shutil.rmtree(stale)
    with new_folder(path) as aside:
        yield aside
    for old in steps(folder)[:-keep]:
        shutil.rmtree(old)


def seal(aside: Path, step: int, state: dict[str, Any], checksums: dict[str, str]) -> None:
    """Add the run's numbers, and last of all what the files must hash to."""
    content = json.dumps({"step": step, **state}, indent=2).encode()
    checksums = {**checksums, "state.json": write_file(aside / "state.json", content)}
    write_file(aside / "checksums.json", json.dumps(checksums, indent=2).encode())


def steps(folder: Path) -> list[Path]:
    """The finished checkpoints, oldest first. A folder that can't be read is an error, not one without any."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.startswith("step-") and path.is_dir())


def load_last(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that is whole; None if there was never one."""
    return last(folder, warn, _load)


def last(folder: Path, warn: Callable[[str], None], read: Callable[[Path], T]) -> T | None:
    """What is read from the newest checkpoint that can be read; None if there was never one."""
    found = steps(folder)
    for path in reversed(found):
        try:
            return read(path)
        except (FileNotFoundError, ValueError, KeyError, safetensors.SafetensorError) as error:
            instead = "; using the one before it" if path != found[0] else ""
            warn(f"the checkpoint {path} is damaged ({error}){instead}")
            aside = path.with_name(f"{DAMAGED}{path.name}")  # it must not push out a whole one
            with contextlib.suppress(OSError):  # another rank may have been quicker
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
        except OSError as error:  # trouble that may pass: a checkpoint is not given up for it
            way_out = "try again, or remove that folder to go on from the checkpoint before it"
            raise UserError(f"the checkpoint {path} can't be read now ({error.strerror}); {way_out}") from None
    if found or any(folder.glob(f"{DAMAGED}*")):  # or whoever asks again would begin anew without a word
        raise UserError(f"every checkpoint in {folder} is damaged; start the run again in another folder")
    return None


def verified(path: Path) -> tuple[list[str], dict[str, Any]]:
    """The names of a checkpoint's files, each as it was written, and the run's numbers, the step among them."""
    checksums = json.loads((path / "checksums.json").read_text(encoding="utf-8"))
    if not isinstance(checksums, dict) or "state.json" not in checksums:
        raise ValueError("checksums.json is not as it was written")
    for name, expected in checksums.items():
        if file_digest(path / name) != expected:
            raise ValueError(f"{name} has another checksum than when it was written")
    return list(checksums), json.loads((path / "state.json").read_text(encoding="utf-8"))


def _load(path: Path) -> Checkpoint:
    names, state = verified(path)
    tensors = {
        name.removesuffix(".safetensors"): safetensors.torch.load_file(path / name)
        for name in names
        if name.endswith(".safetensors")
    }
    return Checkpoint(step=state.pop("step"), tensors=tensors, state=state)


def _path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}"


def _plain(table: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in table.items()}
