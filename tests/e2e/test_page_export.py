"""An exported page in a browser that reaches nobody: every view shows what the API would have said."""

import base64
import json
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
from tests.e2e.browsing import STATIC, Host, Reader, numbers, percent

TEXT = "It was a river."
TYPED = "main :is(textarea, input:not([type=checkbox], [type=range]))"
CONTROLS = ".view :is(button:enabled:not(.saves button), select):visible"


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


def use_all(reader: Reader, view: str, **values: Any) -> int:
    """Use every button and every option of a view, each from where it was; how many there are that can be used."""
    go(reader, view, **values)
    assert reader.page.locator(TYPED).count() == 0
    given = reader.texts(".given b")
    controls = reader.page.locator(CONTROLS)
    count = controls.count()
    for number in range(count):
        options = controls.nth(number).locator("option").count()
        for option in range(options or 1):
            if options:
                controls.nth(number).select_option(index=option)
            else:
                controls.nth(number).click()
            reader.settle()
            assert reader.text(".trouble") == "", (number, option)
            assert reader.texts(".given b") == given
            go(reader, view, **values)
    return count


def test_it_opens_on_its_text(reader: Reader, explorer: Explorer):
    reader.page.goto(reader.host.url)
    reader.settle()
    assert reader.texts(".given b") == [TEXT]
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


@pytest.mark.parametrize(
    ("model", "view", "values"),
    [
        ("words", "blanks", {}),
        ("words", "blanks", {"hide": 3}),
        ("words", "blanks", {"write": 1}),
        ("words", "attention", {"token": 1}),
        ("words", "head", {}),
        ("translator", "attention", {"part": "cross"}),
        ("translator", "head", {}),
        ("translator", "translation", {"node": 1}),
        ("recurrent", "translation", {}),
    ],
)
def test_what_can_be_used_has_an_answer(reader: Reader, model: str, view: str, values: dict[str, Any]):
    assert use_all(reader, view, model=model, text=TEXT, **values) > 3


def test_what_was_left_out_can_not_be_chosen(browser: Any, host: Host, tmp_path: Path):
    """There is room for *it*, which the view opens on, for [CLS], and for a part of *a*."""
    path, asked = tmp_path / "page.html", {"model": "words", "text": "A river was it."}
    explorer = Explorer(Opened({"words": host.models["words"]}))
    _, left = export(explorer, path, About(text=asked["text"]), most_bytes=166_000)
    assert left is not None
    with Reader(browser, SimpleNamespace(url=path.as_uri()), offline=True) as reading:  # pyrefly: ignore
        use_all(reading, "head", **asked)
        assert reading.texts(".tokens :enabled") == ["[CLS]", "a", "it"]
        reading.page.focus(".tokens [aria-pressed=true]")
        reading.page.keyboard.press("ArrowLeft")
        assert reading.text(".tokens :focus") == "a"
        use_all(reading, "head", **asked, token=1)
        assert reading.texts(".inside .field:has-text('Layer') option") == ["1"]
        go(reading, "head", **asked, token=2)
        assert reading.text(".tokens [aria-pressed=true]") == "it"


def test_its_words_are_told_in_both_languages(reader: Reader):
    go(reader, "translation", model="translator", text=TEXT)
    for code in ("ko", "en"):
        words = json.loads((STATIC / f"text.{code}.json").read_text(encoding="utf-8"))
        reader.click(f".settings [data-value={code}]")
        assert reader.texts(".composer .note") == [words["text.given"]]
        assert reader.text(".hypothesis-told") == words["translation.see"]
    reader.page.keyboard.press("?")
    assert "/" not in reader.texts("dialog kbd")
    reader.page.keyboard.press("Escape")


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
        reading.click("nav.views a:text-is('Positions')")
        reading.click("nav.views a:text-is('Images')")
        assert reading.text(".trouble") == ""
        assert use_all(reading, "images") > 3


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
