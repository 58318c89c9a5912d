"""How well a pretrained model fills blanks, and tells what follows a text from what does not.

All of the text is asked about once, as `heedful pretrain` asks about some of what it holds out: 15% of the tokens are
masked, and the same ones every time.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from heedful.data import shards
from heedful.data.batch import PretrainingBatch
from heedful.data.sampler import Sampler
from heedful.data.shards import Split
from heedful.errors import UserError
from heedful.models.bert import BertForPretraining
from heedful.predict.engine import check_range
from heedful.predict.predictor import Predictor
from heedful.runs import corpus
from heedful.runs.options import TextPart
from heedful.runs.pretrain import EVALUATION_SEED
from heedful.tasks.pretraining import pretraining_terms
from heedful.train.distributed import World
from heedful.train.log import counted
from heedful.train.loop import evaluate as averages

LENGTH = 128
MASKED = 0.15
BATCH_TOKENS = 8192


@dataclass(frozen=True, kw_only=True)
class PretrainedEvaluation:
    """What there is to say of a pretrained model on a text."""

    documents: int
    tokens: int
    length: int
    """Tokens of a sequence, at most."""
    sequences: int
    masked: int
    loss: float
    """Of a masked word, in nats."""
    words_right: float
    next_sentence_right: float | None
    """Share of the sequences; None where the model has no head for it, or the text no pairs."""

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
    with tempfile.TemporaryDirectory() as scratch:
        split = _split(predictor, names, text, Path(scratch))
        return _asked(model, predictor, split, min(LENGTH, most) if length is None else length)


def _split(predictor: Predictor, names: Sequence[str], text: TextPart, scratch: Path) -> Split:
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
        return found.heldout
    files = corpus.find_files(names, scratch)
    options = corpus.text_options(text)
    return shards.prepare(files, options, predictor.tokenizer, share=0.0, folder=scratch / "shards").train


def _asked(model: BertForPretraining, predictor: Predictor, split: Split, length: int) -> PretrainedEvaluation:
    pairs = model.nsp is not None and split.has_pairs()
    sampler = Sampler(
        split=split,
        tokenizer=predictor.tokenizer,
        length=length,
        batch_tokens=max(BATCH_TOKENS, length),
        nsp=pairs,
        mask_rate=MASKED,
        whole_words=False,
        seed=EVALUATION_SEED,
    )
    masked = sequences = 0

    def batches() -> Iterator[PretrainingBatch]:
        nonlocal masked, sequences
        for batch in sampler.once():
            masked += len(batch.labels)
            sequences += len(batch.offsets) - 1
            yield batch

    weight = next(model.parameters())
    terms = partial(pretraining_terms, model, device=weight.device)
    with torch.inference_mode():
        found = averages(model, batches(), terms, ("mlm", "nsp") if pairs else ("mlm",), World())
    if weight.dtype is torch.float16:
        check_range(math.isfinite(found["loss"]))
    return PretrainedEvaluation(
        documents=len(split.documents) - 1,
        tokens=len(split.tokens),
        length=length,
        sequences=sequences,
        masked=masked,
        loss=found["mlm_loss"],
        words_right=found["mlm_accuracy"],
        next_sentence_right=found.get("nsp_accuracy"),
    )


def lines(result: PretrainedEvaluation) -> list[str]:
    """The evaluation for people."""
    kind = "sequence" if result.next_sentence_right is None else "pair"
    said = [
        f"{counted(result.documents, 'document')}, {counted(result.tokens, 'token')}, "
        f"in {counted(result.sequences, kind)} of up to {result.length} tokens",
        "",
        f"masked words right   {result.words_right:.2%}  of {result.masked:,}",
    ]
    if result.next_sentence_right is not None:
        said.append(f"next sentence right  {result.next_sentence_right:.2%}  of {result.sequences:,}")
    return [*said, f"loss of words        {result.loss:.4f}", f"perplexity           {result.perplexity:.2f}"]


def as_json(result: PretrainedEvaluation) -> dict[str, Any]:
    """The evaluation for programs."""
    return {**asdict(result), "perplexity": result.perplexity}
