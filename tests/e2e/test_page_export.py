"""An exported page in a browser that reaches nobody: every view shows what the API would have said."""

import base64
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from PIL import Image

from heedful.explore.about import About
from heedful.explore.explorer import Explorer, Opened
from heedful.explore.export import export
from tests.e2e.browsing import Host, Reader, numbers, percent

TEXT = "It was a river."


@pytest.fixture(scope="module")
def image_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("image") / "green.png"
    Image.new("RGB", (17, 23), (30, 200, 60)).save(path)
    return path


@pytest.fixture(scope="module")
def explorer(host: Host) -> Explorer:
    return Explorer(Opened({name: host.models[name] for name in ("words", "translator", "recurrent")}))


@pytest.fixture(scope="module")
def reader(browser: Any, explorer: Explorer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    path = tmp_path_factory.mktemp("export") / "page.html"
    export(explorer, path, About(text=TEXT))
    with Reader(browser, SimpleNamespace(url=path.as_uri()), offline=True) as reading:  # pyrefly: ignore
        yield reading


def go(reader: Reader, view: str, **values: Any) -> None:
    reader.page.goto(f"{reader.host.url}#{view}?{urlencode(values)}")
    reader.settle()
    assert reader.text(".trouble") == ""


def test_it_opens_on_its_text(reader: Reader, explorer: Explorer):
    reader.page.goto(reader.host.url)
    reader.settle()
    assert reader.page.input_value("textarea, input[type=text]") == TEXT
    assert reader.text("h1") == "Attention"
    assert reader.text(".trouble") == ""


def test_heads_are_chosen_without_a_server(reader: Reader, explorer: Explorer):
    go(reader, "attention", model="words", text=TEXT, layer=1, head=2, token=1)
    weights = numbers(explorer.matrix("words", TEXT, layer=1, head=2)["weights"])
    assert percent(float(weights[1].max())) in reader.text(".detail, .attention")
    go(reader, "attention", model="words", text=TEXT, layer=0, head="rollout", token=1)
    rolled = numbers(explorer.matrix("words", TEXT, layer=0, rollout=True)["weights"])
    assert percent(float(rolled[1].max())) in reader.text(".detail, .attention")


@pytest.mark.parametrize("view", ["head", "positions", "blanks"])
def test_the_other_views_have_their_answers(reader: Reader, view: str):
    go(reader, view, model="words", text=TEXT)
    assert reader.page.locator(f"[data-view={view}] [data-picture]").count() > 0


def test_a_hidden_word_has_its_candidates(reader: Reader, explorer: Explorer):
    go(reader, "blanks", model="words", text=TEXT)
    reader.click("[data-focus=word-3]")
    assert reader.text(".trouble") == ""
    best = explorer.blanks("words", TEXT.replace("river", "[MASK]"), 8)["blanks"][0]["candidates"][0]
    assert reader.texts(".bars .bar-name")[0] == best["token"]


def test_an_image_is_looked_at(browser: Any, host: Host, image_file: Path, tmp_path: Path):
    explorer = Explorer(Opened({"colours": host.models["colours"]}))
    path = tmp_path / "page.html"
    export(explorer, path, About(image=image_file.read_bytes()))
    with Reader(browser, SimpleNamespace(url=path.as_uri()), offline=True) as reading:  # pyrefly: ignore
        reading.page.goto(path.as_uri())
        reading.settle()
        assert reading.text(".trouble") == ""
        best = explorer.look("colours", base64.b64encode(image_file.read_bytes()).decode())["classes"][0]
        assert best["label"] in reading.text("[data-view=images]")
        assert reading.page.locator("[data-picture=rollout]").count() == 1


@pytest.mark.parametrize("model", ["translator", "recurrent"])
def test_a_search_is_seen_without_a_server(reader: Reader, explorer: Explorer, model: str):
    go(reader, "translation", model=model, text=TEXT)
    found = explorer.translate(model, TEXT, beams=4)
    assert len(reader.texts("[data-picture=translations] li")) == len(found["translations"])
    go(reader, "translation", model=model, text=TEXT, beams=12)


@pytest.mark.parametrize("model", ["translator", "recurrent"])
def test_translators_are_there_too(reader: Reader, model: str):
    go(reader, "attention", model=model, text=TEXT, part="cross")
    assert reader.page.locator("[data-picture]").count() > 0


def test_what_was_not_exported_is_said(reader: Reader):
    reader.page.goto(f"{reader.host.url}#attention?{urlencode({'model': 'words', 'text': 'a river'})}")
    reader.page.wait_for_selector(".trouble p")
    assert reader.text(".trouble") != ""
