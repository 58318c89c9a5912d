"""Beam search against all that can be written, and against a slow one that never stops before the end."""

import math
import sys
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.decode import Hypothesis, Limits, Marks, SearchOptions, Task, Turn, search

CPU = torch.device("cpu")
SOS, EOS = 0, 1
MARKS = Marks(SOS, EOS, never=(SOS,))
SOURCE = 3
PENALTIES = [
    ("average", 1.0),
    ("average", 0.6),
    ("average", -0.7),
    ("gnmt", 1.3),
    ("gnmt", 0.0),
    ("gnmt", -0.4),
    ("none", 1.0),
]


def found_by(model: Any, sentences: list[int], limits: list[Limits], options: SearchOptions, **more: Any) -> Any:
    mask = torch.ones(len(sentences), SOURCE, dtype=torch.bool)
    mask[:, 1] = torch.tensor(sentences) % 2 == 0  # where a sentence is odd, its second token needs no cover
    task = Task(model.start(sentences, options.width), limits, more.get("prefixes"), mask)
    return search(model, task, more.get("marks", MARKS), options, CPU)


def judged(model: Any, sentence: int, ids: tuple[int, ...], options: SearchOptions) -> Hypothesis:
    """What a hypothesis is worth, by the formulas."""
    total, cover = 0.0, [0.0] * SOURCE
    for place, token in enumerate([*ids, EOS]):
        log_probs, weights = model.look(sentence, [SOS, *ids[:place]])
        total += log_probs[token]
        cover = [one + more for one, more in zip(cover, weights, strict=True)]
    length = len(ids) + 1
    base = {"average": length, "gnmt": (5 + length) / 6, "none": 1}[options.penalty]
    if sentence % 2:
        cover[1] = 1.0
    missed = sum(math.log(min(one, 1.0)) for one in cover)
    return Hypothesis(ids, total, total / base**options.length_penalty + options.coverage_penalty * missed)


def slow(model: Any, sentence: int, limits: Limits, options: SearchOptions) -> list[Hypothesis]:
    """Beam search with lists, up to the last length: what ends among the K best continuations has finished."""
    vocabulary = model.scores.shape[1]
    open_ones: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished = []
    for length in range(limits.most + 1):
        continued = []
        for total, ids in open_ones:
            log_probs, _ = model.look(sentence, [SOS, *ids])
            tokens = [EOS] if length >= limits.fewest else []
            tokens += range(2, vocabulary) if length < limits.most else []
            continued += [(total + log_probs[token], (*ids, token)) for token in tokens]
        continued.sort(reverse=True)
        ended = [ids[:-1] for _, ids in continued[: options.beam] if ids[-1] == EOS]
        finished += [judged(model, sentence, ids, options) for ids in ended]
        open_ones = [one for one in continued if one[1][-1] != EOS][: options.beam]
    return sorted(finished, key=lambda one: -one.score)[: options.n_best]


def same(ours: list[Hypothesis], theirs: list[Hypothesis]) -> None:
    assert [one.ids for one in ours] == [one.ids for one in theirs]
    assert [one.log_prob for one in ours] == pytest.approx([one.log_prob for one in theirs], abs=1e-4)
    assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-3, rel=1e-4)


@pytest.mark.parametrize(("penalty", "exponent"), PENALTIES)
@pytest.mark.parametrize(("vocabulary", "most", "n_best"), [(3, 4, 1), (4, 3, 1000), (5, 4, 7), (6, 2, 150)])
@pytest.mark.parametrize("coverage", [0.0, 0.3])
def test_a_beam_that_is_wide_enough_finds_the_best_of_all(
    scorer: Any, vocabulary: int, most: int, n_best: int, penalty: Any, exponent: float, coverage: float
):
    beam = (vocabulary - 2) ** most * vocabulary
    n_best = min(n_best, beam)
    options = SearchOptions(
        beam=beam, n_best=n_best, penalty=penalty, length_penalty=exponent, coverage_penalty=coverage
    )
    model = scorer(vocabulary, seed=vocabulary)
    sentences = [11, 12]
    ours = found_by(model, sentences, [Limits(0, most), Limits(1, most)], options)
    for sentence, fewest, one in zip(sentences, (0, 1), ours, strict=True):
        every = [
            judged(model, sentence, ids, options)
            for length in range(fewest, most + 1)
            for ids in product(range(2, vocabulary), repeat=length)
        ]
        same(one, sorted(every, key=lambda each: -each.score)[:n_best])


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 10_000),
    vocabulary=st.integers(3, 7),
    beam=st.integers(2, 5),
    n_best=st.integers(1, 5),
    limits=st.tuples(st.integers(0, 3), st.integers(0, 7)),
    penalty=st.sampled_from(PENALTIES),
    coverage=st.sampled_from([0.0, 0.0, 0.5]),
    spread=st.sampled_from([0.5, 2.0, 4.0]),
)
def test_stopping_misses_nothing_that_running_to_the_end_would_find(
    scorer: Any,
    seed: int,
    vocabulary: int,
    beam: int,
    n_best: int,
    limits: Any,
    penalty: Any,
    coverage: Any,
    spread: Any,
):
    options = SearchOptions(
        beam=beam,
        n_best=min(n_best, beam),
        penalty=penalty[0],
        length_penalty=penalty[1],
        coverage_penalty=coverage,
    )
    model = scorer(vocabulary, seed=seed, spread=spread)
    limit = Limits(min(limits), limits[1])
    same(found_by(model, [seed], [limit], options)[0], slow(model, seed, limit, options))


