"""Ways to ask an encoder about words and stretches of texts: blanks, tags, answers, and text written anew.

Tags and answers read texts of any length, window by window.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from heedful.data.flaws import Flaw
from heedful.data.inputs import Input
from heedful.data.labelled import TextExample
from heedful.data.questions import QuestionExample
from heedful.data.tokenizer import MASK
from heedful.predict.answers import Answer, Answers, Asked
from heedful.predict.blanks import Blanks, Filler, with_blanks
from heedful.predict.engine import BATCH_TOKENS, Engine, TorchEngine
from heedful.predict.generation import STEPS, Generated
from heedful.predict.predictor import Predictor
from heedful.predict.tags import Sentence, Tagged, Tags, Windowed, sentence
from heedful.serve.batching import CHARACTERS, Wanted, insist
from heedful.serve.refusals import Refusal

EMPTY = "a text is empty; write something in it"


class Text(NamedTuple):
    """A text to fill."""

    text: str

    @property
    def weight(self) -> int:
        """Its characters."""
        return len(self.text)


class Words(NamedTuple):
    """A text, or its words where they are known."""

    text: str | tuple[str, ...]

    @property
    def weight(self) -> int:
        """Its characters."""
        return len(self.text) if isinstance(self.text, str) else sum(len(word) + 1 for word in self.text)


class Question(NamedTuple):
    """A question about a context."""

    question: str
    context: str

    @property
    def weight(self) -> int:
        """Its characters."""
        return len(self.question) + len(self.context)


class Writing(NamedTuple):
    """What to write, and how."""

    text: str
    options: dict[str, Any]

    @property
    def blanks(self) -> int:
        """How many tokens are written."""
        return self.text.count(MASK) or self.options["tokens"]

    @property
    def passes(self) -> int:
        """How often the text is read: Gibbs sampling does so for each blank of a round; at the end each is judged."""
        by_one = self.options["order"] == "gibbs"
        rounds = self.options["steps"] or (STEPS if by_one else min(STEPS, self.blanks))
        return rounds * (self.blanks if by_one else 1) + self.blanks

    @property
    def weight(self) -> int:
        """All that is read, in characters."""
        return (len(self.text) + CHARACTERS * self.blanks) * self.passes


@dataclass(frozen=True)
class FillWork:
    """Candidates for blanks."""

    filler: Filler

    @property
    def key(self) -> Hashable:
        """As many candidates."""
        return "fill", self.filler.top

    def prepare(self, examples: Sequence[Text]) -> list[Input | Refusal]:
        """The text with its blanks."""
        found = self.filler.prepare([TextExample("", one.text, None) for one in examples])
        return [self._checked(example.text, one) for example, one in zip(examples, found, strict=True)]

    def _checked(self, text: str, one: Input | Flaw) -> Input | Refusal:
        if not isinstance(one, Flaw):
            return one
        return (
            Refusal(413, f"a text has {one.problem}", limit="tokens") if MASK in text else Refusal(422, one.problem)
        )

    def tokens(self, prepared: Input) -> int:
        """How many are read."""
        return len(prepared.ids)

    def answer(self, prepared: Sequence[Input], wanted: Wanted) -> list[Blanks]:  # noqa: ARG002 (it is one batch)
        """The candidates for each blank."""
        return self.filler.answer(prepared)


@dataclass(frozen=True)
class TagWork:
    """Tags of words."""

    predictor: Predictor
    tags: Tags
    most: int
    """Tokens that are read of one text."""

    @property
    def key(self) -> Hashable:
        """All texts."""
        return "tag"

    def prepare(self, examples: Sequence[Words]) -> list[Windowed | Refusal]:
        """The windows of each text."""
        return [self._prepared(one) for one in examples]

    def _prepared(self, example: Words) -> Windowed | Refusal:
        if (large := too_large(example.weight, self.most)) is not None:
            return large
        text = example.text
        read = sentence(self.predictor.tokenizer, text) if isinstance(text, str) else Sentence("", text)
        if len(read.words) > self.most:  # each of which is a token at least
            return too_much(len(read.words), self.most)
        (found,) = self.tags.prepare([read])
        if isinstance(found, Flaw):
            return Refusal(422, EMPTY)
        return found if (tokens := self.tokens(found)) <= self.most else too_much(tokens, self.most)

    def tokens(self, prepared: Windowed) -> int:
        """Of all windows."""
        return sum(len(window.input.ids) for window in prepared.windows)

    def answer(self, prepared: Sequence[Windowed], wanted: Wanted) -> list[Tagged]:
        """The tags of each."""
        return replace(self.tags, engine=Stepwise(self.tags.engine, wanted)).answer(prepared)


@dataclass(frozen=True)
class AnswerWork:
    """Answers to questions."""

    answers: Answers
    most: int
    """Tokens that are read for one question."""

    @property
    def key(self) -> Hashable:
        """As many answers, of such lengths."""
        return "answer", self.answers.n_best, self.answers.longest, self.answers.may_be_empty

    def prepare(self, examples: Sequence[Question]) -> list[Asked | Refusal]:
        """The windows of each question."""
        small = [one for one in examples if too_large(one.weight, self.most) is None]
        found = iter(self.answers.prepare([QuestionExample("", "", *one, None) for one in small]))
        return [too_large(one.weight, self.most) or self._checked(one, next(found)) for one in examples]

    def _checked(self, example: Question, one: Asked | Flaw) -> Asked | Refusal:
        if not isinstance(one, Flaw):
            return one if (tokens := self.tokens(one)) <= self.most else too_much(tokens, self.most)
        if not example.question.strip() or not example.context.strip():
            return Refusal(422, one.problem)
        return Refusal(413, one.problem, limit="tokens")

    def tokens(self, prepared: Asked) -> int:
        """Of all windows."""
        return sum(len(window.input.ids) for window in prepared.windows)

    def answer(self, prepared: Sequence[Asked], wanted: Wanted) -> list[list[Answer]]:
        """The best answers to each."""
        return replace(self.answers, engine=Stepwise(self.answers.engine, wanted)).answer(prepared)


@dataclass(frozen=True, eq=False)
class WriteWork:
    """Text from a model that fills blanks, one request after the other."""

    predictor: Predictor
    most: int
    """Tokens that are read for one text."""

    @property
    def key(self) -> Hashable:
        """Nobody else's."""
        return id(self)

    def prepare(self, examples: Sequence[Writing]) -> list[Writing | Refusal]:
        """As they are; a text that leaves no room is found when it is written."""
        return [self._checked(one) for one in examples]

    def _checked(self, one: Writing) -> Writing | Refusal:
        if (large := too_large(len(one.text), self.most)) is not None:
            return large
        length = len(with_blanks(self.predictor.tokenizer, one.text)) + (0 if MASK in one.text else one.blanks)
        tokens = one.passes * length
        if length <= self.predictor.engine.max_length and tokens > self.most:
            return too_much(tokens, self.most, "write fewer tokens, or in fewer steps")
        return one

    def tokens(self, prepared: Writing) -> int:
        """About as many as its characters tell."""
        return prepared.weight // CHARACTERS

    def answer(self, prepared: Sequence[Writing], wanted: Wanted) -> list[Generated]:
        """The text, and how it came about."""
        return [self.predictor.generate(one.text, watch=lambda _: insist(wanted), **one.options) for one in prepared]


