"""The view of translation in a browser: the search as a tree that grows, what it found, and where that came from."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browsing import Host, Reader, colours, numbers, percent

TEXT = "one two three"


def search(reader: Reader, model: str = "translator", **asked: Any) -> dict[str, Any]:
    return reader.host.ask("/explore/translate", **{"model": model, "text": TEXT, "beams": 4, **asked})


def boxes(reader: Reader) -> dict[int, tuple[str, list[str]]]:
    """What became of each hypothesis that is to be seen, and what its box says."""
    found = reader.page.eval_on_selector_all(
        ".hypothesis",
        """all => all.filter(one => getComputedStyle(one).visibility === "visible").map(one =>
             [Number(one.dataset.id), one.dataset.state,
              [...one.querySelectorAll("text")].map(text => text.textContent)])""",
    )
    return {number: (state, said) for number, state, said in found}


def states(reader: Reader) -> dict[int, str]:
    return {one: state for one, (state, _) in boxes(reader).items()}


def number(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def fates(tree: list[dict[str, Any]], step: int) -> dict[int, str]:
    """What the page should say after some steps, worked out from the tree's leaves."""
    alive: set[int] = set()
    for node in tree:
        ended = node["state"] == "finished" and node["step"] <= step
        if ended or (node["step"] == step and (node["kept"] or node["parent"] is None)):
            while node is not None and node["id"] not in alive:
                alive.add(node["id"])
                node = None if node["parent"] is None else tree[node["parent"]]
    ends = {node["id"] for node in tree if node["state"] == "finished"}
    return {
        node["id"]: ("finished" if node["id"] in ends else "alive") if node["id"] in alive else "pruned"
        for node in tree
        if node["step"] <= step
    }


@pytest.mark.parametrize("model", ["translator", "recurrent"])
def test_the_tree_is_that_of_the_search(reader: Reader, model: str):
    told = search(reader, model)
    reader.go("translation", model=model, text=TEXT)
    shown = boxes(reader)
    assert {one: state for one, (state, _) in shown.items()} == {one["id"]: one["state"] for one in told["tree"]}
    assert {one["state"] for one in told["tree"]} == {"alive", "pruned", "finished"}
    for node in told["tree"][1:]:
        token = node["token"].replace("▁", "_")
        ended = node["state"] == "finished"
        said = f"{node['rank'] + 1}.  {number(node['score'])}" if ended else percent(node["probability"])
        assert shown[node["id"]][1] == [token if len(token) <= 9 else token[:8] + "…", said]
    assert reader.page.locator(".branch").count() == len(told["tree"]) - 1


def test_it_grows_step_by_step(newcomer: Reader):
    reader = newcomer
    tree = search(reader)["tree"]
    last = max(node["step"] for node in tree)
    reader.go("translation", model="translator", text=TEXT, step=1)
    back, on = (f"[aria-label='One step {way}']" for way in ("back", "on"))
    for button, step in ((back, 0), (on, 1), (on, 2), (on, 3), (back, 2)):
        reader.click(button)
        assert states(reader) == fates(tree, step)
        assert reader.values()["step"] == str(step)
        assert reader.text(".player-controls .note") == f"Step {step + 1} / {last + 1}"
    assert fates(tree, last) == {node["id"]: node["state"] for node in tree}
    reader.page.clock.install()
    reader.page.click("text=Play")
    reader.page.clock.run_for(1000)
    reader.page.wait_for_function("document.querySelector('.player-controls .note').textContent.startsWith('Step 4')")
    reader.page.click("text=Pause")
    reader.page.clock.run_for(5000)
    assert reader.text(".player-controls .note") == f"Step 4 / {last + 1}"
    reader.page.reload()
    reader.settle()
    assert states(reader) == fates(tree, 2), "the link brings the step back"


def test_a_translation_is_chosen_and_shows_where_it_came_from(reader: Reader):
    told = search(reader)
    reader.go("translation", model="translator", text=TEXT)
    listed = [(one["text"] or "(nothing)", number(one["score"])) for one in told["translations"]]
    assert list(zip(reader.texts(".found .words"), reader.texts(".found .bar-number"), strict=True)) == listed
    reader.click(".found [data-rank='2']")
    assert reader.values()["best"] == "2"
    leaf = next(node for node in told["tree"] if node["rank"] == 2)
    way = {leaf["id"]}
    while leaf["parent"] is not None:
        leaf = told["tree"][leaf["parent"]]
        way.add(leaf["id"])
    marked = reader.page.eval_on_selector_all(".hypothesis.best", "all => all.map(one => Number(one.dataset.id))")
    assert set(marked) == way
    reader.page.focus("[data-picture=alignment] canvas.matrix")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        reader.page.keyboard.press(key)
    third = told["translations"][2]
    weight = numbers(third["alignment"])[1, 1]
    said = f"{third['tokens'][1]} → {told['source'][1]['text']}: {percent(weight)}".replace("▁", "_")
    assert reader.text("[data-picture=alignment] .readout") == said
    assert reader.painted("[data-picture=alignment] canvas.matrix") > 5