class Told:
    """A model whose next token has given probabilities, whatever was written: a row a step, the last for ever."""

    def __init__(self, *rows: tuple[float, ...]) -> None:
        self.rows = torch.tensor(rows).log()
        self.steps = 0

    def start(self, sentences: list[int], beams: int) -> int:
        return 0

    def step(self, state: int, tokens: torch.Tensor, *_: Any) -> tuple[torch.Tensor, int, None]:
        self.steps += 1
        row = self.rows[min(state, len(self.rows) - 1)]
        return row.expand(*tokens.shape, -1), state + 1, None

    def keep(self, state: int, sentences: torch.Tensor) -> int:
        return state


def test_two_beams_by_hand():
    """Of a, b and the end: a .6 b .3 end .1, then a .1 b .2 end .7, then only the end."""
    model = Told((0, 0.1, 0.6, 0.3), (0, 0.7, 0.1, 0.2), (0, 1, 0, 0))
    options = SearchOptions(beam=2, n_best=2, penalty="none")
    first, second = found_by(model, [0], [Limits(0, 5)], options)[0]
    assert first.ids == (2,)
    assert first.log_prob == pytest.approx(math.log(0.6 * 0.7))
    assert second.ids == (3,)
    assert second.log_prob == pytest.approx(math.log(0.3 * 0.7))
    # The open ones are worth .12 at most, so nothing better can come: two steps are enough.
    assert model.steps == 2
    averaged = found_by(model, [0], [Limits(0, 5)], SearchOptions(beam=2, n_best=2))[0]
    assert [one.ids for one in averaged] == [(2,), (2, 3)]
    assert averaged[1].score == pytest.approx(math.log(0.6 * 0.2) / 3)


def test_what_is_worth_most_at_its_longest_or_its_shortest_is_waited_for():
    """One step too few, or one too many, in what an open hypothesis may still become, and these would be missed."""
    late = Told((0, 0.5, 0.2, 0.15, 0.15), (0, 0, 1, 0, 0), (0, 1, 0, 0, 0))
    (one,) = found_by(late, [0], [Limits(0, 2)], SearchOptions(beam=2))[0]
    assert one.ids == (2, 2)
    assert math.log(0.2) / 2 < math.log(0.5) < one.score == pytest.approx(math.log(0.2) / 3)
    soon = Told((0, 0.3, 0.6, 0.1), (0, 1, 0, 0))
    (one,) = found_by(soon, [0], [Limits(0, 5)], SearchOptions(beam=2, length_penalty=-1.0))[0]
    assert one.ids == (2,)
    assert math.log(0.6) * 3 < math.log(0.3) < one.score == pytest.approx(math.log(0.6) * 2)


def test_stopping_early_is_content_with_as_many_as_beams():
    """The end is likely at once; what is written for long is better on average, which only patience finds."""
    model = Told((0, 0.4, 0.35, 0.25), (0, 0.45, 0.54, 0.01), (0, 0.02, 0.97, 0.01))
    limits = [Limits(0, 23)]
    patient = found_by(model, [0], limits, SearchOptions(beam=2))[0][0]
    assert model.steps == 24
    assert patient.ids == (2,) * 23
    model.steps = 0
    early = found_by(model, [0], limits, SearchOptions(beam=2, early=True, n_best=2))[0]
    assert model.steps == 2
    assert [one.ids for one in early] == [(), (2,)]
    assert early[0].score == pytest.approx(math.log(0.4))
    assert early[0].score < patient.score


@pytest.mark.parametrize("most", [0, 1, 5, 17])
def test_greedy_takes_the_most_probable_token(scorer: Any, most: int):
    model = scorer(13, seed=3)
    sentences = list(range(31))
    found = found_by(model, sentences, [Limits(0, most)] * 31, SearchOptions(beam=1))
    for sentence, (one,) in zip(sentences, found, strict=True):
        written: tuple[int, ...] = ()
        while len(written) < most:
            log_probs, _ = model.look(sentence, [SOS, *written])
            token = max(range(1, 13), key=log_probs.__getitem__)
            if token == EOS:
                break
            written = (*written, token)
        assert one.ids == written
        assert one.log_prob == pytest.approx(judged(model, sentence, written, SearchOptions()).log_prob, abs=1e-4)
    if most == 17:
        assert len({len(one.ids) for (one,) in found}) > 1


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 1000),
    limits=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=7),
    options=st.sampled_from(
        [
            SearchOptions(beam=3, n_best=3),
            SearchOptions(beam=1),
            SearchOptions(beam=2, early=True),
            SearchOptions(sample=True, n_best=5),
        ]
    ),
)
def test_no_hypothesis_is_beyond_its_limits(scorer: Any, seed: int, limits: list[Any], options: SearchOptions):
    bounds = [Limits(fewest, fewest + more) for fewest, more in limits]
    found = found_by(scorer(5, seed=seed), list(range(len(bounds))), bounds, options)
    for (fewest, most), hypotheses in zip(bounds, found, strict=True):
        assert 1 <= len(hypotheses) <= options.n_best
        for one in hypotheses:
            assert fewest <= len(one.ids) <= most
            assert not {SOS, EOS} & set(one.ids)


