"""Answers to questions, each a stretch of the question's context (Devlin et al. 2018, sections 4.2 and 4.3).

The best stretch is the one whose ends score highest together, over all windows. No answer, the empty text, is one of
the candidates for models that were trained with questions that have none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from heedful.data.flaws import Flaw
from heedful.data.inputs import QuestionWindow, no_room, question_windows
from heedful.data.questions import QuestionExample
from heedful.data.tokenizer import Tokenizer
from heedful.predict.engine import Engine

CANDIDATES = 20
"""The stretches among which probabilities are shared out, or as many as are asked for if those are more."""


class Answer(NamedTuple):
    """A stretch of the context; the empty text where there is no answer."""

    text: str
    start: int
    end: int
    probability: float
    """Among the best candidates."""


class Asked(NamedTuple):
    """A question's context, and the windows over it."""

    context: str
    windows: list[QuestionWindow]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """The best answers to each question."""

    engine: Engine
    tokenizer: Tokenizer
    length: int
    """Tokens of a window, the question's included."""
    overlap: int
    """Tokens of the context that neighbouring windows share."""
    n_best: int = 1
    longest: int = 30
    """The most tokens of an answer."""
    may_be_empty: bool = False
    """Whether "there is no answer" is one."""

    def prepare(self, examples: Sequence[QuestionExample]) -> list[Asked | Flaw]:
        """The windows of each question."""
        found = question_windows(
            self.tokenizer,
            [one.question for one in examples],
            [one.context for one in examples],
            self.length,
            self.overlap,
        )
        return [self._prepared(one, windows) for one, windows in zip(examples, found, strict=True)]

    def _prepared(self, one: QuestionExample, windows: list[QuestionWindow]) -> Asked | Flaw:
        if not one.question.strip() or not one.context.strip():
            return Flaw(one.where, "the question or its context is empty; write something in it")
        return Asked(one.context, windows) if windows else no_room(one.where, self.length)

    def answer(self, prepared: Sequence[Asked]) -> list[list[Answer]]:
        """The best answers, best first."""
        scores = iter(self.engine.scores([window.input for one in prepared for window in one.windows]))
        return [self._best(one, [next(scores) for _ in one.windows]) for one in prepared]

    def _best(self, one: Asked, scores: list[np.ndarray]) -> list[Answer]:
        found: dict[tuple[int, int], float] = {}
        most = max(self.n_best, CANDIDATES)
        empty = np.inf
        for window, both in zip(one.windows, scores, strict=True):
            for place, score in _candidates(window, both.astype(np.float64), self.longest, most).items():
                found[place] = max(score, found.get(place, -np.inf))
            empty = min(empty, float(both[0].sum()))  # every window must agree that there is none
        if self.may_be_empty or not found:
            found[0, 0] = empty
        ranked = sorted(found.items(), key=lambda item: -item[1])[:most]
        powers = np.exp([score - ranked[0][1] for _, score in ranked])
        shares = (powers / powers.sum()).tolist()
        return [
            Answer(one.context[start:end], start, end, share)
            for ((start, end), _), share in zip(ranked[: self.n_best], shares, strict=False)
        ]


def _candidates(window: QuestionWindow, scores: np.ndarray, longest: int, most: int) -> dict[tuple[int, int], float]:
    """The best stretches of a window's context, each with the sum of its ends' scores."""
    starts, ends = scores[window.start : window.start + len(window.spans)].T  # (C,) each
    count = len(starts)
    # Row by row every stretch of one token, of two, and so on; what would end beyond the window never wins.
    sums = np.full((min(longest, count), count), -np.inf)
    for more, row in enumerate(sums):
        row[: count - more] = starts[: count - more] + ends[more:]
    # Hangul may be read letter by letter, three of them a syllable: then nine sums mean one stretch of text.
    some = min(9 * most, sums.size)
    best = np.argpartition(-sums, some - 1, axis=None)[:some] if some else []
    found: dict[tuple[int, int], float] = {}
    for more, first in sorted((divmod(int(one), count) for one in best), key=lambda one: (-sums[one], one)):
        if len(found) == most or first + more >= count:
            break
        found.setdefault((int(window.spans[first, 0]), int(window.spans[first + more, 1])), float(sums[more, first]))
    return found
