"""Ways to ask an encoder about whole texts or pairs: vectors, states, scores.

An example says itself whether it may be cut, so that requests which differ in that are still answered together.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from heedful.data.inputs import Input, text_inputs
from heedful.formats.sentence_transformers import Pooling
from heedful.predict.engine import Pool
from heedful.predict.predictor import METHODS, Predictor
from heedful.serve.batching import Wanted
from heedful.serve.refusals import Refusal


class TextAsked(NamedTuple):
    """A text, or a pair of texts."""

    text: str
    pair: str | None = None
    truncate: bool = False

    @property
    def weight(self) -> int:
        """Its characters."""
        return len(self.text) + len(self.pair or "")


class Found(NamedTuple):
    """An answer, and how many tokens were read for it."""

    answer: np.ndarray
    tokens: int


@dataclass(frozen=True, kw_only=True)
class TextWork:
    """Texts as inputs of a model."""

    predictor: Predictor
    length: int
    """The most tokens to read."""
    pooling: Pooling = field(default_factory=Pooling)
    """How a folder of sentence-transformers has texts written: for vectors and states, not for a head."""

    def tokens(self, prepared: Input) -> int:
        """How many are read."""
        return len(prepared.ids)

    def prepare(self, examples: Sequence[TextAsked]) -> list[Input | Refusal]:
        """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`."""
        found: list[Input | Refusal | None] = [None] * len(examples)
        for paired in (False, True):
            chosen = [number for number, one in enumerate(examples) if (one.pair is not None) is paired]
            texts, seconds = self.pooling.written(
                [examples[number].text for number in chosen],
                [examples[number].pair or "" for number in chosen] if paired else None,
            )
            inputs, tokens = text_inputs(self.predictor.tokenizer, texts, seconds, self.length)
            for number, one, count in zip(chosen, inputs, tokens.tolist(), strict=True):
                found[number] = self._checked(examples[number], one, count)
        return [one for one in found if one is not None]

    def _checked(self, example: TextAsked, read: Input, tokens: int) -> Input | Refusal:
        if not example.text.strip() and not (example.pair or "").strip():
            return Refusal(422, "a text is empty; write something in it")
        if tokens > self.length and not example.truncate:
            return too_long(tokens, self.length)
        return read


@dataclass(frozen=True, kw_only=True)
class VectorWork(TextWork):
    """A vector for each text, not normalised: requests differ in that."""

    pool: Pool

    @property
    def key(self) -> Hashable:
        """All texts that are pooled alike."""
        return "vectors", self.pool

    def answer(self, prepared: Sequence[Input], wanted: Wanted) -> list[Found]:  # noqa: ARG002 (it is one batch)
        """(D,) each."""
        vectors = self.predictor.engine.vectors(prepared, self.pool)
        return [Found(vector, len(one.ids)) for vector, one in zip(vectors, prepared, strict=True)]


@dataclass(frozen=True, kw_only=True)
class StateWork(TextWork):
    """The state of every token of each text."""

    @property
    def key(self) -> Hashable:
        """All texts."""
        return "states"

    def answer(self, prepared: Sequence[Input], wanted: Wanted) -> list[Found]:  # noqa: ARG002 (it is one batch)
        """(T, D) each."""
        states = self.predictor.engine.states(prepared)
        return [Found(each, len(one.ids)) for each, one in zip(states, prepared, strict=True)]


@dataclass(frozen=True, kw_only=True)
class ScoreWork(TextWork):
    """What a head says of each text: a number for every label."""

    raw: bool
    """Before they become probabilities."""

    @property
    def key(self) -> Hashable:
        """All texts."""
        return "scores", self.raw

    def prepare(self, examples: Sequence[TextAsked]) -> list[Input | Refusal]:
        """As all texts, but a model that was trained on pairs reads nothing else, and the other way round."""
        head = self.predictor.head
        assert head is not None
        return [
            _unpaired(head.pairs) if head.pairs not in (None, example.pair is not None) else one
            for example, one in zip(examples, super().prepare(examples), strict=True)
        ]

    def answer(self, prepared: Sequence[Input], wanted: Wanted) -> list[dict[str, float]]:  # noqa: ARG002 (it is one batch)
        """Every label with its probability; for numbers, and raw, what the model gives."""
        head = self.predictor.head
        assert head is not None
        if self.raw or head.task == "regress":
            scores = self.predictor.engine.scores(prepared)
            return [dict(zip(head.labels, each.tolist(), strict=True)) for each in scores]
        return [one.probabilities for one in self.predictor.reader(METHODS[head.task]).answer(prepared)]


def vector_work(predictor: Predictor, pool: Pool | None = None) -> VectorWork:
    """How a model embeds, as its folder says unless told."""
    reader = predictor.vectors(pool, None, None)
    return VectorWork(predictor=predictor, length=reader.length, pooling=reader.pooling, pool=reader.pool)


def state_work(predictor: Predictor) -> StateWork:
    """How a model gives states."""
    reader = predictor.vectors(None, None, None)
    return StateWork(predictor=predictor, length=reader.length, pooling=reader.pooling)


def score_work(predictor: Predictor, *, raw: bool) -> ScoreWork:
    """How a head is asked."""
    head = predictor.head
    assert head is not None
    length = min(head.length or predictor.engine.max_length, predictor.engine.max_length)
    return ScoreWork(predictor=predictor, length=length, raw=raw)


def too_long(tokens: int, length: int) -> Refusal:
    """A text that would have to be cut."""
    return Refusal(
        413,
        f"a text has {tokens:,} tokens, of which {length:,} can be read; shorten it, or ask for it to be cut: "
        '"truncate": true',
        limit="tokens",
    )


def _unpaired(pairs: bool | None) -> Refusal:
    if pairs:
        return Refusal(422, 'the model was trained on pairs of texts; give each as ["first", "second"]')
    return Refusal(422, 'the model was trained on single texts; give each as "text" or ["text"]')
