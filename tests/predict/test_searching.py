import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from heedful.data.bitext import Marks
from heedful.decode import SearchOptions
from heedful.errors import UserError
from heedful.models.rnn import Rnn, RnnConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.predict import searching
from heedful.predict.searching import Sentence, TorchSearcher

PAD, SOS, EOS, V = 0, 1, 2, 37
MARKS = Marks(PAD, SOS, EOS)
kinds = pytest.mark.parametrize("kind", ["transformer", "rnn", "both"])


def model(kind: str, seed: int = 1, **changes: Any) -> Transformer | Rnn:
    made: Transformer | Rnn = (
        Transformer(
            TransformerConfig(
                **{"vocab_size": V, "encoder_layers": 1, "decoder_layers": 3, "dim": 14, "heads": 2}
                | {"ffn_dim": 11, "max_length": 43, "dropout": 0.5}
                | changes
            )
        )
        if kind == "transformer"
        else Rnn(RnnConfig(**{"vocab_size": V, "layers": 2, "dim": 14, "max_length": 53, "dropout": 0.5} | changes))
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0.0, 0.6, generator=generator)
    # In double precision, in which a batch adds up as each sentence alone does. A searcher puts it at rest.
    return made.double().train()


def searcher(kind: str) -> TorchSearcher:
    models = [model(one, seed) for seed, one in enumerate(["transformer", "rnn"] if kind == "both" else [kind])]
    return TorchSearcher(models, MARKS, never=(PAD, SOS))


def sentences(count: int = 13, seed: int = 0) -> list[list[int]]:
    """Of 1 to 16 tokens, short and long in turns."""
    drawn = np.random.default_rng(seed)
    return [drawn.integers(3, V, drawn.integers(1, 6) + 11 * (number % 2)).tolist() for number in range(count)]


@torch.no_grad()
def log_probs(made: TorchSearcher, source: list[int], target: list[int]) -> np.ndarray:
    """Token by token, by the step that searches take."""
    ids = torch.tensor([[*source, EOS]])
    states = [one.start(one.encode(ids, torch.ones_like(ids, dtype=torch.bool)), 1) for one in made.models]  # type: ignore
    found = []
    for read, written in zip([SOS, *target], [*target, EOS], strict=True):
        steps = [one.step(state, torch.tensor([[read]])) for one, state in zip(made.models, states, strict=True)]
        states = [state for _, state, _ in steps]
        chances = torch.stack([scores[0, 0].softmax(-1) for scores, _, _ in steps]).mean(0)
        found.append(float(chances[written].log()))
    return np.array(found)


@kinds
def test_a_score_is_the_log_probability_of_each_step(kind: str):
    made = searcher(kind)
    pairs = list(zip(sentences(11, 1), sentences(11, 2)[::-1], strict=True))
    pairs.append(([5], []))
    for pair, ours in zip(pairs, made.score(pairs), strict=True):
        assert ours.shape == (len(pair[1]) + 1,)
        np.testing.assert_allclose(ours, log_probs(made, *pair), rtol=1e-5, atol=1e-5)


@kinds
def test_what_is_found_has_the_score_that_scoring_gives_it(kind: str):
    made = searcher(kind)
    given = sentences(7)
    found = made.search([Sentence(one) for one in given], SearchOptions(beam=3, n_best=3))
    pairs = [(one, each.ids) for one, best in zip(given, found, strict=True) for each in best]
    assert len(pairs) == 21
    flat = [each for best in found for each in best]
    for each, ours in zip(flat, made.score(pairs), strict=True):
        assert each.log_prob == pytest.approx(float(ours.sum()), rel=1e-5, abs=1e-5)
        assert each.score == pytest.approx(float(ours.mean()), rel=1e-5, abs=1e-5)


