import unicodedata
from collections.abc import Callable

import pytest

from heedful.data.subwords import Subwords
from heedful.data.tokenizer import Tokenizer
from heedful.explore.refusals import TooLong
from heedful.explore.tokens import Token, encoder_tokens, piece_spans, source_tokens, target_tokens
from heedful.predict import Predictor


def shown(text: str, tokens: tuple[Token, ...]) -> list[tuple[str, str | None]]:
    return [(one.text, None if one.start is None else text[one.start : one.end]) for one in tokens]


def test_a_text_and_its_characters(small_words: Tokenizer):
    text = "The  FERRY was tired."
    tokens = encoder_tokens(small_words, text)
    assert shown(text, tokens) == [
        ("[CLS]", None), ("the", "The"), ("fer", "FER"), ("##ry", "RY"), ("was", "was"), ("tired", "tired"),
        (".", "."), ("[SEP]", None),
    ]  # fmt: skip
    assert [one.special for one in tokens] == [True, *[False] * 6, True]
    assert [one.id for one in tokens[1:-1]] == small_words.encode([text])[0]


def test_a_pair_has_two_segments(small_words: Tokenizer):
    tokens = encoder_tokens(small_words, "it was", "the river")
    assert [one.segment for one in tokens] == [0, 0, 0, 0, 1, 1, 1]
    assert [one.text for one in tokens] == ["[CLS]", "it", "was", "[SEP]", "the", "river", "[SEP]"]
    assert [(one.start, one.end) for one in tokens[4:6]] == [(0, 3), (4, 9)]


def test_blanks_are_tokens_and_other_marks_are_text(small_words: Tokenizer):
    text = "the [MASK] was [SEP] ."
    tokens = encoder_tokens(small_words, text)
    assert tokens[2] == Token(id=small_words.mask, text="[MASK]", start=4, end=10, special=True)
    assert small_words.sep not in [one.id for one in tokens[1:-1]]
    assert shown(text, tokens)[3] == ("was", "was")


def test_letters_in_parts_are_found_whole(small_words: Tokenizer):
    text = unicodedata.normalize("NFD", "강가 it")
    tokens = encoder_tokens(small_words, text)
    assert [unicodedata.normalize("NFC", part or "") for _, part in shown(text, tokens)[1:4]] == ["강", "가", "it"]


def test_padding_and_too_much(small_words: Tokenizer):
    tokens = encoder_tokens(small_words, "it", padding=3)
    assert [one.text for one in tokens] == ["[CLS]", "it", "[SEP]", "[PAD]", "[PAD]", "[PAD]"]
    with pytest.raises(TooLong, match=r"'it' has 6 tokens, of which 5 can be looked at; shorten it"):
        encoder_tokens(small_words, "it", padding=3, longest=5)


def test_sources_end_and_targets_begin(pieces: Subwords):
    text = " one   three "
    tokens = source_tokens(pieces, text, pieces.eos, pad=pieces.pad, padding=2)
    assert [one.id for one in tokens] == [*pieces.encode(["one three"])[0], pieces.eos, pieces.pad, pieces.pad]
    assert "".join(part or "" for _, part in shown(text, tokens)) == "onethree"
    assert [one.special for one in tokens[-3:]] == [True] * 3
    ids = pieces.encode(["둘 셋"])[0]
    target = target_tokens(pieces, ids, "둘 셋", pieces.sos)
    assert [one.id for one in target] == [pieces.sos, *ids]
    assert "".join(part or "" for _, part in shown("둘 셋", target)) == "둘셋"


@pytest.mark.parametrize(
    ("pieces", "text", "spans"),
    [
        (["▁on", "e", "▁two"], "one two", [(0, 2), (2, 3), (4, 7)]),
        (["▁", "one"], " one", [None, (1, 4)]),
        (["▁river"], "ｒｉｖｅｒ", [(0, 5)]),
        (["▁fish", "▁a"], "ﬁsh a", [(0, 3), (4, 5)]),
        (["▁a", "<unk>", "▁b"], "a 日 b", [(0, 1), None, (4, 5)]),
        (["▁a", "▁x"], "a", [(0, 1), None]),
        (["▁é"], "e\u0301", [(0, 2)]),
        ([], "", []),
    ],
)
def test_pieces_are_found_in_their_text(pieces: list[str], text: str, spans: list[tuple[int, int] | None]):
    assert piece_spans(pieces, text) == spans


def test_the_predictors_own_ids(bert: Callable[[str], Predictor]):
    predictor = bert("published")
    for text in ("", "the animal", "unheard of words", "  the\tferry\n"):
        ids = [one.id for one in encoder_tokens(predictor.tokenizer, text)]
        assert ids == [predictor.tokenizer.cls, *predictor.tokenizer.encode([text])[0], predictor.tokenizer.sep]
