"""How well a pretrained model fills blanks, and tells what follows a text from what does not.

Every token of the text is read once in single sequences, 15% of them masked, the same ones every time and for every
model with the same tokenizer: so models can be compared, whether they were trained on pairs or not. Next sentences
are asked about in pairs, as `heedful pretrain` makes them.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from heedful.data import shards
from heedful.data.batch import PretrainingBatch
from heedful.data.sampler import Sampler
from heedful.data.shards import Split
from heedful.data.tokenizer import strange
from heedful.errors import UserError
from heedful.models.bert import BertForPretraining
from heedful.predict.engine import check_range
from heedful.predict.predictor import Predictor
from heedful.runs import corpus
from heedful.runs.options import TextPart
from heedful.runs.pretrain import evaluation_sampler
from heedful.tasks.pretraining import pretraining_terms
from heedful.train.distributed import World
from heedful.train.loop import Metrics
from heedful.train.loop import evaluate as averages
from heedful.wording import counted

LENGTH = 128
NO_PAIRS = "that takes two documents or more, some of several sentences; blank lines separate documents"


@dataclass(frozen=True, kw_only=True)
class PretrainedEvaluation:
    """What there is to say of a pretrained model on a text."""

    held_out: bool
    """Whether the text is what prepared shards hold out."""
    documents: int
    tokens: int
    unknown: float
    """The share of them that the tokenizer does not know."""
    length: int
    """Tokens of a sequence, at most."""
    sequences: int
    masked: int
    loss: float
    """Of a masked word, in nats."""
    words_right: float
    pairs: int | None
    """None where the model has no head for next sentences; 0 where the text has none."""
    next_sentence_right: float | None

    @property
    def perplexity(self) -> float:
        """Among how many words, all as likely, it might as well choose."""
        return math.exp(min(self.loss, 700.0))


def evaluate(predictor: Predictor, names: Sequence[str], text: TextPart, length: int | None) -> PretrainedEvaluation:
    """Ask about every text of some files; of prepared shards, about what they hold out."""
    model = predictor.words
    assert model is not None
    most = model.config.max_length
    if length is not None and not 8 <= length <= most:
        raise UserError(f"--length {length} is not from 8 to {most}, which is as far as {predictor.origin} reads")
    length = min(LENGTH, most) if length is None else length
    with tempfile.TemporaryDirectory() as scratch:
        split, held_out = _split(predictor, names, text, Path(scratch))
        words = _asked(model, evaluation_sampler(split, predictor.tokenizer, length=length, nsp=False))
        follows = None
        if model.nsp is not None and split.has_pairs():
            follows = _asked(model, evaluation_sampler(split, predictor.tokenizer, length=length, nsp=True))
        return PretrainedEvaluation(
            held_out=held_out,
            documents=len(split.documents) - 1,
            tokens=len(split.tokens),
            unknown=predictor.tokenizer.unknown(split.tokens),
            length=length,
            sequences=words.sequences,
            masked=words.masked,
            loss=words.metrics["mlm_loss"],
            words_right=words.metrics["mlm_accuracy"],
            pairs=None if model.nsp is None else follows.sequences if follows else 0,
            next_sentence_right=follows.metrics["nsp_accuracy"] if follows else None,
        )


def _split(predictor: Predictor, names: Sequence[str], text: TextPart, scratch: Path) -> tuple[Split, bool]:
    """The text to ask about, and whether it is what shards hold out."""
    if any(shards.is_shards(Path(name)) for name in names):
        found = corpus.prepare(
            names,
            text,
            tokenizer=lambda _: predictor.tokenizer,
            given=predictor.tokenizer,
            stdin_folder=scratch,
            cache=scratch,
            say=lambda _: None,
        )
        if not len(found.heldout.tokens):
            raise UserError(f"{names[0]} holds nothing out to evaluate on; name text that the model has not seen")
        return found.heldout, True
    files = corpus.find_files(names, scratch, text)
    options = corpus.text_options(text)
    return shards.prepare(files, options, predictor.tokenizer, share=0.0, folder=scratch / "shards").train, False


class _Asked(NamedTuple):
    """The averages over sequences, how many these are, and how many of their tokens were masked."""

    metrics: Metrics
    sequences: int
    masked: int


def _asked(model: BertForPretraining, sampler: Sampler) -> _Asked:
    sequences = masked = 0

    def noted() -> Iterator[PretrainingBatch]:
        nonlocal sequences, masked
        for batch in sampler.once():
            sequences += len(batch.offsets) - 1
            masked += len(batch.labels)
            yield batch

    weight = next(model.parameters())
    names = ("mlm", "nsp") if sampler.nsp else ("mlm",)
    found = averages(model, noted(), partial(pretraining_terms, model, device=weight.device), names, World())
    if weight.dtype is torch.float16:
        check_range(math.isfinite(found["loss"]))
    return _Asked(found, sequences, masked)


def lines(result: PretrainedEvaluation) -> list[str]:
    """The evaluation for people."""
    said = [
        f"{'held out: ' if result.held_out else ''}{counted(result.documents, 'document')}, "
        f"{counted(result.tokens, 'token')}, in {counted(result.sequences, 'sequence')} of up to {result.length}",
        "",
        f"masked words right   {result.words_right:.2%}  of {result.masked:,}",
        f"loss of words        {result.loss:.4f}",
        f"perplexity           {result.perplexity:.2f}",
    ]
    if result.next_sentence_right is not None:
        said.append(f"next sentence right  {result.next_sentence_right:.2%}  of {counted(result.pairs or 0, 'pair')}")
    elif result.pairs == 0:
        said += ["", f"no next sentences to ask about: {NO_PAIRS}"]
    if told := strange(result.unknown):
        said += ["", told]
    return said


def as_json(result: PretrainedEvaluation) -> dict[str, Any]:
    """The evaluation for programs."""
    return {**asdict(result), "perplexity": result.perplexity}
