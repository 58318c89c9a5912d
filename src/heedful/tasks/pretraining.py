"""BERT's two objectives on one packed batch: masked words and next sentences (Devlin et al. 2018, section 3.1).

Shapes: B sequences, N tokens, M masked tokens, V vocabulary.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.batch import PretrainingBatch
from heedful.models.bert import BertForPretraining
from heedful.nn.layout import Packed
from heedful.nn.transfer import on_device
from heedful.tasks.term import Term

IGNORED = -100
"""The label of what is not asked."""


def pretraining_counts(batch: PretrainingBatch) -> dict[str, int]:
    """How many predictions the batch asks for, known before any is made."""
    counts = {"mlm": len(batch.labels)}
    return counts if batch.unrelated is None else {**counts, "nsp": len(batch.unrelated)}


def pretraining_terms(model: BertForPretraining, batch: PretrainingBatch, device: torch.device) -> dict[str, Term]:
    """The objectives' sums. Words are scored at the masked places only."""
    there = partial(on_device, device=device)
    packed = Packed.from_offsets(there(batch.offsets), batch.longest, len(batch.ids))
    segments = None if batch.unrelated is None else there(batch.segments)
    output = model(there(batch.ids), segments, packed=packed, places=there(batch.places))
    terms = {"mlm": _term(output.mlm_logits, there(batch.labels))}
    if batch.unrelated is not None:
        terms["nsp"] = _term(output.nsp_logits, there(batch.unrelated))
    return terms


def _term(logits: Tensor, labels: Tensor) -> Term:
    return Term(*judged(logits, labels), len(labels))


def judged(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of the losses, and how many are right: (M, V), (M,). What is labelled IGNORED counts for neither."""
    logits = logits.float()
    correct = (logits.detach().argmax(-1) == labels).sum()
    return F.cross_entropy(logits, labels, reduction="sum", ignore_index=IGNORED), correct
