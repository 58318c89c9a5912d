import random
import time
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.metrics.v1 import precision_recall_fscore_support
from seqeval.scheme import BILOU, IOB2, IOBES, Tokens
from sklearn.metrics import f1_score

from heedful.errors import UserError
from heedful.metrics.classification import PerClass
from heedful.metrics.spans import Scheme, span_report, spans, tag_report

PEERS = {"BIO": IOB2, "BIOES": IOBES}
LABELS = ("X", "Y-Z")
SCHEMES = st.sampled_from(["BIO", "BIOES"])


def tags_of(prefixes: str) -> list[str]:
    return ["O", *(f"{prefix}-{label}" for prefix in prefixes if prefix != "O" for label in LABELS)]


@st.composite
def tagged(draw: st.DrawFn) -> tuple[Scheme, list[list[str]], list[list[str]]]:
    """A scheme, and two taggings of some sentences, well formed or not, that often agree."""
    scheme = draw(SCHEMES)
    tag = st.sampled_from(tags_of(scheme))
    truth = draw(st.lists(st.lists(tag, max_size=11), min_size=1, max_size=5).filter(any))
    predicted = [[draw(st.one_of(st.just(true), tag)) for true in sentence] for sentence in truth]
    return scheme, truth, predicted


@pytest.mark.parametrize(
    ("scheme", "tags", "strict", "lenient"),
    [
        ("BIO", "B-X I-X O B-Y", "X02 Y34", "X02 Y34"),
        ("BIO", "B-X B-X I-X", "X01 X13", "X01 X13"),
        ("BIO", "O I-X I-X O", "", "X13"),
        ("BIO", "B-X I-Y I-Y", "X01", "X01 Y13"),
        ("BIO", "B-X O I-X", "X01", "X01 X23"),
        ("BIO", "I-X B-X", "X12", "X01 X12"),
        ("BIO", "", "", ""),
        ("BIOES", "B-X I-X E-X S-Y O", "X03 Y34", "X03 Y34"),
        ("BIOES", "B-X E-X B-X E-X", "X02 X24", "X02 X24"),
        ("BIOES", "B-X I-X O", "", "X02"),
        ("BIOES", "B-X I-X", "", "X02"),
        ("BIOES", "I-X E-X", "", "X02"),
        ("BIOES", "E-X E-X", "", "X01 X12"),
        ("BIOES", "B-X E-Y", "", "X01 Y12"),
        ("BIOES", "B-X S-X E-X", "X12", "X01 X12 X23"),
        ("BIOES", "B-X B-X E-X", "X13", "X01 X13"),
        ("BIOES", "S-X I-X O", "X01", "X01 X12"),
        ("BIOES", "B-X I-X L-X U-Y", "X03 Y34", "X03 Y34"),
    ],
)
def test_spans_by_hand(scheme: Scheme, tags: str, strict: str, lenient: str):
    for wanted, how in ((strict, True), (lenient, False)):
        found = spans(tags.split(), scheme, strict=how)
        assert found == [(text[0], int(text[1]), int(text[2])) for text in wanted.split()]
    assert spans(tags.split(), scheme) == spans(tags.split(), scheme, strict=True)


def test_a_label_is_all_that_follows_the_prefix():
    assert spans(["B-Y-Z", "I-Y-Z", "B", "I", "B-"], "BIO") == [("Y-Z", 0, 2), ("_", 2, 4), ("_", 4, 5)]


@given(SCHEMES.flatmap(lambda s: st.tuples(st.just(s), st.lists(st.sampled_from(tags_of(s)), max_size=13))))
def test_spans_as_the_peer(case: tuple[Scheme, list[str]]):
    scheme, tags = case
    strict = [(e.tag, e.start, e.end) for e in Tokens(tags, PEERS[scheme]).entities]
    assert spans(tags, scheme) == strict
    lenient = [(label, start, last + 1) for label, start, last in get_entities(tags)]
    assert spans(tags, scheme, strict=False) == lenient


@given(st.lists(st.sampled_from(tags_of("BILOU")), max_size=13))
def test_other_letters_for_end_and_single(tags: list[str]):
    assert spans(tags, "BIOES") == [(e.tag, e.start, e.end) for e in Tokens(tags, BILOU).entities]


@given(tagged())
def test_spans_are_found_in_order_and_apart(case: tuple[Scheme, list[list[str]], list[list[str]]]):
    scheme, sentences, _ = case
    for tags in sentences:
        for strict in (True, False):
            edges = [edge for _, start, stop in spans(tags, scheme, strict) for edge in (start, stop)]
            assert edges == sorted(edges)
            assert all(start < stop for start, stop in zip(edges[::2], edges[1::2], strict=True))