class Stepwise:
    """An engine that computes scores in steps, as long as anybody wants them."""

    def __init__(self, engine: Engine, wanted: Wanted) -> None:
        self.engine = engine
        self.wanted = wanted
        self.head = engine.head
        self.max_length = engine.max_length
        self.vocab_size = engine.vocab_size
        self.vectors = engine.vectors
        self.states = engine.states
        self.room = BATCH_TOKENS["cuda" if isinstance(engine, TorchEngine) and engine.on_gpu else "cpu"]

    def scores(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        """As the engine gives them."""
        found: list[np.ndarray] = []
        while len(found) < len(inputs):
            if found:
                insist(self.wanted)
            found += self.engine.scores(self._next(inputs[len(found) :]))
        return found

    def _next(self, inputs: Sequence[Input]) -> Sequence[Input]:
        """As many as the engine reads at once."""
        ends = np.cumsum([len(one.ids) for one in inputs])
        return inputs[: max(1, int(np.searchsorted(ends, self.room, side="right")))]


def too_large(characters: int, most: int) -> Refusal | None:
    """A text that is not even taken apart."""
    if characters <= CHARACTERS * most:
        return None
    said = f"an input has {characters:,} characters, and {CHARACTERS * most:,} can be read (max-read)"
    return Refusal(413, f"{said}; send it in parts", limit="max-read")


def too_much(tokens: int, most: int, way_out: str = "send it in parts") -> Refusal:
    """An input that would keep the model from all others."""
    said = f"the model would read at least {tokens:,} tokens for one input, and {most:,} may be (max-read)"
    return Refusal(413, f"{said}; {way_out}", limit="max-read")
