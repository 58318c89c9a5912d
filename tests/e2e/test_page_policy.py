"""The page under its policy: nothing that it does is forbidden, and what is slipped into it does not run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.e2e.browsing import SENTENCE, Host, Reader

VIEWS = [
    ("attention", {"model": "words", "text": SENTENCE}),
    ("head", {"model": "words", "text": SENTENCE, "layer": 1, "head": 2, "token": 3}),
    ("blanks", {"model": "words", "text": "the [MASK] was too tired"}),
    ("positions", {"model": "words"}),
    ("translation", {"model": "translator", "text": "two five"}),
    ("meaning", {"model": "words"}),
    ("images", {"model": "colours"}),
]


@pytest.fixture
def strict(browser: Any, host: Host) -> Iterator[Reader]:
    """Somebody whose browser obeys the policy."""
    with Reader(browser, host, bypass_csp=False) as reading:
        yield reading


def opened(reader: Reader, view: str, values: dict[str, Any]) -> None:
    reader.page.goto("about:blank")
    reader.page.goto(f"{reader.host.url}/#{view}?{urlencode(values)}")
    reader.page.wait_for_selector(f".view[data-view={view}]:not([aria-busy]):not(:empty)")


def test_every_view_does_all_it_does(strict: Reader):
    for view, values in VIEWS:
        opened(strict, view, values)
    strict.page.wait_for_selector(".view")
    strict.check()


def test_charts_are_drawn(strict: Reader):
    opened(strict, "positions", {"model": "words"})
    strict.page.wait_for_selector(".js-plotly-plot .main-svg")
    strict.check()


def test_pictures_are_saved(strict: Reader, tmp_path: Path):
    opened(strict, "attention", {"model": "words", "text": SENTENCE, "layer": 1, "head": 0})
    strict.page.wait_for_selector("[data-picture=strands] .saves button")
    svg, image = strict.saved("strands", tmp_path)
    assert svg.startswith("<svg")
    assert image.width > 100


def test_what_is_slipped_in_does_not_run(strict: Reader):
    opened(strict, "attention", {"model": "words", "text": SENTENCE})
    strict.expected = ["Content Security Policy"]
    strict.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.slipped = 1";
          document.body.append(script);
          const image = document.createElement("div");
          image.innerHTML = "<img src=x onerror='window.slipped = 2'>";
          document.body.append(image);
        }"""
    )
    strict.page.wait_for_selector("img[src=x]", state="attached")
    assert strict.page.evaluate("window.slipped") is None
    assert strict.page.evaluate("fetch('https://example.org/').then(() => 1, () => 0)") == 0
    strict.expected = ["Content Security Policy", "404", "Fetch API cannot load"]
