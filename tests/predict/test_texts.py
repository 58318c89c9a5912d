import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from heedful.data.flaws import Flaw
from heedful.data.inputs import Input, Inputs
from heedful.data.labelled import TextExample
from heedful.data.token_workers import TokenWorkers
from heedful.data.tokenizer import Tokenizer
from heedful.models.heads import Head
from heedful.predict.texts import Classes, Labels, Regressor, TextReader, Vectors, cut_remark

COLOURS = ("red", "green", "blue")


class Known:
    """An engine that says what it was told to say of each input in turn."""

    max_length = 37
    vocab_size = 211

    def __init__(self, task: str, rows: Sequence[Sequence[float]]) -> None:
        self.head: Head | None = Head(task=task, labels=COLOURS)
        self.rows = np.array(rows, np.float32)
        self.pool = ""

    def scores(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        return list(self.rows[: len(inputs)])

    def vectors(self, inputs: Sequence[Input], pool: str) -> np.ndarray:
        self.pool = pool
        return self.rows[: len(inputs)]


INPUTS = [Input(np.array([2, 3], np.int32), 2)] * 2


@pytest.fixture
def reader(small_tokenizer: Tokenizer) -> Callable[..., TextReader]:
    def make(**options: Any) -> TextReader:
        return TextReader(engine=Known("classify", []), tokenizer=small_tokenizer, **{"length": 17, **options})

    return make


def example(text: str, pair: str | None = None) -> TextExample:
    return TextExample("reviews.csv:7", text, pair)


def sequence(tokenizer: Tokenizer, *texts: str) -> list[int]:
    ids = [tokenizer.cls]
    for encoded in tokenizer.encode(texts):
        ids += [*encoded, tokenizer.sep]
    return ids


def test_texts_and_pairs_keep_their_places(reader: Callable[..., TextReader], small_tokenizer: Tokenizer):
    examples = [example("the mill", "a bridge"), example("bread"), example("the river", ""), example("old stone")]
    pair, single, half, other = reader().prepare(examples)
    assert isinstance(pair, Input)
    assert pair.ids.tolist() == sequence(small_tokenizer, "the mill", "a bridge")
    assert pair.second == len(sequence(small_tokenizer, "the mill"))
    assert isinstance(single, Input)
    assert single.ids.tolist() == sequence(small_tokenizer, "bread")
    assert single.second == len(single.ids)
    assert isinstance(half, Input)
    assert half.ids.tolist() == [*sequence(small_tokenizer, "the river"), small_tokenizer.sep]
    assert isinstance(other, Input)
    assert other.ids.tolist() == sequence(small_tokenizer, "old stone")


MIXED = [example("the mill", "a bridge"), example("bread " * 30), example(" "), example("old stone")]
SOUND = [example("the mill"), example("bread " * 12), example("old stone")]
PAIRS = [example("the mill", "a bridge"), example("bread " * 30, "old stone"), example("river", "")]


@pytest.mark.parametrize(
    ("examples", "options", "whole"),
    [
        (MIXED, {}, False),
        (MIXED, {"truncate": True}, False),
        (MIXED, {"pairs": False}, False),
        (SOUND, {}, True),
        (SOUND, {"pairs": False}, True),
        (SOUND, {"pairs": True}, False),
        (PAIRS, {}, False),
        (PAIRS, {"truncate": True}, True),
    ],
)
def test_workers_prepare_the_same(
    reader: Callable[..., TextReader],
    small_tokenizer: Tokenizer,
    started: Callable[..., TokenWorkers],
    examples: list[TextExample],
    options: dict[str, bool],
    whole: bool,
):
    workers = started(small_tokenizer, count=2, few=1)
    here, there = reader(**options), reader(**options, workers=workers)
    found, expected = there.prepare(examples), here.prepare(examples)
    assert isinstance(found, Inputs) == isinstance(expected, Inputs) == whole
    assert repr(list(found)) == repr(list(expected))
    assert cut_remark(there) == cut_remark(here)
    assert workers.ready


@pytest.mark.parametrize("empty", [example(""), example(" \t\n"), example("", ""), example(" ", "\u3000")])
def test_an_empty_text_is_a_flaw_in_its_place(reader: Callable[..., TextReader], empty: TextExample):
    before, flaw, after = reader().prepare([example("bread"), empty, example("a", "b")])
    assert isinstance(before, Input)
    assert isinstance(after, Input)
    assert flaw == Flaw("reviews.csv:7", "the text is empty; write something in it")


def test_one_text_of_a_pair_may_be_empty(reader: Callable[..., TextReader]):
    assert all(isinstance(one, Input) for one in reader().prepare([example("", "bread"), example("bread", " ")]))


def test_no_more_than_fits_is_read(reader: Callable[..., TextReader], small_tokenizer: Tokenizer):
    fits, too_long, pair = example("the " * 15), example("the " * 16), example("the " * 7, "a " * 8)
    found = reader().prepare([fits, too_long, pair])
    assert isinstance(found[0], Input)
    assert len(found[0].ids) == 17
    assert str(found[1]) == (
        "reviews.csv:7: 18 tokens, of which 17 can be read; "
        "shorten it, or let it be cut (--truncate, in Python truncate=True)"
    )
    assert isinstance(found[2], Flaw)
    assert found[2].problem.startswith("18 tokens, of which 17")
    cut = reader(truncate=True).prepare([fits, too_long, pair])
    assert [len(one.ids) for one in cut if isinstance(one, Input)] == [17, 17, 17]
    assert np.array_equal(cut[0].ids, cut[1].ids)
    assert cut[2].ids.tolist() == sequence(small_tokenizer, "the " * 7, "a " * 7)


def test_what_is_cut_is_counted(reader: Callable[..., TextReader]):
    cutting = reader(truncate=True)
    cutting.prepare([example("the " * 15), example("the " * 16)])
    assert cut_remark(cutting) == "1 text is too long; only the beginning is read"
    cutting.prepare([example("the " * 7, "a " * 8), example("bread")])
    assert cut_remark(cutting) == "2 texts are too long; only the beginning is read"
    refusing = reader()
    refusing.prepare([example("the " * 16)])
    assert cut_remark(refusing) is None  # refused, and told as a flaw


@pytest.mark.parametrize(
    ("pairs", "sound", "problem"),
    [
        (True, 1, "one text, but the model was trained on pairs; name both columns (--text and --pair)"),
        (False, 0, "a pair of texts, but the model was trained on single ones; name one column (--text)"),
    ],
)
def test_pairs_are_read_by_who_learned_on_pairs(
    reader: Callable[..., TextReader], pairs: bool, sound: int, problem: str
):
    found = reader(pairs=pairs).prepare([example("bread"), example("the mill", "a bridge")])
    assert isinstance(found[sound], Input)
    assert found[1 - sound] == Flaw("reviews.csv:7", problem)
    assert all(isinstance(one, Input) for one in reader().prepare([example("bread"), example("a", "b")]))


def test_a_long_count_is_readable(reader: Callable[..., TextReader]):
    (flaw,) = reader().prepare([example("the " * 20_000)])
    assert isinstance(flaw, Flaw)
    assert flaw.problem.startswith("20,002 tokens")


def test_nothing_to_prepare(reader: Callable[..., TextReader]):
    assert list(reader().prepare([])) == []


def test_a_class_is_the_most_probable_of_all(small_tokenizer: Tokenizer):
    engine = Known("classify", [[0.0, math.log(2), math.log(5)], [1000.0, 0.0, -1000.0]])
    first, second = Classes(engine=engine, tokenizer=small_tokenizer, length=17).answer(INPUTS)
    assert first.label == "blue"
    assert first.probability == pytest.approx(5 / 8, abs=1e-6)
    assert first.probabilities == pytest.approx({"red": 1 / 8, "green": 2 / 8, "blue": 5 / 8}, abs=1e-6)
    assert list(first.probabilities) == list(COLOURS)
    assert second == ("red", 1.0, {"red": 1.0, "green": 0.0, "blue": 0.0})
    assert type(first.probability) is float


def test_labels_are_those_at_least_as_probable_as_not(small_tokenizer: Tokenizer):
    engine = Known("multilabel", [[0.0, -1e-3, math.log(3)], [-5.0, -5.0, -5.0]])
    first, second = Labels(engine=engine, tokenizer=small_tokenizer, length=17).answer(INPUTS)
    assert first.labels == ["red", "blue"]
    assert first.probabilities == pytest.approx({"red": 0.5, "green": 0.49975, "blue": 0.75}, abs=1e-6)
    assert second.labels == []
    assert second.probabilities == pytest.approx(dict.fromkeys(COLOURS, 1 / (1 + math.exp(5))))


def test_labels_of_extreme_scores(small_tokenizer: Tokenizer):
    engine = Known("multilabel", [[1000.0, -1000.0, 0.0]])
    (found,) = Labels(engine=engine, tokenizer=small_tokenizer, length=17).answer(INPUTS[:1])
    assert found == (["red", "blue"], {"red": 1.0, "green": 0.0, "blue": 0.5})


def test_numbers_are_the_scores_themselves(small_tokenizer: Tokenizer):
    engine = Known("regress", [[1003.5, -2.25, 0.0], [1.0, 2.0, 3.0]])
    found = Regressor(engine=engine, tokenizer=small_tokenizer, length=17).answer(INPUTS)
    assert found == [{"red": 1003.5, "green": -2.25, "blue": 0.0}, {"red": 1.0, "green": 2.0, "blue": 3.0}]
    assert {type(number) for one in found for number in one.values()} == {float}


def test_vectors_have_length_one_if_asked(small_tokenizer: Tokenizer):
    engine = Known("classify", [[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    whole = Vectors(engine=engine, tokenizer=small_tokenizer, length=17)
    first, nothing = whole.answer(INPUTS)
    np.testing.assert_allclose(first, [0.6, 0.0, 0.8], atol=1e-6)
    assert nothing.tolist() == [0.0, 0.0, 0.0]
    assert engine.pool == "mean"
    raw = Vectors(engine=engine, tokenizer=small_tokenizer, length=17, pool="cls", normalise=False)
    assert raw.answer(INPUTS)[0].tolist() == [3.0, 0.0, 4.0]
    assert engine.pool == "cls"
    assert whole.none().shape == (0, 3)
