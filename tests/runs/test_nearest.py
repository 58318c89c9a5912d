import unicodedata

import numpy as np
import pytest

from heedful.errors import UserError
from heedful.formats.word2vec import WordVectors
from heedful.runs.nearest import Near, find, nearest

WORDS = ("king", "man", "woman", "queen", "nothing")
VECTORS = WordVectors(
    WORDS,
    np.array([[3, 4, 0], [0, 2, 0], [0, 0, 5], [2, 0, 2], [0, 0, 0]], np.float32),
)


def test_neighbours_are_by_cosine_with_the_word_itself_left_out():
    (found,) = nearest(VECTORS, ["king"], top=3)
    assert [near.word for near in found] == ["man", "queen", "woman"]
    assert [near.similarity for near in found] == pytest.approx([0.8, 0.6 / 2**0.5, 0.0], abs=1e-6)
    assert [len(found) for found in nearest(VECTORS, ["man", "queen"], top=99)] == [4, 4]


def test_a_sum_of_words_leaves_all_of_them_out():
    # (0.6, 0.8, 0) - (0, 1, 0) + (0, 0, 1) = (0.6, -0.2, 1); with (1, 0, 1)/√2: 1.6 / √2 / √1.4
    (found,) = nearest(VECTORS, ["king"], plus=["woman"], minus=["man"], top=5)
    assert found == [Near("queen", pytest.approx(1.6 / 2**0.5 / 1.4**0.5, abs=1e-6)), Near("nothing", 0.0)]


def test_a_word_is_found_in_lower_case():
    assert nearest(VECTORS, ["King"]) == nearest(VECTORS, ["king"])


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("quen", r"'quen' is not among the 5 words; did you mean queen\?"),
        (
            "xylophone",
            "'xylophone' is not among the 5 words; it is not in their text, or too rare; .* smaller --min-count",
        ),
        ("kingfishers", r"'kingfishers' is not among the 5 words; did you mean king\?"),
        ("__man__", r"'__man__' is not among the 5 words; did you mean man\?"),
        ("", "'' is no word; give one"),
        (" ", "' ' is no word; give one"),
        ("old  king", "'old  king' is 2 words, and a vector is of one; give them one by one: old king"),
    ],
)
def test_a_word_that_is_not_there_is_named_with_near_spellings(word: str, complaint: str):
    with pytest.raises(UserError, match=complaint):
        nearest(VECTORS, [word])
    with pytest.raises(UserError, match=complaint):
        nearest(VECTORS, ["king"], plus=[word])


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (
            {"words": ["king"], "minus": ["king"]},
            "king - king leaves nothing to look near; take away or add other words",
        ),
        (
            {"words": ["queen"], "minus": ["king", "queen"], "plus": ["king"]},
            r"queen - king - queen \+ king leaves nothing to look near",
        ),
        ({"words": ["nothing"]}, "the vector of 'nothing' is all zeros, so nothing is near it; choose another word"),
    ],
)
def test_words_that_cancel_out_are_refused(asked: dict, complaint: str):
    with pytest.raises(UserError, match=complaint):
        nearest(VECTORS, **asked)


def test_no_neighbours_can_not_be_asked_for():
    with pytest.raises(UserError, match="top 0 must be at least 1"):
        nearest(VECTORS, ["king"], top=0)


def test_a_word_is_found_however_its_letters_were_typed():
    places = {"강": 0, "café": 1}
    for word in places:
        assert find(places, unicodedata.normalize("NFD", word)) == places[word]
