import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from heedful.data.columns import Columns
from heedful.errors import UserError
from heedful.models.heads import ANSWER_ENDS, Head
from heedful.predict import Predictor, load
from heedful.predict.reading import Pace
from heedful.runs.prediction import Asking, predict

Files = Callable[..., Path]
Headed = Callable[..., Path]
CLASSES = Head(task="classify", labels=("bad", "good"))
MANY = Head(task="multilabel", labels=("baker", "mill", "river"))
NUMBERS = Head(task="regress", labels=("height", "depth"))
TAGS = Head(task="tag", labels=("B-LOC", "B-PER", "I-PER", "O"), length=48, overlap=12)
ANSWERS = Head(task="answer", labels=ANSWER_ENDS, length=48, overlap=16)
TEXTS = ["the mill is fine .", "a river", "the baker was in oslo and the harbour is cold .", "grim"]


@pytest.fixture(scope="module")
def predictors(headed: Headed) -> dict[str, Predictor]:
    return {head.task: load(headed(head), "cpu") for head in (CLASSES, MANY, NUMBERS, TAGS, ANSWERS)}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def asking(**changes: object) -> Asking:
    return Asking(columns=Columns(), **changes)  # type: ignore[arg-type]


def said(path: Path, predictor: Predictor, source: Path | None, form: str = "jsonl", **changes: object) -> list[str]:
    """The lines that are written to a file, of which there is nothing more to say."""
    assert predict(predictor, source, path, form, asking(**changes)) is None
    return path.read_text(encoding="utf-8").splitlines()


def test_classes(predictors: dict[str, Predictor], texts: Path, tmp_path: Path):
    expected = predictors["classify"].classify(TEXTS)
    rows = [json.loads(line) for line in said(tmp_path / "out", predictors["classify"], texts)]
    assert [row["label"] for row in rows] == [one.label for one in expected]
    assert [row["probability"] for row in rows] == pytest.approx([one.probability for one in expected])
    assert all(row.keys() == {"label", "probability"} for row in rows)
    rows = [json.loads(line) for line in said(tmp_path / "all", predictors["classify"], texts, every=True, echo=True)]
    assert [row["text"] for row in rows] == TEXTS
    assert rows[0]["probabilities"] == pytest.approx(expected[0].probabilities)


def test_classes_as_a_table(predictors: dict[str, Predictor], texts: Path, tmp_path: Path):
    expected = predictors["classify"].classify(TEXTS)
    header, *lines = said(tmp_path / "out", predictors["classify"], texts, "tsv", every=True, echo=True)
    assert header.split("\t") == ["text", "label", "probability", "bad", "good"]
    for line, given, one in zip(lines, TEXTS, expected, strict=True):
        text, label, *numbers = line.split("\t")
        assert (text, label) == (given, one.label)
        assert [float(number) for number in numbers] == pytest.approx(
            [one.probability, one.probabilities["bad"], one.probabilities["good"]], abs=1e-5
        )
    assert said(tmp_path / "short", predictors["classify"], texts, "tsv")[0] == "label\tprobability"


def test_labels_and_numbers(predictors: dict[str, Predictor], texts: Path, tmp_path: Path):
    expected = predictors["multilabel"].classify(TEXTS)
    rows = [json.loads(line) for line in said(tmp_path / "many", predictors["multilabel"], texts)]
    assert [row["labels"] for row in rows] == [one.labels for one in expected]
    assert [list(row["probabilities"]) for row in rows] == [one.labels for one in expected]
    header, *lines = said(tmp_path / "many.tsv", predictors["multilabel"], texts, "tsv", every=True)
    assert header == "labels\tbaker\tmill\triver"
    assert [line.split("\t")[0] for line in lines] == [",".join(one.labels) for one in expected]

    numbers = predictors["regress"].regress(TEXTS)
    rows = [json.loads(line) for line in said(tmp_path / "numbers", predictors["regress"], texts)]
    assert rows == [pytest.approx(one) for one in numbers]
    header, *lines = said(tmp_path / "numbers.tsv", predictors["regress"], texts, "tsv")
    assert header == "height\tdepth"
    assert float(lines[2].split("\t")[1]) == pytest.approx(numbers[2]["depth"], rel=1e-4)


