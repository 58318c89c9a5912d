"""One answer for a text or a pair of texts: a class, labels, numbers, or a vector."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from heedful.data.flaws import Flaw
from heedful.data.inputs import Input, TextInputs, text_inputs, too_long
from heedful.data.labelled import TextExample
from heedful.data.token_workers import TokenWorkers
from heedful.data.tokenizer import Tokenizer
from heedful.formats.sentence_transformers import Pooling
from heedful.predict.engine import Engine, Pool
from heedful.predict.reading import Reader

THRESHOLD = 0.5
"""The probability from which on a label is given."""


class Classified(NamedTuple):
    """The class of a text."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """Of every class."""


class Labelled(NamedTuple):
    """The labels of a text: those at least as probable as not."""

    labels: list[str]
    probabilities: dict[str, float]
    """Of every label."""


Numbers = dict[str, float]
"""A number for each target, in the units of the training data."""


@dataclass(frozen=True, kw_only=True)
class TextReader:
    """Texts as inputs of the model. What is too long is refused, or cut if that is asked for."""

    engine: Engine
    tokenizer: Tokenizer
    length: int
    """The most tokens to read."""
    truncate: bool = False
    pairs: bool | None = None
    """Whether the texts must come in pairs, or must not; None where either is right."""
    cuts: "Cuts" = field(default_factory=lambda: Cuts(), compare=False)
    """To be told by whoever let texts be cut."""
    workers: TokenWorkers | None = field(default=None, compare=False)
    """Who makes inputs of many texts."""
    pooling: Pooling = field(default_factory=Pooling)
    """How a folder of sentence-transformers has texts written."""

    def prepare(self, examples: Sequence[TextExample]) -> Sequence[Input | Flaw]:
        """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`: `Inputs` if all texts can be read and none or all are pairs."""
        prepared: list[Input | Flaw] = [Flaw("", "")] * len(examples)
        single: list[int] = []
        pairs: list[int] = []
        for number, one in enumerate(examples):
            if not one.text.strip() and not (one.pair or "").strip():
                prepared[number] = Flaw(one.where, "the text is empty; write something in it")
            else:
                (single if one.pair is None else pairs).append(number)
        cut = 0
        for paired, chosen in ((False, single), (True, pairs)):
            seconds = [examples[number].pair or "" for number in chosen] if paired else None
            inputs, found = self._inputs([examples[number].text for number in chosen], seconds)
            long = int((found > self.length).sum())
            if len(chosen) == len(examples) and self.pairs in (None, paired) and (self.truncate or not long):
                self.cuts.add(long)
                return inputs
            for number, one, tokens in zip(chosen, inputs, found.tolist(), strict=True):
                where = examples[number].where
                if self.pairs not in (None, paired):
                    prepared[number] = _unpaired(where, self.pairs)
                elif tokens > self.length and not self.truncate:
                    prepared[number] = too_long(where, tokens, self.length)
                else:
                    cut += tokens > self.length
                    prepared[number] = one
        self.cuts.add(cut)
        return prepared

    def _inputs(self, texts: Sequence[str], pairs: Sequence[str] | None) -> TextInputs:
        texts, pairs = self.pooling.written(texts, pairs)
        if self.workers is not None:
            return self.workers.text_inputs(texts, pairs, self.length)
        return text_inputs(self.tokenizer, texts, pairs, self.length)


class Classes(TextReader):
    """The class of each text."""

    def answer(self, prepared: Sequence[Input]) -> list[Classified]:
        """The most probable class, and the probabilities of all."""
        head = self.engine.head
        assert head is not None
        found = []
        for scores in self.engine.scores(prepared):
            probabilities = _softmax(scores)
            best = int(probabilities.argmax())
            table = dict(zip(head.labels, probabilities.tolist(), strict=True))
            found.append(Classified(head.labels[best], float(probabilities[best]), table))
        return found


class Labels(TextReader):
    """The labels of each text, any number of them."""

    def answer(self, prepared: Sequence[Input]) -> list[Labelled]:
        """The labels that are at least as probable as not, and the probabilities of all."""
        head = self.engine.head
        assert head is not None
        found = []
        for scores in self.engine.scores(prepared):
            probabilities = np.exp(-np.logaddexp(0, -scores.astype(np.float64)))  # the sigmoid, of any score
            table = dict(zip(head.labels, probabilities.tolist(), strict=True))
            found.append(Labelled([label for label, share in table.items() if share >= THRESHOLD], table))
        return found


class Regressor(TextReader):
    """The numbers of each text."""

    def answer(self, prepared: Sequence[Input]) -> list[Numbers]:
        """A number for each target."""
        head = self.engine.head
        assert head is not None
        return [dict(zip(head.labels, scores.tolist(), strict=True)) for scores in self.engine.scores(prepared)]


@dataclass(frozen=True, kw_only=True)
class Vectors(TextReader):
    """A vector for each text."""

    pool: Pool = "mean"
    normalise: bool = True

    def answer(self, prepared: Sequence[Input]) -> np.ndarray:
        """(inputs, D); each of length 1 if normalised."""
        found = self.engine.vectors(prepared, self.pool)
        if self.normalise:
            found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return found

    def none(self) -> np.ndarray:
        """(0, D): the vectors of no texts."""
        return self.engine.vectors([], self.pool)


def _unpaired(where: str, pairs: bool | None) -> Flaw:
    if pairs:
        return Flaw(where, "one text, but the model was trained on pairs; name both columns (--text and --pair)")
    return Flaw(where, "a pair of texts, but the model was trained on single ones; name one column (--text)")


@dataclass
class Cuts:
    """How many texts were cut so far, by whichever thread."""

    count: int = 0
    _turn: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self, more: int) -> None:
        """So many more."""
        with self._turn:
            self.count += more


def cut_remark(reader: Reader[Any, Any, Any]) -> str | None:
    """What to say of the texts that a reader cut, if it did."""
    count = reader.cuts.count if isinstance(reader, TextReader) else 0
    return cut_told(count, "text") if count else None


def cut_told(count: int, noun: str) -> str:
    """What to say of so many texts that were cut."""
    texts = f"1 {noun} is" if count == 1 else f"{count:,} {noun}s are"
    return f"{texts} too long; only the beginning is read"


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores.astype(np.float64) - scores.max())
    return powers / powers.sum()
