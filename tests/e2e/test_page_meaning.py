"""The view of meaning in a browser: a word in several sentences, its neighbours, the map, and the word alone."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heedful.formats.word2vec import WordVectors
from tests.e2e.browsing import SENTENCE, STATIC, Host, Reader, colours, numbers, percent
from tests.e2e.test_page_words import contrast

SENTENCES = ["the old river is tired .", "a river of paris", "because the river was old"]


def meaning(reader: Reader, **asked: Any) -> dict[str, Any]:
    return reader.host.ask("/explore/meaning", **{"model": "words", "word": "river", "sentences": SENTENCES, **asked})


def table(reader: Reader, **asked: Any) -> list[float]:
    return numbers(meaning(reader, **asked)["similarity"]).ravel().tolist()


def go(reader: Reader, **values: Any) -> None:
    reader.go("meaning", **{"model": "words", "word": "river", "sentences": "\n".join(SENTENCES), **values})


def shown_table(reader: Reader) -> list[float]:
    return reader.page.eval_on_selector_all(
        ".alike td[data-value]", "all => all.map(one => Number(one.dataset.value))"
    )


def card(reader: Reader, sentence: int | str) -> list[tuple[str, str]]:
    here = f".near-card[data-sentence='{sentence}']"
    return list(zip(reader.texts(f"{here} .bar-name"), reader.texts(f"{here} .bar-number:not(.fits)"), strict=True))


def number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def test_similarities_neighbours_and_map_are_the_apis(reader: Reader):
    go(reader)
    told = meaning(reader)
    alike = numbers(told["similarity"])
    assert alike.shape == (3, 3)
    assert shown_table(reader) == pytest.approx(alike.ravel().tolist(), abs=1e-6)
    assert reader.texts(".alike td[data-value]") == [number(value) for value in alike.ravel().tolist()]
    for sentence, near in enumerate(told["neighbours"]):
        assert card(reader, sentence) == [(one["word"], number(one["similarity"])) for one in near]
        fits = reader.texts(f".near-card[data-sentence='{sentence}'] .fits")
        assert fits == [percent(one["probability"]) for one in near], "a model that fills blanks says how well"
    alone = told["context_free"]["neighbours"]
    assert card(reader, "none") == [(one["word"], number(one["similarity"])) for one in alone]
    points = reader.page.eval_on_selector_all(
        ".point", "all => all.map(({dataset: d}) => [d.label, Number(d.group), Number(d.x), Number(d.y)])"
    )
    drawn = sorted((point["label"], point["sentence"], point["x"], point["y"]) for point in told["map"])
    assert sorted(map(tuple, points)) == drawn
    assert len(points) > 3
    assert reader.texts(".point.large .mark-in") == ["1", "2", "3"]


def test_points_lie_as_the_numbers_say(reader: Reader):
    go(reader)
    drawn = reader.page.eval_on_selector_all(
        ".point",
        """all => all.map(one => [Number(one.dataset.x), Number(one.dataset.y),
             ...["cx", "cy"].map(name => Number(one.querySelector("circle").getAttribute(name)))])""",
    )
    (x, y, across, down), (x2, y2, across2, down2) = min(drawn), max(drawn)
    scale = (across2 - across) / (x2 - x)
    assert scale > 0
    for x2, y2, across2, down2 in drawn:
        assert across2 - across == pytest.approx(scale * (x2 - x), abs=1e-6)
        assert down2 - down == pytest.approx(-scale * (y2 - y), abs=1e-6), "upwards is more, in the same measure"
    boxes = reader.page.eval_on_selector_all(
        ".points .name", "all => all.map(one => one.getBBox()).map(({x, y, width, height}) => [x, y, width, height])"
    )
    assert len(boxes) > 3
    overlaps = [
        (one, other)
        for place, one in enumerate(boxes)
        for other in boxes[:place]
        if one[0] < other[0] + other[2] - 1 and other[0] < one[0] + one[2] - 1
        if one[1] < other[1] + other[3] / 2 and other[1] < one[1] + one[3] / 2
    ]
    assert overlaps == []


def test_a_sentence_is_added_and_removed(reader: Reader):
    go(reader)
    reader.page.click("text=Add a sentence")
    reader.page.keyboard.type("it was a river .")
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_selector(".near-card[data-sentence='3']")
    reader.settle()
    four = [*SENTENCES, "it was a river ."]
    assert reader.values()["sentences"].split("\n") == four
    assert shown_table(reader) == pytest.approx(table(reader, sentences=four))
    reader.page.locator(".sentences li").nth(1).locator("button").click()
    reader.page.wait_for_function("document.querySelectorAll('.alike td[data-value]').length === 9")
    reader.settle()
    left = [four[0], *four[2:]]
    assert reader.page.eval_on_selector_all(".sentences textarea", "all => all.map(one => one.value)") == left
    assert reader.texts(".sentences .badge") == ["1", "2", "3"]
    assert shown_table(reader) == pytest.approx(table(reader, sentences=left))
    reader.page.go_back()
    reader.page.wait_for_selector(".near-card[data-sentence='3']")
    assert reader.page.locator(".sentences textarea").count() == 4


def test_another_layer_and_the_link_to_it(reader: Reader):
    go(reader)
    last = shown_table(reader)
    reader.page.select_option("select[data-focus=Layer]", "0")
    reader.page.wait_for_function("location.hash.includes('layer=0')")
    reader.settle()
    first = table(reader, layer=0)
    assert shown_table(reader) == pytest.approx(first, abs=1e-6) != pytest.approx(last, abs=1e-3)
    reader.page.reload()
    reader.settle()
    assert shown_table(reader) == pytest.approx(first, abs=1e-6)


def test_it_opens_on_a_word_that_the_model_knows(reader: Reader):
    reader.go("meaning", model="words")
    assert reader.page.input_value("input[name=word]") == "it"
    texts = reader.page.eval_on_selector_all(".sentences textarea", "all => all.map(one => one.value)")
    assert texts == [SENTENCE, SENTENCE.replace("tired", "wide")]
    assert reader.texts(".near-card b") == ["it", "it"]


def test_who_points_at_a_sentence_sees_its_points_alone(reader: Reader):
    go(reader)
    reader.page.hover(".near-card[data-sentence='1']")
    faded = reader.page.eval_on_selector_all(".point.faded", "all => all.map(one => one.dataset.group)")
    assert set(faded) == {"0", "2"}
    reader.page.hover("h1")
    assert reader.page.locator(".point.faded").count() == 0


def test_a_word_that_is_not_there_is_told(reader: Reader):
    reader.expected = ["422"]
    go(reader)
    reader.page.fill("input[name=word]", "street")
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_selector("[role=alert]:has-text(\"'street' is not in\")")
    assert reader.page.eval_on_selector_all(".sentences textarea", "all => all.map(one => one.value)") == SENTENCES


@pytest.mark.parametrize(("theme", "ground"), [("LIGHT", "#ffffff"), ("DARK", "#171c1f")])
def test_the_colours_of_sentences_stand_out(theme: str, ground: str):
    assert f"--surface: {ground}" in (STATIC / "style.css").read_text(encoding="utf-8")
    source = (STATIC / "palette.js").read_text(encoding="utf-8")
    hues = re.findall(r"#\w{6}", source.split(f"const {theme} = [")[1].split("]")[0])
    assert len(set(hues)) == 8
    assert min(contrast(hue, ground) for hue in hues) >= 4.5


def test_it_is_saved_and_fits_a_phone(browser: Any, host: Host, tmp_path: Path):
    with Reader(browser, host, viewport={"width": 390, "height": 844}, locale="ko-KR") as reader:
        go(reader, model="rotary")
        assert reader.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert reader.nameless() == []
        assert reader.text("h1") == "의미"
        assert reader.page.locator(".fits").count() == 0, "this one fills no blanks"
        svg, image = reader.saved("map", tmp_path)
        assert ">1</text>" in svg
        assert colours(image) > 20


def test_word_vectors_stand_beside_it(browser: Any, host: Host):
    matrix = np.array([[2, 0], [3, 3], [0, 1]], np.float32)
    vectors = WordVectors(("river", "bank", "money"), matrix)
    with Host({"words": host.models["words"]}, vectors=vectors) as other, Reader(browser, other) as reader:
        go(reader)
        assert card(reader, "vectors") == [("bank", "0.71"), ("money", "0.00")]
        assert reader.text(".near-card[data-sentence=vectors] h3") == "By 3 word vectors, whatever the sentence"
        assert card(reader, "none"), "the model's own table is still there"
        go(reader, word="old", sentences="the old river")
        assert card(reader, "vectors") == []
        assert "“old” is not among them." in reader.text(".near-card[data-sentence=vectors]")
