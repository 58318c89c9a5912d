import json
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from heedful.data import labelled, questions, tagged
from heedful.data.columns import Columns
from heedful.errors import UserError
from heedful.metrics.answers import f1
from heedful.models.heads import ANSWER_ENDS, Head
from heedful.predict import load
from heedful.runs.evaluate import Evaluation, as_json, evaluate, lines, write_predictions
from heedful.runs.finetune_options import DataPart

Files = Callable[..., Path]
Headed = Callable[..., Path]
CLASSES = Head(task="classify", labels=("bad", "good"))
NUMBERS = Head(task="regress", labels=("height", "depth"))


@pytest.fixture(scope="module")
def classified(headed: Headed, labelled_files: Files) -> Evaluation:
    """A model that knows nothing, hence is wrong about half the time."""
    return evaluate(load(headed(CLASSES), "cpu"), [labelled_files("classify", 40)], DataPart())


def test_classes_are_counted_as_they_fall(classified: Evaluation, headed: Headed, labelled_files: Files):
    file = labelled_files("classify", 40)
    rows = list(labelled.examples(file, Columns(), target="label"))
    found = load(headed(CLASSES), "cpu").classify([row.text for row in rows])
    pairs = Counter((row.target, one.label) for row, one in zip(rows, found, strict=True))
    assert classified.report.confusion is not None
    assert classified.report.confusion.tolist() == [
        [pairs[truth, given] for given in CLASSES.labels] for truth in CLASSES.labels
    ]
    right = pairs["bad", "bad"] + pairs["good", "good"]
    assert classified.report.scores["accuracy"] == pytest.approx(right / 40)
    assert 0 < right < 40


def test_the_worst_mistakes_are_those_it_was_surest_of(classified: Evaluation):
    wrong = [
        (answer.probability, example.where)
        for example, answer in zip(classified.examples, classified.answers, strict=True)
        if answer.label != example.target
    ]
    worst = sorted(wrong, reverse=True)[:5]
    assert [(one.confidence, one.where) for one in classified.mistakes] == worst
    for one in classified.mistakes:
        assert one.answer != one.truth
        number = int(one.where.rpartition(":")[2])
        line = Path(one.where.rpartition(":")[0]).read_text(encoding="utf-8").splitlines()[number - 1]
        assert line == f"{one.text},{one.truth}"  # it is at the line that is told


def test_the_lines_for_people(classified: Evaluation):
    said = lines(classified)
    assert said[0] == "40 examples"
    accuracy = classified.report.scores["accuracy"]
    assert any(line.split() == ["accuracy", f"{accuracy:.2%}"] for line in said)
    at = said.index("truth (down) taken for (across):")
    assert said[at + 1].split() == ["bad", "good"]
    assert classified.report.confusion is not None
    assert [line.split() for line in said[at + 2 : at + 4]] == [
        [label, *map(str, row)]
        for label, row in zip(CLASSES.labels, classified.report.confusion.tolist(), strict=True)
    ]
    at = said.index("worst mistakes:")
    one = classified.mistakes[0]
    assert said[at + 1] == f"  {one.confidence:.1%} sure: {one.answer}, but it is {one.truth}  ({one.where})"
    assert said[at + 2].strip() == one.text
    assert len(said) == at + 1 + 2 * 5
    assert not any("skipped" in line or "too long" in line for line in said)


def test_tables_stand_straight_where_letters_are_wide(classified: Evaluation):
    head = replace(CLASSES, labels=("정치와 社會", "sport"))
    classes = [one._replace(label=label) for one, label in zip(classified.report.classes, head.labels, strict=True)]
    said = lines(replace(classified, head=head, report=classified.report._replace(classes=classes)))
    at = next(number for number, line in enumerate(said) if "precision" in line and "recall" in line)
    assert len({cell_len(line) for line in said[at : at + 3]}) == 1
    at = said.index("truth (down) taken for (across):")
    matrix = classified.report.confusion
    assert matrix is not None
    assert said[at + 1 : at + 4] == [
        "             정치와 社會  sport",
        f"정치와 社會  {matrix[0, 0]:>11}  {matrix[0, 1]:>5}",
        f"sport        {matrix[1, 0]:>11}  {matrix[1, 1]:>5}",
    ]


