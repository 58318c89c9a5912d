"""The view of blanks in a browser: hide words, see candidates, write."""

import pytest

from tests.e2e.browsing import Reader, percent

TEXT = "The animal was too tired."


def shown(reader: Reader, number: int) -> list[tuple[str, str]]:
    picture = f"[data-picture=blank-{number}]"
    return list(
        zip(reader.texts(f"{picture} .bar-name"), reader.texts(f"{picture} .bar-number"), strict=True),
    )


def candidates(reader: Reader, text: str) -> list[list[tuple[str, str]]]:
    answer = reader.host.ask("/explore/blanks", model="words", text=text, count=8)
    return [
        [(one["token"], percent(one["probability"])) for one in blank["candidates"]] for blank in answer["blanks"]
    ]


def test_a_click_hides_a_word_and_shows_what_could_stand_there(reader: Reader):
    reader.go("blanks", model="words", text=TEXT)
    assert reader.texts(".chip") == ["The", "animal", "was", "too", "tired", "."]
    assert "Nothing is hidden yet." in reader.text("[data-picture=words]")
    reader.click(".chip:has-text('animal')")
    assert shown(reader, 1) == candidates(reader, "The [MASK] was too tired.")[0]
    assert reader.text("[data-picture=blank-1] h2") == "In place of “animal”"
    reader.click(".chip:has-text('tired')")
    both = candidates(reader, "The [MASK] was too [MASK].")
    assert [shown(reader, 1), shown(reader, 2)] == both
    filled = reader.host.ask("/explore/blanks", model="words", text="The [MASK] was too [MASK].", count=8)["filled"]
    assert reader.text(".filled") == filled
    reader.click(".chip:has-text('animal')")
    assert shown(reader, 1) == candidates(reader, "The animal was too [MASK].")[0]


def test_the_word_that_stood_there_is_marked(reader: Reader):
    every = candidates(reader, "The [MASK] was too tired.")[0]
    reader.go("blanks", model="words", text=f"The {every[2][0]} was too tired.", hide="1")
    assert reader.texts(".right .bar-name") == [every[2][0]]


def test_a_candidate_is_written_where_it_belongs(reader: Reader):
    reader.go("blanks", model="words", text=TEXT, hide="1,4")
    best = next(token for token, _ in shown(reader, 1) if token.isalpha())
    reader.click(f"[data-picture=blank-1] .bar-name:text-is('{best}')")
    assert reader.values()["text"] == f"The {best} was too tired."
    assert reader.texts(".chip[aria-pressed=true]") == ["tired"]
    assert reader.page.input_value("textarea") == f"The {best} was too tired."


def test_a_piece_of_a_word_joins_the_word_before(reader: Reader):
    reader.go("blanks", model="words", text="the river [MASK] .")
    answer = reader.host.ask("/explore/blanks", model="words", text="the river [MASK] .", count=8)
    tokens = [one["token"] for one in answer["blanks"][0]["candidates"]]
    if "##s" not in tokens:
        reader.page.route(
            "**/explore/blanks",
            lambda route: route.fulfill(
                json={
                    "blanks": [{"start": 10, "end": 16, "candidates": [{"token": "##s", "probability": 0.5}]}],
                    "filled": "the rivers .",
                }
            ),
        )
        reader.page.reload()
        reader.settle()
    reader.click("[data-picture=blank-1] .bar-name:text-is('##s')")
    assert reader.values()["text"] == "the rivers ."


@pytest.mark.parametrize("order", ["mask-predict", "gibbs"])
def test_it_writes_step_by_step(reader: Reader, order: str):
    reader.go("blanks", model="words", text=TEXT, hide="1,4", order=order, seed=5)
    reader.click("[data-picture=writing] button.primary")
    masked = "The [MASK] was too [MASK]."
    answer = reader.host.ask("/explore/generate", model="words", text=masked, words=8, seed=5, order=order)
    steps = [step["text"] for step in answer["steps"]]
    assert reader.text(".written") == steps[-1]
    last = [f"{one['token']} {percent(one['probability'])}" for one in answer["steps"][-1]["written"]]
    assert [" ".join(one.split()) for one in reader.texts(".wrote li")] == last
    assert f"Step {len(steps)} / {len(steps)}" in reader.text(".player-controls")
    reader.page.click("[aria-label='One step back']")
    assert " ".join(reader.text(".written").split()) == " ".join(steps[-2].replace("[MASK]", " ").split())
    reader.page.reload()
    reader.settle()
    assert reader.text(".written") == steps[-1]


def test_korean_and_typed_blanks(reader: Reader):
    reader.go("blanks", model="words", text="강가의 [MASK] 물레방아, it's")
    assert reader.texts(".chip") == ["강가의", "[MASK]", "물레방아", ",", "it's"]
    assert reader.page.is_disabled(".chip:has-text('MASK')")
    assert shown(reader, 1) == candidates(reader, "강가의 [MASK] 물레방아, it's")[0]
