import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.errors import UserError
from heedful.metrics.answers import answer_report, exact, f1, normalise

WORDS = st.lists(st.sampled_from(["a", "The", "cat", "cat.", "Dog", "서울", "서울은", "U.S."]), max_size=5).map(
    " ".join
)
ANSWERS = st.one_of(WORDS, st.text(max_size=11))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The Cat, sat!", "cat sat"),
        ("  an   apple\ta day\n", "apple day"),
        ("U.S.", "us"),
        ("A.", ""),
        ("theatre banana another", "theatre banana another"),
        ("well-known", "wellknown"),
        ("the-cat", "thecat"),
        ("a_b", "ab"),
        ("1,000 (km)", "1000 km"),
        ("cat–the–dog", "cat– –dog"),
        ("«Ça» – the", "«ça» –"),  # punctuation is ASCII's
        ("서울은 대한민국의 수도이다.", "서울은 대한민국의 수도이다"),
        ("", ""),
    ],
)
def test_normalised_by_hand(text: str, wanted: str):
    assert normalise(text) == wanted
    assert normalise(wanted) == wanted


@pytest.mark.parametrize(
    ("golds", "prediction", "is_exact", "overlap"),
    [
        (["the cat"], "Cat!", 1, 1),
        (["black cat"], "the cat", 0, 2 / 3),
        (["a b c d"], "b c x", 0, 2 * 2 / 6),  # `a` is an article
        (["cat cat dog"], "cat dog dog dog", 0, 2 * 2 / 7),  # a word counts as often as both have it
        (["dog cat"], "cat dog", 0, 1),
        (["bird", "black cat", "the old black cat"], "black cat there", 0, 2 * 2 / 5),
        (["dog", "cat"], "cat", 1, 1),
        (["cat"], "", 0, 0),
        ([""], "", 1, 1),
        ([], "", 1, 1),
        ([""], "cat", 0, 0),
        ([""], "the.", 1, 1),
        (["the", "cat"], "", 0, 0),  # a gold of articles alone says nothing where another says something
        (["서울"], "서울은", 0, 0),
        (["서울 특별시"], "서울", 0, 2 / 3),
    ],
)
def test_scored_by_hand(golds: list[str], prediction: str, is_exact: float, overlap: float):
    assert exact(golds, prediction) == is_exact
    assert f1(golds, prediction) == pytest.approx(overlap)


@given(ANSWERS, ANSWERS)
def test_gold_and_prediction_may_change_places(one: str, other: str):
    assert f1([one], other) == f1([other], one)
    assert exact([one], other) == exact([other], one)


@given(st.lists(ANSWERS, max_size=5), ANSWERS)
def test_bounds(golds: list[str], prediction: str):
    assert 0 <= exact(golds, prediction) <= f1(golds, prediction) <= 1
    assert all(f1([gold], gold) == exact([gold], gold) == 1 for gold in golds)
    if all(map(normalise, golds)):
        wanted = golds or [""]
        assert f1(golds, prediction) == max(f1([gold], prediction) for gold in wanted)
        assert exact(golds, prediction) == max(exact([gold], prediction) for gold in wanted)


def test_report_where_every_question_has_an_answer():
    report = answer_report([["cat"], ["black cat", "dog"]], ["the cat", "cat"])
    assert report.scores == pytest.approx({"exact": 1 / 2, "f1": (1 + 2 / 3) / 2})
    assert report.classes == []
    assert report.confusion is None


def test_report_where_some_have_none():
    golds = [["cat"], ["black cat"], [""], [], [" "]]
    wanted = {
        "exact": 2 / 5,
        "f1": (1 + 2 / 3 + 1) / 5,
        "has_answer_exact": 1 / 2,
        "has_answer_f1": (1 + 2 / 3) / 2,
        "has_answer_count": 2,
        "no_answer_exact": 1 / 3,
        "no_answer_f1": 1 / 3,
        "no_answer_count": 3,
    }
    scores = answer_report(golds, ["cat", "cat", "", "cat", "dog"]).scores
    assert scores == pytest.approx(wanted)
    assert all(type(score) is float for score in scores.values())


def test_report_where_none_has_any():
    scores = answer_report([[""], [""]], ["", "cat"]).scores
    halves = dict.fromkeys(("exact", "f1", "no_answer_exact", "no_answer_f1"), 1 / 2)
    assert scores == {**halves, "no_answer_count": 2, "has_answer_count": 0}


@given(st.lists(st.tuples(st.lists(ANSWERS, max_size=3), ANSWERS), min_size=1, max_size=7))
def test_a_report_is_the_mean_of_its_parts(questions: list[tuple[list[str], str]]):
    golds, predictions = map(list, zip(*questions, strict=True))
    scores = answer_report(golds, predictions).scores
    for name, score in (("exact", exact), ("f1", f1)):
        assert scores[name] == pytest.approx(sum(score(g, p) for g, p in questions) / len(questions))
        if "no_answer_count" in scores:
            parts = ("has_answer", "no_answer")
            total = sum(scores[f"{part}_count"] * scores.get(f"{part}_{name}", 0) for part in parts)
            assert scores[name] * len(questions) == pytest.approx(total)


def test_what_can_not_be_scored():
    with pytest.raises(ValueError, match="a prediction a question; got 2 questions, 1 predictions"):
        answer_report([["a"], ["b"]], ["a"])
    with pytest.raises(UserError, match="no questions to score"):
        answer_report([], [])
