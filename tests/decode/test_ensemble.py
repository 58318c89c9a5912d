from typing import Any

import pytest
import torch
from torch.testing import assert_close

from heedful.decode import Ensemble, Limits, Marks, SearchOptions, Task, search

CPU = torch.device("cpu")
SOS, EOS = 0, 1
B, K, V, S = 3, 2, 7, 5


def run(model: Any, state: Any, options: SearchOptions) -> Any:
    return search(model, Task(state, [Limits(0, 7)] * B), Marks(SOS, EOS, (SOS,)), options, CPU)


@pytest.mark.parametrize(
    "options", [SearchOptions(beam=1), SearchOptions(beam=3, n_best=3), SearchOptions(sample=True)]
)
def test_of_one_is_the_model(scorer: Any, options: SearchOptions):
    model = scorer(V, seed=1)
    alone = run(model, model.start(range(B), options.width), options)
    together = run(Ensemble([model]), (model.start(range(B), options.width),), options)
    twice = run(Ensemble([model, model]), (model.start(range(B), options.width),) * 2, options)
    for other in (together, twice):
        assert [[one.ids for one in best] for best in other] == [[one.ids for one in best] for best in alone]
        for best, expected in zip(other, alone, strict=True):
            assert [one.score for one in best] == pytest.approx([one.score for one in expected], abs=1e-5)


def test_of_two_is_the_mean_probability():
    class Told:
        def __init__(self, *probabilities: float) -> None:
            self.scores = torch.tensor(probabilities).log() + len(probabilities)  # only differences count

        def step(self, state: int, tokens: torch.Tensor, *_: Any) -> Any:
            return self.scores.expand(1, 1, -1), state + 1, None

        def keep(self, state: int, sentences: torch.Tensor) -> int:
            return state

    both = Ensemble([Told(0.1, 0.2, 0.7), Told(0.5, 0.4, 0.1)])
    scores, state, weights = both.step((3, 11), torch.zeros(1, 1, dtype=torch.long))
    assert_close(scores.exp(), torch.tensor([[[0.3, 0.3, 0.4]]]))
    assert state == (4, 12)
    assert weights is None


def test_weights_are_averaged_and_states_are_the_members_own(scorer: Any):
    members = [scorer(V, seed=seed, source=S) for seed in (1, 2)]
    both = Ensemble(members)
    state = tuple(member.start(range(B), K) for member in members)
    tokens, parents = torch.full((B, K), SOS), torch.tensor([[1, 0], [0, 0], [1, 1]])
    _, state, _ = both.step(state, tokens)
    _, state, weights = both.step(state, torch.tensor([[2, 3], [4, 5], [6, 2]]), parents, True)
    assert weights is not None
    assert weights.shape == (B, K, S)
    apart = [member.weights[own.places] for member, own in zip(members, state, strict=True)]
    assert_close(weights, (apart[0] + apart[1]) / 2)
    kept = both.keep(state, torch.tensor([2, 0]))
    for ours, before in zip(kept, state, strict=True):
        assert torch.equal(ours.places, before.places[[2, 0]])


def test_members_that_disagree_settle_on_what_both_can_bear(scorer: Any):
    """By hand, greedily: the mean probability's maximum at every step."""
    members = [scorer(V, seed=seed) for seed in (1, 2)]
    found = run(Ensemble(members), tuple(one.start(range(B), 1) for one in members), SearchOptions(beam=1))
    for sentence, (one,) in enumerate(found):
        for place, token in enumerate([*one.ids, EOS][:7]):
            each = [torch.tensor(member.look(sentence, [SOS, *one.ids[:place]])[0]).exp() for member in members]
            assert token == 1 + int((each[0] + each[1])[1:].argmax())
