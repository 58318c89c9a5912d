import errno
import io
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from heedful.errors import UserError
from heedful.train import log
from heedful.train.log import Log, Sample, describe, keep_until

lines_of = st.lists(st.integers(0, 20), max_size=10)


def reports(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text(encoding="utf-8").splitlines()]


@given(steps=lines_of, step=st.integers(0, 20))
def test_reports_after_the_step_are_forgotten(tmp_path_factory: pytest.TempPathFactory, steps: list[int], step: int):
    path = tmp_path_factory.mktemp("log") / log.FILE
    path.write_text("".join(json.dumps({"kind": "train", "step": s}) + "\n" for s in steps), encoding="utf-8")
    keep_until(path, step)
    assert reports(path) == [s for s in steps if s <= step]


def test_a_line_cut_short_goes_too(tmp_path: Path):
    path = tmp_path / log.FILE
    path.write_bytes(b'{"kind": "train", "step": 1}\n{"kind": "train", "st')
    keep_until(path, 5)
    assert path.read_bytes() == b'{"kind": "train", "step": 1}\n'
    path.write_bytes(b'{"kind": "train", "step": 1}\n{"step": "\xff\n[]\n7\n{}\n')
    keep_until(path, 5)
    assert reports(path) == [1]


def test_ends_of_lines_inside_a_text_are_no_ends_of_reports(tmp_path: Path):
    path = tmp_path / log.SAMPLES
    whole = "".join(
        json.dumps({"step": 1, "input": f"a{end}b"}, ensure_ascii=False) + "\n" for end in "\u2028\u2029\x85"
    )
    path.write_text(whole, encoding="utf-8")
    keep_until(path, 5)
    assert path.read_text(encoding="utf-8") == whole


def test_a_terminal_that_is_closed_is_no_reason_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

    run, silenced = Log(tmp_path, leads=True), []
    monkeypatch.setattr(os, "dup2", lambda *_: silenced.append(1))
    monkeypatch.setattr(run.console, "file", Closed())
    monkeypatch.setattr(sys, "stderr", Closed())
    with run.opened(step=0, tensorboard=False):
        run.note("a line")
        run.warn("a line")
        run.progress(0.5, 3, {"loss": 2.0})
        run.metrics("train", 3, {"loss": 2.0})
    assert run.console.quiet
    assert [line["step"] for line in log.read(tmp_path)] == [3]


def test_keeping_nothing_of_nothing_makes_nothing(tmp_path: Path):
    keep_until(tmp_path / log.FILE, 3)
    assert list(tmp_path.iterdir()) == []


def test_what_was_reported_can_be_read(tmp_path: Path):
    run = Log(tmp_path, leads=True)
    run.metrics("train", 1, {"loss": 3.0})  # not open yet: nobody keeps it
    with run.opened(step=0, tensorboard=False):
        run.metrics("train", 2, {"loss": 2.5})
        run.metrics("heldout", 2, {"loss": 2.0})
        expected = [
            {"kind": "train", "step": 2, "loss": 2.5},
            {"kind": "heldout", "step": 2, "loss": 2.0},
        ]
        assert log.read(tmp_path) == expected  # at once, for whoever watches
    run.metrics("train", 3, {"loss": 1.5})
    assert log.read(tmp_path) == expected


def test_a_resumed_record_goes_on_from_its_step(tmp_path: Path):
    for start, steps in ((0, (1, 2, 3)), (2, (3, 4))):
        run = Log(tmp_path, leads=True)
        with run.opened(step=start, tensorboard=False):
            for step in steps:
                run.metrics("train", step, {})
    assert reports(tmp_path / log.FILE) == [1, 2, 3, 4]


def test_a_record_is_closed_whatever_ends_the_run(tmp_path: Path):
    run = Log(tmp_path, leads=True)

    def broken() -> None:
        with run.opened(step=0, tensorboard=False):
            run.metrics("train", 1, {})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    run.metrics("train", 2, {})
    assert reports(tmp_path / log.FILE) == [1]


def test_reading_where_there_is_no_run_or_a_broken_one_is_a_users_mistake(tmp_path: Path):
    with pytest.raises(UserError, match=r"holds no run: it has no metrics\.jsonl"):
        log.read(tmp_path)
    with pytest.raises(UserError, match=r"none holds no run: there is no such folder"):
        log.read(tmp_path / "none")
    good = b'{"kind": "train", "step": 1}\n'
    for bad in (b"{", b"[1]", b'"train"', b"\xff", b'{"step": 2}', b""):
        (tmp_path / log.FILE).write_bytes(good + bad + b"\n" + good)
        with pytest.raises(UserError, match=r"metrics\.jsonl: line 2 is no report of a run; remove it"):
            log.read(tmp_path)


