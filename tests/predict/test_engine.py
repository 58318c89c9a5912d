from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.inputs import Input
from heedful.errors import UserError
from heedful.formats.huggingface import Model
from heedful.models.bert import Bert
from heedful.predict import engine as engines
from heedful.predict.engine import TorchEngine, by_length

KINDS = ("classify", "mean", "multilabel", "regress", "tag", "answer")
lengths_of_inputs = st.lists(st.integers(1, 41), max_size=29)


def ragged(count: int = 19, *, pairs: bool = True) -> list[Input]:
    generator = np.random.default_rng(5)
    inputs = []
    for number in range(count):
        length = int(generator.integers(2, 38))
        second = length // 2 if pairs and number % 2 else length
        inputs.append(Input(generator.integers(0, 211, length).astype(np.int32), second))
    return inputs


@torch.inference_mode()
def alone(model: Model, one: Input) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The encoder's states (T, D) and the head's scores of an input by itself, in a rectangle of one row."""
    ids = torch.from_numpy(one.ids).long()[None]
    segments = (torch.arange(len(one.ids)) >= one.second).long()[None]
    encoder = model if isinstance(model, Bert) else model.bert
    scores = None if isinstance(model, Bert) else model(ids, segments)[0]
    return encoder(ids, segments).hidden[0], scores


def assert_alike(found: Sequence[np.ndarray], expected: Sequence[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == tuple(other.shape)
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other.numpy(), atol=1e-5)


@pytest.mark.parametrize("room", [1, 64, 4096])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_each_input_alone(
    small_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch, kind: str, room: int
):
    monkeypatch.setitem(engines.BATCH_TOKENS, "cpu", room)
    model, inputs = small_model(kind), ragged()
    expected = [alone(model, one)[1] for one in inputs]
    assert torch.cat([one.flatten() for one in expected]).std() > 0.1  # else anything would do
    assert_alike(TorchEngine(model).scores(inputs), expected)


@pytest.mark.parametrize("room", [1, 64, 4096])
@pytest.mark.parametrize("kind", ["encoder", "words", "answer"])
def test_vectors_are_the_first_state_or_the_mean(
    small_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch, kind: str, room: int
):
    monkeypatch.setitem(engines.BATCH_TOKENS, "cpu", room)
    model, inputs = small_model(kind), ragged()
    states = [alone(model, one)[0] for one in inputs]
    engine = TorchEngine(model)
    assert_alike(list(engine.vectors(inputs, "cls")), [one[0] for one in states])
    assert_alike(list(engine.vectors(inputs, "mean")), [one.mean(0) for one in states])


def test_nothing_in_nothing_out(small_model: Callable[..., Model]):
    engine = TorchEngine(small_model("classify"))
    assert engine.scores([]) == []
    assert engine.vectors([], "mean").shape == (0, 24)


def test_what_an_engine_says_of_itself(small_model: Callable[..., Model]):
    engine = TorchEngine(small_model("tag"))
    assert engine.head is not None
    assert (engine.head.task, engine.max_length, engine.vocab_size) == ("tag", 37, 211)
    assert TorchEngine(small_model("words")).head is None
    assert TorchEngine(small_model("encoder")).head is None


def test_a_model_in_training_is_put_at_rest(small_model: Callable[..., Model]):
    model, inputs = small_model("classify", dropout=0.5, attention_dropout=0.5), ragged(3)
    expected = [alone(model, one)[1] for one in inputs]
    model.train()
    assert_alike(TorchEngine(model).scores(inputs), expected)
    model.train()
    assert_alike(list(TorchEngine(model).vectors(inputs, "cls")), [alone(model.eval(), one)[0][0] for one in inputs])


def test_no_gradients_are_kept(small_model: Callable[..., Model]):
    model = small_model("classify")
    seen = []
    hook = model.register_forward_hook(lambda _, __, output: seen.append(output.requires_grad))
    TorchEngine(model).scores(ragged(2))
    hook.remove()
    assert seen == [False]


def test_a_model_with_one_segment_reads_single_texts_only(small_model: Callable[..., Model]):
    model = small_model("classify", segments=1)
    engine = TorchEngine(model)
    inputs = ragged(pairs=False)
    ids = [torch.from_numpy(one.ids).long()[None] for one in inputs]
    assert_alike(engine.scores(inputs), [model(one)[0].detach() for one in ids])
    with pytest.raises(UserError, match="one segment, so it can't read pairs of texts"):
        engine.scores(ragged())


def test_a_model_without_segments_reads_pairs(small_model: Callable[..., Model]):
    model = small_model("classify", segments=0)
    ids = [torch.from_numpy(one.ids).long()[None] for one in ragged()]
    assert_alike(TorchEngine(model).scores(ragged()), [model(one)[0].detach() for one in ids])


def test_an_input_beyond_the_positions_is_refused(small_model: Callable[..., Model]):
    with pytest.raises(UserError, match="38 tokens is beyond the model's 37 positions"):
        TorchEngine(small_model("classify")).scores([Input(np.ones(38, np.int32), 38)])


@settings(deadline=None)
@given(lengths=lengths_of_inputs, room=st.integers(1, 97), padded=st.booleans())
def test_batches_hold_every_input_once_and_keep_to_their_room(lengths: list[int], room: int, padded: bool):
    batches = list(by_length(lengths, room, padded=padded))
    order = [number for batch in batches for number in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[number] for number in order] == sorted(lengths, reverse=True)
    assert all(batches)

    def tokens(batch: list[int]) -> int:
        taken = [lengths[number] for number in batch]
        return max(taken) * len(taken) if padded else sum(taken)

    assert all(len(batch) == 1 or tokens(batch) <= room for batch in batches)
    # None could have taken one more.
    assert all(tokens([*batch, after[0]]) > room for batch, after in pairwise(batches))


def test_batches_by_hand():
    assert list(by_length([3, 5, 2, 5], 8)) == [[1], [3, 0], [2]]
    assert list(by_length([3, 5, 2, 5], 10)) == [[1, 3], [0, 2]]
    assert list(by_length([3, 5, 2, 5], 10, padded=True)) == [[1, 3], [0, 2]]
    assert list(by_length([3, 5, 2, 5], 5, padded=True)) == [[1], [3], [0], [2]]
    assert list(by_length([], 5)) == []
