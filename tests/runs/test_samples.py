from typing import Any

import numpy as np
import pytest
import torch

from heedful.data.labelled import TextExample
from heedful.data.questions import Answer, QuestionExample
from heedful.data.shards import Split
from heedful.data.tagged import TagExample
from heedful.data.tokenizer import SPECIAL, Tokenizer, load
from heedful.models.bert import BertConfig, BertForPretraining, initialise
from heedful.models.heads import Head
from heedful.predict import Predictor
from heedful.predict.engine import TorchEngine
from heedful.predict.tags import Tagged
from heedful.predict.texts import Classified, Labelled
from heedful.runs.samples import answered, filled, spread
from heedful.train.log import Sample

WORDS = ("the", "river", "runs", "by", "a", "fer", "##ry", "quickly", ".", "mill", "stone", "old")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS, ""]), encoding="utf-8")
    return load(folder)


def split(tokenizer: Tokenizer, *sentences: str) -> Split:
    ids = tokenizer.encode(sentences)
    tokens = np.array([number for one in ids for number in one], np.uint16)
    starts = np.cumsum([0, *map(len, ids)])
    return Split(tokens, starts, np.array([0, len(ids)]))


def test_the_longest_word_is_hidden_and_filled_as_the_predictor_does(words: Tokenizer):
    model = BertForPretraining(BertConfig(vocab_size=words.vocab_size, layers=1, dim=14, heads=2, ffn_dim=7))
    initialise(model, 0.5, torch.Generator().manual_seed(1))
    text = split(words, "the river runs quickly .", "the ferry .", "a stone mill by the ferry .", "the " * 31)
    found = filled(model, words, text)
    assert [(one.input, one.reference) for one in found] == [
        ("the river runs [MASK] .", "quickly"),
        ("a [MASK] mill by the ferry.", "stone"),
    ]
    predictor = Predictor(TorchEngine(model), words)
    assert [one.output for one in found] == [predictor.fill(one.input, 1)[0][0].token for one in found]
    assert not model.training
    assert found == filled(model, words, text)


def test_nothing_to_hide_is_no_sample(words: Tokenizer):
    model = BertForPretraining(BertConfig(vocab_size=words.vocab_size, layers=1, dim=14, heads=2, max_length=7))
    assert filled(model, words, split(words, ". . . . .", "the river runs quickly by the mill .")) == []
    assert filled(model, words, split(words)) == []


@pytest.mark.parametrize(
    ("count", "samples", "chosen"),
    [(0, 4, []), (3, 4, [0, 1, 2]), (10, 2, [0, 5]), (11, 4, [0, 2, 4, 6]), (9, 0, [])],
)
def test_samples_are_spread_over_the_examples(count: int, samples: int, chosen: list[int]):
    assert list(spread(count, samples)) == chosen


NUMBERS = TextExample("", "t", None, (1.0, 2.5))
TAGS = TagExample("", ("u", "v"), ("O", "B-X"))
QUESTION = QuestionExample("", "1", "who ?", "clara lives", (Answer("clara", 0),))


@pytest.mark.parametrize(
    ("task", "labels", "example", "answer", "sample"),
    [
        ("classify", ("a", "b"), TextExample("", "t", None, "a"), Classified("b", 0.7, {}), ("t", "b", "a")),
        ("classify", ("a", "b"), TextExample("", "t", "u", "a"), Classified("a", 0.7, {}), ("t | u", "a", "a")),
        ("multilabel", ("a", "b"), TextExample("", "t", None, ("b", "a")), Labelled([], {}), ("t", "", "a, b")),
        ("regress", ("x", "y"), NUMBERS, {"x": 1.25, "y": 2}, ("t", "x 1.25, y 2", "x 1, y 2.5")),
        ("tag", ("O", "B-X"), TAGS, Tagged(["u", "v"], ["B-X", "O"], [], []), ("u v", "B-X O", "O B-X")),
        ("answer", ("start", "end"), QUESTION, [Answer("lives", 6)], ("who ? | clara lives", "lives", "clara")),
        ("answer", ("start", "end"), QUESTION._replace(answers=()), [Answer("", 0)], ("who ? | clara lives", "", "")),
    ],
)  # fmt: skip
def test_every_head_has_its_words(task: str, labels: tuple[str, ...], example: Any, answer: Any, sample: tuple):
    assert answered(Head(task=task, labels=labels), [example], [answer]) == [Sample(*sample)]


def test_long_texts_are_cut():
    example = TextExample("", "it's\n" * 99, None, "a")
    (found,) = answered(Head(task="classify", labels=("a",)), [example], [Classified("a", 1.0, {})])
    assert found.input == ("it's\n" * 99)[:239] + "…"
