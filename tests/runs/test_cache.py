import errno
from pathlib import Path

import pytest

from heedful.errors import UserError
from heedful.runs.cache import cache_of, default_cache, kept_in, require_folder
from heedful.runs.folder import claim
from heedful.runs.options import Recipe


def test_it_is_where_the_system_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "heedful"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert default_cache() == Path.home() / ".cache" / "heedful"


def test_a_run_goes_on_where_it_began_unless_told(tmp_path: Path):
    claim(tmp_path / "out", Recipe(), tmp_path / "mine")
    assert cache_of(tmp_path / "out", None) == tmp_path / "mine"
    assert cache_of(tmp_path / "out", tmp_path / "other") == tmp_path / "other"
    assert cache_of(tmp_path / "another", None) == default_cache()


def test_a_file_is_no_cache(tmp_path: Path):
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "file" / "deeper"):
        with pytest.raises(UserError, match=r"file is a file, .*; name a folder with --cache"):
            require_folder(cache)


@pytest.mark.parametrize(
    ("code", "name", "said"),
    [
        (errno.EROFS, "cache/shards", "nothing can be kept in the cache {} (it failed); name another"),
        (errno.ENOSPC, None, "the disk is full where the cache is ({}); free some space, or name another"),
    ],
)
def test_what_fails_in_it_is_told_of_it(tmp_path: Path, code: int, name: str | None, said: str):
    error = OSError(code, "it failed", str(tmp_path / name) if name else None)
    with pytest.raises(UserError) as caught, kept_in(tmp_path / "cache"):
        raise error
    assert str(caught.value) == f"{said.format(tmp_path / 'cache')} folder with --cache"


def test_what_fails_elsewhere_is_not(tmp_path: Path):
    with pytest.raises(PermissionError), kept_in(tmp_path / "cache"):
        raise PermissionError(errno.EACCES, "it failed", str(tmp_path / "text.txt"))
