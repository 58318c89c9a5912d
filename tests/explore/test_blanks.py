from collections.abc import Callable

import pytest

from heedful.errors import UserError
from heedful.explore.blanks import blanks
from heedful.explore.explorer import Explorer
from heedful.predict import Predictor
from heedful.predict.generation import Step


def test_candidates_are_the_predictors_own(bert: Callable[[str], Predictor]):
    predictor = bert("published")
    text = "the [MASK] was [MASK]."
    found, filled = blanks(predictor, text, 5)
    assert [one.candidates for one in found] == predictor.fill(text, 5)
    assert [text[one.start : one.end] for one in found] == ["[MASK]", "[MASK]"]
    assert [one.start for one in found] == [4, 15]
    best = [one.candidates[0].token for one in found]
    assert filled.replace(" ", "") == f"the{best[0]}was{best[1]}.".replace("##", "").replace(" ", "")


def test_a_text_without_blanks_is_refused(bert: Callable[[str], Predictor]):
    with pytest.raises(UserError, match=r"there is no blank; write \[MASK\]"):
        blanks(bert("published"), "the animal", 5)


@pytest.mark.parametrize("order", ["mask-predict", "gibbs"])
def test_what_is_written_is_the_predictors_own(loaded: object, bert: Callable[[str], Predictor], order: str):
    answer = Explorer(loaded).generate("bert", "the animal", 5, seed=3, order=order)  # pyrefly: ignore
    steps: list[Step] = []
    theirs = bert("published").generate("the animal", tokens=5, seed=3, order=order, watch=steps.append)
    assert [step["written"] for step in answer["steps"]] == [
        [one._asdict() for one in step.written] for step in steps
    ]
    assert [step["text"] for step in answer["steps"]] == theirs.steps
    assert (answer["text"], answer["probability"]) == (theirs.text, theirs.probability)
