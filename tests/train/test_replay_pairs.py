"""Recorded steps over sentence pairs against the plain ones; what needs a GPU is skipped without one."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from heedful.data.batch import PairBatch
from heedful.data.bitext import Bitext, Marks, Pairs
from heedful.models.transformer import SHARES, Transformer, TransformerConfig
from heedful.tasks.term import Term
from heedful.tasks.translation import translation_terms
from heedful.train import replay_pairs
from heedful.train.replay_pairs import MOST_LENGTH, MOST_TOKENS, PairReplay

ON_CPU = pytest.mark.filterwarnings("ignore:.*CUDA is not available")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
PAD, SOS, EOS, V = 0, 1, 2, 31


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Without a GPU nothing is recorded, but what is embedded and summed is the same."""
    if request.param == "cpu":
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
        monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda module, *_, **__: module)
        monkeypatch.setattr(torch.random, "fork_rng", lambda *_: nullcontext())
    return torch.device(request.param)


def model(device: torch.device, **changes: Any) -> Transformer:
    shape = {"encoder_layers": 2, "decoder_layers": 2, "dim": 32, "heads": 2, "ffn_dim": 53, "dropout": 0.0}
    made = Transformer(TransformerConfig(vocab_size=V, max_length=41, **(shape | changes)))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
    return made.to(device).train()


def batches(count: int, longest: int = 23, room: int = 67) -> list[PairBatch]:
    """Whole ones, with rows that only fill them up."""
    drawn = np.random.default_rng(count)
    sides = [[drawn.integers(3, V, drawn.integers(1, longest)) for _ in range(count)] for _ in range(2)]
    pairs = Pairs(*sides)
    made = Bitext(pairs=lambda _: pairs, marks=Marks(PAD, SOS, EOS), batch_tokens=room, seed=1, whole=True)
    return list(made.once(pairs))


def plain(made: Transformer, batch: PairBatch, smoothing: float = 0.1, agreement: float = 0.0) -> Term:
    device = next(made.parameters()).device
    return translation_terms(made, batch, device, smoothing, agreement)["token"]


def replayed(replay: PairReplay, batch: PairBatch) -> Term:
    terms = replay.terms(batch)
    assert terms is not None
    return terms["token"]


def gradients(made: Transformer, term: Term) -> dict[str, torch.Tensor]:
    term.loss.backward()
    found = {name: parameter.grad.clone() for name, parameter in made.named_parameters()}
    made.zero_grad()
    return found


@ON_CPU
@pytest.mark.parametrize("agreement", [0.0, 3.0])
@pytest.mark.parametrize(
    ("share", "others"),
    [
        ("all", {}),
        ("output", {"pre_norm": True}),
        ("none", {"output_bias": True}),
        ("none", {"target_vocab_size": 43}),
    ],
)
def test_terms_and_gradients_are_those_of_the_plain_path(
    device: torch.device, share: str, others: dict[str, Any], agreement: float
):
    """Several shapes in turn, each recorded once and replayed with other numbers."""
    made = model(device, share=share, **others)
    replay = PairReplay(made, 0.1, agreement, torch.float32)
    several = batches(17)
    for batch in several:
        term = replayed(replay, batch)
        loss, correct, count = float(term.loss.detach()), int(term.correct), term.count
        ours = gradients(made, term)
        del term  # what of a step's graph outlives it would spoil the next recording
        expected = plain(made, batch, 0.1, agreement)
        assert loss == pytest.approx(float(expected.loss.detach()), rel=1e-4)
        assert (correct, count) == (int(expected.correct), expected.count)
        theirs = gradients(made, expected)
        del expected
        for name, gradient in ours.items():
            torch.testing.assert_close(
                gradient, theirs[name], rtol=1e-3, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}"
            )
    shapes = {(*batch.source.shape, *batch.target.shape) for batch in several}
    assert set(replay.recorded) == shapes
    assert 1 < len(shapes) < len(several)


@ON_CPU
@pytest.mark.parametrize("share", SHARES)
def test_a_recording_gives_gradients_to_all_but_the_tables_that_are_only_read(device: torch.device, share: str):
    """Those of the embeddings come from outside it; a table that also writes gets both."""
    made = model(device, share=share, output_bias=True, pre_norm=True)
    replay = PairReplay(made, 0.0, 0.0, torch.float32)
    replayed(replay, batches(3)[0])
    (layers,) = replay.recorded.values()
    assert isinstance(layers, torch.nn.Module)
    inside = {id(parameter) for parameter in layers.parameters()}
    outside = {name for name, parameter in made.named_parameters() if id(parameter) not in inside}
    expected = {
        "all": set(),
        "output": {"source_embedding.weight"},
        "none": {"source_embedding.weight", "target_embedding.weight"},
    }
    assert outside == expected[share]


@ON_CPU
def test_a_step_of_the_optimizer_is_seen_by_the_next_replay(device: torch.device):
    made = model(device)
    replay, batch = PairReplay(made, 0.1, 0.0, torch.float32), batches(5)[0]
    optimizer = torch.optim.SGD(made.parameters(), lr=0.01)
    seen = []
    for _ in range(3):
        term = replayed(replay, batch)
        loss = float(term.loss.detach())
        (term.loss / term.count).backward()
        del term
        with torch.no_grad():
            assert loss == pytest.approx(float(plain(made, batch).loss), rel=1e-4)
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss)
    assert seen[0] > seen[1] > seen[2]


@ON_CPU
def test_long_and_large_batches_are_for_somebody_else(device: torch.device, monkeypatch: pytest.MonkeyPatch):
    batch = batches(17)[0]
    for name, most in (("MOST_LENGTH", batch.source.shape[1]), ("MOST_TOKENS", batch.source.size)):
        usual = getattr(replay_pairs, name)
        for less, expected in ((0, True), (1, False)):
            monkeypatch.setattr(replay_pairs, name, most - less)
            replay = PairReplay(model(device), 0.1, 0.0, torch.float32)
            assert (replay.terms(batch) is not None) == expected
        monkeypatch.setattr(replay_pairs, name, usual)
    assert PairReplay(model(device), 0.1, 2.0, torch.float32).most == MOST_TOKENS // 2  # they are read twice


def test_few_shapes_are_recorded():
    rows = [np.full(length, 5) for length in range(MOST_LENGTH)]
    made = Bitext(
        pairs=lambda _: Pairs(rows, rows), marks=Marks(PAD, SOS, EOS), batch_tokens=4096, seed=1, whole=True
    )
    assert len({batch.source.shape for batch in made.once(Pairs(rows, rows))}) == 16


@needs_gpu
def test_half_precision_is_close_and_losses_are_whole():
    made = model(torch.device("cuda"))
    batch = batches(5)[0]
    term = replayed(PairReplay(made, 0.1, 1.0, torch.bfloat16), batch)
    assert term.loss.dtype == torch.float32
    assert float(term.loss.detach()) == pytest.approx(float(plain(made, batch, 0.1, 1.0).loss.detach()), rel=0.05)


@needs_gpu
def test_dropout_follows_the_seed_whether_recorded_now_or_before():
    made = model(torch.device("cuda"), dropout=0.3)
    batch = batches(5)[0]

    def draw(replay: PairReplay, seed: int) -> float:
        torch.manual_seed(seed)
        return float(replayed(replay, batch).loss.detach())

    fresh, used = (PairReplay(made, 0.1, 1.0, torch.float32) for _ in range(2))
    other = draw(used, 1)
    assert draw(fresh, 7) == draw(used, 7)
    assert draw(used, 7) != other
