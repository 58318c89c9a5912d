"""The view of one head in a browser: every number of the arithmetic is the API's, also with a part left out."""

import numpy as np
import pytest

from tests.e2e.browsing import LONG, PATIENCE, SENTENCE, Reader, numbers, percent


def answer(reader: Reader, **asked: object) -> dict:
    return reader.host.ask("/explore/head", **{"model": "words", "text": SENTENCE, **asked})


def column(reader: Reader, number: int) -> list[str]:
    return reader.texts(f".workings tr[data-source] > :nth-child({number})")


def said(values: list[float]) -> list[str]:
    rounded = [f"{value:.3f}" for value in values]
    return [text.replace("-", "" if float(text) == 0 else "−") for text in rounded]


def test_the_arithmetic_of_a_word(reader: Reader):
    reader.go("head", model="words", layer=1, head=2, token=3)
    told = answer(reader, layer=1, head=2, token=3)
    assert column(reader, 1) == [token["text"] for token in told["tokens"]]
    assert column(reader, 3) == said(told["products"])
    assert column(reader, 4) == said(told["scaled"])
    assert column(reader, 5) == said(told["weights"])
    assert "÷ √8" in reader.text(".workings thead")
    assert np.allclose(np.array(told["products"]) / 8**0.5, told["scaled"], atol=1e-5)
    reader.page.hover(".workings tr[data-source='0'] td:nth-child(2) canvas")
    first = reader.page.get_attribute(".workings tr[data-source='0'] td:nth-child(2) canvas", "title")
    assert first.split() == [f"{key:.2f}".replace("-", "−") for key in numbers(told["keys"])[0]]
    assert reader.painted(".workings .outcome canvas") > 4


def test_another_word_asks_and_another_answers(reader: Reader):
    reader.go("head", model="words", layer=0, head=0)
    assert reader.text(".tokens .chip[aria-pressed=true]") == "it"
    reader.click(".tokens .chip[data-index='2']")
    told = answer(reader, layer=0, head=0, token=2)
    assert reader.text("[data-picture=workings] h2") == "“animal” asks in layer 1, head 1"
    assert column(reader, 5) == said(told["weights"])
    strongest = int(np.argmax(told["weights"]))
    assert reader.page.get_attribute(".workings tr.chosen", "data-source") == str(strongest)
    reader.click(".workings tr[data-source='5'] button")
    formula = reader.texts(".formula dd")
    assert formula[0].endswith(f"= {said(told['products'])[5]}")
    assert formula[1] == f"{said(told['products'])[5]} ÷ 2.828 = {said(told['scaled'])[5]}"
    assert formula[2].endswith(f"= {said(told['weights'])[5]}")
    total = np.exp(np.array(told["scaled"]) - told["scaled"][5]).sum()
    assert f"1 ÷ {total:.3f}" in formula[2]


@pytest.mark.parametrize("change", ["scale", "mask", "positions"])
def test_a_part_is_left_out(reader: Reader, change: str):
    reader.go("head", model="words", layer=1, head=1, token=4, padding=2)
    told = answer(reader, layer=1, head=1, token=4, padding=2)
    assert column(reader, 5)[-3:] == ["", "−∞", "−∞"], "the mask is shown where it acts"
    reader.click(f"[data-value={change}]")
    assert column(reader, 7) == said(told["without"][change]["weights"])
    moved = np.linalg.norm(np.subtract(told["output"], told["without"][change]["output"]))
    share = moved / np.linalg.norm(told["output"])
    assert percent(share) in reader.text("[data-picture=workings] .note")


def test_a_decoder_does_not_look_ahead(reader: Reader):
    asked = {"model": "translator", "text": "one two", "pair": "일 이 삼", "part": "decoder", "layer": 0, "head": 1}
    reader.go("head", **asked, token=1)
    told = answer(reader, **asked, token=1)
    assert told["mask"] == [True, True, *[False] * (len(told["tokens"]) - 2)]
    assert column(reader, 5) == ["−∞" if not seen else "" for seen in told["mask"]]
    assert column(reader, 6) == said(told["weights"])


@pytest.mark.parametrize("model", ["translator", "recurrent"])
def test_padding_behind_a_source_is_not_looked_at(reader: Reader, model: str):
    asked = {"model": model, "text": "one two", "pair": "일 이 삼", "part": "cross", "layer": 0, "head": 0}
    reader.go("head", **asked, token=2)
    assert "−∞" not in reader.text(".workings")
    reader.page.select_option("select[data-focus='Padding tokens']", "2")
    reader.page.wait_for_function("location.hash.includes('padding=2')")
    reader.settle()
    told = answer(reader, **asked, token=2, padding=2)
    assert told["mask"][-3:] == [True, False, False]
    place = 5 if model == "translator" else 4
    assert column(reader, place) == ["" if seen else "−∞" for seen in told["mask"]]
    assert column(reader, place + 1) == said(told["weights"])
    reader.click("[data-value=mask]")
    assert column(reader, place + 2) == said(told["without"]["mask"]["weights"])
    assert reader.page.locator(".tokens .chip").count() == len(told["target_tokens"]), "the target has no padding"


def test_the_scores_of_a_recurrent_model(reader: Reader):
    asked = {"model": "recurrent", "text": "one two", "pair": "일 이", "part": "cross", "layer": 0, "head": 0}
    reader.go("head", **asked, token=1)
    told = answer(reader, **asked, token=1)
    assert told["score"] in reader.text(".workings thead")
    assert "√" not in reader.text(".workings thead")
    assert column(reader, 4) == said(told["weights"])


def test_a_long_text_shows_the_words_that_weigh_most(reader: Reader):
    text = " ".join(["the old river is tired"] * 11)
    reader.go("head", model="words", text=text, layer=0, head=0, token=1)
    told = answer(reader, text=text, layer=0, head=0, token=1)
    sources = reader.page.eval_on_selector_all(
        ".workings tr[data-source]", "all => all.map(one => +one.dataset.source)"
    )
    assert sources == sorted(np.argsort(-np.array(told["weights"]), kind="stable")[:48].tolist())
    reader.click("text=Show all")
    assert len(column(reader, 5)) == 57


def test_five_hundred_tokens_do_not_freeze_it(reader: Reader):
    reader.go("head", model="words", layer=0, head=0)
    reader.watch()
    reader.page.fill("textarea[name=text]", LONG)
    reader.page.keyboard.press("Enter")
    reader.page.wait_for_function("document.querySelectorAll('.tokens .chip').length > 490")
    reader.settle()
    reader.click("text=Show all")
    reader.page.wait_for_function("document.querySelectorAll('.workings tr[data-source]').length === 500")
    sources = reader.page.eval_on_selector_all(
        ".workings tr[data-source]", "all => all.map(one => +one.dataset.source)"
    )
    assert sources == list(range(500))
    assert reader.longest() < PATIENCE
