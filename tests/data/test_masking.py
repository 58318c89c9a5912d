import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.masking import mask_tokens

CLS, SEP, MASK, V = 2, 3, 4, 101
SPECIAL = np.arange(V) < 5
CONTINUES = (np.arange(V) >= 50) & (np.arange(V) < 80)

lengths = st.lists(st.integers(0, 41), min_size=1, max_size=7)
seeds = st.integers(0, 2**32 - 1)


def packed(lengths: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] text [SEP] sequences with this many ordinary tokens, and the sequence of each token."""
    rng = np.random.default_rng(seed)
    ids = [np.concatenate([[CLS], rng.integers(5, V, size=length), [SEP]]) for length in lengths]
    return np.concatenate(ids), np.repeat(np.arange(len(ids)), [len(part) for part in ids])


def mask(ids, sequences, seed=0, **options):
    rng = np.random.default_rng(seed)
    return mask_tokens(ids, sequences, special=SPECIAL, mask_id=MASK, rng=rng, **options)


def words(ids: np.ndarray, sequences: np.ndarray) -> np.ndarray:
    """The word of each token, found token by token; -1 for special ones."""
    found, word = [], -1
    for place, token in enumerate(ids):
        inside = place and CONTINUES[token] and sequences[place] == sequences[place - 1] and found[-1] >= 0
        word += 0 if SPECIAL[token] or inside else 1
        found.append(-1 if SPECIAL[token] else word)
    return np.array(found)


@given(lengths, seeds, st.sampled_from([0.15, 0.3, 0.5]), st.booleans())
def test_what_is_chosen_and_what_is_left(lengths, seed, rate, whole):
    ids, sequences = packed(lengths, seed)
    before = ids.copy()
    corrupted, positions, labels = mask(ids, sequences, seed, rate=rate, continues=CONTINUES if whole else None)
    assert (ids == before).all()
    assert (np.diff(positions) > 0).all()
    assert not SPECIAL[ids[positions]].any()
    assert (labels == ids[positions]).all()
    untouched = np.setdiff1d(np.arange(len(ids)), positions)
    assert (corrupted[untouched] == ids[untouched]).all()
    assert (~SPECIAL[corrupted[positions]] | (corrupted[positions] == MASK)).all()


@given(lengths, seeds, st.sampled_from([0.15, 0.3, 0.5]))
def test_each_sequence_meets_the_rate(lengths, seed, rate):
    ids, sequences = packed(lengths, seed)
    _, positions, _ = mask(ids, sequences, seed, rate=rate)
    chosen = np.bincount(sequences[positions], minlength=len(lengths)).tolist()
    assert chosen == [max(1, round(rate * length)) if length else 0 for length in lengths]


def test_the_rate_of_a_hundred_tokens_by_hand():
    ids, sequences = packed([100, 3, 0, 20], 7)
    _, positions, _ = mask(ids, sequences)
    assert np.bincount(sequences[positions], minlength=4).tolist() == [15, 1, 0, 3]


def test_every_token_is_chosen_alike():
    ids, sequences = packed([20] * 5003, 7)
    _, positions, _ = mask(ids, sequences)
    places = np.bincount(positions % 22, minlength=22)
    assert places[0] == places[21] == 0
    assert places[1:21] / 5003 == pytest.approx(0.15, abs=0.025)  # five standard deviations


def test_four_fifths_are_hidden_a_tenth_drawn_a_tenth_kept():
    ids, sequences = packed([500] * 401, 7)
    ids[(ids > 5) & ~SPECIAL[ids]] = 5  # one ordinary token, so that a drawn one shows
    corrupted, positions, labels = mask(ids, sequences)
    fates = corrupted[positions]
    assert len(fates) == 75 * 401
    assert (labels == 5).all()
    assert (fates == MASK).mean() == pytest.approx(0.8, abs=0.01)
    other = (fates != MASK) & (fates != 5)
    drawn = 0.1 * (1 - 1 / (V - 5))
    assert other.mean() == pytest.approx(drawn, abs=0.01)
    assert set(fates[other]) == set(range(6, V))


@pytest.mark.parametrize("continues", [None, CONTINUES])
def test_the_choice_is_a_function_of_the_generator(continues):
    ids, sequences = packed([97] * 11, 7)
    one, same, other = (mask(ids, sequences, seed, continues=continues) for seed in (1, 1, 2))
    assert all(map(np.array_equal, one, same))
    assert not np.array_equal(one[1], other[1])


@given(lengths, seeds, st.sampled_from([0.15, 0.4]))
def test_whole_words_are_chosen_whole(lengths, seed, rate):
    ids, sequences = packed(lengths, seed)
    of_token = words(ids, sequences)
    _, positions, _ = mask(ids, sequences, seed, rate=rate, continues=CONTINUES)
    chosen = np.isin(np.arange(len(ids)), positions)
    for word in set(of_token.tolist()) - {-1}:
        assert len(set(chosen[of_token == word].tolist())) == 1
    for number, length in enumerate(lengths):
        assert chosen[sequences == number].any() == (length > 0)


def test_a_word_does_not_go_on_in_the_next_sequence():
    """Without special tokens between them: [7 ##50] [##51 8] are the words 7 50, 51 and 8."""
    ids, sequences = np.array([7, 50, 51, 8]), np.array([0, 0, 1, 1])
    seen = set()
    for seed in range(31):
        _, positions, _ = mask(ids, sequences, seed, continues=CONTINUES)
        seen.add(tuple(positions.tolist()))
    assert seen == {(0, 1, 2), (0, 1, 3)}


def test_a_word_does_not_go_on_behind_a_special_token():
    ids, sequences = np.array([7, SEP, 50, 51]), np.zeros(4, np.int64)
    seen = {tuple(mask(ids, sequences, seed, continues=CONTINUES)[1].tolist()) for seed in range(31)}
    assert seen == {(0,), (2, 3)}


@pytest.mark.parametrize("length", [61, 125, 509])
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_whole_words_meet_the_rate_on_the_whole(length, rate):
    ids, sequences = packed([length] * 1009, 7)
    _, positions, _ = mask(ids, sequences, rate=rate, continues=CONTINUES)
    assert len(positions) / (length * 1009) == pytest.approx(rate, abs=0.01)


def test_a_long_word_is_chosen_as_often_as_a_short_one():
    """Twenty-one words of one, two or three pieces, in this order again and again."""
    text = np.concatenate([[7], [7, 50], [7, 50, 51]] * 7)
    ids, sequences = np.tile(text, 4001), np.repeat(np.arange(4001), len(text))
    _, positions, _ = mask(ids, sequences, continues=CONTINUES)
    chosen = np.bincount(positions % 6, minlength=6) / (4001 * 7)
    assert chosen == pytest.approx(0.15, abs=0.015)


def test_there_may_be_nothing_to_choose():
    ids, sequences = np.array([CLS, SEP, CLS, SEP]), np.array([0, 0, 1, 1])
    for continues in (None, CONTINUES):
        corrupted, positions, labels = mask(ids, sequences, continues=continues)
        assert corrupted.tolist() == ids.tolist()
        assert len(positions) == len(labels) == 0


def test_a_single_token_is_chosen():
    ids, sequences = np.array([CLS, 7, SEP]), np.zeros(3, np.int64)
    for continues in (None, CONTINUES):
        _, positions, labels = mask(ids, sequences, continues=continues)
        assert positions.tolist() == [1]
        assert labels.tolist() == [7]