def test_tags(predictors: dict[str, Predictor], texts: Path, tmp_path: Path):
    expected = predictors["tag"].tag(TEXTS)
    rows = [json.loads(line) for line in said(tmp_path / "out", predictors["tag"], texts)]
    assert [(row["words"], row["tags"]) for row in rows] == [(one.words, one.tags) for one in expected]
    for row, text in zip(rows, TEXTS, strict=True):
        for entity in row["entities"]:
            assert text[entity["start"] : entity["end"]] == entity["text"]
    written = "\n".join(said(tmp_path / "out.tsv", predictors["tag"], texts, "tsv"))
    blocks = ["".join(f"{word}\t{tag}\n" for word, tag in zip(one.words, one.tags, strict=True)) for one in expected]
    assert written + "\n" == "\n".join(blocks) + "\n"


@pytest.mark.parametrize("kind", ["conll", "tags"])
def test_words_that_are_there_already_are_taken_as_they_are(
    predictors: dict[str, Predictor], labelled_files: Files, tmp_path: Path, kind: str
):
    file = labelled_files(kind, 40)
    rows = [json.loads(line) for line in said(tmp_path / "out", predictors["tag"], file)]
    sentences = [json.loads(line)["tokens"] for line in labelled_files("tags", 40).read_text("utf-8").splitlines()]
    assert [row["words"] for row in rows] == sentences


def test_words_are_known_by_their_tags(predictors: dict[str, Predictor], labelled_files: Files, tmp_path: Path):
    content = labelled_files("conll", 40).read_text("utf-8")
    sentences = [json.loads(line)["tokens"] for line in labelled_files("tags", 40).read_text("utf-8").splitlines()]
    source = tmp_path / "words.txt"
    source.write_text(f"\n{content}", encoding="utf-8")
    rows = [json.loads(line) for line in said(tmp_path / "words", predictors["tag"], source)]
    assert [row["words"] for row in rows] == sentences
    source.write_text("anna\tlives\n", encoding="utf-8")  # a tab, but no tag of the model behind it
    assert [json.loads(line)["words"] for line in said(tmp_path / "text", predictors["tag"], source)] == [
        ["anna", "lives"]
    ]


def test_a_column_of_words_in_any_case(predictors: dict[str, Predictor], tmp_path: Path):
    source = tmp_path / "words.jsonl"
    source.write_text('{"Tokens": ["anna.b", "lives"]}\n', encoding="utf-8")
    (line,) = said(tmp_path / "out", predictors["tag"], source)
    assert json.loads(line)["words"] == ["anna.b", "lives"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("words.txt", b"an\xffna\tO\n"), ("words.jsonl", b'{"tokens": ["an\xffna"]}\n'), ("text.txt", b"an\xffna\n")],
)
def test_bytes_that_are_no_text_are_replaced_where_tags_are_asked_for(
    predictors: dict[str, Predictor], tmp_path: Path, name: str, content: bytes
):
    source = tmp_path / name
    source.write_bytes(content)
    with pytest.raises(UserError, match="byte 0xff is not UTF-8"):
        predict(predictors["tag"], source, tmp_path / "out", "jsonl", asking())
    (line,) = said(tmp_path / "out", predictors["tag"], source, errors="replace")
    assert "".join(json.loads(line)["words"]).startswith("an")


def test_who_only_asks_may_ask_twice(predictors: dict[str, Predictor], tmp_path: Path):
    source = tmp_path / "asked.jsonl"
    row = json.dumps({"id": "a", "question": "who ?", "context": "anna lives in oslo ."})
    source.write_text(f"{row}\n{row}\n", encoding="utf-8")
    first, second = said(tmp_path / "out", predictors["answer"], source)
    assert first == second


