from collections.abc import Callable

import numpy as np
import pytest

from heedful.explore.explorer import Explorer, Opened
from heedful.explore.vectors import Neighbourhood
from heedful.formats.word2vec import WordVectors
from heedful.predict import Predictor
from heedful.runs.nearest import nearest

WORDS = ("river", "bank", "money", "강", "zero")
VECTORS = WordVectors(WORDS, np.array([[2, 0, 0], [3, 3, 0], [0, 0, 1], [0, 5, 0], [0, 0, 0]], np.float32))


def test_neighbours_are_those_of_nearest():
    found = Neighbourhood(VECTORS)
    for word in ("river", "bank", "money", "강"):
        assert found.near(word, 3) == nearest(VECTORS, [word], top=3)[0]
    half = round(0.5**0.5, 6)
    assert found.near("river", 2) == [("bank", pytest.approx(half)), ("money", 0.0)]


def test_a_word_is_found_as_typed_or_in_lower_case_or_not_at_all():
    found = Neighbourhood(VECTORS)
    assert found.near("River", 3) == found.near("river", 3)
    assert found.near("\u1100\u1161\u11bc", 3) == found.near("강", 3), "typed in letters"
    assert found.near("ferry", 3) is None


def test_they_stand_beside_a_models_own(bert: Callable[[str], Predictor]):
    models = Opened({"bert": bert("published")})
    plain = Explorer(models).meaning("bert", "bank", ["the bank"])
    assert "word_vectors" not in plain
    explorer = Explorer(models, vectors=VECTORS)
    told = explorer.meaning("bert", "bank", ["the bank"])
    near = [one._asdict() for one in nearest(VECTORS, ["bank"], top=8)[0]]
    assert told["word_vectors"] == {"words": 5, "known": True, "neighbours": near}
    assert told["context_free"] == plain["context_free"]
    unknown = explorer.meaning("bert", "ferry", ["the ferry"])["word_vectors"]
    assert unknown == {"words": 5, "known": False, "neighbours": []}
