"""Blanks of a text and what may stand in them, and text written by filling them: as the predictor answers."""

import re
from dataclasses import dataclass

from heedful.data.tokenizer import MASK
from heedful.predict.blanks import Candidate
from heedful.predict.generation import joined, stretches
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
    found = predictor.fill(text, count)
    places = [match.span() for match in re.finditer(re.escape(MASK), text)]
    each = [
        Blank(start=start, end=end, candidates=candidates)
        for (start, end), candidates in zip(places, found, strict=True)
    ]
    return each, joined(stretches(text), [candidates[0].token for candidates in found])