def test_pairs_and_single_texts_are_not_taken_for_each_other(headed: Headed, labelled_files: Files, tmp_path: Path):
    predictor = load(headed(Head(task="classify", labels=("0", "1"), pairs=True)), "cpu")
    assert len(said(tmp_path / "out", predictor, labelled_files("pairs", 40))) == 40
    source = labelled_files("classify", 40)
    with pytest.raises(UserError, match=r"csv:2: one text, but the model was trained on pairs; name both columns"):
        predict(predictor, source, None, "jsonl", asking())


def test_answers(predictors: dict[str, Predictor], labelled_files: Files, tmp_path: Path):
    file = labelled_files("answer", 40)
    asked = [one for part in json.loads(file.read_text("utf-8"))["data"] for one in part["paragraphs"]]
    expected = predictors["answer"].answer([(one["qas"][0]["question"], one["context"]) for one in asked], n_best=2)
    rows = [json.loads(line) for line in said(tmp_path / "out", predictors["answer"], file, n_best=2, echo=True)]
    assert [row["id"] for row in rows] == [f"q{number}" for number in range(40)]
    assert [row["text"] for row in rows] == [one[0].text for one in expected]
    assert [row["n_best"][1]["text"] for row in rows] == [one[1].text for one in expected]
    assert rows[0]["question"] == asked[0]["qas"][0]["question"]
    header, *lines = said(tmp_path / "out.tsv", predictors["answer"], file, "tsv")
    assert header == "id\tanswer\tprobability"
    assert lines[3].split("\t")[:2] == ["q3", expected[3][0].text]
    with pytest.raises(UserError, match="questions come from a file"):
        predict(predictors["answer"], None, None, "jsonl", asking())


