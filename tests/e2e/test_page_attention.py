"""The view of attention in a browser: heads in small, one as strands or as a matrix, with the API's numbers."""

import numpy as np
import pytest

from tests.e2e.browsing import LONG, PATIENCE, SENTENCE, Reader, numbers, percent

FIRST = {"model": "words", "text": SENTENCE}


def weights(reader: Reader, **asked: object) -> np.ndarray:
    return numbers(reader.host.ask("/explore/attention/matrix", **{**FIRST, **asked})["weights"])


def strands(reader: Reader) -> dict[tuple[int, int], float]:
    found = reader.page.eval_on_selector_all(
        ".strand", "all => all.map(one => [one.dataset.row, one.dataset.column, one.dataset.weight].map(Number))"
    )
    return {(int(row), int(column)): weight for row, column, weight in found}


def test_it_opens_on_a_sentence_where_it_must_choose_what_it_means(reader: Reader):
    reader.go()
    assert reader.page.input_value("textarea[name=text]") == SENTENCE
    assert reader.texts(".looks[aria-pressed=true]") == ["it"]
    it, animal, street = (
        reader.host.ask("/explore/tokens", **FIRST)["tokens"].index(token) for token in _named(reader)
    )
    grid = numbers(reader.host.ask("/explore/attention/grid", **FIRST)["thumbnails"]).astype(float)
    looks = (grid[:, :, it, animal] + grid[:, :, it, street]) / (grid[:, :, it].sum(-1) + 1)
    layer, head = np.unravel_index(looks.argmax(), looks.shape)
    chosen = reader.page.locator(".thumbnail[aria-pressed=true]")
    assert (chosen.get_attribute("data-layer"), chosen.get_attribute("data-head")) == (str(layer), str(head))
    row = weights(reader, layer=int(layer), head=int(head))[it]
    drawn = strands(reader)
    assert {one for one, _ in drawn} == {it}
    assert {column: weight for (_, column), weight in drawn.items()} == pytest.approx(
        {column: weight for column, weight in enumerate(row.tolist()) if weight >= 0.001}
    )
    listed = reader.texts("[data-picture=looks] .bar-number")
    assert listed == [percent(weight) for weight in sorted(row.tolist(), reverse=True)[: len(listed)]]


def _named(reader: Reader) -> list[dict]:
    tokens = reader.host.ask("/explore/tokens", **FIRST)["tokens"]
    return [next(token for token in tokens if token["text"] == word) for word in ("it", "animal", "street")]


def test_every_head_has_a_thumbnail_and_a_click_opens_it(reader: Reader):
    reader.go("attention", model="words", token="none")
    thumbnails = reader.page.locator(".thumbnail")
    assert thumbnails.count() == 2 * 3
    assert all(
        reader.painted(f".thumbnail[data-layer='{layer}'][data-head='{head}'] canvas") > 3
        for layer in (0, 1)
        for head in (0, 2)
    )
    reader.click(".thumbnail[data-layer='1'][data-head='2']")
    assert (reader.values()["layer"], reader.values()["head"]) == ("1", "2")
    assert reader.text("[data-picture=strands] h2") == "Layer 2, head 3"
    matrix = weights(reader, layer=1, head=2)
    expected = {(r, c): w for r, row in enumerate(matrix.tolist()) for c, w in enumerate(row) if w >= 0.01}
    assert strands(reader) == pytest.approx(expected)
    reader.page.focus(".thumbnail[data-layer='1'][data-head='2']")
    reader.page.keyboard.press("ArrowUp")
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_function("location.hash.includes('layer=0')")
    reader.settle()
    focused = reader.page.evaluate("document.activeElement.dataset.focus")
    assert (reader.values()["head"], focused) == ("2", "head-0-2")


def test_a_word_is_chosen_and_let_go(reader: Reader):
    reader.go("attention", model="words", layer=0, head=1)
    reader.click(".looks[data-index='2']")
    assert reader.values()["token"] == "2"
    assert {row for row, _ in strands(reader)} == {2}
    assert reader.text("[data-picture=looks] h2") == "What “animal” looks at"
    reader.page.mouse.move(5, 5)  # a word under the pointer shows its strands too
    reader.page.keyboard.press("Escape")
    reader.page.wait_for_function("location.hash.includes('token=none')")
    reader.settle()
    assert len({row for row, _ in strands(reader)}) > 2
    assert reader.page.locator("[data-picture=looks]").count() == 0


