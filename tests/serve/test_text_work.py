"""The server asks a model as Python does, also one of sentence-transformers that has texts written in its way."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import heedful
from heedful.formats.sentence_transformers import Pooling
from heedful.models.heads import Head
from heedful.predict.predictor import Predictor
from heedful.serve.text_work import TextAsked, score_work, state_work, vector_work

TEXTS = ["the mill", "A baker carries bread."]
PAIRS = [("the mill", "the old bridge"), ("warm bread", "a baker")]


@pytest.fixture(params=[None, False, True], ids=["either", "texts", "pairs"])
def asked(request: pytest.FixtureRequest, headed: Callable[..., Path]) -> tuple[Predictor, list]:
    """A classifier whose folder has a prompt, and what it may be asked."""
    pairs = request.param
    plain = heedful.load(headed(Head(task="classify", labels=("good", "bad"), pairs=pairs)))
    made = Predictor(plain.engine, plain.tokenizer, pooling=Pooling(prompt="the old river: ", lower=True))
    return made, [*(TEXTS if not pairs else ()), *(PAIRS if pairs in (None, True) else ())]


def examples(texts: list) -> list[TextAsked]:
    return [TextAsked(one) if isinstance(one, str) else TextAsked(*one) for one in texts]


def test_heads_read_texts_as_they_are(asked: tuple[Predictor, list]):
    predictor, texts = asked
    work = score_work(predictor, raw=False)
    found = work.answer(work.prepare(examples(texts)), lambda: True)
    expected = predictor.classify(texts)
    assert [one["good"] for one in found] == pytest.approx([one.probabilities["good"] for one in expected], rel=1e-5)


def test_vectors_and_states_are_of_texts_as_the_folder_has_them_written(asked: tuple[Predictor, list]):
    predictor, _ = asked
    texts = [*TEXTS, *PAIRS]
    work = vector_work(predictor)
    prepared = work.prepare(examples(texts))
    found = np.array([one.answer for one in work.answer(prepared, lambda: True)])
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    assert np.allclose(unit, predictor.embed(texts), atol=1e-5)
    bare = Predictor(predictor.engine, predictor.tokenizer)
    assert not np.allclose(unit, bare.embed(texts), atol=1e-2)
    same = state_work(predictor).prepare(examples(texts))
    assert [one.ids.tolist() for one in same] == [one.ids.tolist() for one in prepared]
