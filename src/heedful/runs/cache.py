"""Where what was prepared is kept, to be found there again: text as tokens, images as arrays."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heedful.errors import UserError
from heedful.runs.folder import noted_cache


def default_cache() -> Path:
    """The one that all share unless the user says otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heedful"


def cache_of(out: Path, given: Path | None) -> Path:
    """That of a run: where it is told to, where it began to, or else where all do."""
    return given or noted_cache(out) or default_cache()


def require_folder(cache: Path) -> None:
    """Refuse what can't be a cache, before any work is done for it."""
    there = next((path for path in (cache, *cache.absolute().parents) if path.exists()), None)
    if there is not None and not there.is_dir():
        raise UserError(f"{there} is a file, and nothing can be kept in it; name a folder with --cache")


@contextmanager
def kept_in(cache: Path) -> Iterator[None]:
    """Tell of a cache that fails while something is put into it."""
    try:
        yield
    except OSError as error:
        way_out = "name another folder with --cache"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"the disk is full where the cache is ({cache}); free some space, or {way_out}") from None
        if isinstance(error.filename, str) and Path(error.filename).is_relative_to(cache):
            raise UserError(f"nothing can be kept in the cache {cache} ({error.strerror}); {way_out}") from None
        raise