def test_the_order_is_kept_across_chunks(
    predictors: dict[str, Predictor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Predictor, "pace", lambda *_: Pace(7))
    given = [" ".join(["mill"] * (1 + number * 13 % 29)) for number in range(40)]
    source = tmp_path / "texts.txt"
    source.write_text("\n".join(given) + "\n", encoding="utf-8")
    rows = [json.loads(line) for line in said(tmp_path / "out", predictors["classify"], source, echo=True)]
    assert [row["text"] for row in rows] == given
    alone = [predictors["classify"].classify(one).probability for one in given]
    assert [row["probability"] for row in rows] == pytest.approx(alone, abs=1e-6)


BAD = ["the mill", "", "the river", "mill " * 60, "fine"]
"""Empty in line 2, too long in line 4."""


@pytest.mark.parametrize("form", ["jsonl", "tsv"])
@pytest.mark.parametrize("task", ["classify", "multilabel", "regress"])
def test_bad_rows_keep_their_place(predictors: dict[str, Predictor], tmp_path: Path, form: str, task: str):
    source, out = tmp_path / "texts.txt", tmp_path / "out"
    source.write_text("\n".join(BAD) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"texts\.txt:2: the text is empty"):
        predict(predictors[task], source, out, form, asking())
    assert list(tmp_path.iterdir()) == [source]  # no half of an answer
    remark = predict(predictors[task], source, out, form, asking(skip_bad=True, every=True))
    assert remark == f"no answer to 2 bad rows, the first: {source}:2: the text is empty; fill it in"
    lines = out.read_text(encoding="utf-8").split("\n")[:-1]
    if form == "jsonl":
        rows = [json.loads(line) for line in lines]
        assert [list(row) == ["error"] for row in rows] == [False, True, False, True, False]
        assert rows[1]["error"] == f"{source}:2: the text is empty; fill it in"
        assert rows[3]["error"].startswith(f"{source}:4: 62 tokens, of which 48 can be read")
    else:
        header, *rows = lines
        assert [not row.strip() for row in rows] == [False, True, False, True, False]
        assert {row.count("\t") for row in rows} == {header.count("\t")}


def test_cut_texts_are_answered(predictors: dict[str, Predictor], tmp_path: Path):
    source = tmp_path / "texts.txt"
    source.write_text("mill " * 60 + "\n", encoding="utf-8")
    remark = predict(predictors["classify"], source, tmp_path / "out", "jsonl", asking(truncate=True))
    assert remark == "1 text is too long; only the beginning is read"
    (row,) = [json.loads(line) for line in (tmp_path / "out").read_text(encoding="utf-8").splitlines()]
    assert row["probability"] == pytest.approx(predictors["classify"].classify("mill " * 46).probability)


def test_columns_of_a_table(predictors: dict[str, Predictor], labelled_files: Files, tmp_path: Path):
    source = labelled_files("pairs", 40)
    rows = [json.loads(line) for line in said(tmp_path / "out", predictors["classify"], source, echo=True)]
    pairs = [tuple(line.split("\t")[:2]) for line in source.read_text("utf-8").splitlines()[1:]]
    assert [(row["text"], row["pair"]) for row in rows] == pairs
    expected = predictors["classify"].classify(pairs)
    assert [row["probability"] for row in rows] == pytest.approx([one.probability for one in expected])
    _, line, *_ = said(tmp_path / "out.tsv", predictors["classify"], source, "tsv", echo=True)
    assert line.startswith(" | ".join(pairs[0]) + "\t")


def test_a_tab_in_a_text_does_not_break_the_table(predictors: dict[str, Predictor], tmp_path: Path):
    source = tmp_path / "texts.jsonl"
    source.write_text('{"text": "the\\tmill\\nis fine"}\n', encoding="utf-8")
    lines = said(tmp_path / "out", predictors["classify"], source, "tsv", echo=True)
    assert len(lines) == 2
    assert lines[1].split("\t")[0] == "the mill is fine"


class Input(io.BytesIO):
    """Standard input that is a pipe, or a person."""

    def __init__(self, data: bytes, typed: bool = False) -> None:
        super().__init__(data)
        self.buffer = self
        self.isatty = lambda: typed


def test_standard_input(predictors: dict[str, Predictor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    expected = predictors["classify"].classify(TEXTS)
    monkeypatch.setattr("sys.stdin", Input("\n".join(TEXTS).encode()))
    rows = [json.loads(line) for line in said(tmp_path / "out", predictors["classify"], None)]
    assert [row["probability"] for row in rows] == pytest.approx([one.probability for one in expected])
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UserError, match="standard input is closed; name a file to read"):
        predict(predictors["classify"], None, None, "jsonl", asking())


def test_what_is_typed_is_answered_line_by_line(
    predictors: dict[str, Predictor], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    real, answered = Input("\n".join(TEXTS).encode() + b"\n", typed=True), []

    def readline(size: int) -> bytes:
        answered.append(capsys.readouterr().out.count("\n"))
        return io.BytesIO.readline(real, size)

    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=SimpleNamespace(readline=readline), isatty=lambda: True))
    assert predict(predictors["classify"], None, None, "jsonl", asking()) is None
    assert answered == [0, 1, 1, 1, 1]  # each line before the next is waited for


def test_nothing_to_read_is_told_in_every_form(
    predictors: dict[str, Predictor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An empty file is a mistake, and leaves none behind; an empty stream may be one that has ended."""
    (tmp_path / "empty.txt").touch()
    for form in ("jsonl", "tsv"):
        with pytest.raises(UserError, match=r"empty\.txt holds nothing to answer; give a file that does"):
            predict(predictors["classify"], tmp_path / "empty.txt", tmp_path / form, form, asking())
        assert not (tmp_path / form).exists()
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(), isatty=lambda: False))
        remark = predict(predictors["classify"], None, tmp_path / f"stream.{form}", form, asking())
        assert remark == "there was nothing to read"


def test_what_is_there_is_not_overwritten(predictors: dict[str, Predictor], texts: Path, tmp_path: Path):
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="out exists already; choose another --out"):
        predict(predictors["classify"], texts, tmp_path / "out", "jsonl", asking())
    assert (tmp_path / "out").read_text(encoding="utf-8") == "mine"


def test_an_encoder_has_nothing_to_say(encoder: Path, texts: Path):
    with pytest.raises(UserError, match="`heedful embed` gives its vectors, `heedful finetune` gives it a head"):
        predict(load(encoder, "cpu"), texts, None, "jsonl", asking())
