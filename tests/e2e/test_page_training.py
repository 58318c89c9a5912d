"""The view of training in a browser: curves of runs, live while they grow, and what they said over time."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browsing import Host, Reader, colours

LOSSES = [5.0, 4.0, 2.0, 3.0, 1.0]
HELD_OUT = {3: 2.5, 5: 2.75}


def row(step: int, loss: float, kind: str = "train", **more: float) -> dict[str, Any]:
    return {"kind": kind, "step": step, "loss": loss, **more, "tokens": 100 * step, "elapsed": 61.0 * step}


def write(folder: Path, rows: list[dict[str, Any]], name: str = "metrics.jsonl") -> None:
    folder.mkdir(exist_ok=True)
    with (folder / name).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in rows)


@pytest.fixture(scope="module")
def serving(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server that knows two run folders, whatever is in them."""
    folder = tmp_path_factory.mktemp("runs")
    with Host({"words": host.models["words"]}, runs=[folder / "first", folder / "a b"]) as running:
        yield running


@pytest.fixture
def runs(serving: Host) -> dict[str, Path]:
    """A run that is complete, and one that still trains."""
    for folder in serving.runs:
        shutil.rmtree(folder, ignore_errors=True)
    first, second = serving.runs
    for step, loss in enumerate(LOSSES, 1):
        write(first, [row(step, loss, accuracy=1 / (step + 1))])
        if step in HELD_OUT:
            write(first, [row(step, HELD_OUT[step], "heldout")])
    (first / "model.safetensors").touch()
    write(second, [row(1, 7.0), row(2, 6.0)])
    return {folder.name: folder for folder in serving.runs}


@pytest.fixture(scope="module")
def sitting(browser: Any, serving: Host) -> Iterator[Reader]:
    """One reader for all tests here: plotly.js is large."""
    with Reader(browser, serving) as reading:
        reading.page.clock.install()
        yield reading


@pytest.fixture
def reader(sitting: Reader, runs: dict[str, Path]) -> Iterator[Reader]:
    yield sitting
    sitting.page.set_viewport_size({"width": 1280, "height": 900})
    sitting.page.evaluate("localStorage.clear()")
    sitting.page.goto("about:blank")
    sitting.check()


def wait(reader: Reader) -> None:
    """Let the page ask again."""
    reader.page.clock.fast_forward(2100)


def curves(reader: Reader) -> dict[str, tuple[list[float], list[float]]]:
    """The curves that have a name in the legend."""
    found = reader.page.evaluate(
        """document.querySelector(".curves").data.filter(one => one.showlegend !== false)
             .map(({ name, x, y }) => [name, x, y])"""
    )
    return {name: (x, y) for name, x, y in found}


def standing(reader: Reader, run: str) -> list[str]:
    return reader.texts(f".standing tr[data-run='{run}'] td")


def test_curves_of_all_runs(reader: Reader):
    reader.go("training")
    assert curves(reader) == {
        "first": ([1, 2, 3, 4, 5], LOSSES),
        "first, held out": ([3, 5], [2.5, 2.75]),
        "a b": ([1, 2], [7.0, 6.0]),
    }
    assert reader.page.locator(".curves .scatterlayer .trace").count() == 3
    assert standing(reader, "first") == ["complete", "5", "0:05:05", "1.000", "2.750", "2.500"]
    assert standing(reader, "a b") == ["training", "2", "0:02:02", "6.000", "–", "–"]
    reader.click("[data-run='a b'].run")
    assert reader.values()["runs"] == "first"
    assert set(curves(reader)) == {"first", "first, held out"}
    reader.click("[data-run='first'].run")
    assert reader.values()["runs"] == "first", "one is always shown"
    reader.page.reload()
    reader.settle()
    assert set(curves(reader)) == {"first", "first, held out"}, "the link says which"


def test_it_says_what_it_shows_and_a_link_brings_everything_back(reader: Reader):
    reader.go("training")
    reader.check_what()
    opening = reader.seen()
    asked = {"runs": "first", "metric": "accuracy", "across": "tokens", "scale": "log", "smooth": "0.5"}
    reader.page.goto("about:blank")
    reader.go("training", **asked)
    shown = reader.seen()
    assert shown != opening
    reader.page.goto("about:blank")
    reader.go("training", **asked)
    assert reader.seen() == shown
    assert reader.values() == asked


