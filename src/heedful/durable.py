"""Files that are either whole or not there: written aside, flushed to disk, then renamed. Folders of one process."""

import errno
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import psutil

from heedful.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


def write_file(path: Path, content: bytes) -> str:
    """Write, flush to disk, then take the name; the content's SHA-256."""
    aside = _aside(path)
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        _name(error, path)
        raise
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return hashlib.sha256(content).hexdigest()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder as long as this one goes on; refuse a folder that another run is in.

    Whoever holds it loses it with its process. Where folders can't be held, nobody is kept out.
    """
    if fcntl is None:
        yield
        return
    held = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"a run is going on in {folder}; wait until it has ended, or stop it first") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(held)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which takes its name only when it is complete and on disk.

    Whoever is interrupted leaves only a name that starts with a dot, which the next attempt removes. If somebody
    else has completed the same folder in the meantime, theirs stays and this one goes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    aside = _aside(path)
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
        for file in aside.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        sync_folder(aside)
        try:
            aside.rename(path)
        except OSError:
            if not path.is_dir():
                raise
        sync_folder(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to fill, which takes its name only when it is complete and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    aside = _aside(path)
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        _name(error, path)
        raise
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def sweep(folder: Path) -> None:
    """Remove what processes of this machine began to write into a folder and did not live to finish."""
    for path in folder.glob(".*.tmp"):
        owner = re.fullmatch(r"\..*\.(\d+)@(.*)\.tmp", path.name)
        if owner and owner[2] == platform.node() and not psutil.pid_exists(int(owner[1])):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _name(error: OSError, path: Path) -> None:
    """Have an error name the file for which there is no room: the system does not say."""
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        error.filename = str(path)


def meant(name: str | bytes) -> str:
    """The file that is meant by a name, which may be the one that it has while it is written."""
    return re.sub(r"(^|/)\.([^/]+)\.\d+@[^/]*\.tmp(?=/|$)", r"\1\2", os.fsdecode(name))


def _aside(path: Path) -> Path:
    """A name beside the path that tells who writes there: folders may be shared between machines."""
    return path.with_name(f".{path.name}.{os.getpid()}@{platform.node()}.tmp")


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