def test_a_beginning_is_forced_and_the_search_changes(reader: Reader):
    reader.go("translation", model="translator", text=TEXT)
    tree = search(reader)["tree"]
    *_, chosen = (node for node in tree if node["step"] == 1 and node["state"] == "pruned")
    text = chosen["token"].replace("▁", " ").strip()
    reader.click(f".hypothesis[data-id='{chosen['id']}']")
    assert reader.text(".hypothesis-told .written") == text
    assert percent(chosen["probability"]) in reader.text(".hypothesis-told .note")
    assert number(chosen["log_prob"]) in reader.text(".hypothesis-told .note")
    reader.click("text=Make every translation begin so")
    assert reader.values()["prefix"] == text
    assert reader.page.input_value("textarea[name=pair]") == text
    told = search(reader, prefix=text)
    assert all(one["text"].startswith(text) for one in told["translations"])
    assert reader.texts(".found .words") == [one["text"] for one in told["translations"]]
    assert len(boxes(reader)) == len(told["tree"]) != len(tree)
    reader.click("text=Remove")
    assert "prefix" not in reader.values()
    assert len(boxes(reader)) == len(tree)


def test_beams_and_length_penalty(reader: Reader):
    reader.go("translation", model="translator", text=TEXT)
    reader.page.select_option("select[data-focus=Beams]", "2")
    reader.page.wait_for_function("location.hash.includes('beams=2')")
    reader.settle()
    assert len(boxes(reader)) == len(search(reader, beams=2)["tree"])
    reader.page.fill("input[name=penalty]", "0")
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_function("location.hash.includes('penalty=0')")
    reader.settle()
    found = search(reader, beams=2, length_penalty=0)["translations"]
    assert reader.texts(".found .bar-number") == [number(one["score"]) for one in found]
    assert found[0]["score"] != search(reader, beams=2)["translations"][0]["score"]


def test_boxes_are_walked_by_keyboard(reader: Reader):
    tree = search(reader)["tree"]
    reader.go("translation", model="translator", text=TEXT)
    reader.page.focus(".hypothesis[data-id='0']")
    reader.page.keyboard.press("ArrowRight")
    first = int(reader.page.evaluate("document.activeElement.dataset.id"))
    assert tree[first]["parent"] == 0
    reader.page.keyboard.press("ArrowDown")
    second = int(reader.page.evaluate("document.activeElement.dataset.id"))
    assert (tree[second]["step"], second != first) == (1, True)
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_function(f"location.hash.includes('node={second}')")
    reader.settle()
    assert reader.page.evaluate("document.activeElement.dataset.id") == str(second)
    reader.page.keyboard.press("Escape")
    reader.page.wait_for_function("!location.hash.includes('node=')")
    reader.page.keyboard.press("ArrowLeft")
    assert reader.page.evaluate("document.activeElement.dataset.id") == "0"


def test_a_recurrent_model_names_its_score(reader: Reader):
    reader.go("translation", model="recurrent", text=TEXT)
    score = next(one for one in reader.host.ask("/explore/models") if one["name"] == "recurrent")["score"]
    assert score == "general"
    assert f"({score})" in reader.text(".kind")
    assert reader.text(".kind code") == "score(q, k) = qᵀWk"
    reader.go("translation", model="translator", text=TEXT)
    assert reader.page.locator(".kind").count() == 0


def test_it_is_saved_speaks_korean_and_fits_a_phone(browser: Any, host: Host, tmp_path: Path):
    with Reader(browser, host, viewport={"width": 390, "height": 844}, locale="ko-KR") as reader:
        reader.go("translation", model="translator", text=TEXT, step=5)
        assert reader.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert reader.nameless() == []
        assert reader.text("h1") == "번역"
        reader.page.evaluate("document.querySelector('.sideways').scrollLeft = 90")
        svg, image = reader.saved("beam", tmp_path)
        assert reader.page.evaluate("document.querySelector('.sideways').scrollLeft") == 90
        assert min(map(float, re.findall(r'<svg [^>]*? x="(-?[\d.]+)"', svg))) >= 0, "nothing is cut off"
        token = next(node["token"] for node in search(reader)["tree"] if node["step"] == 2)
        assert f">{token.replace('▁', '_')}</text>" in svg
        assert colours(image) > 20
