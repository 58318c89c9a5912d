"""A few examples that a model is asked again and again while it trains, so that one sees what it learns."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from heedful.data.inputs import Input
from heedful.data.labelled import TextExample
from heedful.data.shards import Split
from heedful.data.tagged import TagExample
from heedful.data.tokenizer import MASK, Tokenizer
from heedful.models.bert import BertForPretraining
from heedful.models.heads import Head
from heedful.predict.blanks import word_probabilities
from heedful.train.log import Sample
from heedful.wording import shortened

COUNT = 4
"""Examples of a run."""
FEWEST, MOST = 5, 24
"""Tokens of a sentence that says something, and can be taken in at a glance."""
SEARCHED = 2000
"""Sentences among which such ones are looked for."""
CHARACTERS = 240
"""Of a text, as it is shown."""


def spread(count: int, samples: int = COUNT) -> range:
    """Which of so many examples to show: the same ones always, spread over them."""
    return range(0, count, max(1, count // samples))[:samples] if samples else range(0)


def filled(model: BertForPretraining, tokenizer: Tokenizer, split: Split) -> list[Sample]:
    """Sentences of a held-out text with one word hidden, and what the model puts there. Puts the model at rest."""
    found = []
    for ids in _sentences(split, min(MOST, model.config.max_length - 2)):
        place = _hidden(tokenizer, ids)
        if place is None:
            continue
        whole = np.array([tokenizer.cls, *ids[:place], tokenizer.mask, *ids[place + 1 :], tokenizer.sep], np.int32)
        probabilities = word_probabilities(model, tokenizer, [Input(whole, len(whole))], np.array([place + 1]))
        before, after = tokenizer.decode(ids[:place]), tokenizer.decode(ids[place + 1 :])
        text = f"{before} {MASK} {after}".strip()
        best, truth = int(probabilities[0].argmax()), ids[place]
        found.append(Sample(text, tokenizer.vocabulary[best], tokenizer.vocabulary[truth]))
        if len(found) == COUNT:
            break
    return found


def _sentences(split: Split, most: int) -> list[list[int]]:
    """Sentences of the right length, one of each stretch of the text."""
    lengths = np.diff(split.sentences[: SEARCHED + 1])
    fitting = np.flatnonzero((lengths >= FEWEST) & (lengths <= most))
    chosen = [*(fitting[number] for number in spread(len(fitting))), *fitting]
    return [split.tokens[split.sentences[one] : split.sentences[one + 1]].tolist() for one in dict.fromkeys(chosen)]


def _hidden(tokenizer: Tokenizer, ids: Sequence[int]) -> int | None:
    """The longest whole word among the tokens: it says most. None where there is none."""

    def whole(place: int) -> bool:
        goes_on = place + 1 < len(ids) and tokenizer.continues[ids[place + 1]]
        token = ids[place]
        return tokenizer.vocabulary[token].isalpha() and not (tokenizer.continues[token] or goes_on)

    words = [place for place in range(len(ids)) if whole(place)]
    return max(words, key=lambda place: len(tokenizer.vocabulary[ids[place]]), default=None)


def answered(head: Head, examples: Sequence[Any], answers: Sequence[Any]) -> list[Sample]:
    """Some of a dev set's examples, with what a head answers."""
    return [
        Sample(_asked(examples[number]), _told(head, answers[number]), _truth(head, examples[number]))
        for number in spread(len(examples))
    ]


def _asked(example: Any) -> str:
    if isinstance(example, TextExample):
        text = example.text if example.pair is None else f"{example.text} | {example.pair}"
    elif isinstance(example, TagExample):
        text = " ".join(example.words)
    else:
        text = f"{example.question} | {example.context}"
    return shortened(text, CHARACTERS)


def _told(head: Head, answer: Any) -> str:
    match head.task:
        case "classify":
            return answer.label
        case "multilabel":
            return ", ".join(answer.labels)
        case "regress":
            return _numbers(head, list(answer.values()))
        case "tag":
            return " ".join(answer.tags)
    return answer[0].text


def _truth(head: Head, example: Any) -> str:
    match head.task:
        case "classify":
            return str(example.target)
        case "multilabel":
            return ", ".join(label for label in head.labels if label in example.target)
        case "regress":
            return _numbers(head, example.target)
        case "tag":
            return " ".join(example.tags)
    return example.answers[0].text if example.answers else ""


def _numbers(head: Head, numbers: Sequence[float]) -> str:
    return ", ".join(f"{label} {number:.4g}" for label, number in zip(head.labels, numbers, strict=True))
