import errno
import os
import platform
from pathlib import Path

import pytest

from heedful import durable
from heedful.durable import alone, new_folder, sweep, write_file
from heedful.errors import UserError

DEAD = 2**22 + 7
"""No process has so high a number."""


def left(folder: Path, name: str, *, filled: bool) -> Path:
    path = folder / name
    if filled:
        path.mkdir()
        (path / "part").write_bytes(b"half")
    else:
        path.write_bytes(b"half")
    return path


@pytest.mark.parametrize("filled", [True, False], ids=["folder", "file"])
@pytest.mark.parametrize(
    ("name", "goes"),
    [
        (f".made.{DEAD}@{platform.node()}.tmp", True),
        (f".made.of.7.parts.{DEAD}@{platform.node()}.tmp", True),
        (f".made.{os.getpid()}@{platform.node()}.tmp", False),  # somebody is at work there
        (f".made.{DEAD}@another-{platform.node()}.tmp", False),  # nobody here can tell whether that one lives
        (f".made.{DEAD}.tmp", False),
        (f".made.x{DEAD}@{platform.node()}.tmp", False),
        (f"made.{DEAD}@{platform.node()}.tmp", False),
        (f".made.{DEAD}@{platform.node()}.txt", False),
        (".stdin.tmp", False),
    ],
    ids=[
        "dead",
        "dots",
        "alive",
        "elsewhere",
        "nowhere",
        "no number",
        "no dot",
        "no end",
        "other",
    ],  # the same in every process
)
def test_only_what_dead_processes_of_this_machine_left_is_swept(tmp_path: Path, name: str, goes: bool, filled: bool):
    path = left(tmp_path, name, filled=filled)
    sweep(tmp_path)
    assert path.exists() is not goes


def test_sweeping_where_nothing_is_makes_nothing(tmp_path: Path):
    sweep(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_ours_is_one_that_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is written aside is found again when its writer is dead."""
    seen: list[str] = []
    real = Path.replace

    def look(self: Path, target: Path) -> Path:
        seen.append(self.name)
        return real(self, target)

    monkeypatch.setattr(Path, "replace", look)
    write_file(tmp_path / "a.json", b"{}")
    with new_folder(tmp_path / "b") as aside:
        seen.append(aside.name)
    for name in seen:
        left(tmp_path, name.replace(str(os.getpid()), str(DEAD)), filled=False)
    assert len(list(tmp_path.iterdir())) == 4
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "b"}


def test_a_new_folder_sweeps_beside_itself(tmp_path: Path):
    left(tmp_path, f".other.{DEAD}@{platform.node()}.tmp", filled=True)
    with new_folder(tmp_path / "made") as aside:
        (aside / "whole").write_bytes(b"all of it")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]
    assert (tmp_path / "made" / "whole").read_bytes() == b"all of it"


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path):
    with alone(tmp_path):
        with (
            pytest.raises(UserError, match=f"a run is going on in {tmp_path}; wait until it has ended"),
            alone(tmp_path),
        ):
            pass
        with alone(tmp_path.parent):
            pass
    with alone(tmp_path):
        pass


def test_a_file_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        durable.write_file(tmp_path / "a.json", b"1")
    assert caught.value.filename == str(tmp_path / "a.json")
    with pytest.raises(OSError, match="No space left") as caught, durable.new_file(tmp_path / "b.npy") as file:
        file.write(b"1")
    assert caught.value.filename == str(tmp_path / "b.npy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("out/.vocab.txt.23596@vm.tmp", "out/vocab.txt"),
        ("out/.step-00000010.24617@vm.example.tmp/state.json", "out/step-00000010/state.json"),
        (".x.npy.7@vm.tmp", "x.npy"),
        ("out/.hidden", "out/.hidden"),
        (b"out/a.tmp", "out/a.tmp"),
    ],
)
def test_files_are_named_as_they_are_meant(name: str | bytes, meant: str):
    assert durable.meant(name) == meant