def test_what_a_kill_has_cut_short_is_not_read(tmp_path: Path):
    (tmp_path / log.FILE).write_bytes(b'{"kind": "train", "step": 1}\n{"kind": "tr')
    assert [report["step"] for report in log.read(tmp_path)] == [1]
    (tmp_path / log.FILE).write_bytes(b"")
    assert log.read(tmp_path) == []


def test_without_a_terminal_progress_is_a_plain_line_every_twentieth(tmp_path: Path, capsys: pytest.CaptureFixture):
    run = Log(tmp_path, leads=True)
    numbers = {"loss": 2.0, "mlm_loss": 2.0, "mlm_accuracy": 0.25}
    for step in range(1, 1001):
        run.progress(step / 1000, step, numbers)
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0] == "step 1 (0%)  loss 2.000  words 25.0%"
    assert 19 <= len(lines) <= 21
    assert "\x1b" not in said.out
    assert said.err == ""


def test_only_the_leading_rank_speaks(tmp_path: Path, capsys: pytest.CaptureFixture):
    run = Log(tmp_path, leads=False)
    with run.opened(step=0, tensorboard=False):
        run.note("a note")
        run.warn("a warning")
        run.progress(0.5, 1, {})
        run.metrics("train", 1, {})
    assert tuple(capsys.readouterr()) == ("", "")
    assert list(tmp_path.iterdir()) == []


def test_notes_are_written_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture):
    Log(tmp_path, leads=True).note("mixed 1:100:5 in :key: [bold]")
    assert capsys.readouterr().out == "mixed 1:100:5 in :key: [bold]\n"


def test_notes_are_for_people_and_warnings_for_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture):
    run = Log(tmp_path, leads=True)
    run.note("a [bold]note[/bold] " + "that is long " * 20)
    run.warn("beware")
    said = capsys.readouterr()
    assert said.out == "a [bold]note[/bold] " + "that is long " * 20 + "\n"
    assert said.err == "heedful: beware\n"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({}, ""),
        ({"loss": 2.0, "mlm_loss": 1.5, "mlm_accuracy": 0.125}, "loss 2.000  words 12.5%"),
        ({"nsp_accuracy": 0.5}, "next sentence 50.0%"),
        ({"perplexity": 1234.56}, "perplexity 1234.6"),
        ({"tokens_per_second": 12345.6, "left": 125.4}, "12,346 tokens/s  2:05 left"),
        ({"left": 59.6}, "1:00 left"),
    ],
)
def test_metrics_in_a_few_words(numbers: dict[str, float], words: str):
    assert describe(numbers) == words


def test_samples_are_kept_as_reports_are(tmp_path: Path, capsys: pytest.CaptureFixture):
    record = Log(tmp_path, leads=True)
    with record.opened(step=0, tensorboard=False):
        record.samples(1, [])
        assert not (tmp_path / "samples.jsonl").exists()
        record.samples(2, [Sample("하나", "one", "one"), Sample("둘", "to", "two")])
        record.samples(5, [Sample("하나", "one")])
    with record.opened(step=4, tensorboard=False):  # a resumed run asks again
        record.samples(6, [Sample("둘", "two", "two")])
    told = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    assert told == [
        {"step": 2, "input": "하나", "output": "one", "reference": "one"},
        {"step": 2, "input": "둘", "output": "to", "reference": "two"},
        {"step": 6, "input": "둘", "output": "two", "reference": "two"},
    ]
    assert capsys.readouterr().out == ""


def test_nobody_but_the_leading_rank_keeps_samples(tmp_path: Path):
    record = Log(tmp_path, leads=False)
    with record.opened(step=0, tensorboard=False):
        record.samples(2, [Sample("a", "b")])
    assert not (tmp_path / "samples.jsonl").exists()


@pytest.mark.parametrize(("width", "lines"), [(80, 2), (120, 1)])
def test_a_bar_and_its_numbers_are_whole_on_a_narrow_terminal(tmp_path: Path, width: int, lines: int):
    run = Log(tmp_path, leads=True)
    numbers = {"loss": 8.734, "mlm_accuracy": 0.034, "nsp_accuracy": 0.5, "tokens_per_second": 10817.0, "left": 65.0}
    run.bar.disable = False
    run.progress(1.0, 10, numbers)
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with console.capture() as said:
        console.print(run.bar.make_tasks_table(run.bar.tasks))
    shown = said.get().splitlines()
    assert len(shown) == lines
    assert shown[0].startswith("━" * 20 + " 100% step 10")
    told = " ".join(" ".join(shown).replace("━", "").split())
    assert told == "100% step 10 loss 8.734 words 3.4% next sentence 50.0% 10,817 tokens/s 1:05 left"
