"""Batches of one shape, compiled and recorded, against the plain path; what needs a GPU is skipped without one."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters
from torch.testing import assert_close

from heedful.data.batch import PretrainingBatch, filled
from heedful.models.bert import BertConfig, BertForPretraining, initialise
from heedful.nn import fp8
from heedful.runs.device import choose
from heedful.tasks.pretraining import IGNORED, pretraining_terms
from heedful.tasks.term import Term
from heedful.train.replay_pretraining import PretrainingReplay, Shape, uncompiled

pytestmark = [  # what the compiler does to tensors and functions that it looks at
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated"),
]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TOKENS, LENGTH, VOCABULARY = 211, 32, 97
SHAPE = Shape(TOKENS, sequences=24, words=41, length=LENGTH)
PUBLISHED = BertConfig(
    vocab_size=VOCABULARY, layers=2, dim=32, heads=2, ffn_dim=41, max_length=37, dropout=0.0, attention_dropout=0.0
)
MODERN = dataclasses.replace(PUBLISHED, pre_norm=True, positions="rotary", gated=True, bias=False, segments=0)


def batch_of(tokens: int = TOKENS - 9, seed: int = 0, pairs: bool = True) -> PretrainingBatch:
    rng = np.random.default_rng(seed)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        lengths.append(int(min(rng.integers(5, LENGTH + 1), tokens - sum(lengths))))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    places = np.sort(rng.choice(np.setdiff1d(np.arange(tokens), offsets), tokens // 7, replace=False))
    return PretrainingBatch(
        ids=rng.integers(1, VOCABULARY, tokens),
        segments=rng.integers(0, 2, tokens) if pairs else np.zeros(tokens, np.int64),
        offsets=offsets,
        longest=max(lengths),
        places=places,
        labels=rng.integers(1, VOCABULARY, len(places)),
        unrelated=rng.integers(0, 2, len(lengths)) if pairs else None,
    )


def model_of(config: BertConfig, device: str, *, nsp: bool = True, std: float = 0.2) -> BertForPretraining:
    model = BertForPretraining(config, nsp=nsp)
    initialise(model, std, torch.Generator().manual_seed(1))
    return model.to(device).train()


def test_a_batch_is_filled_up_by_sequences_of_which_nothing_is_asked():
    batch = batch_of()
    full = filled(batch, TOKENS, LENGTH)
    assert full is not None
    assert len(full.ids) == len(full.segments) == full.offsets[-1] == TOKENS
    assert full.offsets[:-1].tolist() == batch.offsets.tolist()
    assert full.ids[: len(batch.ids)].tolist() == batch.ids.tolist()
    assert full.offsets.dtype == np.int32
    assert full.places is batch.places
    assert filled(full, TOKENS, LENGTH) is full
    assert filled(batch, len(batch.ids) - 1, LENGTH) is None
    fuller = filled(batch, TOKENS + 2 * LENGTH, LENGTH)
    assert fuller is not None
    assert np.diff(fuller.offsets).tolist()[-3:] == [LENGTH, LENGTH, 9]
    assert fuller.longest == LENGTH


def test_a_batch_of_the_shape_has_what_it_had_and_nothing_else_is_asked():
    batch = batch_of(50)
    full = SHAPE.fit(batch)
    assert full is not None
    assert (len(full.ids), len(full.offsets), len(full.places), len(full.labels)) == (TOKENS, 25, 41, 41)
    assert full.offsets[: len(batch.offsets)].tolist() == batch.offsets.tolist()
    assert np.diff(full.offsets).min() == 0
    assert np.diff(full.offsets).max() <= LENGTH == full.longest
    assert full.places.tolist() == [*batch.places, *[TOKENS] * (41 - len(batch.places))]
    assert full.labels.tolist() == [*batch.labels, *[IGNORED] * (41 - len(batch.labels))]
    assert batch.unrelated is not None
    assert full.unrelated is not None
    assert full.unrelated.tolist() == [*batch.unrelated, *[IGNORED] * (24 - len(batch.unrelated))]


def test_a_batch_that_has_too_much_of_something_does_not_fit():
    batch = batch_of()
    sequences = len(batch.offsets)  # with the one that fills it up
    assert Shape(TOKENS, sequences, len(batch.places), LENGTH).fit(batch) is not None
    assert Shape(TOKENS, sequences - 1, len(batch.places), LENGTH).fit(batch) is None
    assert Shape(TOKENS, sequences, len(batch.places) - 1, LENGTH).fit(batch) is None
    assert Shape(len(batch.ids) - 1, sequences, len(batch.places), LENGTH).fit(batch) is None


def test_a_shape_has_room_for_a_little_more():
    assert Shape.of(8192, 65, 1209, 128) == (8192, 72, 1248, 128)
    assert Shape.of(131072, 1024, 19456, 128) == (131072, 1056, 20064, 128)


@pytest.mark.parametrize("tokens", [TOKENS - 9, 37])
@pytest.mark.parametrize("nsp", [True, False])
@pytest.mark.parametrize("config", [PUBLISHED, MODERN], ids=["published", "modern"])
def test_terms_and_gradients_are_those_of_the_plain_path(config: BertConfig, nsp: bool, tokens: int):
    model = model_of(config, "cpu", nsp=nsp)
    batch = batch_of(tokens, pairs=nsp)
    expected = pretraining_terms(model, batch, torch.device("cpu"))
    sum(term.loss for term in expected.values()).backward()  # type: ignore[union-attr]
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()

    replay = PretrainingReplay(model, SHAPE, torch.float32, recording=False, backend="eager")
    found = replay.terms(batch)
    assert found is not None
    assert found.keys() == expected.keys()
    for name, term in found.items():
        assert_close(term.loss, expected[name].loss, rtol=1e-5, atol=1e-5)
        assert (int(term.correct), term.count) == (int(expected[name].correct), expected[name].count)
    sum(term.loss for term in found.values()).backward()  # type: ignore[union-attr]
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad, gradients[name], rtol=1e-4, atol=1e-4, msg=name)


def test_other_batches_are_for_somebody_else():
    model = model_of(PUBLISHED, "cpu")
    replay = PretrainingReplay(model, SHAPE, torch.float32, recording=False, backend="eager")
    assert replay.terms(batch_of(TOKENS + 1)) is None
    with uncompiled():
        assert pretraining_terms(model, batch_of(50), torch.device("cpu"))["mlm"].count == 7


@pytest.mark.parametrize("config", [PUBLISHED, MODERN], ids=["published", "modern"])
def test_nothing_is_compiled_or_prepared_twice(config: BertConfig):
    """Neither for the last batch of an epoch nor for another masking rate."""
    model = model_of(config, "cpu")
    replay = PretrainingReplay(model, SHAPE, torch.float32, recording=False, backend="eager")
    batch, steps, compiled = batch_of(), [], []
    fewer = batch._replace(places=batch.places[:11], labels=batch.labels[:11])
    for one in (batch, batch_of(seed=1), batch_of(37), fewer):
        assert replay.terms(one) is not None
        steps.append(replay.step)
        compiled.append(counters["stats"]["unique_graphs"])
    assert steps == steps[:1] * 4
    assert compiled == compiled[:1] * 4


@pytest.fixture
def repeatable() -> Iterator[None]:
    choose("cuda", "bf16").repeatable()
    yield
    torch.use_deterministic_algorithms(False)


def gradients(model: BertForPretraining, terms: dict[str, Term]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    torch.stack([term.loss for term in terms.values()]).sum().backward()
    return {name: one.grad.detach().cpu().clone() for name, one in model.named_parameters() if one.grad is not None}


@needs_gpu
@pytest.mark.skipif(
    not (torch.cuda.is_available() and fp8.possible(torch.device("cuda"))), reason="needs a GPU with 8 bits"
)
@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("config", [PUBLISHED, MODERN], ids=["published", "modern"])
def test_steps_in_8_bits_are_near_the_exact_ones_and_repeat(config: BertConfig):
    config = dataclasses.replace(config, dim=64, ffn_dim=112)
    exact, model = (model_of(config, device, std=0.05) for device in ("cpu", "cuda"))
    batch = batch_of()
    replay = PretrainingReplay(model, SHAPE, torch.bfloat16, fp8_words=len(batch.places))
    expected = pretraining_terms(exact, batch, torch.device("cpu"))
    mean = {name: term._replace(loss=term.loss / term.count) for name, term in expected.items()}
    right = gradients(exact, mean)
    several = []
    for _ in range(2):
        found = replay.terms(batch)
        assert found is not None
        for name, term in found.items():
            assert float(term.loss.detach()) == pytest.approx(float(expected[name].loss.detach()), rel=0.01)
        mean = {name: term._replace(loss=term.loss / term.count) for name, term in found.items()}
        several.append(gradients(model, mean))
    for name, one in right.items():
        assert torch.equal(several[0][name], several[1][name]), name
        assert (several[0][name] - one).norm() / one.norm() < 0.2 or one.norm() < 1e-3, name


@needs_gpu
@pytest.mark.usefixtures("repeatable")
@pytest.mark.parametrize("recording", [True, False])
@pytest.mark.parametrize("config", [PUBLISHED, MODERN], ids=["published", "modern"])
def test_on_a_gpu_steps_are_as_exact_as_the_plain_path_and_repeat(config: BertConfig, recording: bool):
    exact, plain, model = (model_of(config, device) for device in ("cpu", "cuda", "cuda"))
    replay = PretrainingReplay(model, SHAPE, torch.bfloat16, recording=recording)
    for seed in (0, 1, 0):
        batch = batch_of(seed=seed)
        expected = pretraining_terms(exact, batch, torch.device("cpu"))
        with torch.autocast("cuda", torch.bfloat16), uncompiled():
            usual = gradients(plain, pretraining_terms(plain, batch, torch.device("cuda")))
        first, second = replay.terms(batch), None
        assert first is not None
        losses = {name: float(term.loss.detach()) for name, term in first.items()}
        found = gradients(model, first)
        second = replay.terms(batch)
        assert second is not None
        again = gradients(model, second)
        assert losses == pytest.approx({name: float(one.loss.detach()) for name, one in expected.items()}, rel=2e-2)
        for name, right in gradients(exact, expected).items():
            assert torch.equal(found[name], again[name]), name
            away, usually = ((one[name] - right).norm() / right.norm() for one in (found, usual))
            assert away < 2 * usually + 0.03 or right.norm() < 1e-3, name
