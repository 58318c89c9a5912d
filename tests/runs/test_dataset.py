import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data import tokenizer as wordpiece
from heedful.data.flaws import Flaw
from heedful.data.labelled import TextExample
from heedful.data.questions import Answer, QuestionExample
from heedful.data.tagged import TagExample
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError
from heedful.models.heads import ANSWER_ENDS, Head
from heedful.runs import dataset
from heedful.runs.finetune_options import DataPart

Files = Callable[..., Path]


def text(content: str, target: object = None, pair: str | None = None, where: str = "f:1") -> TextExample:
    return TextExample(where, content, pair, target)  # type: ignore[arg-type]


def refuse(flaw: Flaw) -> None:
    raise AssertionError(flaw)


@pytest.fixture(scope="module")
def tokenizer(encoder: Path) -> Tokenizer:
    return wordpiece.load(encoder)


@given(st.lists(st.text(max_size=9), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_a_split_is_a_partition_by_content(words: list[str], share: float):
    examples = [text(word, str(number)) for number, word in enumerate(words)]
    try:
        training, testing = dataset.split(examples, share)
    except UserError as error:
        kind = "have one text, so no part" if len(words) > 1 and share * len(words) >= 0.5 else "too few to hold"
        assert kind in str(error)  # noqa: PT017
        return
    assert training
    assert testing
    assert sorted(training + testing) == sorted(examples)
    assert not {one.text for one in training} & {one.text for one in testing}
    assert [one for one in examples if one in training] == training  # in their order


def test_the_usual_share_is_a_tenth_and_at_most_5000():
    many = [text(f"text {number}") for number in range(2000)]
    assert len(dataset.split(many, None)[1]) == 200
    assert len(dataset.split(many[:120], None)[1]) == 12
    assert len(dataset.split(many[:5], None)[1]) == 1
    huge = [text(f"text {number}") for number in range(100_000)]
    assert len(dataset.split(huge, None)[1]) == 5000
    assert len(dataset.split(huge, 0.5)[1]) == 50_000


def test_all_questions_about_a_context_stay_together():
    asked = [
        QuestionExample("f", str(number), f"question {number}", f"context {number % 20}", ()) for number in range(200)
    ]
    training, testing = dataset.split(asked, 0.3)
    assert not {one.context for one in training} & {one.context for one in testing}
    tagged = [TagExample("f", ("word", str(number % 20)), ("O", "O")) for number in range(200)]
    training, testing = dataset.split(tagged, 0.3)
    assert not {one.words for one in training} & {one.words for one in testing}


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (["b", "a", "b"], ("a", "b")),
        (["10", "9", "-1"], ("-1", "9", "10")),  # by size, not by letters
        (["2", "b", "10", "A"], ("2", "10", "A", "b")),
        (["1.5", "2"], ("2", "1.5")),
        (["-", "²", "1"], ("1", "-", "²")),
        (["7", "07", "007", "6"], ("6", "007", "07", "7")),  # as large, but not alike
        (["--1", "0", "-1"], ("-1", "0", "--1")),
        (["9" * 30, "!", "3", "x"], ("3", "!", "9" * 30, "x")),  # too large to be a number, hence letters
        (["9" * 5000, "3"], ("3", "9" * 5000)),
    ],
)
def test_labels_have_an_order(labels: list[str], order: tuple[str, ...]):
    head = dataset.make_head("classify", [text("x", label) for label in labels], DataPart(), 64)
    assert head == Head(task="classify", labels=order, pairs=False)


ORDERED = """
from heedful.data.labelled import TextExample
from heedful.runs.dataset import make_head
from heedful.runs.finetune_options import DataPart

labels = ["7", "07", "007", "0007", "00007", "b", "a", "--1"]
print(make_head("classify", [TextExample("f", "x", None, one) for one in labels], DataPart(), 64).labels)
"""


