from itertools import count, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data import sampler as sampler_module
from heedful.data.batch import PretrainingBatch, filled
from heedful.data.examples import Examples
from heedful.data.sampler import ENOUGH, START, Position, Sampler
from heedful.data.shards import Split
from heedful.data.tokenizer import SPECIAL, load
from heedful.errors import UserError
from heedful.train.replay_pretraining import Shape

CLS, SEP = 2, 3
WORDS = 89


@pytest.fixture
def words(of_words):
    return of_words([f"w{i}" if i % 3 else f"##w{i}" for i in range(WORDS)])


def split(seed: int = 7, documents: int = 23) -> Split:
    """Documents of 2 to 12 sentences of 1 to 10 tokens."""
    rng = np.random.default_rng(seed)
    of_document = np.cumsum([0, *rng.integers(2, 13, size=documents)])
    of_sentence = np.cumsum([0, *rng.integers(1, 11, size=of_document[-1])])
    tokens = rng.integers(5, 5 + WORDS, size=of_sentence[-1]).astype(np.uint16)
    return Split(tokens, of_sentence, of_document)


def sampler(words, **changes) -> Sampler:
    options = {
        "split": split(),
        "length": 31,
        "batch_tokens": 127,
        "nsp": True,
        "mask_rate": 0.15,
        "whole_words": False,
        "seed": 5,
    }
    return Sampler(tokenizer=words, **options | changes)


def clean(batch: PretrainingBatch) -> np.ndarray:
    """The ids before corruption."""
    ids = batch.ids.copy()
    ids[batch.places] = batch.labels
    return ids


def sequences(batch: PretrainingBatch) -> list[tuple[int, ...]]:
    return [tuple(part.tolist()) for part in np.split(clean(batch), batch.offsets[1:-1])]


def same(one: PretrainingBatch, other: PretrainingBatch) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True) if a is not None)


def epoch_of(made: Sampler, number: int) -> list[PretrainingBatch]:
    stream = made.stream(Position(number, 0))
    found = []
    for position, batch in stream:
        if position.epoch != number:
            return found
        found.append(batch)
    raise AssertionError("the stream has no end")


def test_the_layout_of_pairs_by_hand(words, monkeypatch):
    """Tokens 11 12 13 | 14 15 and 21 22 | 23: one true pair and one foreign."""
    text = Split(
        np.array([11, 12, 13, 14, 15, 21, 22, 23], np.uint16), np.array([0, 3, 5, 7, 8]), np.array([0, 2, 4])
    )
    planned = Examples(*map(np.array, ([0, 5], [3, 7], [3, 1], [5, 2], [0, 1])))
    monkeypatch.setattr(sampler_module, "plan_pairs", lambda *_: planned)
    made = sampler(words, split=text, seed=2)
    assert made.epoch(0)[0].unrelated.tolist() == [0, 1]  # the order that this seed gives
    [(position, batch)] = islice(made.stream(), 1)
    assert position == (0, 1)
    assert clean(batch).tolist() == [CLS, 11, 12, 13, SEP, 14, 15, SEP, CLS, 21, 22, SEP, 12, SEP]
    assert batch.segments.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert batch.offsets.tolist() == [0, 8, 14]
    assert batch.longest == 8
    assert batch.unrelated.tolist() == [0, 1]
    assert len(batch.places) == 2  # 15% of 5, and at least one of 3
    assert [array.dtype for array in batch if isinstance(array, np.ndarray)] == [
        *(np.int64, np.int64, np.int32),
        *(np.int64, np.int64, np.int64),
    ]


