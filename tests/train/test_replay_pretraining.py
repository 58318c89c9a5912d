"""Batches of one shape, compiled and recorded, against the plain path; what needs a GPU is skipped without one."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._dynamo.utils import counters
from torch.testing import assert_close

from heedful.data.batch import PretrainingBatch, filled
from heedful.models.bert import BertConfig, BertForPretraining, initialise
from heedful.nn import fp8
from heedful.runs.device import choose
from heedful.tasks.pretraining import IGNORED, pretraining_terms
from heedful.tasks.term import Term
from heedful.train.replay_pretraining import PretrainingReplay, _up, uncompiled

pytestmark = [  # what the compiler does to tensors and functions that it looks at
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated"),
]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TOKENS, LENGTH, VOCABULARY = 211, 32, 97
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


def test_a_batch_is_filled_up_by_a_sequence_of_which_nothing_is_asked():
    batch = batch_of()
    full = filled(batch, TOKENS, LENGTH)
    assert full is not None
    assert len(full.ids) == len(full.segments) == full.offsets[-1] == TOKENS
    assert full.offsets[:-1].tolist() == batch.offsets.tolist()
    assert full.ids[: len(batch.ids)].tolist() == batch.ids.tolist()
    assert full.offsets.dtype == np.int32
    assert full.places is batch.places
    assert filled(full, TOKENS, LENGTH) is full
    assert filled(batch, TOKENS + LENGTH, LENGTH) is None
    assert filled(batch, len(batch.ids) - 1, LENGTH) is None


@given(st.integers(0, 10**6), st.sampled_from([4, 16]))
def test_counts_are_rounded_up_to_few_numbers(count: int, parts: int):
    assert count <= _up(count, parts) <= max(count + 1, count * (1 + 1 / parts) + 1)
    assert _up(_up(count, parts), parts) == _up(count, parts)


def test_numbers_of_sequences_by_hand():
    assert [_up(count, 4) for count in (1, 5, 8, 9, 262, 320, 321)] == [1, 5, 8, 10, 320, 320, 384]


@pytest.mark.parametrize("nsp", [True, False])
@pytest.mark.parametrize("config", [PUBLISHED, MODERN], ids=["published", "modern"])
def test_terms_and_gradients_are_those_of_the_plain_path(config: BertConfig, nsp: bool):
    model = model_of(config, "cpu", nsp=nsp)
    batch = batch_of(pairs=nsp)
    expected = pretraining_terms(model, batch, torch.device("cpu"))
    sum(term.loss for term in expected.values()).backward()  # type: ignore[union-attr]
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()

    replay = PretrainingReplay(model, TOKENS, LENGTH, torch.float32, recording=False, backend="eager")
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
    replay = PretrainingReplay(model, TOKENS, LENGTH, torch.float32, recording=False, backend="eager")
    assert replay.terms(batch_of(TOKENS - LENGTH - 1)) is None
    with uncompiled():
        assert pretraining_terms(model, batch_of(50), torch.device("cpu"))["mlm"].count == 7


def test_batches_of_one_kind_are_prepared_once():
    model = model_of(PUBLISHED, "cpu")
    replay = PretrainingReplay(model, TOKENS, LENGTH, torch.float32, recording=False, backend="eager")
    for seed in range(4):
        assert replay.terms(batch_of(seed=seed)) is not None
    assert len(replay.recorded) <= 2
    rounded = replay._rounded(batch_of())
    assert rounded is not None
    assert (rounded.labels == IGNORED).sum() == len(rounded.labels) - len(batch_of().labels)


def test_other_numbers_of_masked_words_compile_nothing_anew():
    model = model_of(MODERN, "cpu", nsp=False)
    replay = PretrainingReplay(model, TOKENS, LENGTH, torch.float32, recording=False, backend="eager")
    batch, compiled = batch_of(pairs=False), []
    for words in (29, 23, 17, 11):
        assert replay.terms(batch._replace(places=batch.places[:words], labels=batch.labels[:words])) is not None
        compiled.append(counters["stats"]["unique_graphs"])
    assert len(replay.recorded) == 4
    assert compiled == compiled[:1] * 4


def test_batches_may_have_many_shapes():
    """A layer is compiled anew for each; the first of a modern model is another than the rest."""
    model = model_of(MODERN, "cpu")
    replay = PretrainingReplay(model, TOKENS, LENGTH, torch.float32, recording=False, backend="eager")
    batch = batch_of()
    for sequences in (7, 8, 10, 12, 14, 16, 20, 24, 28, 32):
        offsets = np.linspace(0, len(batch.ids), sequences).astype(np.int32)
        unrelated = np.zeros(sequences - 1, np.int64)
        assert replay.terms(batch._replace(offsets=offsets, unrelated=unrelated)) is not None
    assert len(replay.recorded) == 10


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
    replay = PretrainingReplay(model, TOKENS, LENGTH, torch.bfloat16, fp8_words=len(batch.places))
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
    replay = PretrainingReplay(model, TOKENS, LENGTH, torch.bfloat16, recording=recording)
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