def test_the_order_of_labels_is_the_same_in_every_process():
    found = {
        subprocess.run(
            [sys.executable, "-c", ORDERED],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": seed},
            check=True,
            timeout=100,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {f"{('00007', '0007', '007', '07', '7', '--1', 'a', 'b')}\n"}


def test_heads_of_every_kind():
    many = [text("x", ("b", "a")), text("x", ())]
    assert dataset.make_head("multilabel", many, DataPart(), 64) == Head(
        task="multilabel", labels=("a", "b"), pairs=False
    )
    one, two = [text("x", (1.0,))], [text("x", (1.0, 2.0))]
    assert dataset.make_head("regress", one, DataPart(), 64).labels == ("score",)
    assert dataset.make_head("regress", one, DataPart(label=("h",)), 64).labels == ("h",)
    jamo = unicodedata.normalize("NFD", "키")
    assert dataset.make_head("regress", one, DataPart(label=(jamo,)), 64).labels == ("키",)
    assert dataset.make_head("regress", two, DataPart(label=("h", "d")), 64).labels == ("h", "d")
    assert dataset.make_head("regress", two, DataPart(label=("both",)), 64).labels == ("number 1", "number 2")
    tags = [TagExample("f", ("a", "b"), ("O", "B-X")), TagExample("f", ("c",), ("I-X",))]
    assert dataset.make_head("tag", tags, DataPart(), 512) == Head(
        task="tag", labels=("B-X", "I-X", "O"), length=256, overlap=64
    )
    asked = [QuestionExample("f", "1", "q", "c", (Answer("c", 0),))]
    answer = dataset.make_head("answer", asked, DataPart(), 512)
    assert answer == Head(task="answer", labels=ANSWER_ENDS, length=384, overlap=128)
    asked.append(QuestionExample("f", "2", "q", "c", ()))
    assert dataset.make_head("answer", asked, DataPart(), 512).may_be_empty


@pytest.mark.parametrize(("task", "targets"), [("classify", "ab"), ("regress", [(1.0,), (2.0,)])])
def test_a_head_knows_whether_it_reads_pairs_and_how_much(task: str, targets: list[object]):
    single = [text("x", target) for target in targets]
    pairs = [text("x", target, "y") for target in targets]
    assert dataset.make_head(task, single, DataPart(length=19), 64).length == 19
    assert dataset.make_head(task, single, DataPart(), 64).length is None  # the model's own
    assert dataset.make_head(task, single, DataPart(), 64).pairs is False
    assert dataset.make_head(task, pairs, DataPart(), 64).pairs is True
    with pytest.raises(UserError, match="name the columns with --text and --pair"):
        dataset.make_head(task, [single[0], pairs[1]], DataPart(), 64)


def test_spans_that_begin_inside_are_refused():
    def made(*tags: str) -> tuple[str, ...]:
        return dataset.make_head("tag", [TagExample("f", tags, tags)], DataPart(), 64).labels

    with pytest.raises(UserError, match="the tags have I-LOC but no B-LOC: spans begin with B- here; convert them"):
        made("O", "I-PER", "I-LOC")
    assert made("O", "B-PER", "I-PER") == ("B-PER", "I-PER", "O")
    assert made("I-like", "nouns") == ("I-like", "nouns")  # tags that mark no spans


def test_what_no_head_can_be_made_of():
    with pytest.raises(UserError, match="every example has the label 'a'; a classifier needs two labels or more"):
        dataset.make_head("classify", [text("x", "a"), text("y", "a")], DataPart(), 64)
    with pytest.raises(UserError, match="no example has a label; there is nothing to learn"):
        dataset.make_head("multilabel", [text("x", ())], DataPart(), 64)


@pytest.mark.parametrize(
    ("task", "part", "positions", "expected"),
    [
        ("tag", DataPart(), 512, (256, 64)),
        ("tag", DataPart(), 48, (48, 12)),
        ("answer", DataPart(), 512, (384, 128)),
        ("answer", DataPart(length=90), 512, (90, 30)),
        ("answer", DataPart(length=90, overlap=0), 512, (90, 0)),
        ("tag", DataPart(length=90, overlap=44), 512, (90, 44)),
    ],
)
def test_windows(task: str, part: DataPart, positions: int, expected: tuple[int, int]):
    assert dataset.window(task, part, positions) == expected


def test_an_overlap_of_half_a_window_is_refused():
    with pytest.raises(UserError, match="overlap 45 is too much for windows of 90 tokens; use 22 or less"):
        dataset.window("tag", DataPart(length=90, overlap=45), 512)


def test_labels_that_the_head_does_not_have_are_flaws():
    head = Head(task="classify", labels=("a", "b"))
    flaw = Flaw("f:9", "broken")
    good, bad, broken = dataset.known(head, iter([text("x", "a"), text("y", "c", where="f:2"), flaw]))
    assert good == text("x", "a")
    assert broken is flaw
    assert str(bad) == (
        "f:2: the label 'c' does not occur in the training data (a, b); mend it, "
        "or pass over such rows with --skip-bad"
    )
    tags = Head(task="tag", labels=("O", "X"))
    found = list(dataset.known(tags, iter([TagExample("f:3", ("u", "v"), ("O", "Y"))])))
    assert isinstance(found[0], Flaw)
    assert "'Y'" in found[0].problem
    many = Head(task="multilabel", labels=("a", "b"))
    found = list(dataset.known(many, iter([text("x", ("a", "z")), text("x", ())])))
    assert [type(one) for one in found] == [Flaw, TextExample]
    numbers = Head(task="regress", labels=("h", "d"))
    found = list(dataset.known(numbers, iter([text("x", (1.0,)), text("x", (1.0, 2.0))])))
    assert [type(one) for one in found] == [Flaw, TextExample]
    assert "1 of the 2 (h, d) numbers that the model gives; name each with --label" in str(found[0])


def test_numbers_are_scaled_to_mean_0_and_deviation_1():
    examples = [text("x", (1.0, -10.0)), text("x", (3.0, -10.0)), text("x", (5.0, -40.0))]
    scaling = dataset.scale(examples)
    assert scaling.mean.tolist() == pytest.approx([3.0, -20.0])
    assert scaling.deviation.tolist() == pytest.approx([(8 / 3) ** 0.5, 200**0.5])
    head = Head(task="regress", labels=("h", "d"))
    found = dataset.targets(head, examples, scaling)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(found.std(0), 1, atol=1e-6)
    np.testing.assert_array_equal(dataset.targets(head, examples), [[1, -10], [3, -10], [5, -40]])


def test_a_number_that_never_changes_is_refused():
    with pytest.raises(UserError, match=r"the numbers lie 30 around 1700000030, too close for .*; subtract"):
        dataset.scale([text("x", (1.7e9,)), text("x", (1.7e9 + 60,))])
    with pytest.raises(UserError, match="every example has the same number 7; there is nothing to learn"):
        dataset.scale([text("x", (1.0, 7.0)), text("x", (2.0, 7.0))])


def test_targets_of_classes_and_labels():
    examples = [text("x", "b"), text("x", "a"), text("x", "b")]
    assert dataset.targets(Head(task="classify", labels=("a", "b")), examples).tolist() == [1, 0, 1]
    many = [text("x", ("c", "a")), text("x", ())]
    found = dataset.targets(Head(task="multilabel", labels=("a", "b", "c")), many)
    assert found.tolist() == [[1, 0, 1], [0, 0, 0]]


def test_weights_make_every_class_count_the_same(tokenizer: Tokenizer):
    head = Head(task="classify", labels=("a", "b", "c"))
    examples = [text("the mill", label) for label in "aaaabbc" + "a" * 5]
    made = dataset.prepare(head, examples, tokenizer, length=48, truncate=False, bad=refuse)
    assert dataset.weights(head, made).tolist() == pytest.approx([12 / 27, 12 / 6, 12 / 3])
    many = Head(task="multilabel", labels=("a", "b"))
    examples = [text("the mill", labels) for labels in [("a",), ("a", "b"), ("a",), ()]]
    made = dataset.prepare(many, examples, tokenizer, length=48, truncate=False, bad=refuse)
    assert dataset.weights(many, made).tolist() == pytest.approx([1 / 3, 3 / 1])
    everywhere = replace(made, targets=np.ones_like(made.targets))
    assert dataset.weights(many, everywhere).tolist() == pytest.approx([1 / 4, 1 / 4])
    tags = Head(task="tag", labels=("O", "X"), length=48, overlap=12)
    sentences = [TagExample("f", ("the", "mill", "is"), ("O", "X", "O"))]
    made = dataset.prepare(tags, sentences, tokenizer, length=48, truncate=False, bad=refuse)
    assert dataset.weights(tags, made).tolist() == pytest.approx([3 / 4, 3 / 2])  # neither [CLS] nor [SEP]


def test_texts_that_are_too_long_are_refused_or_cut(tokenizer: Tokenizer):
    head = Head(task="classify", labels=("a", "b"))
    examples = [text("the mill", "a"), text("mill " * 50, "b", where="f:2"), text("a mill", "b")]
    bad: list[Flaw] = []
    made = dataset.prepare(head, examples, tokenizer, length=9, truncate=False, bad=bad.append)
    assert [str(flaw) for flaw in bad] == [
        "f:2: 52 tokens, of which 9 can be read; shorten it, or let it be cut (--truncate, in Python truncate=True)"
    ]
    assert np.asarray(made.targets).tolist() == [0, 1]
    assert (len(made.inputs), made.cut) == (2, 0)
    made = dataset.prepare(head, examples, tokenizer, length=9, truncate=True, bad=refuse)
    assert np.asarray(made.targets).tolist() == [0, 1, 1]
    assert [len(one.ids) for one in made.inputs] == [4, 9, 4]
    assert made.cut == 1


def test_both_texts_of_a_pair_are_read(tokenizer: Tokenizer):
    head = Head(task="classify", labels=("a", "b"), pairs=True)
    examples = [text("the mill", "a", "a river")]
    made = dataset.prepare(head, examples, tokenizer, length=48, truncate=False, bad=refuse)
    ids = [tokenizer.cls, *tokenizer.encode(["the mill"])[0], tokenizer.sep]
    assert made.inputs[0].ids.tolist() == [*ids, *tokenizer.encode(["a river"])[0], tokenizer.sep]


def test_tags_stand_at_the_first_token_of_each_word_once(tokenizer: Tokenizer):
    head = Head(task="tag", labels=("O", "X"), length=10, overlap=2)
    words = ("the", "mill.is", "fine", "and", "the", "river", "is", "cold", ".", "a", "heron", "was", "in", "oslo")
    tags = tuple("X" if number % 3 == 1 else "O" for number in range(len(words)))
    made = dataset.prepare(head, [TagExample("f", words, tags)], tokenizer, length=99, truncate=False, bad=refuse)
    assert len(made.inputs) > 1
    read = []
    for one, target in zip(made.inputs, made.targets, strict=True):
        assert len(one.ids) == len(target) <= 10
        assert {target[0], target[-1]} == {dataset.NOT_READ}
        read += [(int(one.ids[place]), int(target[place])) for place in np.flatnonzero(target != dataset.NOT_READ)]
    firsts = [tokenizer.encode([word])[0][0] for word in words]
    assert sorted(read) == sorted(zip(firsts, [int(tag == "X") for tag in tags], strict=True))


def test_answers_are_tokens_of_the_windows_that_hold_them(tokenizer: Tokenizer):
    head = Head(task="answer", labels=ANSWER_ENDS, length=14, overlap=4)
    context = "the mill is fine . the river is cold . anna lives in oslo ."
    asked = [
        QuestionExample("f", "1", "who ?", context, (Answer("anna", context.index("anna")), Answer("the", 0))),
        QuestionExample("f", "2", "where ?", context, ()),
    ]
    made = dataset.prepare(head, asked, tokenizer, length=99, truncate=False, bad=refuse)
    ends = np.asarray(made.targets)
    assert ends.shape == (len(made.inputs), 2)
    half = len(made.inputs) // 2
    anna = tokenizer.encode(["anna"])[0][0]
    for one, (first, last) in zip(made.inputs[:half], ends[:half], strict=True):
        held = anna in one.ids.tolist()
        assert (one.ids[first] == anna) == (one.ids[last] == anna) == held
        assert held or first == last == 0
    assert any(first for first, _ in ends[:half])
    assert not ends[half:].any()
    bad: list[Flaw] = []
    long = QuestionExample("f:7", "3", "who " * 20, context, ())
    made = dataset.prepare(head, [long], tokenizer, length=99, truncate=False, bad=bad.append)
    assert str(bad[0]).startswith("f:7: the question leaves no room for its context in 14 tokens")
    assert np.asarray(made.targets).shape == (0, 2)


def test_lists_make_a_classifier_of_several_labels(tmp_path: Path, labelled_files: Files):
    many, one = labelled_files("many", 40), labelled_files("classify", 40)
    assert dataset.task_of("classify", [many], DataPart()) == "multilabel"
    assert dataset.task_of("classify", [one], DataPart()) == "classify"
    assert dataset.task_of("classify", [one], DataPart(many_labels=True)) == "multilabel"
    assert dataset.task_of("regress", [many], DataPart()) == "regress"


def test_files_are_read_one_after_the_other(tmp_path: Path):
    for number in (1, 2):
        rows = [{"text": f"text {number}{row}", "label": "a"} for row in range(3)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = dataset.files([str(tmp_path / "2.jsonl"), str(tmp_path / "1.jsonl")])
    texts = [one.text for one in dataset.read("classify", found, DataPart())]
    assert texts == ["text 20", "text 21", "text 22", "text 10", "text 11", "text 12"]
    assert sorted(dataset.files([str(tmp_path)])) == [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]


def test_a_json_of_questions_is_a_file_though_no_table(labelled_files: Files):
    file = labelled_files("answer", 40)
    assert dataset.files([str(file)]) == [file]
    assert len(list(dataset.read("answer", [file], DataPart()))) == 40


def test_flaws_stop_or_are_counted():
    items = [text("x", "a"), Flaw("f:2", "broken"), text("y", "b")]
    skipped: list[Flaw] = []
    assert dataset.all_sound(iter(items), DataPart(skip_bad=True), skipped) == [items[0], items[2]]
    assert skipped == [items[1]]
    with pytest.raises(UserError, match="f:2: broken"):
        dataset.all_sound(iter(items), DataPart(), [])