@kinds
@pytest.mark.parametrize("room", [37, 4096])
def test_answers_come_in_the_order_of_the_questions(kind: str, room: int, monkeypatch: pytest.MonkeyPatch):
    """Each as if it were alone, whatever is batched with it."""
    made = searcher(kind)
    given = [Sentence(one, one[: number % 3]) for number, one in enumerate(sentences())]
    options = SearchOptions(beam=2, n_best=2, max_ratio=0.5)
    alone = [made.search([one], options)[0] for one in given]
    monkeypatch.setattr(searching, "BATCH_TOKENS", {"cpu": room})
    together = made.search(given, options)
    assert len({best[0].ids for best in together}) > 7
    for ours, theirs in zip(together, alone, strict=True):
        assert [one.ids for one in ours] == [one.ids for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], rel=1e-5, abs=1e-5)
    for one, best in zip(given, together, strict=True):
        assert all(list(each.ids[: len(one.prefix)]) == list(one.prefix) for each in best)
    pairs = [(one.ids, best[0].ids) for one, best in zip(given, together, strict=True)]
    for pair, scores, table in zip(pairs, made.score(pairs), made.align(pairs), strict=True):
        np.testing.assert_allclose(scores, made.score([pair])[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(table, made.align([pair])[0], rtol=1e-5, atol=1e-5)


@kinds
def test_an_alignment_has_a_row_a_token_and_shares_out_its_attention(kind: str):
    made = searcher(kind)
    pairs = list(zip(sentences(7, 1), sentences(7, 2)[::-1], strict=True))
    for (source, target), table in zip(pairs, made.align(pairs), strict=True):
        assert table.shape == (len(target) + 1, len(source) + 1)
        np.testing.assert_allclose(table.sum(1), 1.0, rtol=1e-4)
    if kind == "both":
        each = [TorchSearcher([one], MARKS, ()).align(pairs) for one in made.models]
        for ours, one, other in zip(made.align(pairs), *each, strict=True):
            np.testing.assert_allclose(ours, (one + other) / 2, rtol=1e-4, atol=1e-6)


def test_several_models_reach_as_far_as_the_shortest():
    assert searcher("transformer").longest == 42
    assert searcher("rnn").longest == 52
    assert searcher("both").longest == 42


def test_a_source_and_a_target_may_be_as_long_as_the_model_reaches():
    made = searcher("transformer")
    options = SearchOptions(beam=2, min_length=42)
    ((one,),) = made.search([Sentence([5] * 42)], options)
    assert len(one.ids) == 42
    ((table,), (scores,)) = (made.align([([5] * 42, one.ids)]), made.score([([5] * 42, one.ids)]))
    assert table.shape == (43, 43)
    assert one.log_prob == pytest.approx(float(scores.sum()), rel=1e-5)


def test_coverage_counts_real_tokens_alone():
    """Padding is never looked at: were it to count, it would cost most."""
    made = searcher("transformer")
    short, long = [5, 6], [7] * 31
    options = SearchOptions(beam=2, coverage_penalty=0.5)
    alone = made.search([Sentence(short)], options)[0][0]
    beside = made.search([Sentence(long), Sentence(short)], options)[1][0]
    assert beside.ids == alone.ids
    assert beside.score == pytest.approx(alone.score, abs=1e-5)
    table = made.align([(short, alone.ids)])[0]
    missed = np.log(np.minimum(table.sum(0), 1.0)).sum()
    assert alone.score == pytest.approx(alone.log_prob / (len(alone.ids) + 1) + 0.5 * missed, abs=1e-5)


@kinds
def test_scores_are_the_same_a_few_rows_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch):
    made = searcher(kind)
    pairs = list(zip(sentences(11, 1), sentences(11, 2), strict=True))
    whole = made.score(pairs)
    monkeypatch.setattr(searching, "SCORED_ROWS", 5)
    for one, other in zip(whole, made.score(pairs), strict=True):
        np.testing.assert_allclose(one, other)


def test_nothing_is_answered_with_nothing():
    made = searcher("rnn")
    assert made.search([], SearchOptions()) == []
    assert made.score([]) == []
    assert made.align([]) == []


@pytest.mark.parametrize("beam", [1, 3])
def test_a_decoder_whose_numbers_are_beyond_fp16_is_an_error(beam: int):
    """The encoder's are fine. In full precision here: not every CPU survives another."""
    broken = model("transformer")
    assert isinstance(broken, Transformer)
    made = TorchSearcher([broken], MARKS, never=(PAD, SOS), learning=True)
    made.half = True
    asked = [lambda: made.search([Sentence([5, 7])], SearchOptions(beam=beam))]
    asked += [lambda: made.score([([5, 7], [3])]), lambda: made.align([([5, 7], [3])])]
    for ask in asked:
        ask()
    with torch.no_grad():
        broken.decoder[0].get_submodule("feed_forward.outer").weight.fill_(np.inf)
    for ask in asked:
        with pytest.raises(UserError, match="too large for fp16"):
            ask()


@pytest.mark.parametrize(
    "call",
    [
        lambda made: made.search([Sentence([5, 7, 11])], SearchOptions(beam=2)),
        lambda made: made.watched(Sentence([5, 7, 11]), SearchOptions(beam=2)),
        lambda made: made.score([([5, 7, 11], [3, 13])]),
        lambda made: made.align([([5, 7, 11], [3, 13])]),
    ],
    ids=["search", "watched", "score", "align"],
)
def test_threads_take_turns(call: Callable[[TorchSearcher], object], monkeypatch: pytest.MonkeyPatch):
    """What a recording holds belongs to one call until that is done."""
    made = searcher("transformer")
    inside, free = threading.Event(), threading.Event()
    rectangle, entered = made._rectangle, []

    def slow(rows: Any) -> Any:
        entered.append(threading.current_thread().name)
        inside.set()
        assert free.wait(20)
        return rectangle(rows)

    monkeypatch.setattr(made, "_rectangle", slow)
    first = threading.Thread(target=lambda: made.search([Sentence([3, 5])], SearchOptions()), name="first")
    second = threading.Thread(target=lambda: call(made), name="second")
    first.start()
    assert inside.wait(20)
    second.start()
    second.join(0.2)
    assert entered == ["first"], "the second waits until the first is done"
    free.set()
    first.join(20)
    second.join(20)
    assert set(entered) == {"first", "second"}
