"""What can be seen of each kind of model, and what is said where there is nothing to see."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from heedful.explore import inside
from heedful.explore.refusals import NotThere
from heedful.models.heads import BertForTask, Head
from heedful.predict import ImagePredictor, Predictor
from heedful.predict.engine import TorchEngine
from heedful.predict.translator import Translator

EXPORTED = "an exported file does not show its inside; load the model with the engine torch"


@pytest.fixture
def exported(bert: Callable[[str], Predictor], pieces: Any) -> dict[str, Any]:
    """Models that another engine computes."""
    engine = SimpleNamespace(head=None, max_length=41, vocab_size=999)
    images = SimpleNamespace(labels=("a", "b"), image_size=15)
    return {
        "bert": Predictor(engine, bert("published").tokenizer, "other"),  # pyrefly: ignore
        "transformer": Translator(SimpleNamespace(longest=30), pieces, pieces, "other"),  # pyrefly: ignore
        "vit": ImagePredictor(images, "other"),  # pyrefly: ignore
    }


@pytest.mark.parametrize("family", ["bert", "transformer", "vit"])
def test_an_exported_model_shows_nothing_and_says_why(exported: dict[str, Any], family: str):
    card = inside.describe(exported[family])
    assert (card.family, card.views, card.why) == (family, (), EXPORTED)
    ask = {"bert": inside.encoder, "transformer": inside.translating, "vit": inside.vision}[family]
    with pytest.raises(NotThere, match=f"other can't do this: {EXPORTED}"):
        ask(exported[family], "do this")


def test_a_head_brings_its_labels_and_takes_the_blanks_away(bert: Callable[[str], Predictor]):
    whole = bert("published")
    assert whole.words is not None
    model = BertForTask(whole.words.config, Head(task="classify", labels=("good", "bad", "so-so")))
    card = inside.describe(Predictor(TorchEngine(model), whole.tokenizer))
    assert card.labels == ("good", "bad", "so-so")
    assert card.views == ("attention", "head", "positions", "meaning")


def test_modern_positions_are_named(bert: Callable[[str], Predictor]):
    assert inside.describe(bert("modern")).positions == "rotary"


def test_who_is_asked_for_something_else_says_what_it_does(
    bert: Callable[[str], Predictor], rnn: Callable[[str], Translator], vit: Callable[..., ImagePredictor]
):
    with pytest.raises(NotThere, match="rnn can't fill blanks: it translates; choose a model that reads texts alone"):
        inside.encoder(rnn("dot"), "fill blanks")
    with pytest.raises(NotThere, match="vit can't translate: it sees images; choose a model that translates"):
        inside.translating(vit(), "translate")
    with pytest.raises(NotThere, match="published can't look: it reads texts; choose a model that sees images"):
        inside.vision(bert("published"), "look")
    with pytest.raises(NotThere, match="a recurrent model has none, it reads token after token"):
        inside.placing(rnn("dot"))
