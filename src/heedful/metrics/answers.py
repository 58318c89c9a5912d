"""How well questions were answered, by the rules of SQuAD (Rajpurkar et al. 2016, section 6.1; 2018 for no answer).

Words are what whitespace parts and articles are the English ones, whatever the language, so that numbers compare with
published ones. Knows nothing of where in a text an answer stands.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

from heedful.errors import UserError
from heedful.metrics.classification import Report

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """A text in lower case, without ASCII punctuation and English articles, a single space between words."""
    # punctuation goes first and leaves no gap: "a." is an article and "U.S." one word
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact(golds: Sequence[str], prediction: str) -> float:
    """1 where a prediction equals one of the golds once both are normalised, else 0."""
    return float(normalise(prediction) in _wanted(golds))


def f1(golds: Sequence[str], prediction: str) -> float:
    """How far the words of a prediction and a gold overlap, for the gold that is nearest."""
    return max(_overlap(gold, normalise(prediction)) for gold in _wanted(golds))


def answer_report(golds: list[list[str]], predictions: list[str]) -> Report:
    """Score a prediction a question against the golds of that question; no gold, or an empty one, says: no answer.

    `exact` and `f1` are means over questions. Where some have no answer, also over either part: `has_answer_exact`,
    `has_answer_f1`, `no_answer_exact`, `no_answer_f1` (the same there: right is only an empty prediction), and how
    many questions each part has, `has_answer_count` and `no_answer_count`. A part without questions has its count
    alone.
    """
    if len(golds) != len(predictions):
        raise ValueError(
            f"there must be a prediction a question; got {len(golds)} questions, {len(predictions)} predictions"
        )
    if not golds:
        raise UserError("there are no questions to score; give at least one")
    marks = [(exact(g, p), f1(g, p)) for g, p in zip(golds, predictions, strict=True)]
    scores = _means(marks, "")
    answerable = [any(text.strip() for text in gold) for gold in golds]
    if not all(answerable):
        for part, wanted in (("has_answer_", True), ("no_answer_", False)):
            mine = [mark for mark, has in zip(marks, answerable, strict=True) if has is wanted]
            scores |= _means(mine, part) | {f"{part}count": float(len(mine))}
    return Report(scores, [], None)


def _means(marks: list[tuple[float, float]], part: str) -> dict[str, float]:
    if not marks:
        return {}
    exacts, f1s = zip(*marks, strict=True)
    return {f"{part}exact": sum(exacts) / len(marks), f"{part}f1": sum(f1s) / len(marks)}


def _wanted(golds: Sequence[str]) -> list[str]:
    """The golds that say something, normalised; without any, the empty answer is the one wanted."""
    return [text for gold in golds if (text := normalise(gold))] or [""]


def _overlap(gold: str, prediction: str) -> float:
    wanted, given = gold.split(), prediction.split()
    if not wanted and not given:
        return 1.0
    shared = (Counter(wanted) & Counter(given)).total()
    return 2 * shared / (len(wanted) + len(given))