def test_the_matrix_reads_out_the_weights(reader: Reader):
    reader.go("attention", model="words", layer=1, head=0, show="matrix")
    assert reader.painted("canvas.matrix") > 20
    reader.page.focus("canvas.matrix")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        reader.page.keyboard.press(key)
    names = [token["text"] for token in reader.host.ask("/explore/tokens", **FIRST)["tokens"]]
    it = names.index("it")
    weight = weights(reader, layer=1, head=0)[it, 2]
    assert reader.text(".readout") == f"it → {names[2]}: {percent(weight)}"
    box = reader.page.locator("canvas.matrix").bounding_box()
    reader.page.mouse.click(box["x"] + box["width"] - 4, box["y"] + box["height"] - 4)
    reader.page.wait_for_function("location.hash.includes('token=')")
    reader.settle()
    assert reader.values()["token"] == str(len(names) - 1)


def test_mean_and_rollout(reader: Reader):
    reader.go("attention", model="words", layer=1, head="mean", token=4)
    by_head = np.stack([weights(reader, layer=1, head=head)[4] for head in range(3)])
    assert list(strands(reader).values()) == pytest.approx(
        [w for w in by_head.mean(0).tolist() if w >= 0.001], rel=1e-5
    )
    reader.page.select_option("select[data-focus=Head]", "rollout")
    reader.page.wait_for_selector("[data-picture=strands] h2:text('Rollout up to layer 2')")
    reader.settle()
    rolled = weights(reader, layer=1, rollout=True)[4]
    assert list(strands(reader).values()) == pytest.approx([w for w in rolled.tolist() if w >= 0.001], rel=1e-5)


def test_from_one_sentence_to_another_without_special_tokens(reader: Reader):
    reader.go("attention", model="words", text="it was tired", layer=0, head=0, token="none")
    reader.page.click("text=Add a second sentence")
    reader.page.fill("textarea[name=pair]", "the old river")
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_selector(".looks.segment-1")
    reader.click("[data-value=ab]")
    reader.page.uncheck("text=Special tokens")
    reader.page.wait_for_function("location.hash.includes('special=hidden')")
    reader.settle()
    assert reader.texts(".strands .looks text") == ["it", "was", "tired"]
    assert reader.texts(".strands .seen") == ["the", "old", "river"]
    matrix = weights(reader, text="it was tired", pair="the old river", layer=0, head=0)
    expected = {(r, c): float(matrix[r, c]) for r in (1, 2, 3) for c in (5, 6, 7) if matrix[r, c] >= 0.01}
    assert strands(reader) == pytest.approx(expected)


def test_what_a_translator_looks_at(reader: Reader):
    reader.go("attention", model="translator", part="cross", text="one two", pair="일 이", token="none")
    answer = reader.host.ask(
        "/explore/attention/grid", model="translator", text="one two", pair="일 이", part="cross"
    )
    shown = [token["text"].replace("▁", "_") for token in answer["target_tokens"]]
    assert reader.texts(".strands .looks text") == shown
    assert reader.page.locator(".strands .seen").count() == len(answer["tokens"])
    reader.click("[data-value=decoder]")
    assert reader.page.locator(".strands .seen").count() == len(shown)
    assert all(column <= row for row, column in strands(reader)), "nobody looks ahead"
    reader.go("attention", model="recurrent")
    assert reader.page.locator(".thumbnail").count() == 1


def test_five_hundred_tokens_do_not_freeze_it(reader: Reader):
    reader.go("attention", model="words")
    reader.watch()
    reader.page.fill("textarea[name=text]", LONG)
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_function("document.querySelectorAll('.looks').length > 490")
    reader.settle()
    assert len(strands(reader)) <= 3000
    reader.click("[data-value=matrix]")
    assert reader.painted("canvas.matrix") > 20
    assert reader.longest() < PATIENCE