def test_a_limit_that_matters_is_kept_to_the_token():
    model = Told((0, 0.9, 0.1))
    assert [one.ids for one in found_by(model, [0], [Limits(3, 7)], SearchOptions(beam=2))[0]] == [(2, 2, 2)]
    model = Told((0, 0.1, 0.9))
    assert [one.ids for one in found_by(model, [0], [Limits(3, 7)], SearchOptions(beam=2))[0]] == [(2,) * 7]


@pytest.mark.parametrize("look_every", [1, 3])
@pytest.mark.parametrize("leave_from", [1, 4, 100])
@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(beam=1),
        SearchOptions(beam=4, n_best=3, coverage_penalty=0.2),
        SearchOptions(beam=3, penalty="none", early=True),
        SearchOptions(beam=3, n_best=2, block_ngrams=2, repetition_penalty=1.5, length_penalty=-0.5),
    ],
)
def test_a_sentence_in_a_batch_is_as_if_it_were_alone(
    scorer: Any, monkeypatch: pytest.MonkeyPatch, options: SearchOptions, look_every: int, leave_from: int
):
    """Also when others leave before it, or are done but stay."""
    module = sys.modules[search.__module__]
    monkeypatch.setattr(module, "LOOK_EVERY", {"cpu": look_every})
    monkeypatch.setattr(module, "LEAVE_FROM", leave_from)
    model = scorer(11, seed=5)
    sentences = list(range(17))
    limits = [Limits(number % 3, 3 + number % 7) for number in sentences]
    prefixes = [(2, 2, 2)[: number % 4] for number in sentences]
    together = found_by(model, sentences, limits, options, prefixes=prefixes)
    batches = [rows for rows, _ in model.calls]
    assert batches == sorted(batches, reverse=True)
    assert (batches[-1] < 17) == (leave_from > 1)
    for number, ours in zip(sentences, together, strict=True):
        alone = found_by(model, [number], [limits[number]], options, prefixes=[prefixes[number]])[0]
        same(ours, alone)


def test_nothing_to_search_for_is_no_mistake(scorer: Any):
    model = scorer(3)
    assert found_by(model, [], [], SearchOptions()) == []
    assert model.calls == []


def test_what_is_never_written_is_not_written(scorer: Any):
    model = scorer(7, seed=2)
    marks = Marks(SOS, EOS, never=(SOS, 4, 6))
    wide = SearchOptions(beam=40, n_best=40)
    found = found_by(model, [0], [Limits(0, 3)], wide, marks=marks)[0]
    assert {token for one in found for token in one.ids} == {2, 3, 5}
    assert len(found) == 1 + 3 + 9 + 27


@pytest.mark.parametrize(("beam", "seed"), [(1, 0), (3, 1), (4, 2)])
def test_who_watches_sees_what_each_step_chose_from(scorer: Any, beam: int, seed: int):
    """Beams grow out of those before; their sums are the model's; nothing that stays is worse than what was left."""
    model, options = scorer(11, seed), SearchOptions(beam=beam, n_best=beam)
    turns: list[Turn] = []
    task = Task(model.start([5], beam), [Limits(0, 6)])
    found = search(model, task, MARKS, options, CPU, watch=turns.append)
    assert found == search(model, Task(model.start([5], beam), [Limits(0, 6)]), MARKS, options, CPU)
    beams: list[tuple[int, ...]] = [()] * beam
    ended = set()
    for turn in turns:
        sums, parents, tokens, staying = (part[0].tolist() for part in turn)
        assert sums == sorted(sums, reverse=True)
        written = [(*beams[parent], token) for parent, token in zip(parents, tokens, strict=True)]
        for total, ids in zip(sums, written, strict=True):
            if total > -math.inf:
                told = sum(model.look(5, [SOS, *ids[:place]])[0][token] for place, token in enumerate(ids))
                assert total == pytest.approx(told, abs=1e-4)
        ended |= {ids[:-1] for ids in written[:beam] if ids[-1] == EOS}
        going_on = [place for place, ids in enumerate(written) if ids[-1] != EOS][: len(staying)]
        assert staying[: len(going_on)] == going_on
        beams = [written[place] for place in staying]
    assert {one.ids for one in found[0]} <= ended
