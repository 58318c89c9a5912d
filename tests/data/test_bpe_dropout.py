import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.bpe_dropout import Dropout
from heedful.data.subwords import Subwords, train
from heedful.errors import UserError

TEXTS = st.lists(st.text("the riv erbakéΩЖ강가에있는.?", max_size=53), max_size=5)


@pytest.fixture(scope="module")
def bpe(sentences) -> Subwords:
    return train(lambda: sentences, 307)


def lists(encoded: list[np.ndarray]) -> list[list[int]]:
    return [ids.tolist() for ids in encoded]


@given(TEXTS)
def test_without_dropout_the_ids_are_those_of_the_vocabulary(bpe, texts):
    assert lists(Dropout(bpe, 0, texts, seed=3).encode(2)) == bpe.encode(texts)


@given(TEXTS, st.sampled_from([0.1, 0.5, 0.9]), st.integers(0, 5))
@settings(max_examples=50)
def test_however_words_are_taken_apart_they_spell_the_same(bpe, texts, rate, epoch):
    encoded = Dropout(bpe, rate, texts, seed=5).encode(epoch)
    assert [bpe.decode(ids) for ids in encoded] == [bpe.decode(ids) for ids in bpe.encode(texts)]
    for ids, whole in zip(lists(encoded), bpe.encode(texts), strict=True):
        assert len(ids) >= len(whole)
        assert ids.count(bpe.unk) == whole.count(bpe.unk)


def test_the_more_is_dropped_the_fewer_words_stay_whole(bpe):
    words = ["river", "bread", "bridge"] * 401
    whole = bpe.encode(words)

    def share(rate: float) -> float:
        encoded = Dropout(bpe, rate, words, variants=300, seed=7).encode(0)
        return float(np.mean([ids == other for ids, other in zip(lists(encoded), whole, strict=True)]))

    shares = [share(rate) for rate in (0, 0.05, 0.2, 0.5, 0.9)]
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert len(set(shares)) == 5


def test_the_share_of_dropped_merges_is_the_rate():
    pairs = train(lambda: ["ab cd"] * 5, 4 + 5 + 4)
    assert pairs.pieces(pairs.encode(["ab"])[0]) == ["▁ab"]
    # ▁, a, b: "ab" is merged first, then "▁ab"; the paper's loop ends when nothing is left to merge in a step.
    encoded = Dropout(pairs, 0.25, ["ab"] * 3001, variants=3001, seed=11).encode(0)
    sizes = np.bincount([len(ids) for ids in encoded], minlength=4) / 3001
    assert sizes[1] == pytest.approx(0.75**2, abs=0.03)
    assert sizes[2] == pytest.approx(0.75 * 0.25, abs=0.03)
    assert sizes[3] == pytest.approx(0.25, abs=0.03)


def test_an_epoch_is_a_function_of_the_seed_and_its_number(bpe, sentences):
    first, again = (Dropout(bpe, 0.3, sentences, seed=13) for _ in range(2))
    assert lists(first.encode(4)) == lists(again.encode(4)) == lists(first.encode(4))
    assert lists(first.encode(4)) != lists(first.encode(5))
    assert lists(first.encode(4)) != lists(Dropout(bpe, 0.3, sentences, seed=17).encode(4))


def test_the_ways_of_a_word_do_not_depend_on_the_other_words(bpe):
    def ways(texts: list[str]) -> set[tuple[int, ...]]:
        dropout = Dropout(bpe, 0.3, texts, seed=19)
        return {tuple(dropout.encode(epoch)[0].tolist()) for epoch in range(97)}

    assert ways(["river"] * 31) == ways(["river", *["bridge bread"] * 37, *["river"] * 30])


def test_a_word_seen_once_has_fewer_ways(bpe):
    once = Dropout(bpe, 0.5, ["lanterns"], seed=23)
    often = Dropout(bpe, 0.5, ["lanterns"] * 7, variants=11, seed=23)
    assert len({tuple(once.encode(epoch)[0]) for epoch in range(97)}) <= 4
    assert 4 < len({tuple(ids) for epoch in range(37) for ids in often.encode(epoch)}) <= 11


def test_epochs_do_not_depend_on_the_hash_of_the_process(bpe, tmp_path):
    program = """
from heedful.data.bpe_dropout import Dropout
from heedful.data.subwords import train
made = train(lambda: ["the river runs", "the mill stands"] * 5, 61)
print([ids.tolist() for ids in Dropout(made, 0.4, ["the river", "the mill runs"] * 3, seed=2).encode(1)])
"""
    told = {
        subprocess.check_output([sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    }
    assert len(told) == 1


def test_a_word_without_end_is_taken_apart_too(bpe):
    text = "river" * 997
    [ids] = Dropout(bpe, 0.1, [text], seed=29).encode(0)
    assert bpe.decode(ids) == text
    assert lists(Dropout(bpe, 0, ["river" * 97], seed=29).encode(0)) == bpe.encode(["river" * 97])


def test_no_texts_give_no_ids(bpe):
    assert Dropout(bpe, 0.1, [], seed=0).encode(0) == []
    assert lists(Dropout(bpe, 0.1, ["", " "], seed=0).encode(0)) == [[], []]


@pytest.mark.parametrize(
    ("rate", "variants", "message"),
    [
        (-0.1, 16, r"BPE-dropout -0\.1 is not at least 0"),
        (1.0, 16, r"BPE-dropout 1\.0 is not at least 0 and less than 1"),
        (float("nan"), 16, "BPE-dropout nan is not"),
        (0.1, 0, "0 ways to take a word apart are too few"),
    ],
)
def test_impossible_settings_are_refused(bpe, rate, variants, message):
    with pytest.raises(UserError, match=message):
        Dropout(bpe, rate, ["the river"], variants=variants, seed=0)


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_other_kinds_are_refused(sentences, kind):
    with pytest.raises(UserError, match=f"needs a vocabulary of the kind bpe, not {kind}"):
        Dropout(train(lambda: sentences, 211, kind), 0.1, ["the river"], seed=0)
