"""A model folder as something to ask. Knows texts and answers; nothing of HTTP or the command line.

Shapes: N packed tokens, M blanks, V vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, overload

import torch

from heedful.data import tokenizer as wordpiece
from heedful.data.tokenizer import MASK, Tokenizer
from heedful.errors import UserError
from heedful.formats.huggingface import load_model
from heedful.models.bert import Bert, BertForPretraining
from heedful.nn.layout import Packed

BATCH_TOKENS = 8192


class Candidate(NamedTuple):
    """A token that may stand in a blank."""

    token: str
    probability: float


Blanks = list[list[Candidate]]
"""The candidates for each blank of a text, best first."""


class Predictor:
    """A model, put at rest (no dropout), and its tokenizer."""

    def __init__(self, model: Bert | BertForPretraining, tokenizer: Tokenizer, origin: str = "the model") -> None:
        if tokenizer.vocab_size > model.config.vocab_size:
            raise UserError(
                f"{origin}: its tokenizer has {tokenizer.vocab_size} tokens but the model only "
                f"{model.config.vocab_size}; they do not belong together"
            )
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.origin = origin

    @overload
    def fill(self, text: str, top: int = 5) -> Blanks: ...
    @overload
    def fill(self, text: Sequence[str], top: int = 5) -> list[Blanks]: ...

    def fill(self, text: str | Sequence[str], top: int = 5) -> Blanks | list[Blanks]:
        """The most probable tokens for every `[MASK]` of a text, or of each of several."""
        if not isinstance(self.model, BertForPretraining) or self.model.mlm is None:
            raise UserError(
                f"{self.origin} can't fill blanks: it has no masked-word head; pretrain one with `heedful pretrain`"
            )
        if top < 1:
            raise UserError(f"top {top} must be at least 1")
        texts = [text] if isinstance(text, str) else list(text)
        answers: list[Blanks] = []
        for batch in self._batches([self._ids(one) for one in texts]):
            answers += self._fill(self.model, batch, top)
        return answers[0] if isinstance(text, str) else answers

    def _ids(self, text: str) -> list[int]:
        """[CLS], the text with its blanks, [SEP]. Only `[MASK]` is read as a special token."""
        pieces = text.split(MASK)
        if len(pieces) == 1:
            raise UserError(f"there is no blank in {_short(text)}; write {MASK} where a word is missing")
        first, *rest = self.tokenizer.encode(pieces)
        ids = [self.tokenizer.cls, *first]
        for piece in rest:
            ids += [self.tokenizer.mask, *piece]
        ids.append(self.tokenizer.sep)
        if len(ids) > self.model.config.max_length:
            raise UserError(
                f"{_short(text)} has {len(ids)} tokens; {self.origin} reads {self.model.config.max_length} at most"
            )
        return ids

    def _batches(self, sequences: list[list[int]]) -> list[list[list[int]]]:
        batches: list[list[list[int]]] = []
        room = 0
        for ids in sequences:
            if len(ids) > room:
                batches.append([])
                room = BATCH_TOKENS
            batches[-1].append(ids)
            room -= len(ids)
        return batches

    @torch.inference_mode()
    def _fill(self, model: BertForPretraining, batch: list[list[int]], top: int) -> list[Blanks]:
        device = next(model.parameters()).device
        lengths = [len(ids) for ids in batch]
        offsets = torch.tensor([0, *lengths]).cumsum(0).int()
        ids = torch.tensor([token for ids in batch for token in ids])  # (N,)
        positions = torch.nonzero(ids.eq(self.tokenizer.mask)).flatten()  # (M,)
        packed = Packed.from_offsets(offsets.to(device), max(lengths), len(ids))
        logits = model(ids.to(device), packed=packed, positions=positions.to(device)).mlm_logits  # (M, V)
        probabilities = logits.float().softmax(-1).cpu()[:, : self.tokenizer.vocab_size]
        probabilities[:, torch.from_numpy(self.tokenizer.special)] = 0.0
        best = probabilities.topk(min(top, int((~self.tokenizer.special).sum())))
        found = iter(
            [Candidate(self.tokenizer.vocabulary[i], float(p)) for i, p in zip(row_ids, row, strict=True)]
            for row_ids, row in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        )
        return [[next(found) for _ in range(ids.count(self.tokenizer.mask))] for ids in batch]


def load(folder: str | Path, device: str = "auto") -> Predictor:
    """The predictor in a model folder, on the GPU where there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a model folder: there is no such folder")
    model = load_model(folder)
    return Predictor(model.to(device), wordpiece.load(folder), str(folder))


def _short(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else text[: most - 1] + "…")
