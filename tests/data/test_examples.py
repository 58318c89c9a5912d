from collections import deque

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heedful.data.examples import Examples, _truncated, plan_pairs, plan_singles, true_share
from heedful.errors import UserError

corpora = st.lists(st.lists(st.integers(1, 23), min_size=1, max_size=11), min_size=2, max_size=13)
"""Sentences' lengths in tokens, by document."""

seeds = st.integers(0, 2**32 - 1)


def offsets(corpus: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = [length for document in corpus for length in document]
    sizes = [len(document) for document in corpus]
    return np.cumsum([0, *lengths]), np.cumsum([0, *sizes])


def pairs(corpus: list[list[int]], length: int, seed: int = 0) -> Examples:
    return plan_pairs(*offsets(corpus), length, np.random.default_rng(seed))


def document_of(corpus: list[list[int]], start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """The document of each range, which must not reach into another."""
    sentences, documents = offsets(corpus)
    starts = sentences[documents]
    first = np.searchsorted(starts, start, side="right") - 1
    assert (stop <= starts[first + 1]).all()
    return first


def lead(made: Examples) -> int:
    """True pairs, less the others."""
    return len(made.unrelated) - 2 * int(made.unrelated.sum())


@given(corpora, st.integers(8, 61), seeds)
def test_pairs_keep_the_rules(corpus, length, seed):
    assume(any(len(document) > 1 for document in corpus))
    made = pairs(corpus, length, seed)
    a, b = made.a_stop - made.a_start, made.b_stop - made.b_start
    assert (a >= 1).all()
    assert (b >= 1).all()
    assert (a + b <= length - 3).all()
    of_a = document_of(corpus, made.a_start, made.a_stop)
    of_b = document_of(corpus, made.b_start, made.b_stop)
    follows = made.unrelated == 0
    assert (of_a[follows] == of_b[follows]).all()
    assert (made.b_start[follows] >= made.a_stop[follows]).all()
    assert (of_a[~follows] != of_b[~follows]).all()
    assert set(of_a) == set(range(len(corpus)))


def walk(document: list[int], made: list[tuple[int, ...]], room: int) -> None:
    """Go through one document as BERT does, sentence by sentence, and check what was made of it.

    Holds for pairs that were not cut. Each of `made` is A's start and stop, B's stop and whether B is foreign,
    in sentences of the document.
    """
    position = 0
    for a_start, a_stop, b_stop, unrelated in made:
        assert a_start == position
        assert a_start < a_stop
        if unrelated:
            position = a_stop
        else:
            assert a_stop < b_stop
            position = b_stop
        # The chunk was closed by the first sentence that reached the target, which is at most the room.
        assert sum(document[a_start : position - 1]) < room
    assert position == len(document)


@given(
    counts=st.lists(st.integers(1, 17), min_size=2, max_size=11),
    sentence=st.sampled_from([1, 2, 3, 5, 7]),
    fitting=st.integers(2, 13),
    seed=seeds,
)
def test_pairs_that_need_no_cut_cover_every_sentence(counts, sentence, fitting, seed):
    """With sentences of one length that divides the room, a chunk never overshoots it."""
    assume(max(counts) > 1)
    room = max(5, sentence * fitting) // sentence * sentence
    assume(room >= 5)
    corpus = [[sentence] * count for count in counts]
    made = pairs(corpus, room + 3, seed)
    follows = made.unrelated == 0
    assert (made.b_start == made.a_stop)[follows].all()
    assert not any((column % sentence).any() for column in made[:4])
    of_a = document_of(corpus, made.a_start, made.a_stop)
    first = np.cumsum([0, *counts])
    for number, document in enumerate(corpus):
        rows = np.flatnonzero(of_a == number)
        ranges = [made.a_start[rows], made.a_stop[rows], made.b_stop[rows]]
        in_sentences = [column // sentence - first[number] for column in ranges]
        walk(document, list(zip(*in_sentences, made.unrelated[rows], strict=True)), room)


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(1, 11), min_size=2, max_size=29), min_size=31, max_size=61), st.just(67), seeds)
def test_half_of_the_pairs_are_true(corpus, length, seed):
    made = pairs(corpus, length, seed)
    assert abs(lead(made)) <= 3  # one in ten chunks is short, and may be a single sentence at the very end


@pytest.mark.parametrize("size", [2, 3, 5, 29])
@pytest.mark.parametrize("documents", [53, 101])
def test_half_of_the_pairs_are_true_in_documents_of_one_size(size, documents):
    """Of two sentences, a foreign pair leaves one, which gives a second foreign pair: both are made up for."""
    made = pairs([[7] * size] * documents, 127)
    assert abs(lead(made)) <= 3


def test_half_are_true_although_some_documents_are_single_sentences():
    corpus = [[5]] * 19 + [[5] * 11] * 47
    made = pairs(corpus, 29)
    assert abs(lead(made)) <= 1


def test_where_no_two_sentences_fit_every_pair_is_foreign():
    made = pairs([[50] * 5] * 3, 29)
    assert made.unrelated.all()


@pytest.mark.parametrize(
    ("corpus", "length"),
    [
        ([[25] * 4 + [26]] * 53, 29),
        ([[26, 26, 5] * 7] * 101, 29),
        ([[5]] * 97 + [[5, 5]] * 3, 29),
        ([[50, 5]] * 53, 29),
        ([[7] * 37, [3] * 41], 61),
    ],
    ids=["room", "short after long", "lone sentences", "none", "two documents"],
)
def test_the_share_of_true_pairs_is_that_of_an_epoch(corpus, length):
    share = true_share(*offsets(corpus), length)
    assert share == pytest.approx(1 - pairs(corpus, length, seed=1).unrelated.mean(), abs=0.06)


