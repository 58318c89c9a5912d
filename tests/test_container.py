"""A container's limits, in the two versions of Linux's files."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from heedful import container
from heedful.cores import cores, keep_to_share, sleep_at_once

STAT = "anon 13\ninactive_file 17\nactive_file 5\ntotal_active_file 7\n"


@pytest.fixture(autouse=True)
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(container, "LIMITS", tmp_path)
    return tmp_path


def write(folder: Path, names: Sequence[str], contents: Sequence[str]) -> None:
    for name, content in zip(names, contents, strict=True):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"{content}\n", encoding="ascii")


def test_without_its_files_there_is_no_limit():
    assert (container.memory(), container.cores()) == (None, None)


@pytest.mark.parametrize("names", container.MEMORY)
@pytest.mark.parametrize(
    ("limit", "left"), [("1009", 1009 - 701 + 17 + 5), ("600", 0), ("9223372036854771712", None), ("max", None)]
)
def test_memory_is_what_is_not_taken_or_holds_files(limits: Path, names: Sequence[str], limit: str, left: int | None):
    write(limits, names, (limit, "701", STAT))
    assert container.memory() == left


@pytest.mark.parametrize(
    ("names", "told", "found"),
    [
        (("cpu.max",), ("200000 100000",), 2),
        (("cpu.max",), ("250000 100000",), 3),
        (("cpu.max",), ("50000 100000",), 1),
        (("cpu.max",), ("max 100000",), None),
        (container.SHARES[1], ("300000", "100000"), 3),
        (container.SHARES[1], ("-1", "100000"), None),
    ],
)
def test_a_share_of_time_is_worth_some_cores(
    limits: Path, names: Sequence[str], told: Sequence[str], found: int | None
):
    write(limits, names, told)
    assert container.cores() == found


@pytest.mark.parametrize(("quota", "found"), [(None, 7), (3, 3), (11, 7)])
def test_cores_are_those_of_the_process_or_fewer(monkeypatch: pytest.MonkeyPatch, quota: int | None, found: int):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7), raising=False)
    monkeypatch.setattr(container, "cores", lambda: quota)
    assert cores() == found


@pytest.mark.parametrize(
    ("quota", "told", "found"), [(None, None, None), (3, None, "3"), (3, "5", "5"), (7, None, None)]
)
def test_a_share_of_cores_bounds_the_threads_that_multiply(
    monkeypatch: pytest.MonkeyPatch, quota: int | None, told: str | None, found: str | None
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(7), raising=False)
    monkeypatch.setattr(container, "cores", lambda: quota)
    monkeypatch.setattr(os, "environ", {} if told is None else {"OMP_NUM_THREADS": told})
    keep_to_share()
    assert os.environ.get("OMP_NUM_THREADS") == found


@pytest.mark.parametrize(
    ("told", "trains", "serves"),
    [
        ({}, "5000", "0"),
        ({"OMP_WAIT_POLICY": "active"}, None, None),  # who says how, has their way
        ({"GOMP_SPINCOUNT": "7"}, "7", "0"),
    ],
)
def test_threads_that_wait_do_not_keep_a_core_for_long(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, str], trains: str | None, serves: str | None
):
    monkeypatch.setattr(os, "environ", dict(told))
    keep_to_share()
    assert os.environ.get("GOMP_SPINCOUNT") == trains
    sleep_at_once()
    assert os.environ.get("GOMP_SPINCOUNT") == serves
    assert os.environ["OMP_WAIT_POLICY"] == told.get("OMP_WAIT_POLICY", "passive")
