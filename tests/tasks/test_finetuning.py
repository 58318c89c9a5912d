"""Every kind of head on one packed batch, against the padded path."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.batch import LabelledBatch, collate
from heedful.data.inputs import Input
from heedful.models.bert import BertConfig
from heedful.models.heads import BertForTask, Head
from heedful.tasks.finetuning import finetuning_counts, finetuning_terms
from heedful.tasks.tagging import NOT_READ

CPU = torch.device("cpu")
CONFIG = BertConfig(vocab_size=13, layers=2, dim=6, heads=2, ffn_dim=7, max_length=11)
LENGTHS = (5, 3, 4)
INPUTS = collate(
    [
        Input(np.array([2, 7, 3, 11, 3], np.int32), 3),
        Input(np.array([2, 4, 3], np.int32), 3),
        Input(np.array([2, 3, 9, 3], np.int32), 2),
    ]
)
TAGS = np.array([NOT_READ, 1, NOT_READ, 2, NOT_READ, NOT_READ, 0, NOT_READ, NOT_READ, 1, 1, NOT_READ])
TARGETS = {
    "classify": np.array([2, 0, 1]),
    "multilabel": np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]], np.float32),
    "regress": np.array([[1.5, -2, 0], [0, 1, 7], [3, 2, 1]], np.float32),
    "tag": TAGS,
    "answer": np.array([[1, 3], [0, 0], [2, 2]]),
}


def model_for(task: str) -> BertForTask:
    labels = ("start", "end") if task == "answer" else ("a", "b", "c")
    model = BertForTask(CONFIG, Head(task=task, labels=labels)).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5, generator=generator)  # so that nothing is nearly nothing
    return model


def batch_for(task: str) -> LabelledBatch:
    return LabelledBatch(INPUTS, TARGETS[task])


def rectangle(flat: np.ndarray) -> Tensor:
    rows = [torch.from_numpy(row) for row in np.split(flat, INPUTS.offsets[1:-1])]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def padded_scores(model: BertForTask) -> Tensor:
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    return model(rectangle(INPUTS.ids), rectangle(INPUTS.segments), mask)


def expected(task: str, scores: Tensor, weights: Tensor | None) -> Tensor:
    """The sum of the losses, from the padded scores, one sequence at a time."""
    truth = torch.from_numpy(TARGETS[task])
    if task == "classify":
        return F.cross_entropy(scores, truth, weights, reduction="sum")
    if task == "multilabel":
        return F.binary_cross_entropy_with_logits(scores, truth, pos_weight=weights, reduction="sum") / 3
    if task == "regress":
        return (scores - truth).square().mean(1).sum()
    if task == "tag":
        flat = torch.cat([row[:length] for row, length in zip(scores, LENGTHS, strict=True)])
        read = truth != NOT_READ
        return F.cross_entropy(flat[read], truth[read], weights, reduction="sum")
    rows = zip(scores, LENGTHS, truth, strict=True)
    return sum(
        F.cross_entropy(row[:length].T, ends, reduction="sum") / 2  # (2, T) against (2,)
        for row, length, ends in rows
    )


def test_the_counts_are_known_beforehand():
    assert {task: finetuning_counts(task, batch_for(task)) for task in TARGETS} == {
        "classify": {"classify": 3},
        "multilabel": {"multilabel": 3},
        "regress": {"regress": 3},
        "tag": {"tag": 5},
        "answer": {"answer": 3},
    }


@pytest.mark.parametrize("task", TARGETS)
@torch.no_grad()
def test_a_packed_batch_gives_what_padding_gives(task: str):
    model = model_for(task)
    terms = finetuning_terms(model, batch_for(task), CPU)
    assert terms.keys() == {task}
    loss = expected(task, padded_scores(model), None)
    torch.testing.assert_close(terms[task].loss, loss, rtol=1e-5, atol=1e-6)
    assert terms[task].count == finetuning_counts(task, batch_for(task))[task]


@pytest.mark.parametrize("task", ["classify", "multilabel", "tag"])
@torch.no_grad()
def test_weights_reach_the_loss(task: str):
    model, weights = model_for(task), torch.tensor([0.3, 5.0, 2.0])
    loss = finetuning_terms(model, batch_for(task), CPU, weights)[task].loss
    torch.testing.assert_close(loss, expected(task, padded_scores(model), weights), rtol=1e-5, atol=1e-6)
    assert not torch.isclose(loss, expected(task, padded_scores(model), None))


@pytest.mark.parametrize("task", TARGETS)
def test_scores_that_somebody_has_already_are_used(task: str):
    model = model_for(task)
    wide = 2 if task == "answer" else 3
    rows = 3 if model.head.reads_sequence else 12
    scores = torch.randn(rows, wide, generator=torch.Generator().manual_seed(1))
    asked = []
    model.register_forward_hook(lambda *_: asked.append(1))
    term = finetuning_terms(model, batch_for(task), CPU, scores=scores.bfloat16())[task]
    assert asked == []
    assert term.loss.dtype == torch.float32
    given = scores.bfloat16().float()
    spread = given if model.head.reads_sequence else torch.nn.utils.rnn.pad_sequence(given.split(LENGTHS), True)
    torch.testing.assert_close(term.loss, expected(task, spread, None), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("task", TARGETS)
def test_every_parameter_learns(task: str):
    model = model_for(task)
    finetuning_terms(model, batch_for(task), CPU)[task].loss.backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 1e-9]
    # A shift of all keys changes no softmax.
    assert [name for name in without if not name.endswith("attention.key.bias")] == []
