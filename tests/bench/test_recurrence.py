"""The comparison of attention and recurrence: what it counts by hand, how it skips, and a miniature of it."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench import recurrence
from bench.growth import Cell
from bench.layers import EXPLAINED, SIDES, chain, counted, heads, kept, operations, recorded, steps, theory_table
from bench.recurrence import Limits, Peak, empty_cell, kept_bytes, main, measure, refusal
from heedful.runs.device import choose

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone tells its peak")
AMPLE = Limits(seconds=60.0, bytes=1e9)


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch):
    """One pass is enough for what is not about time."""
    monkeypatch.setattr(recurrence, "SHORTEST", 1e-9)


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        # 3 tokens of width 5: four products with a 5 x 5 matrix each, and 9 pairs with two products of 5 numbers
        ("attention", 2 * (3 * 4 * 25 + 9 * 2 * 5)),
        (EXPLAINED, 780),
        ("LSTM", 2 * 3 * 4 * (25 + 25)),
        ("GRU", 2 * 3 * 3 * (25 + 25)),
    ],
)
def test_operations_by_hand(side: str, expected: int):
    assert operations(side, 3, 5) == expected


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("length", "dim", "heads"), [(7, 22, 2), (13, 11, 1)])
def test_torch_counts_the_same(side: str, length: int, dim: int, heads: int):
    assert counted(side, length, dim, heads) == operations(side, length, dim)


@pytest.mark.parametrize("side", SIDES)
def test_what_waits_for_the_backward_pass_is_as_the_formula_says(side: str):
    batch, length, dim = 3, 7, 22
    # in double precision torch's plain code runs, which is what the formula counts
    layer = SIDES[side].build(dim, 2).double()
    x = torch.randn(batch, length, dim, dtype=torch.float64, requires_grad=True)
    found, result = kept_bytes(layer, lambda: SIDES[side].run(layer, x))
    assert result.shape == x.shape
    numbers = batch * kept(side, length, dim, 2)
    if side == "attention":  # its rows' sums are in single precision whatever the rest is
        assert 8 * batch * 5 * length * dim < found <= 8 * numbers
    else:
        assert found == 8 * numbers


def test_nothing_waits_without_gradients():
    layer, x = SIDES["attention"].build(11, 1), torch.randn(2, 3, 11)
    with torch.no_grad():
        assert kept_bytes(layer, lambda: SIDES["attention"].run(layer, x))[0] == 0


@pytest.mark.parametrize("side", SIDES)
def test_the_chain_of_operations_grows_as_the_steps_do(side: str):
    seven, eleven, nineteen = (recorded(side, length, 5) for length in (7, 11, 19))
    if SIDES[side].steps == "1":
        assert (steps(side, 7), steps(side, 19)) == (1, 1)
        assert seven == eleven == nineteen
    else:
        assert (steps(side, 7), steps(side, 19)) == (7, 19)
        assert nineteen - eleven == 2 * (eleven - seven) >= 8


def test_a_chain_by_hand():
    x = torch.ones(3, requires_grad=True)
    short = x * 2  # the product, and where x takes its gradient
    assert chain(short) == 2
    assert chain((short + 1).exp() + x) == 5
    assert chain(x.detach()) == 0


def test_the_table_of_the_theory_agrees_with_torch():
    rows = [[part.strip() for part in line.split("|")[1:-1]] for line in theory_table(7, 11).splitlines()[2:]]
    assert [row[0] for row in rows] == list(SIDES)
    assert [row[2] for row in rows] == [row[3] for row in rows]
    assert [row[1] for row in rows] == ["8 n d² + 4 n² d"] * 2 + ["16 n d²", "12 n d²"]


def test_heads_are_64_wide_where_they_can_be():
    assert [heads(dim) for dim in (11, 64, 128, 1024)] == [1, 1, 2, 16]


@needs_proc
def test_the_peak_of_resident_memory():
    with Peak(torch.device("cpu")) as peak:
        x = torch.ones(2**24)  # 64 MiB
        y = x + 1  # and as much again
        del x, y
    assert peak.bytes is not None
    assert 125 < peak.bytes / 2**20 < 150


@needs_gpu
def test_the_peak_of_a_gpu():
    with Peak(torch.device("cuda")) as peak:
        x = torch.ones(2**20, device="cuda")
        del x
    assert peak.bytes == 2**22


def measured(side: str, length: int, dim: int, seconds: float, peak: int) -> Cell:
    return replace(empty_cell(side, length, dim, 1), forward=seconds / 4, backward=3 * seconds / 4, peak=peak)


def test_what_is_small_enough_is_begun():
    assert refusal(empty_cell("LSTM", 64, 11, 1), [], AMPLE) is None
    assert refusal(empty_cell("LSTM", 128, 11, 1), [measured("LSTM", 64, 11, 1.0, 1000)], AMPLE) is None


def test_a_pass_that_would_last_too_long_is_not_begun():
    done = [measured("LSTM", 64, 11, 7.0, 1000), measured("GRU", 64, 11, 700.0, 1000)]
    asked = empty_cell("LSTM", 128, 11, 1)
    assert refusal(asked, done, AMPLE._replace(seconds=15.0)) is None
    assert refusal(asked, done, AMPLE._replace(seconds=13.0)) == "a pass would take some 14 s, more than 13"


def test_the_same_width_foretells_better_than_another():
    done = [measured("LSTM", 64, 11, 1.0, 1000), measured("LSTM", 32, 22, 5.0, 1000)]
    reason = refusal(empty_cell("LSTM", 64, 22, 1), done, AMPLE._replace(seconds=9.0))
    assert reason == "a pass would take some 10 s, more than 9"


def test_memory_that_is_not_there_is_not_asked_for():
    # 8 heads of 16,384 x 16,384 weights in single precision alone are 8.6 GB
    reason = refusal(empty_cell(EXPLAINED, 16384, 512, 1), [], AMPLE)
    assert reason is not None
    assert "GB, more than 1.0" in reason
    assert refusal(empty_cell("attention", 16384, 512, 1), [], AMPLE) is None
    # nearly all of it is weights, hence twice the length is four times the memory
    done = [measured(EXPLAINED, 4096, 1, 0.1, 300_000_000)]
    reason = refusal(empty_cell(EXPLAINED, 8192, 1, 1), done, AMPLE)
    assert reason == "it would need some 1.2 GB, more than 1.0"


def test_after_a_cell_that_failed_longer_ones_are_not_tried():
    done = [replace(empty_cell("GRU", 32, 11, 1), skipped="out of memory")]
    assert refusal(empty_cell("GRU", 64, 11, 1), done, AMPLE) == "32 tokens of width 11 were too many"
    assert refusal(empty_cell("LSTM", 64, 11, 1), done, AMPLE) is None
    assert refusal(empty_cell("GRU", 16, 11, 1), done, AMPLE) is None


def test_a_measured_cell_is_whole_and_a_skipped_one_stays_empty():
    compute = choose("cpu", "fp32")
    cells = [empty_cell(side, 5, 11, 3) for side in SIDES]
    cells[1] = replace(cells[1], skipped="why not")
    found = measure(cells, compute, 2, AMPLE)
    assert [cell.side for cell in found] == list(SIDES)
    assert found[1] == cells[1]
    for cell in (found[0], *found[2:]):
        assert cell.forward
        assert cell.backward
        assert cell.seconds == cell.forward + cell.backward
        assert (cell.rounds, cell.skipped) == (2, None)
        assert cell.kept
    assert found[0].kept == 4 * 3 * kept("attention", 5, 11, 1)


def test_what_runs_out_of_memory_is_skipped(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setitem(SIDES, "LSTM", SIDES["LSTM"]._replace(run=fail))
    found = measure([empty_cell(side, 5, 11, 3) for side in SIDES], choose("cpu", "fp32"), 1, AMPLE)
    assert [cell.skipped for cell in found] == [None, None, "out of memory", None]


def test_one_thread_is_timed_without_its_neighbours(monkeypatch: pytest.MonkeyPatch):
    compute = choose("cpu", "fp32")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert recurrence.clock(compute) is time.process_time
    assert recurrence.clock(compute._replace(device=torch.device("cuda"))) is time.perf_counter
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert recurrence.clock(compute) is time.perf_counter


def run(arguments: str, out: Path, capsys: pytest.CaptureFixture, device: str = "cpu") -> tuple[list[dict], str]:
    main([*arguments.split(), "--device", device, "--out", str(out)])
    lines = (out / f"recurrence-{device}.jsonl").read_text(encoding="utf-8").splitlines()
    assert (out / f"recurrence-{device}.png").read_bytes().startswith(b"\x89PNG")
    return [json.loads(line) for line in lines], capsys.readouterr().out


def test_a_miniature(tmp_path: Path, capsys: pytest.CaptureFixture):
    cells, said = run("--lengths 3 5 7 --dims 11 13 17 --batch 2 --rounds 1", tmp_path, capsys)
    assert len(cells) == 3 * 3 * 4
    assert all(cell["forward"] > 0 and cell["backward"] > 0 and cell["kept"] > 0 for cell in cells)
    assert "| 13 | GRU | 1.00 (0.00) |" in said  # operations over the lengths
    assert "| 7 | LSTM | 2.00 (0.00) |" in said  # and over the widths
    assert "Skipped" not in said


def test_a_run_in_which_all_is_skipped_says_so(tmp_path: Path, capsys: pytest.CaptureFixture):
    cells, said = run("--lengths 3 5 --dims 11 --memory 1e-9", tmp_path, capsys)
    assert {cell["skipped"] for cell in cells if cell["length"] == 3} == {"it would need some 0.0 GB, more than 0.0"}
    assert "| 5 | - | - | - | - |" in said
    assert "no length was measured everywhere" in said
    assert said.count("- GRU, 3 x 11: it would need") == 1


@needs_gpu
def test_a_miniature_on_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture):
    cells, _ = run("--lengths 32 64 128 --dims 64 128 --batch 2 --rounds 1", tmp_path, capsys, "cuda")
    assert all(cell["peak"] > cell["kept"] > 0 for cell in cells)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--lengths 0 5", "--lengths 0 must be at least 1"),
        ("--dims -7", "--dims -7 must be at least 1"),
        ("--batch 0", "--batch 0 must be at least 1"),
        ("--rounds 0", "--rounds 0 must be at least 1"),
        ("--dims 129 --lengths 3", "dim 129 is not divisible by heads 2; try dim 128 or 130"),
        ("copy --distances 0", "--distances 0 must be above 0"),
        ("copy --rates nan", "--rates nan must be above 0"),
        ("copy --dim 31", "dim 31 is not divisible by heads 2; try dim 30 or 32"),
    ],
)
def test_a_mistake_is_answered_by_one_line(arguments: str, said: str, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        main([*arguments.split(), "--device", "cpu"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == said + "\n"