def test_another_number_against_another(reader: Reader):
    reader.go("training", runs="first")
    reader.page.select_option("select[data-focus=Number]", "accuracy")
    reader.page.wait_for_selector("[data-picture=curves] h2:text('accuracy')")
    reader.settle()
    assert curves(reader)["first"] == ([1, 2, 3, 4, 5], pytest.approx([1 / 2, 1 / 3, 1 / 4, 1 / 5, 1 / 6]))
    assert standing(reader, "first")[3] == "16.7 %"
    reader.page.select_option("select[data-focus=Against]", "tokens")
    reader.page.wait_for_function("location.hash.includes('across=tokens')")
    reader.settle()
    assert curves(reader)["first"][0] == [100, 200, 300, 400, 500]
    assert reader.page.evaluate("document.querySelector('.curves').layout.yaxis.tickformat") == ".0%"


def test_logarithmic_and_smooth(reader: Reader):
    reader.go("training", runs="first")
    reader.click("[data-value=log]")
    assert reader.page.evaluate("document.querySelector('.curves').layout.yaxis.type") == "log"
    reader.page.focus("input[type=range]")
    reader.page.fill("input[type=range]", "0.49")
    reader.page.keyboard.press("ArrowRight")
    reader.page.wait_for_function("location.hash.includes('smooth=0.5')")
    reader.settle()
    assert reader.page.evaluate("document.activeElement.type") == "range", "the slider stays in hand"
    # Weights 1/2, 1/4, … of the past, divided by what they sum to: by hand.
    expected = [5, (4 + 5 / 2) / (3 / 2), (2 + 4 / 2 + 5 / 4) / (7 / 4), (3 + 2 / 2 + 4 / 4 + 5 / 8) / (15 / 8)]
    assert curves(reader)["first"][1][:4] == pytest.approx(expected)
    raw = reader.page.evaluate("document.querySelector('.curves').data.find(one => one.showlegend === false).y")
    assert raw == LOSSES, "the true curve lies behind it"
    assert "Smoothing 0.50" in reader.text(".controls")


def test_a_run_that_trains_grows_by_itself(reader: Reader, runs: dict[str, Path]):
    reader.go("training")
    reader.page.focus("select[data-focus=Number]")
    write(runs["a b"], [row(3, 5.5), row(4, 5.25)])
    wait(reader)
    reader.page.wait_for_selector(".standing tr[data-run='a b']:has-text('5.250')")
    assert curves(reader)["a b"] == ([1, 2, 3, 4], [7.0, 6.0, 5.5, 5.25])
    assert reader.page.evaluate("document.activeElement.dataset.focus") == "Number", "what is in use stays"
    (runs["a b"] / "model.safetensors").touch()
    wait(reader)
    reader.page.wait_for_selector(".run[data-run='a b'][data-state=complete]")
    assert standing(reader, "a b")[0] == "complete"


def test_a_server_that_refuses_is_asked_again(reader: Reader, runs: dict[str, Path]):
    reader.expected = ["500"]
    reader.go("training", runs="a b")
    reader.page.route("**/explore/runs/**", lambda route: route.fulfill(status=500, body="{}"))
    with reader.page.expect_response("**/explore/runs/**") as refused:
        wait(reader)
    assert refused.value.status == 500
    reader.page.unroute_all()
    write(runs["a b"], [row(3, 5.125)])
    reader.page.evaluate("fetch('health').then(() => null)")  # by then the refusal has been heard
    reader.page.clock.fast_forward(10_100)
    reader.page.wait_for_selector(".standing:has-text('5.125')")


def test_a_run_that_goes_on_from_an_earlier_step_makes_its_reports_again(reader: Reader, runs: dict[str, Path]):
    reader.go("training", runs="a b")
    write(runs["a b"], [row(3, 9.0), row(2, 6.5), row(3, 5.0)])
    wait(reader)
    reader.page.wait_for_selector(".standing:has-text('5.000')")
    assert curves(reader)["a b"] == ([1, 2, 3], [7.0, 6.5, 5.0])
    (runs["a b"] / "metrics.jsonl").unlink()
    write(runs["a b"], [row(1, 8.0)])
    wait(reader)
    reader.page.wait_for_selector(".standing:has-text('8.000')")
    assert curves(reader)["a b"] == ([1], [8.0]), "begun anew"