def test_the_layout_of_singles_by_hand(words, monkeypatch):
    text = Split(np.array([11, 12, 13, 14, 15], np.uint16), np.array([0, 3, 5]), np.array([0, 2]))
    nothing = np.zeros(1, np.int64)
    planned = Examples(np.array([1]), np.array([5]), nothing, nothing, nothing)
    monkeypatch.setattr(sampler_module, "plan_singles", lambda *_: planned)
    [(_, batch)] = islice(sampler(words, split=text, nsp=False).stream(), 1)
    assert clean(batch).tolist() == [CLS, 12, 13, 14, 15, SEP]
    assert batch.segments.tolist() == [0] * 6
    assert batch.offsets.tolist() == [0, 6]
    assert batch.longest == 6
    assert batch.unrelated is None


@pytest.mark.parametrize("nsp", [True, False])
def test_every_sequence_is_framed(words, nsp):
    for batch in epoch_of(sampler(words, nsp=nsp), 0):
        for sequence in sequences(batch):
            assert sequence[0] == CLS
            assert sequence[-1] == SEP
            assert sequence.count(SEP) == (2 if nsp else 1)
            assert sequence.count(CLS) == 1
        assert batch.longest == max(map(len, sequences(batch))) <= 31
        assert len(batch.ids) == len(batch.segments) == batch.offsets[-1]


def test_without_pairs_an_epoch_is_the_text(words):
    made = sampler(words, nsp=False)
    tokens = [token for batch in epoch_of(made, 0) for token in clean(batch).tolist() if token >= 5]
    assert sorted(tokens) == sorted(made.split.tokens.tolist())


@settings(max_examples=25)
@given(length=st.integers(8, 61), more=st.integers(0, 211), nsp=st.booleans(), seed=st.integers(0, 999))
def test_batches_are_filled_up_to_the_budget(length, more, nsp, seed, words_of_module):
    budget = length + more
    made = sampler(words_of_module, length=length, batch_tokens=budget, nsp=nsp, seed=seed)
    examples, bounds = made.epoch(0)
    batches = epoch_of(made, 0)
    sizes = [len(batch.ids) for batch in batches]
    assert max(sizes) <= budget
    assert bounds[0] == 0
    assert bounds[-1] == len(examples.a_start) == sum(len(batch.offsets) - 1 for batch in batches)
    # The first sequence of the next batch would not have fitted.
    firsts = [int(batch.offsets[1]) for batch in batches[1:]]
    assert all(size + first > budget for size, first in zip(sizes[:-1], firsts, strict=True))


def test_a_batch_may_meet_the_budget_exactly(words, monkeypatch):
    """Five sequences of 11 tokens and 2 special ones, two of which make 26."""
    start, nothing = np.arange(5) * 11, np.zeros(5, np.int64)
    monkeypatch.setattr(
        sampler_module, "plan_singles", lambda *_: Examples(start, start + 11, nothing, nothing, nothing)
    )
    made = sampler(words, nsp=False, length=13, batch_tokens=26)
    assert [len(batch.ids) for batch in epoch_of(made, 0)] == [26, 26, 13]


@pytest.fixture(scope="module")
def words_of_module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{i}" for i in range(WORDS))]))
    return load(folder)


@pytest.mark.parametrize("nsp", [True, False])
def test_an_epoch_has_every_planned_example_once(words, nsp):
    made = sampler(words, nsp=nsp)
    examples, _ = made.epoch(0)
    planned = [
        (CLS, *made.split.tokens[a:b].tolist(), SEP, *([*made.split.tokens[c:d].tolist(), SEP] if nsp else []))
        for a, b, c, d in zip(*(column.tolist() for column in examples[:4]), strict=True)
    ]
    assert [sequence for batch in epoch_of(made, 0) for sequence in sequences(batch)] == planned
    assert len(set(zip(*(column.tolist() for column in examples), strict=True))) == len(planned)


def test_the_next_epoch_has_another_order_and_other_masks(words):
    made = sampler(words, nsp=False)
    one, two = ([s for batch in epoch_of(made, number) for s in sequences(batch)] for number in (0, 1))
    assert one != two
    first, second = epoch_of(made, 0)[0], epoch_of(made, 1)[0]
    assert not np.array_equal(first.places, second.places)