def test_json_holds_the_same(classified: Evaluation):
    found = json.loads(json.dumps(as_json(classified)))
    assert (found["examples"], found["skipped"], found["labels"]) == (40, 0, ["bad", "good"])
    assert found["scores"] == classified.report.scores
    assert classified.report.confusion is not None
    assert found["confusion"] == classified.report.confusion.tolist()
    assert [one["where"] for one in found["worst"]] == [one.where for one in classified.mistakes]
    assert sum(one["count"] for one in found["classes"]) == 40


def test_predictions_are_one_object_an_example(classified: Evaluation, tmp_path: Path):
    write_predictions(classified, tmp_path / "said.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 40
    for row, example, answer in zip(rows, classified.examples, classified.answers, strict=True):
        assert (row["where"], row["truth"], row["label"]) == (example.where, example.target, answer.label)
        assert sum(row["probabilities"].values()) == pytest.approx(1)


def test_as_many_mistakes_as_asked(headed: Headed, labelled_files: Files):
    predictor = load(headed(CLASSES), "cpu")
    files = [labelled_files("classify", 40)]
    assert len(evaluate(predictor, files, DataPart(), worst=2).mistakes) == 2
    none = evaluate(predictor, files, DataPart(), worst=0)
    assert none.mistakes == []
    assert "worst mistakes:" not in lines(none)


def test_several_files_are_one_set(headed: Headed, labelled_files: Files):
    predictor = load(headed(CLASSES), "cpu")
    found = evaluate(predictor, [labelled_files("classify", 40), labelled_files("classify", 30, 3)], DataPart())
    assert len(found.examples) == 70


def test_numbers_have_a_table_of_their_own(headed: Headed, labelled_files: Files, tmp_path: Path):
    file = labelled_files("regress", 40)
    found = evaluate(load(headed(NUMBERS), "cpu"), [file], DataPart(label=("height", "depth")))
    said = lines(found)
    assert any(line.split()[:1] == ["height"] for line in said)
    assert any(line.split()[:1] == ["depth"] for line in said)
    off = [
        max(abs(answer["height"] - example.target[0]), abs(answer["depth"] - example.target[1]))
        for example, answer in zip(found.examples, found.answers, strict=True)
    ]
    assert [one.confidence for one in found.mistakes] == pytest.approx(sorted(off, reverse=True)[:5])
    assert f"  off by {max(off):,.4g}: " in "\n".join(said)
    assert as_json(found)["targets"].keys() == {"height", "depth"}
    assert as_json(found)["confusion"] is None
    write_predictions(found, tmp_path / "said.jsonl")
    row = json.loads((tmp_path / "said.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert row["truth"] == dict(zip(("height", "depth"), found.examples[0].target, strict=True))
    assert row["height"] == found.answers[0]["height"]


def test_numbers_are_taken_by_the_names_of_their_columns(headed: Headed, labelled_files: Files, tmp_path: Path):
    predictor, file = load(headed(NUMBERS), "cpu"), labelled_files("regress", 40)
    found = {
        order: evaluate(predictor, [file], DataPart(label=order))
        for order in (("height", "depth"), ("depth", "height"), ())
    }
    for one in found.values():
        assert one.report.scores == found["height", "depth"].report.scores
        assert all(example.target[0] > 900 > example.target[1] for example in one.examples)
    with pytest.raises(
        UserError, match=r"csv:2: 1 of the 2 \(height, depth\) numbers that the model gives; name each"
    ):
        evaluate(predictor, [file], DataPart(label=("depth",)))
    rows = [json.dumps({"text": f"the mill {n}", "labels": [1000.0 + n, n]}) for n in range(9)]
    (tmp_path / "lists.jsonl").write_text("\n".join(rows), encoding="utf-8")
    unnamed = load(headed(Head(task="regress", labels=("number 1", "number 2"))), "cpu")
    assert evaluate(unnamed, [tmp_path / "lists.jsonl"], DataPart()).examples[3].target == (1003.0, 3.0)


@pytest.mark.parametrize(("pairs", "kind", "said"), [(True, "classify", "one text"), (False, "pairs", "a pair of")])
def test_pairs_and_single_texts_are_not_taken_for_each_other(
    headed: Headed, labelled_files: Files, pairs: bool, kind: str, said: str
):
    labels = ("bad", "good") if kind == "classify" else ("0", "1")
    predictor, file = load(headed(Head(task="classify", labels=labels, pairs=pairs)), "cpu"), labelled_files(kind, 40)
    with pytest.raises(UserError, match=rf"sv:2: {said}.*, but the model was trained on"):
        evaluate(predictor, [file], DataPart())
    either = load(headed(Head(task="classify", labels=labels)), "cpu")  # of which nobody knows
    assert len(evaluate(either, [file], DataPart()).examples) == 40


def test_several_labels(headed: Headed, labelled_files: Files, tmp_path: Path):
    head = Head(task="multilabel", labels=("baker", "mill", "river"))
    found = evaluate(load(headed(head), "cpu"), [labelled_files("many", 40)], DataPart())
    exact = sum(
        set(answer.labels) == set(example.target)
        for example, answer in zip(found.examples, found.answers, strict=True)
    )
    assert found.report.scores["exact"] == pytest.approx(exact / 40)
    assert found.mistakes
    assert all(0.5 <= one.confidence <= 1 and one.truth != one.answer for one in found.mistakes)
    write_predictions(found, tmp_path / "said.jsonl")
    row = json.loads((tmp_path / "said.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert row["truth"] == list(found.examples[0].target)


def test_tags(headed: Headed, labelled_files: Files, tmp_path: Path):
    head = Head(task="tag", labels=("B-LOC", "B-PER", "I-PER", "O"), length=48, overlap=12)
    file = labelled_files("conll", 40)
    found = evaluate(load(headed(head), "cpu"), [file], DataPart())
    assert [one.words for one in found.examples] == [one.words for one in tagged.examples(file)]
    pairs = [
        (truth, given)
        for example, answer in zip(found.examples, found.answers, strict=True)
        for truth, given in zip(example.tags, answer.tags, strict=True)
    ]
    accuracy = sum(truth == given for truth, given in pairs) / len(pairs)
    assert found.report.scores["accuracy"] == pytest.approx(accuracy)
    one = found.mistakes[0]
    tag, _, word = one.truth.partition(" at ")
    assert tag in head.labels
    assert one.answer in head.labels
    assert word.strip("'") in one.text.split()
    write_predictions(found, tmp_path / "said.jsonl")
    row = json.loads((tmp_path / "said.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert row["truth"] == list(found.examples[0].tags)
    assert row["tags"] == found.answers[0].tags


def test_answers(headed: Headed, labelled_files: Files, tmp_path: Path):
    head = Head(task="answer", labels=ANSWER_ENDS, length=48, overlap=16, may_be_empty=True)
    file = labelled_files("answer", 40)
    found = evaluate(load(headed(head), "cpu"), [file], DataPart(), worst=40)
    rows = list(questions.examples(file))
    wrong = {
        row.where
        for row, answer in zip(rows, found.answers, strict=True)
        if f1([one.text for one in row.answers], answer[0].text) == 0
    }
    assert {one.where for one in found.mistakes} == wrong
    unanswerable = {row.where for row in rows if not row.answers} & wrong
    assert {one.where for one in found.mistakes if one.truth == "no answer"} == unanswerable != set()
    write_predictions(found, tmp_path / "said.jsonl")
    row = json.loads((tmp_path / "said.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert row["truth"] == [one.text for one in rows[0].answers]
    assert row["text"] == found.answers[0][0].text


def test_unknown_labels_stop_it_or_are_counted(headed: Headed, tmp_path: Path):
    file = tmp_path / "data.csv"
    file.write_text("text,label\nthe mill,good\nthe mill,ugly\na mill,bad\n", encoding="utf-8")
    predictor = load(headed(CLASSES), "cpu")
    with pytest.raises(UserError, match=r"data\.csv:3: the label 'ugly' does not occur in the training data"):
        evaluate(predictor, [file], DataPart())
    found = evaluate(predictor, [file], DataPart(skip_bad=True))
    assert [one.where for one in found.examples] == [f"{file}:2", f"{file}:4"]
    assert as_json(found)["skipped"] == 1
    assert lines(found)[:2] == [
        "2 examples",
        f"skipped 1 bad row: {file}:3: the label 'ugly' does not occur in the training data (bad, good); mend it",
    ]
    file.write_text("text,label\nthe mill,ugly\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"holds no examples to evaluate on: 1 bad row: .*'ugly'"):
        evaluate(predictor, [file], DataPart(skip_bad=True))


def test_long_texts_are_refused_or_cut(headed: Headed, tmp_path: Path):
    file = tmp_path / "data.csv"
    file.write_text(f"text,label\n{'word ' * 20000},good\nthe mill,bad\n", encoding="utf-8")
    predictor = load(headed(CLASSES), "cpu")
    with pytest.raises(UserError, match=r"data\.csv:2: 20,002 tokens, of which 48 can be read"):
        evaluate(predictor, [file], DataPart())
    cut = evaluate(predictor, [file], DataPart(truncate=True), worst=9)
    assert len(cut.examples) == 2
    assert lines(cut)[:2] == ["2 examples", "1 text is too long; only the beginning is read"]
    assert all(len(one.text) <= 150 for one in cut.mistakes)


def test_a_model_without_a_head(encoder: Path, labelled_files: Files):
    with pytest.raises(UserError, match="has no head to evaluate; train one with `heedful finetune"):
        evaluate(load(encoder, "cpu"), [labelled_files("classify", 40)], DataPart())


@pytest.mark.parametrize(("made", "read"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_labels_in_another_form_are_the_same(headed: Headed, tmp_path: Path, made: str, read: str):
    """Also where the folder was made with labels as a Mac writes them."""
    head = Head(task="classify", labels=tuple(unicodedata.normalize(made, label) for label in ("긍정", "부정")))
    file = tmp_path / "a.csv"
    file.write_text(unicodedata.normalize(read, "리뷰,라벨\nthe mill,긍정\nthe river,부정\n"), encoding="utf-8")
    part = DataPart(text=unicodedata.normalize(made, "리뷰"))
    result = evaluate(load(headed(head), "cpu"), [file], part)
    assert [one.target for one in result.examples] == ["긍정", "부정"]
    assert result.head.labels == ("긍정", "부정")


def test_labels_of_a_folder_that_differ_in_form_alone_stay(headed: Headed):
    labels = tuple(unicodedata.normalize(form, "긍정") for form in ("NFC", "NFD"))
    assert load(headed(Head(task="classify", labels=labels)), "cpu").head.labels == labels


def test_numbers_named_in_another_form_are_in_the_order_of_the_model(headed: Headed, tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text("text,키,깊이\nthe mill,3,5\nthe river,7,11\n", encoding="utf-8")
    part = DataPart(label=tuple(unicodedata.normalize("NFD", label) for label in ("깊이", "키")))
    result = evaluate(load(headed(Head(task="regress", labels=("키", "깊이"))), "cpu"), [file], part)
    assert [one.target for one in result.examples] == [(3, 5), (7, 11)]