def test_what_a_run_said_over_time(reader: Reader, runs: dict[str, Path]):
    said = [("one", "둘", "하나"), ("two", "둘", "둘"), ("one", "하나", "하나"), ("two", "둘", "둘")]
    samples = [
        {"step": step, "input": given, "output": output, "reference": right}
        for step, (given, output, right) in zip((10, 10, 1000, 1000), said, strict=True)
    ]
    write(runs["a b"], samples[:2], "samples.jsonl")
    reader.go("training")
    assert reader.text("[data-picture=samples] h2") == "What a b said over time"
    assert reader.texts(".samples td") == ["one", "둘", "하나", "two", "둘", "둘"]
    assert reader.texts(".samples .right") == ["둘"]
    write(runs["a b"], samples[2:], "samples.jsonl")
    wait(reader)
    reader.page.wait_for_selector(".samples caption:text('After step 1,000')")
    assert reader.texts(".samples td") == ["one", "하나", "하나", "two", "둘", "둘"]
    reader.click("[aria-label='One step back']")
    assert reader.text(".samples caption") == "After step 10"


def test_samples_are_read_on_and_those_of_a_resumed_run_count(reader: Reader, runs: dict[str, Path]):
    write(runs["a b"], [{"step": step, "input": "one", "output": f"at {step}"} for step in (10, 20)], "samples.jsonl")
    reader.go("training", runs="a b")
    offsets = [url.partition("samples_since=")[2] for url in reader.asked if "samples_since" in url]
    assert offsets == ["0"]
    write(runs["a b"], [{"step": 10, "input": "one", "output": "again"}], "samples.jsonl")
    size = (runs["a b"] / "samples.jsonl").stat().st_size
    wait(reader)
    reader.page.wait_for_selector(".samples td:text('again')")
    assert "Report 1 / 1" in reader.text(".said .player-controls"), "what came after it was of another life"
    with reader.page.expect_request(f"**/explore/runs/**samples_since={size}"):
        wait(reader)


def test_what_a_run_sees_in_pictures(reader: Reader, runs: dict[str, Path]):
    sample = {"step": 7, "input": "image 3", "output": "cat", "reference": "dog", "probability": 0.625}
    write(runs["a b"], [sample, {**sample, "input": "image 5", "output": "dog"}], "samples.jsonl")
    reader.go("training", runs="a b")
    assert reader.texts(".samples td") == ["image 3", "cat 62.5 %", "dog", "image 5", "dog 62.5 %", "dog"]
    assert reader.texts(".samples .right") == ["dog 62.5 %"]


def test_many_points_become_few_without_losing_a_spike(reader: Reader):
    reader.go("blanks")
    x, y = reader.page.evaluate(
        """async () => {
          const { thinned } = await import("heedful/curves.js");
          const x = Array.from({ length: 100_003 }, (_, i) => i);
          const y = x.map(i => (i === 50_021 ? 99 : i === 70_001 ? -99 : Math.sin(i / 977)));
          const { x: kept, y: values } = thinned({ x, y });
          return [kept, values];
        }"""
    )
    assert len(x) <= 1500
    assert x == sorted(set(x))
    assert dict(zip(x, y, strict=True)).items() >= {50_021: 99, 70_001: -99}.items()
    assert x[-1] == 100_002
    asked = "async ([metric, values]) => (await import('heedful/curves.js')).best(metric, values)"
    found = [
        reader.page.evaluate(asked, [metric, [3, 1, 2]]) for metric in ("loss", "perplexity", "rmse", "bleu", "f1")
    ]
    assert found == [1, 1, 1, 3, 3], "less of a loss is better, more of a score"


def test_it_is_saved_speaks_korean_and_fits_a_phone(reader: Reader, tmp_path: Path):
    reader.page.set_viewport_size({"width": 390, "height": 844})
    reader.go("training")
    assert reader.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert reader.nameless() == []
    reader.click("[data-value=ko]")
    reader.page.wait_for_selector("h1:text('학습')")
    reader.settle()
    svg, image = reader.saved("curves", tmp_path)
    assert "검증" in svg
    assert colours(image) > 20