def test_the_stream_is_a_function_of_the_seed(words):
    one, again, other = ([batch for _, batch in islice(sampler(words, seed=seed).stream(), 3)] for seed in (5, 5, 6))
    assert all(map(same, one, again))
    assert not any(map(same, one, other))


def test_no_two_generators_begin_alike(words, monkeypatch):
    """Trailing zeros of a seed make no difference to numpy."""
    made, begun = np.random.default_rng, []

    def spy(seed):
        begun.append(made(seed).integers(2**63))
        return made(seed)

    monkeypatch.setattr(np.random, "default_rng", spy)
    drawn = list(islice(sampler(words).stream(), 53))
    assert drawn[-1][0].epoch > 0
    assert len(begun) == len(set(begun)) > 53


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("nsp", [True, False])
def test_the_ranks_take_turns(words, ranks, nsp):
    made = sampler(words, nsp=nsp)
    rounds = 29
    alone = list(islice(made.stream(), ranks * rounds))
    assert alone[-1][0].epoch >= 1  # across the end of an epoch
    shares = [list(islice(made.stream(rank=rank, ranks=ranks), rounds)) for rank in range(ranks)]
    for turn, together in enumerate(zip(*shares, strict=True)):
        theirs = alone[turn * ranks : (turn + 1) * ranks]
        assert all(same(batch, expected) for (_, batch), (_, expected) in zip(together, theirs, strict=True))
        assert {position for position, _ in together} == {theirs[-1][0]}


@pytest.mark.parametrize("ranks", [1, 2])
def test_any_position_is_a_place_to_go_on_from(words, ranks):
    made = sampler(words)
    for rank in range(ranks):
        whole = list(islice(made.stream(rank=rank, ranks=ranks), 37))
        assert whole[-1][0].epoch >= 1
        for done in range(1, 35):
            rest = list(islice(made.stream(whole[done - 1][0], rank, ranks), 2))
            for (position, batch), (expected, other) in zip(rest, whole[done : done + 2], strict=True):
                assert position == expected
                assert same(batch, other)


def test_the_end_of_an_epoch_is_the_start_of_the_next(words):
    made = sampler(words)
    _, bounds = made.epoch(0)
    [(position, batch)] = islice(made.stream(Position(0, len(bounds) - 1)), 1)
    assert position == (1, 1)
    [(_, expected)] = islice(made.stream(Position(1, 0)), 1)
    assert same(batch, expected)
    assert START == (0, 0)


def test_an_evaluation_stops_where_it_should_and_is_always_the_same(words):
    made = sampler(words)
    batches = epoch_of(made, 0)
    sizes = np.cumsum([len(batch.ids) for batch in batches])
    for most in (1, int(sizes[2]), int(sizes[2]) + 1):
        found, again = list(made.once(most)), list(made.once(most))
        assert len(found) == np.searchsorted(sizes, most) + 1
        assert all(map(same, found, batches))
        assert all(map(same, found, again))
    assert len(list(made.once(10**9))) == len(batches)


def test_whole_words_reach_the_masking(words):
    made = sampler(words, whole_words=True)
    for batch in epoch_of(made, 0):
        ids, chosen = clean(batch), set(batch.places.tolist())
        for place in range(1, len(ids)):
            if words.continues[ids[place]] and not words.special[ids[place - 1]]:
                assert (place in chosen) == (place - 1 in chosen)


def test_the_rate_reaches_the_masking(words):
    batch = epoch_of(sampler(words, mask_rate=0.5), 0)[0]
    ordinary = [sum(token >= 5 for token in sequence) for sequence in sequences(batch)]
    assert len(batch.places) == sum(max(1, round(0.5 * count)) for count in ordinary)