@pytest.mark.parametrize("corpus", [[[5]] * 5003 + [[5] * 60] * 3001, [[5] * 60] * 3001 + [[5]] * 5003])
def test_the_share_of_true_pairs_is_that_of_all_of_a_large_corpus(corpus):
    """Wherever in it the documents are that have any."""
    assert true_share(*offsets(corpus), 29) == pytest.approx(0.5, abs=0.02)


def test_documents_of_single_sentences_have_no_true_pairs():
    assert true_share(*offsets([[5], [5, 5]] + [[5]] * 4001), 29) == 0
    assert true_share(*offsets([[5, 5]]), 29) == 0


def test_one_pair_in_ten_is_short():
    """Of single-token sentences, a chunk is exactly as long as its target."""
    room = 47
    made = pairs([[1] * 30011] * 3, room + 3)
    at_end = np.isin(made.b_stop, [30011, 60022, 90033])
    total = (made.a_stop - made.a_start + made.b_stop - made.b_start)[~at_end]
    assert len(total) > 2000
    assert total.min() >= 2
    assert total.max() == room
    share = 0.1 * (1 - 1 / (room - 1))  # a target between 2 and the room may be the room
    assert (total < room).mean() == pytest.approx(share, abs=0.02)


def test_pairs_are_a_function_of_the_generator():
    corpus = [[3, 5, 7, 2], [11, 2], [3, 3, 3, 3, 3]] * 7
    one, same, other = pairs(corpus, 23, 1), pairs(corpus, 23, 1), pairs(corpus, 23, 2)
    assert all(map(np.array_equal, one, same))
    assert not all(map(np.array_equal, one, other))


def cut_one_by_one(a: int, b: int, room: int) -> tuple[int, int]:
    """What is left of A and B: BERT's truncate_seq_pair, but for which end pays."""
    halves = deque(range(a)), deque(range(b))
    while len(halves[0]) + len(halves[1]) > room:
        (halves[0] if len(halves[0]) > len(halves[1]) else halves[1]).pop()
    return len(halves[0]), len(halves[1])


@given(st.lists(st.tuples(st.integers(1, 97), st.integers(1, 97)), min_size=1), st.integers(5, 61), seeds)
def test_the_longer_half_pays(lengths, room, seed):
    a, b = np.array(lengths).T
    whole = Examples(np.full_like(a, 1000), 1000 + a, np.full_like(b, 2000), 2000 + b, np.zeros_like(a))
    made = _truncated(whole, room, np.random.default_rng(seed))
    left = np.stack([made.a_stop - made.a_start, made.b_stop - made.b_start], axis=1)
    assert [tuple(row) for row in left.tolist()] == [cut_one_by_one(*pair, room) for pair in lengths]
    assert (made.a_start >= whole.a_start).all()
    assert (made.a_stop <= whole.a_stop).all()
    assert (made.b_start >= whole.b_start).all()
    assert (made.b_stop <= whole.b_stop).all()


def test_both_ends_pay_alike():
    count = 10007
    zeros = np.zeros(count, np.int64)
    whole = Examples(zeros, zeros + 40, zeros + 100, zeros + 107, zeros)
    made = _truncated(whole, 27, np.random.default_rng(0))
    assert (made.a_start - 0).mean() == pytest.approx(10, abs=0.1)  # 20 tokens go, half of them at the front
    assert (40 - made.a_stop).mean() == pytest.approx(10, abs=0.1)
    assert (made.b_start == 100).all()


@given(corpora, st.integers(3, 61), seeds)
def test_singles_hold_every_token_once(corpus, length, seed):
    sentences, documents = offsets(corpus)
    made = plan_singles(sentences, documents, length, np.random.default_rng(seed))
    held = np.concatenate([np.arange(start, stop) for start, stop in zip(made.a_start, made.a_stop, strict=True)])
    assert sorted(held) == list(range(sentences[-1]))
    sizes = made.a_stop - made.a_start
    assert sizes.min() >= 1
    assert sizes.max() <= length - 2
    document_of(corpus, made.a_start, made.a_stop)
    assert (made.b_stop == made.b_start).all()
    assert not made.unrelated.any()


def test_singles_end_with_a_sentence_where_one_fits():
    """Room for 10: 3 + 5 and not the 7 after them; 23 alone goes on and on."""
    sentences, documents = offsets([[3, 5, 7, 23]])
    seed = next(seed for seed in range(99) if (np.random.default_rng(seed).random(9) > 0.1).all())
    made = plan_singles(sentences, documents, 12, np.random.default_rng(seed))
    ranges = zip(made.a_start.tolist(), made.a_stop.tolist(), strict=True)
    assert next(ranges) == (0, 8)
    assert {stop for _, stop in ranges} >= {15, 38}


def test_a_single_document_is_refused_for_pairs():
    with pytest.raises(UserError, match=r"at least two documents.*--no-nsp"):
        pairs([[3, 5, 7]], 29)


def test_documents_of_single_sentences_are_refused_for_pairs():
    with pytest.raises(UserError, match=r"two sentences or more.*--no-nsp"):
        pairs([[3], [5], [7]], 29)
