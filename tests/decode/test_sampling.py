from collections import Counter
from typing import Any

import pytest
import torch

from heedful.decode import Hypothesis, Limits, Marks, SearchOptions, Task, search

CPU = torch.device("cpu")
SOS, EOS = 0, 1
MARKS = Marks(SOS, EOS, never=(SOS,))


def draw(model: Any, sentences: int, limits: Limits, **options: Any) -> list[list[Hypothesis]]:
    asked = SearchOptions(sample=True, **options)
    task = Task(model.start(list(range(sentences)), asked.width), [limits] * sentences)
    return search(model, task, MARKS, asked, CPU)


def test_a_seed_draws_the_same_again(scorer: Any):
    model = scorer(29, seed=1)
    first, again, other = (draw(model, 5, Limits(0, 11), n_best=3, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_the_most_probable_of_one_is_greedy(scorer: Any):
    model = scorer(29, seed=1)
    task = Task(model.start(list(range(17)), 1), [Limits(0, 11)] * 17)
    greedy = search(model, task, MARKS, SearchOptions(beam=1), CPU)
    assert draw(model, 17, Limits(0, 11), top_k=1) == greedy
    assert draw(model, 17, Limits(0, 11), top_p=1e-6) == greedy
    careful = draw(model, 17, Limits(0, 11), temperature=0.001)
    assert [one[0].ids for one in careful] == [one[0].ids for one in greedy]
    assert draw(model, 17, Limits(0, 11)) != greedy


def test_there_are_as_many_draws_as_asked_for_and_the_best_comes_first(scorer: Any):
    for found in draw(scorer(29, seed=1), 7, Limits(2, 11), n_best=13):
        assert len(found) == 13
        assert len({one.ids for one in found}) > 5
        scores = [one.score for one in found]
        assert scores == sorted(scores, reverse=True)


def test_a_draw_has_the_log_probability_of_the_model_however_it_was_drawn(scorer: Any):
    model = scorer(11, seed=2)
    for sentence, found in enumerate(draw(model, 7, Limits(0, 5), n_best=3, temperature=2.0, top_k=5)):
        for one in found:
            tokens = [*one.ids, EOS]
            steps = [model.look(sentence, [SOS, *one.ids[:place]])[0][token] for place, token in enumerate(tokens)]
            assert one.log_prob == pytest.approx(sum(steps), abs=1e-4)
            assert one.score == pytest.approx(sum(steps) / len(tokens), abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.5}, {"temperature": 3.0}, {"top_k": 3}, {"top_p": 0.7}, {"top_k": 4, "top_p": 0.8}],
)
def test_draws_are_as_frequent_as_they_are_probable(scorer: Any, options: dict[str, Any]):
    """The first of 3,000 draws: chi-square below its .999 quantile for at most five degrees of freedom."""
    model, count = scorer(7, seed=3), 3000
    log_probs, _ = model.look(0, [SOS])
    weights = {token: log_probs[token] / options.get("temperature", 1.0) for token in range(1, 7)}
    total = torch.tensor(list(weights.values())).logsumexp(0).item()
    chances = {token: torch.tensor(weight - total).exp().item() for token, weight in weights.items()}
    kept = sorted(chances, key=lambda token: -chances[token])[: options.get("top_k") or 6]
    share = sum(chances[token] for token in kept)
    while sum(chances[token] for token in kept[:-1]) >= options.get("top_p", 1.0) * share:
        kept.pop()
    share = sum(chances[token] for token in kept)
    found = draw(model, 1, Limits(0, 1), n_best=count, seed=5, **options)[0]
    drawn = Counter(one.ids[0] if one.ids else EOS for one in found)
    assert set(drawn) == set(kept)
    expected = {token: count * chances[token] / share for token in kept}
    assert sum((drawn[token] - number) ** 2 / number for token, number in expected.items()) < 20.5


def test_beams_of_a_sentence_draw_each_for_itself(scorer: Any):
    """What a draw has written is its own past: no beam goes on with another's."""
    model = scorer(5, seed=6, spread=8.0)  # nearly certain of what follows what
    for sentence, found in enumerate(draw(model, 5, Limits(4, 4), n_best=7, top_k=2)):
        for one in found:
            for place, token in enumerate(one.ids):
                log_probs, _ = model.look(sentence, [SOS, *one.ids[:place]])
                assert token in sorted(range(2, 5), key=log_probs.__getitem__)[-2:]
