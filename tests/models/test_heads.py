import dataclasses

import pytest
import torch

from heedful.errors import UserError
from heedful.models.bert import BertConfig
from heedful.models.heads import TASKS, BertForTask, Head
from heedful.nn.layout import Packed

CONFIG = BertConfig(vocab_size=31, layers=2, dim=10, heads=2, ffn_dim=13, max_length=11)
IDS = torch.tensor([[2, 7, 3, 11, 3], [2, 4, 3, 0, 0], [2, 5, 6, 3, 0]])
SEGMENTS = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 1, 0]])
LENGTHS = [5, 3, 4]
MASK = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
PACKED = Packed.from_offsets(torch.tensor([0, 5, 8, 12], dtype=torch.int32), 5, 12)


def head_for(task: str) -> Head:
    return Head(task=task, labels=("start", "end") if task == "answer" else ("x", "y", "z"))


def model_for(task: str, pool: str = "cls") -> BertForTask:
    model = BertForTask(dataclasses.replace(CONFIG, pool=pool), head_for(task)).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)
    return model


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("task", ["classify", "multilabel", "regress"])
@torch.no_grad()
def test_a_sequence_is_read_from_one_vector(task: str, pool: str):
    model = model_for(task, pool)
    hidden = model.bert(IDS, SEGMENTS, MASK).hidden
    vectors = [
        row[:length].mean(0) if pool == "mean" else row[0] for row, length in zip(hidden, LENGTHS, strict=True)
    ]
    expected = model.output(torch.tanh(model.bert.pooler(torch.stack(vectors))))
    assert expected.shape == (3, 3)
    torch.testing.assert_close(model(IDS, SEGMENTS, MASK), expected)
    packed = model(PACKED.pack(IDS), PACKED.pack(SEGMENTS), packed=PACKED)
    torch.testing.assert_close(packed, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("task", "outputs"), [("tag", 3), ("answer", 2)])
@torch.no_grad()
def test_a_token_is_read_from_its_own_state(task: str, outputs: int):
    model = model_for(task)
    assert model.bert.pooler is None
    expected = model.output(model.bert(IDS, SEGMENTS, MASK).hidden)
    assert expected.shape == (3, 5, outputs)
    torch.testing.assert_close(model(IDS, SEGMENTS, MASK), expected)
    packed = model(PACKED.pack(IDS), PACKED.pack(SEGMENTS), packed=PACKED)
    assert packed.shape == (12, outputs)
    torch.testing.assert_close(packed, PACKED.pack(expected), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_numbers_are_single_whatever_the_encoder_computes_in():
    """Double stands for half here, which some processors can't multiply."""
    for task, dtype in (("regress", torch.float32), ("classify", torch.float64)):
        model = model_for(task)
        expected = model(IDS, SEGMENTS, MASK)
        model.double().exact()
        found = model(IDS, SEGMENTS, MASK)
        assert found.dtype is dtype
        torch.testing.assert_close(found.float(), expected, rtol=1e-4, atol=1e-4)


def test_the_two_ways_to_pool_differ():
    assert (
        model_for("classify")(IDS, SEGMENTS, MASK) - model_for("classify", "mean")(IDS, SEGMENTS, MASK)
    ).abs().max() > 0.01


@pytest.mark.parametrize("task", TASKS)
def test_dropout_before_the_head_as_published(task: str):
    model = model_for(task)
    encoded = model.bert(IDS, SEGMENTS, MASK)
    model.train()
    torch.manual_seed(0)
    dropped = any(not torch.equal(model.score(encoded), model.score(encoded)) for _ in range(5))
    assert dropped == (task != "answer")


def test_the_config_is_the_encoders():
    model = model_for("tag")
    assert model.config is model.bert.config
    assert model.output.weight.shape == (3, 10)


def test_which_heads_read_a_sequence():
    assert [task for task in TASKS if head_for(task).reads_sequence] == ["classify", "multilabel", "regress"]


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        ("sort", ("a",), "task 'sort' is not known; choose from classify, multilabel, regress, tag, answer"),
        ("classify", (), "a head needs labels, each once; got none"),
        ("tag", ("O", "B-X", "O"), "a head needs labels, each once; got O, B-X, O"),
        ("answer", ("end", "start"), "an answer has a start and an end, not end, start"),
    ],
)
def test_a_head_that_makes_no_sense_is_refused(task: str, labels: tuple[str, ...], message: str):
    with pytest.raises(UserError) as caught:
        Head(task=task, labels=labels)
    assert str(caught.value) == message
