"""Recorded passes against the packed path; what needs a GPU is skipped without one."""

import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batch import InputBatch, LabelledBatch, collate
from heedful.data.inputs import Input
from heedful.models.bert import BertConfig
from heedful.models.heads import BertForTask, Head
from heedful.tasks.finetuning import finetuning_terms
from heedful.tasks.scoring import layout, score
from heedful.train.replay import MOST_TOKENS, Replay, _Layers, padded_length

ON_CPU = pytest.mark.filterwarnings("ignore:.*CUDA is not available")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize(
    ("longest", "padded"),
    [(1, 16), (16, 16), (17, 32), (127, 128), (128, 128), (129, 192), (192, 192), (193, 256), (512, 512)],
)
def test_padded_lengths_by_hand(longest: int, padded: int):
    assert padded_length(longest) == padded


@given(st.integers(1, 2048))
def test_padded_lengths_are_few_and_not_much_longer(longest: int):
    padded = padded_length(longest)
    assert longest <= padded < max(longest + 16, 1.5 * longest)
    assert padded_length(padded) == padded
    assert padded_length(longest + 1) >= padded


def test_there_are_few_lengths():
    assert len({padded_length(longest) for longest in range(1, 513)}) == 14


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """Without a GPU nothing is recorded, but what is padded and taken apart again is the same."""
    if request.param == "cpu":
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
        monkeypatch.setattr(torch.cuda, "make_graphed_callables", lambda module, *_, **__: module)
        monkeypatch.setattr(torch.random, "fork_rng", lambda *_: nullcontext())
    return torch.device(request.param)


def model_for(task: str, device: torch.device, pool: str = "cls", dropout: float = 0.0) -> BertForTask:
    labels = ("start", "end") if task == "answer" else ("x", "y", "z")
    config = BertConfig(
        vocab_size=31,
        layers=2,
        dim=32,
        heads=2,
        ffn_dim=53,
        max_length=40,
        dropout=dropout,
        attention_dropout=dropout,
        pool=pool,
    )
    model = BertForTask(config, Head(task=task, labels=labels))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
    return model.to(device).train()


def inputs(*lengths: int, seed: int = 0) -> InputBatch:
    drawn = np.random.default_rng(seed)
    return collate([Input(drawn.integers(5, 31, length).astype(np.int32), (length + 1) // 2) for length in lengths])


def packed_score(model: BertForTask, batch: InputBatch) -> torch.Tensor:
    device = next(model.parameters()).device
    return score(model, batch, layout(batch, device), device)


@ON_CPU
@pytest.mark.parametrize(
    ("task", "pool"), [("classify", "cls"), ("regress", "mean"), ("tag", "cls"), ("answer", "cls")]
)
def test_scores_and_gradients_are_those_of_the_packed_path(device: torch.device, task: str, pool: str):
    """Several shapes, in turn, each recorded once and replayed with other numbers; 37 is padded to 40 positions.

    In double precision, since two ways to add must not differ by more than the scores' own rounding.
    """
    model = model_for(task, device, pool).double()
    replay = Replay(model, 3, torch.float32)
    for seed, lengths in enumerate([(5, 16, 3), (7, 2, 9), (20, 31, 4), (37, 1, 8), (1, 11, 16)]):
        batch = inputs(*lengths, seed=seed)
        ours = replay.score(batch)
        assert ours is not None
        weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(seed)).to(device)
        (ours * weights).sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
        model.zero_grad()
        theirs = packed_score(model, batch)
        (theirs * weights).sum().backward()
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-6)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-5, atol=1e-6)
        model.zero_grad()
        del ours, theirs  # what of a step's graph outlives it would spoil the next recording
    assert sorted(replay.recorded) == [16, 32, 40]


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("task", ["classify", "tag"])
def test_every_parameter_but_the_embeddings_is_recorded(task: str, modern: bool):
    model = model_for(task, torch.device("cpu"))
    if modern:
        options = {"pre_norm": True, "positions": "rotary", "gated": True, "segments": 0}
        model = BertForTask(dataclasses.replace(model.config, **options), model.head)
    expected = {id(p) for name, p in model.named_parameters() if not name.startswith("bert.embeddings.")}
    assert {id(p) for p in _Layers(model, torch.float32).parameters()} == expected


@ON_CPU
def test_a_step_of_the_optimizer_is_seen_by_the_next_replay(device: torch.device):
    model = model_for("classify", device)
    replay = Replay(model, 2, torch.float32)
    batch = inputs(5, 9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        scores = replay.score(batch)
        assert scores is not None
        torch.testing.assert_close(scores, packed_score(model, batch), rtol=1e-3, atol=1e-4)
        targets = LabelledBatch(batch, np.array([0, 2]))
        finetuning_terms(model, targets, device, scores=scores)["classify"].loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@needs_gpu
def test_half_precision_is_close_and_scores_are_whole():
    model = model_for("classify", torch.device("cuda"))
    batch = inputs(5, 9)
    scores = Replay(model, 2, torch.bfloat16).score(batch)
    assert scores is not None
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, packed_score(model, batch), rtol=0.1, atol=0.1)


@ON_CPU
def test_other_batches_are_for_somebody_else(device: torch.device):
    replay = Replay(model_for("classify", device), 3, torch.float32)
    assert replay.score(inputs(5, 9)) is None
    many = MOST_TOKENS // 16 + 1
    assert Replay(model_for("classify", device), many, torch.float32).score(inputs(*[3] * many)) is None
    assert replay.recorded == {}


@needs_gpu
def test_dropout_follows_the_seed_whether_recorded_now_or_before():
    model = model_for("classify", torch.device("cuda"), dropout=0.3)
    batch = inputs(5, 9)

    def draw(replay: Replay, seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        scores = replay.score(batch)
        assert scores is not None
        return scores.detach().clone()

    fresh, used = Replay(model, 2, torch.float32), Replay(model, 2, torch.float32)
    other = draw(used, 1)
    assert torch.equal(draw(fresh, 7), draw(used, 7))
    assert not torch.equal(draw(used, 7), other)
