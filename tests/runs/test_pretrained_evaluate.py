import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from heedful.commands import evaluating as commands
from heedful.data import shards, sources
from heedful.data import tokenizer as wordpiece
from heedful.errors import UserError
from heedful.predict import load
from heedful.runs.options import TextPart
from heedful.runs.pretrained_evaluate import as_json, evaluate, lines

WORDS = [f"{first}{second}" for first in "bdfgk" for second in ("an", "el", "im", "or", "ut")]


@pytest.fixture(scope="module")
def make(write_bert: Callable[..., Path]) -> Callable[..., Path]:
    """A BERT that was never trained and reads 48 tokens at most."""
    return partial(write_bert, outputs="both", deviation=0.1, layers=1, dim=16, ffn_dim=23, max_length=48)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, make: Callable[..., Path]) -> Path:
    return make(tmp_path_factory.mktemp("models") / "bert", WORDS)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """31 documents of 2 to 9 sentences of 3 to 12 words."""
    random, path = Random(0), tmp_path_factory.mktemp("text") / "text.txt"
    documents = (
        "\n".join(" ".join(random.choices(WORDS, k=random.randint(3, 12))) for _ in range(random.randint(2, 9)))
        for _ in range(31)
    )
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


def count(text: Path) -> int:
    return len(text.read_text(encoding="utf-8").split())


def test_a_model_that_knows_nothing_is_as_good_as_chance(model: Path, text: Path):
    found = evaluate(load(model, "cpu"), [str(text)], TextPart(), None)
    assert (found.documents, found.tokens, found.length) == (31, count(text), 48)
    assert found.loss == pytest.approx(math.log(30), rel=0.1)
    assert found.perplexity == pytest.approx(math.exp(found.loss))
    assert found.words_right < 0.2
    assert found.next_sentence_right is not None
    assert 0.3 < found.next_sentence_right < 0.7
    assert found.masked == pytest.approx(0.15 * found.tokens, rel=0.1)
    assert found.pairs
    assert evaluate(load(model, "cpu"), [str(text)], TextPart(), None) == found


def test_a_model_that_says_the_same_of_everything(tmp_path: Path, make: Callable[..., Path], text: Path):
    """Of pairs that they follow, which half of them do; in every blank one word."""
    folder = make(tmp_path / "bert", WORDS)
    predictor = load(folder, "cpu")
    assert predictor.words is not None
    assert predictor.words.nsp is not None
    with torch.no_grad():
        predictor.words.nsp.bias.copy_(torch.tensor([9.0, -9.0]))
    found = evaluate(predictor, [str(text)], TextPart(), 32)
    assert found.pairs
    assert found.next_sentence_right == pytest.approx(0.5, abs=1 / found.pairs)
    with torch.no_grad():
        predictor.words.mlm.bias[predictor.tokenizer.encode(["ban"])[0][0]] = (
            99.0  # it fills every blank with one word
        )
    share = text.read_text(encoding="utf-8").split().count("ban") / count(text)
    assert evaluate(predictor, [str(text)], TextPart(), 32).words_right == pytest.approx(share, abs=0.03)


def test_models_with_and_without_next_sentences_are_asked_the_same(
    tmp_path: Path, make: Callable[..., Path], model: Path, text: Path
):
    found = evaluate(load(make(tmp_path / "bert", WORDS, outputs="words"), "cpu"), [str(text)], TextPart(), 16)
    both = evaluate(load(model, "cpu"), [str(text)], TextPart(), 16)
    assert (found.sequences, found.masked) == (both.sequences, both.masked)
    assert found.next_sentence_right is found.pairs is None
    assert found.sequences >= count(text) / 14
    assert found.masked == pytest.approx(0.15 * count(text), rel=0.25)
    assert lines(found)[0].endswith(f"in {found.sequences} sequences of up to 16")
    assert not any("next" in line for line in lines(found))


def test_texts_of_one_sentence_each_have_no_next(model: Path, tmp_path: Path):
    table = tmp_path / "reviews.csv"
    table.write_text("id,review\n" + "".join(f"{one},ban del fim gor\n" for one in range(29)), encoding="utf-8")
    found = evaluate(load(model, "cpu"), [str(table)], TextPart(text="review"), None)
    assert (found.documents, found.tokens, found.next_sentence_right, found.pairs) == (29, 116, None, 0)
    assert lines(found)[-1].startswith("no next sentences to ask about: that takes two documents or more")


