"""BERT with a head for a task (Devlin et al. 2018, section 4 and figure 4): one linear layer over its states.

A sequence's answer is read from one vector, a word's or a span's from every state. Knows the labels' names
only to keep them with the weights that they belong to.

Shapes: B batch, T length, D width, C outputs, N packed tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.bert import Bert, BertConfig, BertOutput, Transform
from heedful.nn.layout import Layout, Packed

TASKS = {
    "classify": "one label for a text or a pair of texts",
    "multilabel": "any number of labels for a text or a pair",
    "regress": "numbers for a text or a pair",
    "tag": "a tag for every word",
    "answer": "where in a text the answer to a question stands",
}
"""What a head can be for."""
ANSWER_ENDS = ("start", "end")


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a head's outputs stand for."""

    task: str
    labels: tuple[str, ...]
    """One name an output, in their order."""
    length: int | None = None
    """The most tokens of an input that it was trained with: of a text, or of a window over a long one."""
    overlap: int | None = None
    """Tokens that neighbouring windows share."""
    may_be_empty: bool = False
    """Whether it has seen questions without an answer."""
    pairs: bool | None = None
    """Whether it reads pairs of texts and not single ones; None where nobody said."""

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UserError(f"task {self.task!r} is not known; choose from {', '.join(TASKS)}")
        if not self.labels or len(set(self.labels)) != len(self.labels):
            raise UserError(f"a head needs labels, each once; got {', '.join(self.labels) or 'none'}")
        if self.task == "answer" and self.labels != ANSWER_ENDS:
            raise UserError(f"an answer has a start and an end, not {', '.join(self.labels)}")

    @property
    def reads_sequence(self) -> bool:
        """Whether a text gets one answer, and not every token its own."""
        return self.task in ("classify", "multilabel", "regress")


class BertForTask(nn.Module):
    """The encoder with one head."""

    def __init__(self, config: BertConfig, head: Head) -> None:
        super().__init__()
        self.head = head
        self.bert = Bert(config, pooler=head.reads_sequence)
        # ModernBERT's heads read a state as its head for words does; of sequences, the pooler is just that.
        self.transform = Transform(config) if config.modern and not head.reads_sequence else None
        # As published: answers are read from the states without another dropout.
        self.dropout = nn.Dropout(0.0 if head.task == "answer" else config.dropout)
        self.output = nn.Linear(config.dim, len(head.labels))

    @property
    def config(self) -> BertConfig:
        """The encoder's."""
        return self.bert.config

    def forward(
        self,
        ids: Tensor,
        segments: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        packed: Packed | None = None,
    ) -> Tensor:
        """As the encoder; scores (B, C) for sequences, (B, T, C) or packed (N, C) for tokens."""
        return self.score(self.bert(ids, segments, mask, packed=packed, places=self._read(ids)))

    def encode(self, x: Tensor, layout: Layout) -> BertOutput:
        """What the layers make of embedded tokens, as far as the head reads it."""
        return self.bert.encode(x, layout, places=self._read(x))

    def _read(self, like: Tensor) -> Tensor | None:
        """The tokens whose states the head reads: all, or none but what the pooler reads."""
        if not self.head.reads_sequence:
            return None
        return torch.empty(0, dtype=torch.int64, device=like.device)

    def score(self, encoded: BertOutput) -> Tensor:
        """What the head says of the encoder's states."""
        read = encoded.pooled if self.head.reads_sequence else encoded.hidden
        if self.transform is not None:
            read = self.transform(read)
        read = self.dropout(read)
        if (
            self.head.task == "regress"
        ):  # whose last layer may compute in another precision than the rest: see `exact`
            read = read.to(self.output.weight.dtype)
        return self.output(read)

    def exact(self) -> None:
        """Give numbers in single precision, whatever the rest computes in: half has three digits, a price has six."""
        if self.head.task == "regress":
            self.output.float()
