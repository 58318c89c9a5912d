"""The page around the views in a browser: links, languages, themes, keys, saving, and a server that goes away."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from heedful import predict
from tests.e2e.browsing import SENTENCE, STATIC, Host, Reader, numbers, page_models, percent

TEXT = "the old river was tired"
VIEWS: dict[str, dict[str, Any]] = {
    "blanks": {"model": "words", "text": TEXT, "hide": "2", "write": 1, "seed": 3},
    "attention": {"model": "words", "text": TEXT, "layer": 1, "head": 2, "token": 3, "show": "matrix"},
    "head": {"model": "words", "text": TEXT, "layer": 1, "head": 2, "token": 3, "source": 1, "padding": 2},
    "positions": {"model": "colours", "at": 5},
    "translation": {"model": "translator", "text": "one two", "beams": 3, "best": 1, "step": 2},
    "meaning": {"model": "words", "word": "river", "sentences": "the old river\na river of paris", "layer": 1},
    "images": {"model": "colours", "digit": 4, "layer": 0, "head": 1},
}
"""Each with values that it does not open on. What they have in common is tried on these, and on that of training,
which needs runs, in `test_page_training.py`."""


def test_views_and_models_are_chosen(reader: Reader):
    reader.go()
    assert reader.texts("nav.views a[aria-current=page]") == ["Attention"]
    reader.page.click("nav.views a:has-text('Inside one head')")
    reader.page.wait_for_selector(".view[data-view=head]")
    reader.settle()
    assert reader.text("h1") == "Inside one head"
    reader.page.select_option(".model select", "rotary")
    reader.page.wait_for_function("location.hash.includes('model=rotary')")
    reader.settle()
    assert "Blanks" not in reader.texts("nav.views a")
    assert reader.page.title() == "Inside one head · rotary · heedful"
    reader.page.go_back()
    reader.page.wait_for_function("!location.hash.includes('rotary')")
    reader.settle()
    assert "Blanks" in reader.texts("nav.views a")
    assert reader.page.input_value(".model select") == "words"


@pytest.mark.parametrize("view", VIEWS)
def test_a_link_brings_everything_back(reader: Reader, view: str):
    reader.go(view, model=VIEWS[view]["model"])
    opening = reader.seen()
    reader.page.goto("about:blank")
    reader.go(view, **VIEWS[view])
    shown = reader.seen()
    assert shown != opening, "the link says something"
    reader.page.goto("about:blank")
    reader.go(view, **VIEWS[view])
    assert reader.seen() == shown
    assert reader.values() == {key: str(value) for key, value in VIEWS[view].items()}


def test_a_link_to_what_there_is_not_says_what_is_shown_instead(newcomer: Reader):
    newcomer.go("atention", model="word")
    assert newcomer.text("h1") == "Attention"
    said = "There is no view atention; this one is shown instead. No model word is loaded; this one is shown instead."
    assert newcomer.text(".instead") == said
    newcomer.page.click("nav.views a:has-text('Blanks')")
    newcomer.page.wait_for_selector(".view[data-view=blanks]")
    newcomer.settle()
    assert newcomer.text(".instead") == ""


def test_the_link_is_copied_whole(newcomer: Reader):
    newcomer.context.grant_permissions(["clipboard-read", "clipboard-write"])
    newcomer.go()
    newcomer.page.click("text=Copy link")
    newcomer.page.wait_for_selector("text=Copied")
    copied = newcomer.page.evaluate("navigator.clipboard.readText()")
    assert copied == f"{newcomer.host.url}/#attention?model=words"


def test_a_model_that_shows_nothing_says_why(newcomer: Reader):
    models = newcomer.host.ask("/explore/models")
    models[0] |= {"views": [], "why": "an exported file does not show its inside"}
    newcomer.page.route("**/explore/models", lambda route: route.fulfill(json=models))
    newcomer.go()
    assert newcomer.page.input_value(".model select") == "rotary", "the first that shows something"
    newcomer.page.select_option(".model select", "words")
    newcomer.page.wait_for_selector("main:has-text('an exported file does not show its inside')")
    newcomer.page.select_option(".model select", "translator")
    newcomer.page.wait_for_selector(".view[data-view=attention]")
    newcomer.settle()


def test_the_interface_in_korean(newcomer: Reader):
    newcomer.go("attention", model="words", layer=1, head=0)
    newcomer.page.click("[data-value=ko]")
    newcomer.page.wait_for_selector("html[lang=ko]")
    newcomer.settle()
    korean = json.loads((STATIC / "text.ko.json").read_text(encoding="utf-8"))
    assert newcomer.text("h1") == korean["attention.title"]
    assert newcomer.page.get_attribute("html", "lang") == "ko"
    assert newcomer.text("[data-picture=strands] h2") == "2층, 헤드 1"
    newcomer.page.reload()
    newcomer.settle()
    assert newcomer.text("h1") == korean["attention.title"]


def test_the_browsers_language_is_spoken(browser: Any, host: Host):
    with Reader(browser, host, locale="ko-KR") as reader:
        reader.go("head", model="words")
        assert reader.text("h1") == "헤드 하나의 속"


def test_light_and_dark(newcomer: Reader):
    def corner() -> list[int]:
        return newcomer.page.evaluate(
            "[...document.querySelector('.thumbnail canvas').getContext('2d').getImageData(2, 3, 1, 1).data]"
        )

    def ground() -> str:
        return newcomer.page.evaluate("getComputedStyle(document.body).backgroundColor")

    newcomer.go("attention", model="words")
    light, light_cell = ground(), corner()
    newcomer.click("[data-value=dark]")
    assert ground() != light
    assert corner() != light_cell, "pictures are painted anew"
    newcomer.page.reload()
    newcomer.settle()
    assert ground() != light
    newcomer.click("[data-value=system]")
    assert ground() == light
    newcomer.page.emulate_media(color_scheme="dark")
    newcomer.page.wait_for_selector("html[data-theme=dark]")
    newcomer.settle()
    assert ground() != light


def test_keys(reader: Reader):
    reader.go("attention", model="words")
    reader.page.keyboard.press("1")
    reader.page.wait_for_selector(".view[data-view=blanks]")
    reader.settle()
    reader.page.keyboard.press("/")
    assert reader.page.evaluate("document.activeElement.name") == "text"
    reader.page.keyboard.press("3")
    assert reader.page.input_value("textarea").endswith("3"), "who types is left alone"
    reader.page.focus("nav.views a")
    reader.page.keyboard.press("?")
    assert "choose a view" in reader.text("dialog")
    reader.page.keyboard.press("Escape")
    reader.page.wait_for_selector("dialog", state="detached")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_says_what_it_shows(reader: Reader, view: str):
    reader.go(view, model=VIEWS[view]["model"])
    reader.check_what()


def test_everything_has_a_name_and_fits_a_phone(browser: Any, host: Host):
    with Reader(browser, host, viewport={"width": 390, "height": 844}) as reader:
        for view in ("blanks", "attention", "head"):
            reader.go(view, model="words")
            assert reader.page.evaluate("document.documentElement.scrollWidth") <= 390, view
            assert reader.nameless() == []


def test_a_mistake_is_told_and_mended(reader: Reader):
    reader.expected = ["413"]
    reader.go("attention", model="rotary", text=" ".join(["river"] * 61))
    assert "has 63 tokens" in reader.text("[role=alert]")
    assert reader.page.locator(".view.stale").count() == 1
    reader.page.fill("textarea[name=text]", "the old river")
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_selector(".looks")
    reader.settle()
    assert reader.text("[role=alert]") == ""
    assert reader.page.locator(".view.stale").count() == 0


def test_pictures_are_saved(reader: Reader, tmp_path: Path):
    for view, picture, said in (
        ("blanks", "words", "capital"),
        ("attention", "strands", "street"),
        ("head", "workings", "÷ √8"),
    ):
        reader.go(view, model="words")
        svg, image = reader.saved(picture, tmp_path)
        assert f">{said}" in svg
        assert "foreignObject" not in svg
        width, height = map(int, re.findall(r'(?:width|height)="(\d+)"', svg)[:2])
        assert image.size == (2 * width, 2 * height)
        assert len(image.getcolors(1 << 24)) > 20, "something is drawn"


def test_the_server_goes_and_comes_back(browser: Any, host: Host):
    with Host(host.models) as other, Reader(browser, other) as reader:
        reader.expected = ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"]
        reader.go("attention", model="words", layer=0, head=0)
        other.__exit__()
        reader.page.click(".thumbnail[data-layer='1'][data-head='1']")
        reader.page.wait_for_selector(".banner:not(:empty)")
        assert "does not answer" in reader.text(".banner")
        assert reader.text("[data-picture=strands] h2") == "Layer 1, head 1", "what was there stays"
        other.__enter__()
        reader.page.wait_for_selector("[data-picture=strands] h2:text('Layer 2, head 2')")
        assert reader.text(".banner") == ""


def test_another_model_of_the_same_name_is_looked_at_anew(browser: Any, host: Host, tmp_path: Path):
    """A server that was started again: no number of the one before may stay."""
    told: dict[str, Any] = {"model": "words", "text": "the old river", "layer": 1, "head": 0}
    folders = page_models(tmp_path, seed=13)
    with Host(host.models) as other, Reader(browser, other) as reader:
        reader.expected = ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"]
        reader.go("attention", token=1, **told)
        before = reader.texts("[data-picture=looks] .bar-number")
        assert before
        other.__exit__()
        reader.page.click(".thumbnail[data-layer='0'][data-head='1']")
        reader.page.wait_for_selector(".banner:not(:empty)")
        reader.page.go_back()
        other.models = {"words": predict.load(folders["words"], "cpu")}
        other.__enter__()
        reader.page.wait_for_selector("p.model:text-is('words')")  # one model now, and nothing to choose
        reader.settle()
        assert reader.text(".banner") == ""
        row = numbers(other.ask("/explore/attention/matrix", **told)["weights"])[1]
        assert reader.texts("[data-picture=looks] .bar-number") == [percent(one) for one in sorted(row, reverse=True)]
        assert reader.texts("[data-picture=looks] .bar-number") != before


def test_the_page_waits_for_models_that_are_being_loaded(browser: Any, host: Host):
    with Host(host.models) as loading, Reader(browser, loading) as reader:
        reader.expected = ["503"]
        loading.app.state.desk.ready = False
        reader.page.goto(loading.url)
        reader.page.wait_for_selector(".banner:has-text('not yet')")
        loading.app.state.desk.ready = True
        reader.page.wait_for_selector(".strands")
        assert reader.text(".banner") == ""


def test_models_have_names_in_any_script(browser: Any, host: Host):
    named = {"내글": host.models["words"], "모형/회전": host.models["rotary"]}
    with Host(named) as other, Reader(browser, other) as reader:
        reader.go("attention", model="모형/회전", text=TEXT)
        assert reader.page.input_value(".model select") == "모형/회전"
        reader.page.select_option(".model select", "내글")
        reader.page.wait_for_function("new URLSearchParams(location.hash.split('?')[1]).get('model') === '내글'")
        reader.settle()
        assert reader.page.title() == "Attention · 내글 · heedful"
        reader.page.click("nav.views a:has-text('Inside one head')")
        reader.page.wait_for_selector(".view[data-view=head]")
        reader.settle()
        assert reader.values()["model"] == "내글"


def test_a_busy_server_is_asked_again(newcomer: Reader):
    newcomer.expected = ["429"]
    refused = []

    def once(route: Any) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route.request.url)
            busy = {"error": "no more may be under way", "error_type": "Overloaded"}
            route.fulfill(status=429, headers={"Retry-After": "1"}, json=busy)

    newcomer.page.route("**/explore/attention/grid", once)
    newcomer.go("attention", model="words")
    assert newcomer.page.locator(".thumbnail").count() == 6
    assert newcomer.text("[role=alert]") == ""
    assert len(refused) == 1


def test_a_view_that_can_not_be_fetched_is_told(newcomer: Reader):
    newcomer.expected = ["ERR_FAILED"]
    newcomer.page.route("**/views/head.js", lambda route: route.abort())
    newcomer.go("attention", model="words")
    newcomer.page.click("nav.views a:has-text('Inside one head')")
    newcomer.page.wait_for_selector("main:has-text('could not be fetched')")
    newcomer.page.click("nav.views a:has-text('Attention')")
    newcomer.page.wait_for_selector(".view[data-view=attention]")
    newcomer.settle()


def test_a_key_is_asked_for(browser: Any, host: Host):
    with Host(host.models, key="mellon") as locked, Reader(browser, locked) as reader:
        reader.expected = ["401"]
        reader.page.goto(locked.url)
        reader.page.fill("dialog input", "wrong")
        reader.page.keyboard.press("Enter")
        reader.page.wait_for_selector("dialog:has-text('refused')")
        reader.page.fill("dialog input", "mellon")
        reader.page.keyboard.press("Enter")
        reader.page.wait_for_selector(".strands")
        reader.settle()
        reader.page.reload()
        reader.settle()
        reader.page.wait_for_selector("dialog", state="detached")


def test_an_exported_page_asks_nobody(newcomer: Reader):
    asked = {"model": "words", "text": SENTENCE}
    grid, matrix = (f"/explore/attention/{kind}" for kind in ("grid", "matrix"))
    place = {**asked, "layer": 1, "head": 2}
    answers = {
        "GET /explore/models": [{**newcomer.host.ask("/explore/models")[0], "views": ["attention"]}],
        f"POST {grid} {_canonical(asked)}": newcomer.host.ask(grid, **asked),
        f"POST {matrix} {_canonical(place)}": newcomer.host.ask(matrix, **place),
        "start": {"view": "attention", **asked},
        **{f"GET /static/text.{code}.json": json.loads(_static(f"text.{code}.json")) for code in ("en", "ko")},
    }
    script = f'<script id="exported" type="application/json">{json.dumps(answers)}</script>'
    html = _static("index.html").replace('<div id="page">', script + '<div id="page">')
    newcomer.page.route(f"{newcomer.host.url}/", lambda route: route.fulfill(body=html, content_type="text/html"))
    newcomer.go("attention", layer=1, head=2)
    assert newcomer.text("[data-picture=strands] h2") == "Layer 2, head 3"
    assert newcomer.page.is_disabled(".thumbnail[data-layer='0'][data-head='0']")
    newcomer.go("attention", layer=0, head=0)
    newcomer.page.wait_for_selector("[role=alert]:has-text('saved to a file')")
    assert not any("/explore" in url or "/health" in url for url in newcomer.asked)


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _canonical(body: dict) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
