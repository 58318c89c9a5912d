import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import shards, sources, words
from heedful.data import tokenizer as wordpiece
from heedful.data.tokenizer import SPECIAL
from heedful.data.words import Stretch, Text
from heedful.errors import UserError

TEXT = """The ferry crossed the river. The ferryman sang!
The heron, and the herons: Herons sang.

A ferry ferried the heron; the heron sang.
"""


def corpus(folder: Path, text: str, vocabulary: list[str] | None = None, min_count: int = 2) -> Text:
    file = folder / "text.txt"
    file.write_text(text, encoding="utf-8")
    options = sources.TextOptions()
    if vocabulary is None:
        sentences = [sentence for document in sources.documents([file], options) for sentence in document]
        tokenizer = words.train(lambda: sentences, min_count)
    else:
        (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *vocabulary]) + "\n", encoding="utf-8")
        tokenizer = wordpiece.load(folder)
    found = shards.prepare([file], options, tokenizer, share=0.0, cache=folder / "cache")
    return words.read(found.train, found.tokenizer, min_count)


def spelled(text: Text) -> list[list[str]]:
    """The words of each sentence, all pieces together."""
    found: dict[int, list[str]] = {}
    for piece in range(text.pieces):
        stretch = text.read(piece)
        for place, sentence in zip(stretch.ids, stretch.sentences, strict=True):
            found.setdefault(int(sentence), []).append(text.lexicon.words[place])
    return list(found.values())


def test_words_of_plain_text_are_counted_lower_cased_and_without_the_rare_ones(tmp_path: Path):
    text = corpus(tmp_path, TEXT)
    counts = dict(zip(text.lexicon.words, text.lexicon.counts.tolist(), strict=True))
    assert counts == {"the": 7, ".": 3, "heron": 3, "sang": 3, "ferry": 2, "herons": 2}
    assert list(counts)[:4] == ["the", ".", "heron", "sang"]  # the most frequent first, then by their letters
    assert text.words == 20


def test_pieces_are_put_together_to_the_same_words(tmp_path: Path):
    pieces = [
        *"abcdefghijklmnopqrstuvwxyz.,:;!",
        *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"),
        "##ron",
    ]
    whole = corpus(tmp_path, TEXT)
    joined = corpus(tmp_path, TEXT, pieces)
    assert joined.tokenizer.continues.sum() > 20
    assert joined.lexicon.words == whole.lexicon.words
    assert joined.lexicon.counts.tolist() == whole.lexicon.counts.tolist()
    assert spelled(joined) == spelled(whole)
    assert spelled(whole)[0] == ["the", "ferry", "the", ".", "the", "sang"]  # a line is a sentence


def test_a_word_that_the_pieces_can_not_spell_is_passed_over(tmp_path: Path):
    text = corpus(tmp_path, "ab ba ab ?\nba ab q q q\n", ["a", "b", "##a", "##b"])
    assert text.lexicon.words == ("ab", "ba")
    assert spelled(text) == [["ab", "ba", "ab"], ["ba", "ab"]]


def test_many_pieces_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = "\n".join(f"alpha beta w{n % 7} gamma w{n % 11} ." for n in range(53)) + "\n"
    one = corpus(tmp_path, lines)
    monkeypatch.setattr(words, "PIECE", 29)
    many = corpus(tmp_path, lines)
    assert one.pieces == 1
    assert many.pieces > 5
    assert many.lexicon.words == one.lexicon.words
    assert many.lexicon.counts.tolist() == one.lexicon.counts.tolist()
    assert spelled(many) == spelled(one)


@given(st.lists(st.lists(st.sampled_from(["ab", "abba", "b", "baa", "aab"]), min_size=1, max_size=9), min_size=2))
def test_any_text_is_counted_as_one_would_by_hand(sentences: list[list[str]]):
    vocabulary = [*SPECIAL, "a", "b", "##a", "##b", "ab"]
    tokenizer = wordpiece._from_vocabulary(vocabulary, cased=False)
    encoded = tokenizer.encode([" ".join(sentence) for sentence in sentences])
    split = shards.Split(
        np.concatenate([np.array(ids, np.uint16) for ids in encoded]),
        np.cumsum([0, *map(len, encoded)]),
        np.array([0, len(sentences)]),
    )
    expected = Counter(word for sentence in sentences for word in sentence)
    if len(expected) < 2:
        with pytest.raises(UserError, match="too few"):
            words.read(split, tokenizer, 1)
        return
    text = words.read(split, tokenizer, 1)
    assert dict(zip(text.lexicon.words, text.lexicon.counts.tolist(), strict=True)) == expected
    assert spelled(text) == sentences


def test_text_with_too_few_words_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"1 word occurs 7 times or more.*smaller --min-count"):
        corpus(tmp_path, TEXT, min_count=7)


def test_frequent_words_are_kept_less_often():
    counts = np.array([900, 90, 9, 1])
    keep = words.keep_rates(counts, 0.01)  # t/f: 1/90, 1/9, 10/9, 10
    assert keep.tolist() == pytest.approx([math.sqrt(1 / 90) + 1 / 90, 1 / 3 + 1 / 9, 1.0, 1.0])
    assert words.keep_rates(counts, 0.0).tolist() == [1.0] * 4


def test_noise_follows_the_power_of_the_counts():
    added = words.noise(np.array([81, 16, 1]))  # to the power of 3/4: 27, 8, 1
    assert added.tolist() == pytest.approx([27 / 36, 35 / 36, 1.0])


def test_windows_are_drawn_evenly_and_words_thinned_out():
    stretch = Stretch(np.arange(2).repeat(9973).astype(np.int32), np.zeros(2 * 9973, np.int32))
    found = words.windows(stretch, np.array([0.25, 1.0]), 5, np.random.default_rng(3))
    assert (found.ids == 1).sum() == 9973
    assert (found.ids == 0).sum() == pytest.approx(9973 / 4, rel=0.06)
    assert sorted(set(found.reach.tolist())) == [1, 2, 3, 4, 5]
    assert np.bincount(found.reach)[1:] / len(found.reach) == pytest.approx(0.2, abs=0.015)
    again = words.windows(stretch, np.array([0.25, 1.0]), 5, np.random.default_rng(3))
    assert (again.reach == found.reach).all()
