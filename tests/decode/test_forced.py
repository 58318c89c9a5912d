"""What a search is told to write, or not to: prefixes, blocked runs, penalties of repetition."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.decode import Limits, Marks, SearchOptions, Task, search

CPU = torch.device("cpu")
SOS, EOS = 0, 1
MARKS = Marks(SOS, EOS, never=(SOS,))


def found_by(
    model: Any, limits: list[Limits], options: SearchOptions, prefixes: list[tuple[int, ...]] | None = None
) -> Any:
    task = Task(model.start(list(range(len(limits))), options.width), limits, prefixes)
    return search(model, task, MARKS, options, CPU)


def log_prob(model: Any, sentence: int, ids: tuple[int, ...]) -> float:
    return sum(model.look(sentence, [SOS, *ids[:place]])[0][token] for place, token in enumerate([*ids, EOS]))


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(beam=1),
        SearchOptions(beam=4, n_best=4),
        SearchOptions(sample=True, n_best=5),
        SearchOptions(beam=3, n_best=3, block_ngrams=1),
        SearchOptions(beam=3, n_best=2, block_ngrams=2),
        SearchOptions(sample=True, n_best=3, block_ngrams=1, top_k=1),
    ],
)
def test_every_hypothesis_begins_with_the_prefix(scorer: Any, options: SearchOptions):
    """Whether it repeats itself, is the longest that may be, or isn't there at all."""
    model = scorer(17, seed=1)
    prefixes: list[tuple[int, ...]] = [(5,), (), (7, 7, 7, 7), (2, 3, 2, 3, 2, 3), (4, 4, 4, 4, 4, 4, 4)]
    for limits, prefix, hypotheses in zip(
        [Limits(0, 7)] * 5, prefixes, found_by(model, [Limits(0, 7)] * 5, options, prefixes), strict=True
    ):
        sentence = prefixes.index(prefix)
        assert hypotheses
        for one in hypotheses:
            assert one.ids[: len(prefix)] == prefix
            assert len(one.ids) <= limits.most
            assert one.log_prob == pytest.approx(log_prob(model, sentence, one.ids), abs=1e-4)


def test_after_the_prefix_the_search_is_as_if_it_had_begun_there(scorer: Any):
    model = scorer(5, seed=4)
    prefix = (2, 4)
    wide = SearchOptions(beam=200, n_best=200, penalty="none")
    every = [one for one in found_by(model, [Limits(0, 4)], wide)[0] if one.ids[:2] == prefix]
    forced = found_by(model, [Limits(0, 4)], wide, [prefix])[0]
    assert [one.ids for one in forced] == [one.ids for one in every]
    assert [one.score for one in forced] == pytest.approx([one.score for one in every])
    assert len(forced) == 1 + 3 + 9


def test_a_prefix_beyond_the_limit_is_written_whole(scorer: Any):
    model = scorer(5, seed=4)
    prefixes: list[tuple[int, ...]] = [(2, 3, 4, 2, 3), (3,)]
    long, short = found_by(model, [Limits(0, 3), Limits(0, 3)], SearchOptions(beam=2), prefixes)
    assert [one.ids for one in long] == [(2, 3, 4, 2, 3)]
    assert len(short[0].ids) <= 3


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_run_is_written_twice(scorer: Any, size: int, sample: bool):
    """In a vocabulary so small that it would be."""
    model = scorer(5, seed=size, spread=4.0)
    limits = [Limits(0, 40 if size > 1 else 3)] * 19
    options = SearchOptions(n_best=3, sample=sample)
    blocking = SearchOptions(n_best=3, sample=sample, block_ngrams=size)

    def repeat(each: SearchOptions) -> int:
        count = 0
        for hypotheses in found_by(model, limits, each):
            for one in hypotheses:
                runs = [one.ids[start : start + size] for start in range(len(one.ids) - size + 1)]
                count += len(runs) != len(set(runs))
        return count

    assert repeat(options) > 0
    assert repeat(blocking) == 0


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 999), sample=st.booleans(), size=st.integers(1, 2), fewest=st.integers(0, 30))
def test_where_nothing_is_left_to_write_the_end_comes(scorer: Any, seed: int, sample: bool, size: int, fewest: int):
    """Three tokens can be written in a row only so often before something repeats."""
    options = SearchOptions(n_best=2, sample=sample, block_ngrams=size, seed=seed)
    for hypotheses in found_by(scorer(5, seed=seed), [Limits(0, 30), Limits(fewest, 30)], options):
        assert hypotheses
        for one in hypotheses:
            assert math.isfinite(one.score)
            assert len(one.ids) <= {1: 3, 2: 10}[size]


def test_what_was_written_is_penalised(scorer: Any):
    """Greedy, by hand: the log-probability of a token that was there before counts twice."""
    model = scorer(7, seed=2, spread=3.0)
    limits = [Limits(0, 13)] * 23
    plain = found_by(model, limits, SearchOptions(beam=1))
    penalised = found_by(model, limits, SearchOptions(beam=1, repetition_penalty=2.0))
    assert plain != penalised
    for sentence, (one,) in enumerate(penalised):
        total, written = 0.0, list[int]()
        for token in [*one.ids, EOS]:
            log_probs, _ = model.look(sentence, [SOS, *written])
            worth = [2 * value if place in written else value for place, value in enumerate(log_probs)]
            if len(written) < 13:
                assert token == max(range(1, 7), key=worth.__getitem__)
                total += worth[token]
            else:
                total += log_probs[EOS]
            written.append(token)
        assert one.log_prob == pytest.approx(total, abs=1e-4)


def test_repetition_is_not_only_of_neighbours(scorer: Any):
    """A penalty so high that nothing is written twice."""
    found = found_by(scorer(23, seed=9), [Limits(11, 11)] * 7, SearchOptions(beam=3, repetition_penalty=1e4))
    for (one,) in found:
        assert len(set(one.ids)) == 11
