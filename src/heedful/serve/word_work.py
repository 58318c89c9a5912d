"""Ways to ask an encoder about words and stretches of texts: blanks, tags, answers, and text written anew.

Tags and answers read texts of any length, window by window.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heedful.data.flaws import Flaw
from heedful.data.inputs import Input
from heedful.data.labelled import TextExample
from heedful.data.questions import QuestionExample
from heedful.data.tokenizer import MASK
from heedful.predict.answers import Answer, Answers, Asked
from heedful.predict.blanks import Blanks, Filler
from heedful.predict.generation import Generated
from heedful.predict.predictor import Predictor
from heedful.predict.tags import Sentence, Tagged, Tags, Windowed, sentence
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
    def weight(self) -> int:
        """Rounds over the text, each as long as the whole."""
        return (len(self.text) + 4 * self.options["tokens"]) * (self.options["steps"] or 10)


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

    def answer(self, prepared: Sequence[Input]) -> list[Blanks]:
        """The candidates for each blank."""
        return self.filler.answer(prepared)


@dataclass(frozen=True)
class TagWork:
    """Tags of words."""

    predictor: Predictor
    tags: Tags

    @property
    def key(self) -> Hashable:
        """All texts."""
        return "tag"

    def prepare(self, examples: Sequence[Words]) -> list[Windowed | Refusal]:
        """The windows of each text."""
        sentences = [
            sentence(self.predictor.tokenizer, one.text) if isinstance(one.text, str) else Sentence("", one.text)
            for one in examples
        ]
        found = self.tags.prepare(sentences)
        return [Refusal(422, EMPTY) if isinstance(one, Flaw) else one for one in found]

    def tokens(self, prepared: Windowed) -> int:
        """Of all windows."""
        return sum(len(window.input.ids) for window in prepared.windows)

    def answer(self, prepared: Sequence[Windowed]) -> list[Tagged]:
        """The tags of each."""
        return self.tags.answer(prepared)


@dataclass(frozen=True)
class AnswerWork:
    """Answers to questions."""

    answers: Answers

    @property
    def key(self) -> Hashable:
        """As many answers, of such lengths."""
        return "answer", self.answers.n_best, self.answers.longest, self.answers.may_be_empty

    def prepare(self, examples: Sequence[Question]) -> list[Asked | Refusal]:
        """The windows of each question."""
        found = self.answers.prepare([QuestionExample("", "", one.question, one.context, None) for one in examples])
        return [self._checked(example, one) for example, one in zip(examples, found, strict=True)]

    def _checked(self, example: Question, one: Asked | Flaw) -> Asked | Refusal:
        if not isinstance(one, Flaw):
            return one
        if not example.question.strip() or not example.context.strip():
            return Refusal(422, one.problem)
        return Refusal(413, one.problem, limit="tokens")

    def tokens(self, prepared: Asked) -> int:
        """Of all windows."""
        return sum(len(window.input.ids) for window in prepared.windows)

    def answer(self, prepared: Sequence[Asked]) -> list[list[Answer]]:
        """The best answers to each."""
        return self.answers.answer(prepared)


@dataclass(frozen=True, eq=False)
class WriteWork:
    """Text from a model that fills blanks, one request after the other."""

    predictor: Predictor

    @property
    def key(self) -> Hashable:
        """Nobody else's."""
        return id(self)

    def prepare(self, examples: Sequence[Writing]) -> list[Writing | Refusal]:
        """As they are; a text that leaves no room is found when it is written."""
        return list(examples)

    def tokens(self, prepared: Writing) -> int:
        """About as many as its characters tell."""
        return prepared.weight // 4

    def answer(self, prepared: Sequence[Writing]) -> list[Generated]:
        """The text, and how it came about."""
        return [self.predictor.generate(one.text, **one.options) for one in prepared]
