"""Blanks of a text and what may stand in them, and text written by filling them: as the predictor answers."""

import re
from dataclasses import dataclass

from heedful.data.tokenizer import MASK
from heedful.explore.tokens import check_length
from heedful.predict.blanks import Candidate, with_blanks
from heedful.predict.generation import Generated, Step, joined, stretches
from heedful.predict.predictor import Predictor


@dataclass(frozen=True, kw_only=True)
class Blank:
    """A blank, and its candidates."""

    start: int
    """The characters of the text, [start, end)."""
    end: int
    candidates: list[Candidate]


def blanks(predictor: Predictor, text: str, count: int) -> tuple[list[Blank], str]:
    """The best candidates for every blank of a text, and the text with the best in each."""
    _check(predictor, text)
    found = predictor.fill(text, count)
    places = [match.span() for match in re.finditer(re.escape(MASK), text)]
    each = [
        Blank(start=start, end=end, candidates=candidates)
        for (start, end), candidates in zip(places, found, strict=True)
    ]
    return each, joined(stretches(text), [candidates[0].token for candidates in found])


def write(predictor: Predictor, text: str, words: int, seed: int, order: str) -> tuple[Generated, list[Step]]:
    """The text with its blanks filled, or with so many words more, and the steps to it."""
    _check(predictor, text, 0 if MASK in text else words)
    steps: list[Step] = []
    return predictor.generate(text, tokens=words, seed=seed, order=order, watch=steps.append), steps


def _check(predictor: Predictor, text: str, more: int = 0) -> None:
    tokens = len(with_blanks(predictor.tokenizer, text)) + more
    check_length(text, tokens, predictor.engine.max_length)
