import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import UserError
from heedful.explore.about import About
from heedful.explore.answers import Answers, collect, opening_row, question, word_spans
from heedful.explore.explorer import Explorer, Opened
from heedful.predict import ImagePredictor, Predictor
from heedful.predict.translator import Translator

TEXT = "the animal was tired."


def test_a_question_is_named_as_the_page_names_it():
    body = {"text": "둘 [MASK]", "model": "bert", "count": 8}
    assert question("blanks", body) == 'POST /explore/blanks {"count":8,"model":"bert","text":"둘 [MASK]"}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The animal didn't cross.", ["The", "animal", "didn't", "cross", "."]),
        ("a [MASK] well-known ’tis -", ["a", "well-known", "’", "tis", "-"]),
        ("강가에 é (1987)", ["강가에", "é", "(", "1987", ")"]),
        ("e\u0301 [MASK][MASK]", ["e\u0301"]),
        ("it's- 'x", ["it's", "-", "'", "x"]),
        ("", []),
    ],
)
def test_words_are_those_of_the_page(text: str, words: list[str]):
    assert [text[start:end] for start, end in word_spans(text)] == words


def test_the_row_that_opens():
    tokens = [{"text": text, "special": text.startswith("[")} for text in ("[CLS]", "the", "It", "[SEP]")]
    assert opening_row(tokens) == 2
    assert opening_row(tokens[:2]) == 1
    assert opening_row(tokens[:1]) == 0


def test_every_head_and_every_word_of_a_text(bert: Callable[[str], Predictor]):
    explorer = Explorer(Opened({"bert": bert("published")}))
    found = collect(explorer, About(text=TEXT)).found
    kinds: dict[str, int] = {}
    for name in found:
        kind = " ".join(name.split(" ")[:2])
        kinds[kind] = kinds.get(kind, 0) + 1
    assert kinds == {
        "GET /explore/models": 1,
        "GET /explore/runs": 1,
        "start": 1,
        "POST /explore/attention/grid": 1,
        "POST /explore/attention/matrix": 3 * (2 + 2),
        "POST /explore/positions": 1,
        "POST /explore/blanks": 5,
        "POST /explore/generate": 2,
        "POST /explore/head": 3 * 2 * 7,
    }
    one = {"model": "bert", "text": TEXT, "layer": 2, "head": 1}
    assert found[question("attention/matrix", one)] == explorer.matrix(**one)
    rolled = {"model": "bert", "text": TEXT, "layer": 1, "rollout": True}
    assert found[question("attention/matrix", rolled)] == explorer.matrix(**rolled)
    assert found[question("head", {**one, "token": 3})] == explorer.head(**one, token=3)
    assert found["start"] == {"view": "attention", "model": "bert", "text": TEXT}
    assert found["GET /explore/models"][0]["views"] == ["blanks", "attention", "head", "positions"]
    hidden = {"model": "bert", "text": "the [MASK] was tired.", "count": 8}
    assert found[question("blanks", hidden)]["blanks"][0]["start"] == 4


def test_translators_show_all_their_parts(
    transformer: Callable[[bool], Translator], rnn: Callable[[str], Translator]
):
    explorer = Explorer(Opened({"one": transformer(False), "other": rnn("dot")}))
    found = collect(explorer, About(text="one three", pair="둘")).found
    asked: dict[str, Any] = {"model": "one", "text": "one three", "pair": "둘"}
    assert found[question("attention/grid", {**asked, "part": "decoder"})]["layers"] == 3
    assert question("attention/grid", asked) in found
    assert question("attention/matrix", {**asked, "part": "cross", "layer": 2, "head": "mean"}) in found
    assert question("attention/matrix", {**asked, "part": "cross", "layer": 2, "rollout": True}) not in found
    assert question("translate", {"model": "other", "text": "one three", "beams": 4}) in found
    assert question("attention/grid", {**asked, "model": "other", "part": "cross"}) in found


def test_what_has_no_room_is_counted(bert: Callable[[str], Predictor]):
    explorer = Explorer(Opened({"bert": bert("published")}))
    whole = collect(explorer, About(text=TEXT))
    part = collect(explorer, About(text=TEXT), most_bytes=whole.size - 20_000)
    assert whole.left_out == {}
    (kind,) = part.left_out
    assert kind == "words inside heads"
    assert len(part.found) + part.left_out[kind] == len(whole.found)
    sizes = sum(len(json.dumps(one, ensure_ascii=False).encode()) for one in list(part.found.values())[3:])
    assert part.size == sizes
    opened = {"model": "bert", "text": TEXT, "layer": 2, "head": 1, "token": 1}
    assert question("head", opened) in part.found


def test_a_question_is_asked_once():
    asked = []
    answers = Answers()
    for _ in range(3):
        answers.add("x", "question", lambda: asked.append(1) or "answer")  # type: ignore[func-returns-value]
    assert asked == [1]


def test_an_image_is_what_a_model_that_sees_is_about(vit: Callable[..., ImagePredictor], image_file: Path):
    explorer = Explorer(Opened({"vit": vit()}))
    image = image_file.read_bytes()
    found = collect(explorer, About(image=image)).found
    assert found["start"]["view"] == "images"
    letters = found["start"]["image"]
    assert base64.urlsafe_b64decode(letters + "=" * (-len(letters) % 4)) == image
    body = {"model": "vit", "image": base64.b64encode(image).decode()}
    assert found[question("look", body)] == explorer.look(**body)
    assert found["GET /explore/models"][0]["views"] == ["images", "positions"]


def test_there_must_be_something_to_export(vit: Callable[..., ImagePredictor]):
    assert collect(Explorer(Opened({"vit": vit()})), About(text="text")).found["start"]["view"] == "positions"
    with pytest.raises(UserError, match="no model shows its inside for what was given"):
        collect(Explorer(Opened({})), About(text="text"))
