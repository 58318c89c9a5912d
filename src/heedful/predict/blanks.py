"""The most probable words for every blank of a text (Devlin et al. 2018, section 3.1, task 1).

Shapes: N packed tokens, M blanks, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.data.batch import collate
from heedful.data.flaws import Flaw
from heedful.data.inputs import Input
from heedful.data.labelled import TextExample
from heedful.data.tokenizer import MASK, Tokenizer
from heedful.models.bert import BertForPretraining
from heedful.nn.transfer import on_device
from heedful.tasks.scoring import layout

BATCH_TOKENS = 8192


class Candidate(NamedTuple):
    """A token that may stand in a blank."""

    token: str
    probability: float


Blanks = list[list[Candidate]]
"""The candidates for each blank of a text, best first."""


@dataclass(frozen=True, kw_only=True)
class Filler:
    """Candidates for the blanks of each text."""

    model: BertForPretraining
    tokenizer: Tokenizer
    top: int = 5

    def prepare(self, examples: Sequence[TextExample]) -> list[Input | Flaw]:
        """The text with its blanks. Only `[MASK]` is read as a special token."""
        return [self._prepare(one) for one in examples]

    def _prepare(self, example: TextExample) -> Input | Flaw:
        if example.pair is not None:
            return Flaw(example.where, "it is a pair of texts; blanks are filled in one text, so join the two")
        ids = with_blanks(self.tokenizer, example.text)
        if self.tokenizer.mask not in ids:
            return Flaw(example.where, f"there is no blank; write {MASK} where a word is missing")
        longest = self.model.config.max_length
        if len(ids) > longest:
            return Flaw(example.where, f"{len(ids)} tokens, of which the model reads {longest} at most; shorten it")
        return Input(np.array(ids, np.int32), len(ids))

    def answer(self, prepared: Sequence[Input]) -> list[Blanks]:
        """The candidates for each blank."""
        found: list[Blanks] = []
        for batch in _batches(prepared):
            found += self._fill(batch)
        return found

    def _fill(self, batch: list[Input]) -> list[Blanks]:
        places = np.flatnonzero(np.concatenate([one.ids for one in batch]) == self.tokenizer.mask)
        probabilities = word_probabilities(self.model, self.tokenizer, batch, places)  # (M, V)
        best = probabilities.topk(min(self.top, int((~self.tokenizer.special).sum())))
        found = iter(
            [Candidate(self.tokenizer.vocabulary[i], float(p)) for i, p in zip(row_ids, row, strict=True)]
            for row_ids, row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        )
        return [[next(found) for _ in range(int((one.ids == self.tokenizer.mask).sum()))] for one in batch]


def with_blanks(tokenizer: Tokenizer, text: str) -> list[int]:
    """[CLS], the text with its blanks, [SEP]."""
    first, *rest = tokenizer.encode(text.split(MASK))
    ids = [tokenizer.cls, *first]
    for piece in rest:
        ids += [tokenizer.mask, *piece]
    return [*ids, tokenizer.sep]


@torch.inference_mode()
def word_probabilities(
    model: BertForPretraining, tokenizer: Tokenizer, batch: Sequence[Input], places: np.ndarray
) -> Tensor:
    """The probability of every token (M, V) at places (M,) of the joined batch; never of a special one."""
    model.eval()
    device = next(model.parameters()).device
    inputs = collate(batch)
    logits = model(
        on_device(inputs.ids, device), packed=layout(inputs, device), places=on_device(places, device)
    ).mlm_logits
    probabilities = logits.float().softmax(-1).cpu()[:, : tokenizer.vocab_size]
    probabilities[:, torch.from_numpy(tokenizer.special)] = 0.0
    return probabilities


def _batches(inputs: Sequence[Input]) -> list[list[Input]]:
    batches: list[list[Input]] = []
    room = 0
    for one in inputs:
        if len(one.ids) > room:
            batches.append([])
            room = BATCH_TOKENS
        batches[-1].append(one)
        room -= len(one.ids)
    return batches
