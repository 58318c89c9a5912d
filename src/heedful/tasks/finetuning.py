"""A labelled batch in, the sums of its one objective out, whatever the head is for."""

import torch
from torch import Tensor

from heedful.data.batch import LabelledBatch
from heedful.models.heads import BertForTask
from heedful.nn.transfer import on_device
from heedful.tasks.answering import span_term
from heedful.tasks.classification import class_term, labels_term, numbers_term
from heedful.tasks.scoring import layout, score
from heedful.tasks.tagging import NOT_READ, tag_term
from heedful.tasks.term import Term


def finetuning_counts(task: str, batch: LabelledBatch) -> dict[str, int]:
    """How many predictions the batch asks for."""
    return {task: int((batch.targets != NOT_READ).sum()) if task == "tag" else len(batch.targets)}


def finetuning_terms(
    model: BertForTask,
    batch: LabelledBatch,
    device: torch.device,
    weights: Tensor | None = None,
    scores: Tensor | None = None,
) -> dict[str, Term]:
    """The objective's sums, by the name of the task; of scores that somebody has already, or of the model's."""
    task = model.head.task
    packed = layout(batch.inputs, device) if scores is None or task == "answer" else None
    if scores is None:
        assert packed is not None
        scores = score(model, batch.inputs, packed, device)
    scores = scores.float()
    targets = on_device(batch.targets, device)
    match task:
        case "classify":
            term = class_term(scores, targets, weights)
        case "multilabel":
            term = labels_term(scores, targets, weights)
        case "regress":
            term = numbers_term(scores, targets)
        case "tag":
            term = tag_term(scores, targets, finetuning_counts(task, batch)[task], weights)
        case _:
            assert packed is not None
            term = span_term(scores, targets, packed)
    return {task: term}