@pytest.mark.parametrize("rate", [0.02, 0.15, 0.4])
@pytest.mark.parametrize("nsp", [True, False])
@pytest.mark.parametrize("whole_words", [True, False])
def test_the_most_of_a_batch_is_that_of_the_first_epochs(words, nsp, rate, whole_words):
    options = {"nsp": nsp, "whole_words": whole_words, "split": split(documents=9)}
    batches: list[PretrainingBatch] = []
    for epoch in count():
        batches += epoch_of(sampler(words, mask_rate=rate, **options), epoch)
        if len(batches) >= ENOUGH:
            break
    assert epoch > 1
    sequences, tokens = sampler(words, mask_rate=0.3, **options).most(rate)
    full = [filled(batch, 127, 31) for batch in batches]
    assert sequences == max(len(batch.offsets) - 1 for batch in full if batch is not None)
    if whole_words:
        assert tokens >= max(len(batch.places) for batch in batches[:ENOUGH])
    else:
        assert tokens == max(len(batch.places) for batch in batches)


@pytest.mark.parametrize("whole_words", [True, False])
@pytest.mark.parametrize("nsp", [True, False])
@pytest.mark.parametrize("batch_tokens", [127, 1009, 9001], ids=["many", "some", "one"])
def test_all_batches_fit_one_shape(of_words, batch_tokens, nsp, whole_words):
    """Be an epoch a part of a batch, and most pieces in the middle of words."""
    pieces = of_words([f"##w{i}" if i % 3 else f"w{i}" for i in range(WORDS)])
    made = sampler(pieces, batch_tokens=batch_tokens, nsp=nsp, whole_words=whole_words, split=split(documents=101))
    shape = Shape.of(batch_tokens, *made.most(0.15), 31)
    for _, batch in islice(made.stream(), 200):
        assert shape.fit(batch) is not None


def test_a_batch_that_holds_no_sequence_is_refused(words):
    with pytest.raises(UserError, match=r"--batch-tokens 30 .* 31; try 992"):
        sampler(words, batch_tokens=30)
    assert sampler(words, batch_tokens=31)


def masked(batch: PretrainingBatch) -> float:
    """The share of the words that are to be predicted."""
    return len(batch.places) / int((clean(batch) > SEP).sum())


def test_the_rate_may_follow_a_batchs_place_in_the_stream(words):
    """Across the epochs; only what is masked differs."""
    plain = [batch for _, batch in islice(sampler(words).stream(), 61)]
    asked = []

    def rate(number: int) -> float:
        asked.append(number)
        return 0.2 if number < 40 else 0.7

    changing = [batch for _, batch in islice(sampler(words).stream(mask_rate=rate), 61)]
    assert asked == list(range(61))
    assert all(np.array_equal(clean(one), clean(other)) for one, other in zip(plain, changing, strict=True))
    assert np.mean([masked(batch) for batch in changing[:40]]) == pytest.approx(0.2, abs=0.03)
    assert np.mean([masked(batch) for batch in changing[40:]]) == pytest.approx(0.7, abs=0.03)


def test_a_rate_that_stays_is_no_change_at_all(words):
    plain = [batch for _, batch in islice(sampler(words, mask_rate=0.3).stream(), 13)]
    told = [batch for _, batch in islice(sampler(words).stream(mask_rate=lambda _: 0.3), 13)]
    assert all(same(one, other) for one, other in zip(plain, told, strict=True))


def test_every_rank_counts_its_own_batches(words):
    """So that the batches of one step are masked alike, and one rank's stream goes on where it was left."""
    rates = [0.1, 0.3, 0.5, 0.7, 0.9]
    alone = list(islice(sampler(words).stream(mask_rate=lambda number: rates[number // 3]), 15))
    for rank in range(3):
        stream = sampler(words).stream(rank=rank, ranks=3, mask_rate=lambda number: rates[number])
        mine = list(islice(stream, 5))
        assert all(same(batch, alone[3 * turn + rank][1]) for turn, (_, batch) in enumerate(mine))
        again = sampler(words).stream(mine[1][0], rank, 3, lambda number: rates[number + 2])
        assert all(same(one[1], other[1]) for one, other in zip(mine[2:], islice(again, 3), strict=True))