def test_span_report_by_hand():
    truth = [["B-X", "I-X", "O", "B-Y"], ["B-X", "O", "B-Z", "O", "O"]]
    predicted = [["B-X", "I-X", "O", "B-X"], ["B-X", "I-X", "B-Z", "O", "B-W"]]
    report = span_report(truth, predicted, "BIO")
    assert report.confusion is None
    assert report.classes == [
        PerClass("W", 0.0, 0.0, 0.0, 0),
        PerClass("X", pytest.approx(1 / 3), 1 / 2, pytest.approx(2 / 5), 2),
        PerClass("Y", 0.0, 0.0, 0.0, 1),
        PerClass("Z", 1.0, 1.0, 1.0, 1),
    ]
    wanted = {"f1": 4 / 9, "precision": 2 / 5, "recall": 2 / 4, "macro_f1": (2 / 5 + 1) / 4, "accuracy": 6 / 9}
    assert report.scores == pytest.approx(wanted)


def test_a_span_in_another_sentence_is_another_span():
    report = span_report([["B-X"], ["O"]], [["O"], ["B-X"]], "BIO")
    assert report.scores == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "macro_f1": 0.0, "accuracy": 0.0}


def test_sentences_without_spans():
    report = span_report([["O", "O"], []], [["O", "O"], []], "BIOES")
    assert report.classes == []
    assert report.scores == {"f1": 0.0, "precision": 0.0, "recall": 0.0, "macro_f1": 0.0, "accuracy": 1.0}


@given(tagged())
def test_span_report_as_the_peer(case: tuple[Scheme, list[list[str]], list[list[str]]]):
    scheme, truth, predicted = case
    scores, classes, _ = span_report(truth, predicted, scheme)
    assert scores["accuracy"] == pytest.approx(accuracy_score(truth, predicted))
    assert all(type(score) is float for score in scores.values())
    each = precision_recall_fscore_support(truth, predicted, zero_division=0, scheme=PEERS[scheme])
    assert len(classes) == len(each[0])
    if classes:  # the peer's means of nothing are nan
        np.testing.assert_allclose([c[1:] for c in classes], np.array(each).T)
        for name, average in (("f1", "micro"), ("macro_f1", "macro")):
            p, r, f, _ = precision_recall_fscore_support(
                truth, predicted, average=average, zero_division=0, scheme=PEERS[scheme]
            )
            assert scores[name] == pytest.approx(f)
            if average == "micro":
                assert (scores["precision"], scores["recall"]) == pytest.approx((p, r))


def test_ten_thousand_sentences_in_a_second():
    generator = random.Random(7)
    sentences = [generator.choices(tags_of("BIOES"), k=23) for _ in range(10_000)]
    start = time.process_time()
    report = span_report(sentences, sentences[::-1], "BIOES")
    assert time.process_time() - start < 1
    assert 0 < report.scores["f1"] < 1


def test_tag_report_by_hand():
    report = tag_report([["N", "V", "N"], ["D"]], [["N", "N", "N"], ["D"]], ["D", "N", "V", "X"])
    assert report.confusion is not None
    assert report.confusion.tolist() == [[1, 0, 0, 0], [0, 2, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert report.scores == pytest.approx({"accuracy": 3 / 4, "macro_f1": (1 + 4 / 5 + 0) / 3})
    assert [c.count for c in report.classes] == [1, 2, 1, 0]
    assert [c.label for c in report.classes] == ["D", "N", "V", "X"]


@given(tagged())
def test_tag_report_as_the_peer(case: tuple[Scheme, list[list[str]], list[list[str]]]):
    scheme, truth, predicted = case
    scores = tag_report(truth, predicted, tags_of(scheme)).scores
    flat, guessed = [*chain(*truth)], [*chain(*predicted)]
    wanted = {
        "accuracy": accuracy_score(truth, predicted),
        "macro_f1": f1_score(flat, guessed, average="macro", zero_division=0),
    }
    assert scores == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("scheme", "tag"),
    [("BIO", "E-X"), ("BIO", "ORG"), ("BIO", "X-B"), ("BIO", "BX"), ("BIO", ""), ("BIO", "o"), ("BIOES", "M-X")],
)
@pytest.mark.parametrize("strict", [True, False])
def test_tags_of_no_scheme(scheme: Scheme, tag: str, strict: bool):
    with pytest.raises(UserError, match=f"tag '{tag}' is not of the scheme {scheme}; write O, or .* B-, I-"):
        spans(["O", tag], scheme, strict)
    with pytest.raises(UserError, match="is not of the scheme"):
        span_report([["O"]], [[tag]], scheme)


def test_what_can_not_be_scored():
    with pytest.raises(ValueError, match="sentence 1 has 2 tags in truth and 3 in predicted"):
        span_report([["O"], ["O", "O"]], [["O"], ["O", "O", "O"]], "BIO")
    with pytest.raises(ValueError, match="must be as many sentences; got 1 and 2"):
        tag_report([["O"]], [["O"], ["O"]], ["O"])
    with pytest.raises(UserError, match="no tags to score"):
        span_report([[]], [[]], "BIO")
    with pytest.raises(UserError, match="no tags to score"):
        tag_report([], [], ["N"])
    with pytest.raises(UserError, match="tag 'V' is not one of the 2 labels; name it among them"):
        tag_report([["N"]], [["V"]], ["D", "N"])
