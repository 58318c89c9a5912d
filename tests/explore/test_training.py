import json
import os
from pathlib import Path

import pytest

from heedful.explore.refusals import NotThere
from heedful.explore.training import Runs, named, read_on, state


def line(step: int, **numbers: float) -> str:
    return json.dumps({"kind": "train", "step": step, **numbers}) + "\n"


def test_a_run_is_read_on_from_where_one_stopped(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1) + line(2) + '{"kind": "tra')
    runs = Runs([tmp_path])
    name = tmp_path.name
    first = runs.reports(name)
    assert [row["step"] for row in first.rows] == [1, 2]
    assert (first.since, first.next) == (0, len(line(1) + line(2)))
    assert runs.reports(name, first.next).rows == []
    path.write_text(line(1) + line(2) + line(3, loss=0.5))
    later = runs.reports(name, first.next)
    assert later.rows == [{"kind": "train", "step": 3, "loss": 0.5}]
    assert later.since == first.next


def test_a_file_that_was_begun_anew_is_read_from_its_start(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1) + line(2) + line(3))
    end = path.stat().st_size
    path.write_text(line(1))
    assert read_on(path, end)[1] == 0
    path.write_text(line(1000) + line(2000) + line(3000) + line(4000))
    rows, since, _ = read_on(path, end)
    assert (since, len(rows)) == (0, 4)


def test_numbers_that_are_none_are_null_and_broken_lines_are_passed_over(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "loss": NaN, "more": [Infinity, 2]}\nnonsense\n[1]\n\xff\n{"step": 2}\n')
    rows, _, end = read_on(path, 0)
    assert rows == [{"step": 1, "loss": None, "more": [None, 2]}, {"step": 2}]
    assert end == path.stat().st_size


def test_no_more_is_read_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("heedful.explore.training.MOST_BYTES", 2 * len(line(1)) + 3)
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1) + line(2) + line(3))
    rows, _, end = read_on(path, 0)
    assert [row["step"] for row in rows] == [1, 2]
    assert [row["step"] for row in read_on(path, end)[0]] == [3]


def test_a_run_runs_while_reports_come(tmp_path: Path):
    assert state(tmp_path) == "stopped"
    (tmp_path / "heedful.toml").touch()  # it has begun, and has not yet reported
    assert state(tmp_path) == "running"
    assert state(tmp_path, now=(tmp_path / "heedful.toml").stat().st_mtime + 91) == "stopped"
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1, elapsed=10.0) + line(2, elapsed=110.0))
    os.utime(path, (1000, 1000))
    assert state(tmp_path, now=1000 + 499) == "running"  # reports come every 100 seconds
    assert state(tmp_path, now=1000 + 501) == "stopped"
    path.write_text(line(1, elapsed=10.0) + line(2, elapsed=11.0))
    os.utime(path, (1000, 1000))
    assert state(tmp_path, now=1000 + 89) == "running"
    assert state(tmp_path, now=1000 + 91) == "stopped"
    (tmp_path / "model.safetensors").touch()
    assert state(tmp_path, now=1000) == "complete"


def test_samples_are_given_where_there_are_any(tmp_path: Path):
    (tmp_path / "samples.jsonl").write_text('{"step": 10, "input": "one", "output": "하나"}\n')
    found = Runs([tmp_path]).reports(tmp_path.name)
    assert found.samples == [{"step": 10, "input": "one", "output": "하나"}]
    assert found.rows == []
    again = Runs([tmp_path]).reports(tmp_path.name, samples_since=found.samples_next)
    assert (again.samples, again.samples_since) == ([], found.samples_next)


def test_the_newest_samples_are_read_however_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("heedful.explore.training.MOST_BYTES", 3 * len(line(1)))
    (tmp_path / "samples.jsonl").write_text("".join(map(line, range(8))))
    steps, place = [], 0
    while (found := Runs([tmp_path]).reports(tmp_path.name, samples_since=place)).samples:
        assert found.samples_since == place
        steps += [one["step"] for one in found.samples]
        place = found.samples_next
    assert steps == list(range(8))
    (tmp_path / "samples.jsonl").write_text(line(9))
    assert Runs([tmp_path]).reports(tmp_path.name, samples_since=place).samples_since == 0, "begun anew"


def test_a_run_whose_reports_go_away_as_they_are_read_has_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1))
    is_file = Path.is_file

    def deleted(one: Path) -> bool:
        there = is_file(one)
        if one == path:
            path.unlink()
        return there

    monkeypatch.setattr(Path, "is_file", deleted)
    assert state(tmp_path) == "stopped"
    assert Runs([tmp_path]).reports(tmp_path.name).rows == []


def test_names_are_as_long_as_they_need_to_be():
    folders = [Path("/a/one/run"), Path("/a/two/run"), Path("/b/other")]
    assert list(named(folders)) == ["one/run", "two/run", "other"]
    assert list(named([*folders, folders[0]])) == ["one/run", "two/run", "other"]


def test_a_run_that_nobody_named(tmp_path: Path):
    with pytest.raises(NotThere, match="there is no run 'x'; there are: here"):
        Runs([tmp_path / "here"]).reports("x")