def test_text_that_the_tokenizer_does_not_know_is_told_of(model: Path, text: Path, tmp_path: Path):
    strange = tmp_path / "strange.txt"
    strange.write_text("ж ж ж ж ban ж ж\nж ж ban ж\n\nж ж ж\nж ban\n" * 7, encoding="utf-8")
    told = [evaluate(load(model, "cpu"), [str(one)], TextPart(), None) for one in (text, strange)]
    assert told[0].unknown < 0.01 < 0.5 < told[1].unknown
    assert [("does the tokenizer suit the text?" in lines(one)[-1]) for one in told] == [False, True]


def test_of_shards_what_they_hold_out(model: Path, text: Path, tmp_path: Path):
    made = shards.prepare([text], sources.TextOptions(), wordpiece.load(model), share=0.3, folder=tmp_path / "shards")
    found = evaluate(load(model, "cpu"), [str(tmp_path / "shards")], TextPart(), None)
    assert (found.documents, found.tokens) == (len(made.heldout.documents) - 1, len(made.heldout.tokens))
    assert 0 < found.documents < 31
    assert lines(found)[0].startswith(f"held out: {found.documents} documents, ")


def test_shards_that_do_not_fit(model: Path, text: Path, tmp_path: Path, make: Callable[..., Path]):
    predictor, none = load(model, "cpu"), tmp_path / "none"
    shards.prepare([text], sources.TextOptions(), wordpiece.load(model), share=0.0, folder=none)
    with pytest.raises(UserError, match="holds nothing out to evaluate on; name text that the model has not seen"):
        evaluate(predictor, [str(none)], TextPart(), None)
    with pytest.raises(UserError, match="standard input is read as plain text, which has no column review"):
        evaluate(predictor, ["-"], TextPart(text="review"), None)
    with pytest.raises(UserError, match="--text review names a column, but there is no table; leave it out"):
        evaluate(predictor, [str(text)], TextPart(text="review"), None)
    with pytest.raises(UserError, match="is prepared already; leave --text out"):
        evaluate(predictor, [str(none)], TextPart(text="review"), None)
    other = make(tmp_path / "other", WORDS[::-1])
    with pytest.raises(UserError, match="tokenizer"):
        evaluate(load(other, "cpu"), [str(none)], TextPart(), None)


@pytest.mark.parametrize("length", [-1, 7, 49])
def test_lengths_that_can_not_be_read(model: Path, text: Path, length: int):
    with pytest.raises(UserError, match=f"--length {length} is not from 8 to 48"):
        evaluate(load(model, "cpu"), [str(text)], TextPart(), length)


def test_what_is_said(model: Path, text: Path):
    found = evaluate(load(model, "cpu"), [str(text)], TextPart(), None)
    assert found.next_sentence_right is not None
    assert lines(found) == [
        f"31 documents, {found.tokens:,} tokens, in {found.sequences} sequences of up to 48",
        "",
        f"masked words right   {found.words_right:.2%}  of {found.masked}",
        f"loss of words        {found.loss:.4f}",
        f"perplexity           {found.perplexity:.2f}",
        f"next sentence right  {found.next_sentence_right:.2%}  of {found.pairs} pairs",
    ]
    assert json.loads(json.dumps(as_json(found)))["next_sentence_right"] == found.next_sentence_right


@pytest.mark.parametrize(
    "flags",
    [
        {"pair": "b"},
        {"label": ("label",)},
        {"picture": Path("confusion.png")},
        {"predictions": Path("answers.jsonl")},
        {"worst": 0},
        {"skip_bad": True},
        {"truncate": True},
    ],
)
def test_what_says_nothing_to_such_a_model_is_refused(model: Path, text: Path, flags: dict[str, Any]):
    (name,) = flags
    with pytest.raises(
        UserError, match=f"^--{name.replace('_', '-')} says nothing to .*, which fills blanks; leave it"
    ):
        commands.evaluate(model, (str(text),), device="cpu", **flags)
