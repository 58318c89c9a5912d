"""What a fine-tuning run works with: its data, read and prepared, and its recipe with the defaults that suit them."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heedful.data import tokenizer as wordpiece
from heedful.data.flaws import Flaw, told
from heedful.data.tagged import TagExample, scheme
from heedful.data.tokenizer import Tokenizer
from heedful.durable import file_digest
from heedful.errors import UserError
from heedful.formats.huggingface import read_config
from heedful.formats.sentence_transformers import read_pooling
from heedful.models.bert import BertConfig
from heedful.models.heads import Head
from heedful.predict.tags import sentence
from heedful.runs import dataset
from heedful.runs.dataset import Dataset, Scale
from heedful.runs.finetune_options import FinetuneRecipe, resolved
from heedful.train.log import Log

FEW = 50
"""Examples to evaluate on of which one more or less right is more than chance."""
MANY = 10_000
"""Inputs that show how well the tokenizer suits the text."""
SOME = 100
"""Sentences that show how all are cut into words."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """What a run works with, once its data is read."""

    recipe: FinetuneRecipe
    """Its defaults written out."""
    head: Head
    tokenizer: Tokenizer
    training: Dataset
    dev: list[Any]
    scaling: Scale | None
    digest: str
    """Differs when any file does."""


def gather(recipe: FinetuneRecipe, log: Log) -> Material:
    """Read the data, and decide what the recipe leaves open."""
    part = recipe.data
    assert recipe.task is not None
    folder, _ = read_pooling(Path(recipe.start_from or ""))
    config = read_config(folder)
    tokenizer = wordpiece.load(folder)
    _check_fit(recipe, config, tokenizer)
    # a file that is named twice would weigh double
    files = list({path.resolve(): path for path in dataset.files(recipe.train)}.values())
    dev_files = dataset.files([recipe.dev]) if recipe.dev else []
    task = dataset.task_of(recipe.task, files, part)
    skipped: list[Flaw] = []
    examples = dataset.all_sound(dataset.read(task, files, part), part, skipped)
    if not examples:
        raise UserError(f"{', '.join(map(str, files))} holds no examples to learn from{because(skipped)}")
    head = dataset.make_head(task, examples, part, config.max_length)
    if head.pairs and config.segments == 1:
        raise UserError(
            f"{recipe.start_from} has one segment, so it can't tell the texts of a pair apart; name one with --text"
        )
    if dev_files:
        dev = dataset.all_sound(dataset.known(head, dataset.read(task, dev_files, part)), part, skipped)
        if not dev:
            raise UserError(f"{recipe.dev} holds no examples to evaluate on{because(skipped)}")
    else:
        examples, dev = dataset.split(examples, part.held_out)
        log.note(f"held out {len(dev):,} of {len(dev) + len(examples):,} examples to evaluate on: there is no --dev")
    if head.reads_sequence and dataset.reads_pairs(dev) != head.pairs:
        raise UserError("one of the training data and --dev holds pairs of texts and the other single texts")
    scaling = dataset.scale(examples) if task == "regress" else None
    training = dataset.prepare(
        head,
        examples,
        tokenizer,
        length=min(part.length or config.max_length, config.max_length),
        truncate=part.truncate,
        scaling=scaling,
        bad=lambda flaw: skipped.extend(_refused(flaw, part.skip_bad)),
    )
    if not training.inputs:
        raise UserError(f"every example was skipped, so nothing is left to learn from{because(skipped)}")
    _tell(log, head, training, len(examples), skipped)
    if remark := wordpiece.strange(tokenizer.unknown(np.concatenate([one.ids for one in training.inputs[:MANY]]))):
        log.note(remark)
    _warn_of_dev(log, examples, dev)
    if task == "tag":
        _warn_of_characters(log, tokenizer, examples)
    kind = task
    if task == "tag" and scheme(head.labels) == "plain":
        kind = "plain"
    elif task == "classify" and len(head.labels) == 2:
        kind = "binary"
    digest = hashlib.sha256("".join(file_digest(file) for file in [*files, *dev_files]).encode()).hexdigest()
    return Material(
        recipe=resolved(recipe, task=kind, examples=len(training.inputs), dim=config.dim, pool=config.pool),
        head=head,
        tokenizer=tokenizer,
        training=training,
        dev=dev,
        scaling=scaling,
        digest=digest,
    )


def _check_fit(recipe: FinetuneRecipe, config: BertConfig, tokenizer: Tokenizer) -> None:
    length = recipe.data.length
    if length is not None and length > config.max_length:
        raise UserError(f"length {length} is beyond the model's {config.max_length} positions; use that or less")
    if tokenizer.vocab_size > config.vocab_size:
        raise UserError(
            f"{recipe.start_from}: its tokenizer has {tokenizer.vocab_size} tokens but the model only "
            f"{config.vocab_size}; they do not belong together"
        )
    if recipe.task == "answer" and config.segments == 1:
        raise UserError(f"{recipe.start_from} has one segment, so it can't tell a question from its context")


def because(skipped: list[Flaw]) -> str:
    """Why rows were passed over, as the end of a sentence; nothing if none was."""
    return f": {told(skipped)}" if skipped else ""


def _refused(flaw: Flaw, skip: bool) -> list[Flaw]:
    if not skip:
        raise UserError(str(flaw))
    return [flaw]


def _warn_of_dev(log: Log, examples: list[Any], dev: list[Any]) -> None:
    seen = {dataset.whole(one) for one in examples}
    if both := sum(dataset.whole(one) in seen for one in dev):
        log.note(f"{both:,} of the {len(dev):,} examples to evaluate on are in the training data too")
    if len(dev) < FEW:
        log.note(f"there are only {len(dev)} examples to evaluate on; --dev FILE with more would tell better")


def _warn_of_characters(log: Log, tokenizer: Tokenizer, examples: list[TagExample]) -> None:
    """A model of single characters knows no words, which is what texts are cut into."""
    some = [one.words for one in examples[:SOME]]
    given = sum(map(len, some))
    words = sum(len(sentence(tokenizer, "".join(one)).words) for one in some)
    if 2 * words < given and sum(len(word) == 1 for one in some for word in one) > 0.8 * given:
        log.note(
            "the tokens are single characters, but texts are cut into words when the model is asked; "
            "ask it with characters too (jsonl with `tokens`), or train it on words"
        )


def _tell(log: Log, head: Head, training: Dataset, examples: int, skipped: list[Flaw]) -> None:
    if skipped:
        log.note(f"skipped {told(skipped)}")
    if training.cut:
        log.note(f"{training.cut:,} of {examples:,} texts are too long; only their beginning is read")
    if head.task in ("classify", "multilabel", "tag"):
        shown = ", ".join(head.labels[:8]) + (", …" if len(head.labels) > 8 else "")
        log.note(f"{len(head.labels)} labels: {shown}")
