"""Run folders as they grow: the reports of metrics.jsonl, read on from where one stopped.

Knows nothing of what is trained.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from heedful.errors import UserError
from heedful.explore.refusals import NotThere
from heedful.formats.word2vec import FILE as VECTORS
from heedful.runs.recipe_files import RUN_FILE
from heedful.train.log import FILE, SAMPLES

State = Literal["running", "complete", "stopped"]

MOST_BYTES = 1 << 22
"""Read in one go."""
QUIET = 90.0
"""Seconds without a report after which a run is taken to have stopped, and how many times the usual pause."""
PAUSES = 5


@dataclass(frozen=True, kw_only=True)
class Reports:
    """What is new in a run's folder."""

    rows: list[dict[str, Any]]
    since: int
    """Where the rows begin: 0 where the file was begun anew, so that those told before no longer count."""
    next: int
    """Where to read on."""
    state: State
    samples: list[dict[str, Any]]
    samples_since: int
    samples_next: int
    """The same for what it made of some examples, which is a file of its own."""


class Runs:
    """Run folders by name."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = named(folders)

    def names(self) -> list[str]:
        """In the order in which they were given."""
        return list(self._folders)

    def state(self, name: str) -> State:
        """Whether a run still trains."""
        return state(self._folder(name))

    def reports(self, name: str, since: int = 0, samples_since: int = 0) -> Reports:
        """What a run has reported since the offsets that an earlier answer gave."""
        folder = self._folder(name)
        rows, begun, end = read_on(folder / FILE, since)
        samples, samples_begun, samples_end = read_on(folder / SAMPLES, samples_since)
        return Reports(
            rows=rows,
            since=begun,
            next=end,
            state=state(folder),
            samples=samples,
            samples_since=samples_begun,
            samples_next=samples_end,
        )

    def _folder(self, name: str) -> Path:
        if name not in self._folders:
            known = ", ".join(self._folders) or "none"
            raise NotThere(f"there is no run {name!r}; there are: {known}")
        return self._folders[name]


def run_folder(folder: Path) -> Path:
    """A folder that a user names; an error if there is none."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not the folder of a run: there is no such folder")
    return folder


def named(folders: Sequence[Path]) -> dict[str, Path]:
    """Folders by their last names, or by as much of their paths as tells them apart."""
    whole = [folder.absolute() for folder in dict.fromkeys(folders)]
    names = {}
    for folder in whole:
        parts = 1
        while sum(other.parts[-parts:] == folder.parts[-parts:] for other in whole) > 1 and parts < len(folder.parts):
            parts += 1
        names["/".join(folder.parts[-parts:])] = folder
    return names


def read_on(path: Path, since: int) -> tuple[list[dict[str, Any]], int, int]:
    """The whole lines of a file from an offset on; where they begin, and where the next ones will.

    A file that is shorter than the offset, or where no line begins there, was begun anew and is read from its start.
    Lines that are no JSON objects are passed over; numbers that are none are null.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if since > size or not _begins(file, since):
                since = 0
            file.seek(since)
            data = file.read(MOST_BYTES)
    except OSError:
        return [], 0, 0
    whole = data[: data.rfind(b"\n") + 1]
    rows = [_row(line) for line in whole.splitlines()]
    return [row for row in rows if row is not None], since, since + len(whole)


def _begins(file: Any, place: int) -> bool:
    """Whether a line begins at an offset."""
    if not place:
        return True
    file.seek(place - 1)
    return file.read(1) == b"\n"


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return _finite(row) if isinstance(row, dict) else None


def _finite(value: Any) -> Any:
    """The same with null for what JSON can't say."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def state(folder: Path, now: float | None = None) -> State:
    """Complete if there is a model; else running as long as reports come about as often as they did."""
    if (folder / "model.safetensors").is_file() or (folder / VECTORS).is_file():
        return "complete"
    path = folder / FILE
    try:
        told = path if path.is_file() else folder / RUN_FILE  # which a run writes before it reads its data
        quiet = (time.time() if now is None else now) - told.stat().st_mtime
        pause = _pause(path) if told is path else 0.0
    except OSError:
        return "stopped"
    return "running" if quiet < max(QUIET, PAUSES * pause) else "stopped"


def _pause(path: Path) -> float:
    """Seconds between the last two reports of a run."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - (1 << 14)))
        rows = [row for row in map(_row, file.read().splitlines()) if row is not None]
    times = [row["elapsed"] for row in rows if isinstance(row.get("elapsed"), int | float)]
    return max(0.0, times[-1] - times[-2]) if len(times) > 1 else 0.0
