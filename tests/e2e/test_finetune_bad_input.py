"""Whatever is wrong with labelled data, or with what is asked of it, ends as one line that says what to do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heedful.models.heads import ANSWER_ENDS, Head

Files = Callable[..., Path]
Headed = Callable[..., Path]
Shell = Any  # tests/e2e/conftest.py has it
SMALL = ("--epochs", "1", "--batch", "16", "--lr", "1e-3", "--device", "cpu")
OR_SKIP = "or pass over such rows with --skip-bad"
LONG = "word " * 20_000
"""100,000 characters."""


def finetune(shell: Shell, model: Path, train: Path, task: str, *more: str | Path) -> list[str | Path]:
    return ["finetune", model, train, "--task", task, "--out", shell.home / "out", *SMALL, *more]


ROWS = {
    "a column too few": ("classify", "the mill is fine\n", "1 field under 2 columns; fill in the missing ones"),
    "a column too many": (
        "classify",
        "the mill,is fine,good\n",
        "3 fields under 2 columns; put quotes around a field that holds a comma",
    ),
    "an empty text": ("classify", " ,good\n", f"the text is empty (column 'text'); fill it in, {OR_SKIP}"),
    "an empty label": ("classify", "the mill,\n", f"the label is missing (column 'label'); fill it in, {OR_SKIP}"),
    "a text without end": (
        "classify",
        f"{LONG},good\n",
        "20,002 tokens, of which 48 can be read; shorten it, or let it be cut (--truncate, in Python truncate=True)",
    ),
    "not a number": ("regress", "the mill,nan,1\n", f"the label is 'nan', not a finite number; write one, {OR_SKIP}"),
    "infinity": ("regress", "the mill,1e999,1\n", f"the label is '1e999', not a finite number; write one, {OR_SKIP}"),
    "fewer tags than tokens": (
        "tags",
        '{"tokens": ["anna", "was"], "tags": ["O"]}\n',
        f"1 tag for 2 tokens; write one for each, {OR_SKIP}",
    ),
    "a token without a tag": (
        "conll",
        "anna\n",
        f"'anna' has no tag; write token and tag, parted by a tab, {OR_SKIP}",
    ),
    "no JSON": ("many", '{"text": "the mill"\n', "not valid JSON"),
}
"""The kind of file, a row that is put at its end, and what is said of it."""


@pytest.mark.parametrize("name", ROWS)
def test_a_bad_row_is_told_with_its_number_or_passed_over(
    shell: Shell, encoder: Path, labelled_files: Files, name: str
):
    kind, row, problem = ROWS[name]
    good = labelled_files(kind, 60)
    content = good.read_text(encoding="utf-8")
    file = shell.file(f"data{good.suffix}", content + row)
    number = content.count("\n") + 1
    task = {"tags": "tag", "conll": "tag", "regress": "regress"}.get(kind, "classify")
    more = ("--label", "height") if kind == "regress" else ()
    said = shell.fails(*finetune(shell, encoder, file, task, *more))
    assert said.startswith(f"{file}:{number}: {problem}")
    out = shell.goes_on(*finetune(shell, encoder, file, task, *more, "--skip-bad"))
    assert f"skipped 1 bad row: {file}:{number}: {problem.removesuffix(f', {OR_SKIP}')}" in out
    assert OR_SKIP not in out  # which was done already
    assert f"saved {shell.home / 'out'}" in out


def test_a_text_without_end_is_cut_if_that_is_asked_for(shell: Shell, encoder: Path, labelled_files: Files):
    content = labelled_files("classify", 60).read_text(encoding="utf-8")
    file = shell.file("data.csv", f"{content}{LONG},good\n")
    out = shell.goes_on(*finetune(shell, encoder, file, "classify", "--truncate"))
    assert "texts are too long; only their beginning is read" in out
    assert "skipped" not in out


def test_tags_may_be_as_long_as_they_like(shell: Shell, encoder: Path, labelled_files: Files):
    content = labelled_files("conll", 60).read_text(encoding="utf-8")
    file = shell.file("data.conll", content + "word\tO\n" * 500)
    assert "skipped" not in shell.goes_on(*finetune(shell, encoder, file, "tag"))


def test_an_answer_that_is_not_where_it_should_be(shell: Shell, encoder: Path, labelled_files: Files):
    document = json.loads(labelled_files("answer", 60).read_text(encoding="utf-8"))
    asked = document["data"][0]["paragraphs"][4]
    answer = asked["qas"][0]["answers"][0]
    right, answer["answer_start"] = answer["answer_start"], 3
    file = shell.file("data.json", json.dumps(document))
    problem = f"the answer '{answer['text']}' is not at 3, where {asked['context'][3:33]!r} stands; it is at {right}"
    said = shell.fails(*finetune(shell, encoder, file, "answer"))
    assert said == f"{file}: question q4: {problem}: write that, {OR_SKIP}"
    out = shell.goes_on(*finetune(shell, encoder, file, "answer", "--skip-bad"))
    assert f"skipped 1 bad row: {file}: question q4: {problem}: write that" in out


def test_a_question_without_end(shell: Shell, encoder: Path, labelled_files: Files):
    document = json.loads(labelled_files("answer", 60).read_text(encoding="utf-8"))
    document["data"][0]["paragraphs"][4]["qas"][0]["question"] = LONG
    file = shell.file("data.json", json.dumps(document))
    said = shell.fails(*finetune(shell, encoder, file, "answer"))
    assert said == f"{file}: question q4: the question leaves no room for its context in 48 tokens; shorten it"
    out = shell.goes_on(*finetune(shell, encoder, file, "answer", "--skip-bad"))
    assert f"1 bad row: {file}: question q4: the question leaves no room" in out


def test_a_label_of_dev_that_training_does_not_know(shell: Shell, encoder: Path, labelled_files: Files):
    train = labelled_files("classify", 60)
    dev = shell.file("dev.csv", "text,label\nthe mill,good\na river,ugly\n")
    said = shell.fails(*finetune(shell, encoder, train, "classify", "--dev", dev))
    problem = f"{dev}:3: the label 'ugly' does not occur in the training data (bad, good); mend it"
    assert said == f"{problem}, {OR_SKIP}"
    out = shell.goes_on(*finetune(shell, encoder, train, "classify", "--dev", dev, "--skip-bad"))
    assert f"skipped 1 bad row: {problem}" in out
    assert "on 1 example is kept" in out


@pytest.mark.parametrize(
    ("content", "task", "said"),
    [
        ("text,label,label\na,b,c\n", "classify", ":1: the column 'label' is there twice; rename one of the two"),
        (
            "text,label\n" + "mill,good\nriver,good\n" * 9,
            "classify",
            "every example has the label 'good'; a classifier",
        ),
        ("text,label\n", "classify", " holds no examples to learn from"),
        ("", "classify", " holds no examples to learn from"),
        ("text,label\n,a\n,b\n", "classify", " holds no examples to learn from: 2 bad rows, the first: "),
        (
            "text,label\nmill,3\nriver,3\nferry,3\n",
            "regress",
            "every example has the same number 3; there is nothing",
        ),
        (
            "text,label\nmill,a\nriver,b\n",
            "classify",
            "2 examples are too few to hold out a part of 0.1; give others",
        ),
        (
            "text,label\n" + "mill,a\nmill,b\n" * 30,
            "classify",
            "all 60 examples have one text, so no part can be held out; give others with --dev FILE",
        ),
    ],
)
def test_what_is_wrong_with_a_whole_file_stops_even_those_who_skip(
    shell: Shell, encoder: Path, content: str, task: str, said: str
):
    file = shell.file("data.csv", content)
    more = ("--held-out", "0.5") if task == "regress" else ()
    assert said in shell.fails(*finetune(shell, encoder, file, task, "--skip-bad", *more))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--text", "txt"), "there is no column 'txt'; did you mean 'text'? The columns are: text, label"),
        (("--label", "labl"), "there is no column 'labl'; did you mean 'label'? The columns are: text, label"),
        (("--label", "text", "--text", "text"), "name two different columns"),
        (("--metric", "f2"), "metric 'f2' is not one of this task; choose from accuracy, macro_f1, matthews, f1"),
        (("--metric", "pearson"), "metric 'pearson' is not one of this task; choose from accuracy"),
        (("--pol", "mean"), "--pol"),
        (("--freeze", "3"), "freeze 3 is more than the model's 2 layers; -1 means all"),
        (("--length", "49"), "length 49 is beyond the model's 48 positions; use that or less"),
        (("--checkpoint-every", "soon"), "'soon' is not a duration; write it like 90s, 10m or 1h30m"),
        (("--checkpoint-every", "0"), "--checkpoint-every 0 would never go on"),
        (("--seeds", "2", "--metric", "f2"), "metric 'f2' is not one of this task"),
        (("--seeds", "0"), "seeds 0 must be at least 1"),
        (("--dev", "none.csv"), "none.csv does not exist"),
        (("--dev", "none.csv", "--held-out", "0.5"), "--dev has the examples to evaluate on; leave --held-out out"),
        (("--overlap", "4"), "--overlap is for windows, and to classify there are none; leave it out"),
    ],
)
def test_what_is_asked_wrongly(shell: Shell, encoder: Path, labelled_files: Files, more: tuple[str, ...], said: str):
    assert said in shell.fails(*finetune(shell, encoder, labelled_files("classify", 60), "classify", *more))


def test_what_is_missing(shell: Shell, encoder: Path, labelled_files: Files):
    train, out = labelled_files("classify", 60), ("--out", shell.home / "out")
    task = ("--task", "classify")
    assert shell.fails("finetune", *task, *out) == "MODEL is missing: the folder of the BERT to fine-tune"
    assert shell.fails("finetune", encoder, *task, *out) == "TRAIN is missing: the file with the labelled data"
    said = shell.fails("finetune", encoder, train, *out)
    assert said == "--task is missing; choose from classify, regress, tag, answer"
    assert "--out is missing" in shell.fails("finetune", encoder, train, *task)
    said = shell.fails("finetune", encoder, train, "--task", "clasify", *out)
    assert said.startswith("--task is 'clasify'; choose from answer, classify, regress, tag")
    none = shell.home / "none"
    said = shell.fails("finetune", none, train, *task, *out)
    assert said.startswith(f"{none} is not a model folder: there is no such folder; name the folder that")
    near = shell.file("reviews.csv", "text,label\n")
    said = shell.fails("finetune", encoder, shell.home / "review.csv", *task, *out)
    assert said == f"{shell.home / 'review.csv'} does not exist; did you mean {near}?"
    said = shell.fails("finetune", "--recipe", shell.home / "none.toml", *out)
    assert "none.toml does not exist" in said


def test_a_file_of_another_kind(shell: Shell, encoder: Path, labelled_files: Files):
    for kind, task, said in (
        ("answer", "classify", "is JSON as a whole; write one object a line and name it .jsonl"),
        ("conll", "classify", "is not a table, hence has no labels; give a file that ends in .jsonl .csv .tsv"),
        ("classify", "answer", "holds no questions; give SQuAD's .json, or .jsonl or .parquet with one a row"),
        ("classify", "tag", "is a table; words with tags come as CoNLL (a word, a tab, its tag) or as jsonl"),
        ("classify", "regress", ":2: the label is 'bad', not a finite number; write one"),
    ):
        assert said in shell.fails(*finetune(shell, encoder, labelled_files(kind, 60), task))


def test_a_folder_that_is_not_free(shell: Shell, encoder: Path, labelled_files: Files):
    train = labelled_files("classify", 60)
    before = {path.name: path.read_bytes() for path in encoder.iterdir()}
    for more in ((), ("--seeds", "2")):
        said = shell.fails("finetune", encoder, train, "--task", "classify", "--out", encoder, *SMALL, *more)
        assert said == f"{encoder} exists and is not empty; choose another --out"
    assert {path.name: path.read_bytes() for path in encoder.iterdir()} == before


def test_what_cannot_be_resumed(shell: Shell, encoder: Path, labelled_files: Files):
    none, out = shell.home / "none", shell.home / "done"
    said = shell.fails("finetune", "--resume", "--out", none)
    assert said == f"{none} holds no run to resume: there is no such folder; name the --out that the run had"
    made = ("finetune", encoder, labelled_files("classify", 60), "--task", "classify", "--out", out, *SMALL)
    shell.goes_on(*made)
    said = shell.fails("finetune", "--resume", "--out", out)
    assert said == f"the run in {out} is complete; to go on training its model, start a new one with MODEL {out}"
    assert shell.fails(*made) == f"{out} already holds a model; choose another --out"


CLASSES = Head(task="classify", labels=("bad", "good"))


def test_pretrained_models_and_others_have_their_own_options(shell: Shell, headed: Headed, labelled_files: Files):
    file, folder = labelled_files("classify", 60), headed(CLASSES)
    said = shell.fails("evaluate", folder, file, "--length", "16")
    assert said == f"--length is for pretrained models, which {folder} is not; leave it out"


def test_a_model_without_the_head_that_is_needed(shell: Shell, encoder: Path, headed: Headed, labelled_files: Files):
    file = labelled_files("classify", 60)
    said = shell.fails("evaluate", encoder, file)
    assert said == f"{encoder} has no head to evaluate; train one with `heedful finetune MODEL DATA --task TASK`"
    said = shell.fails("predict", encoder, file)
    assert said.startswith(f"{encoder} is an encoder without a head: `heedful embed` gives its vectors")
    shell.goes_on("embed", encoder, file, "--out", shell.home / "vectors.npy")
    said = shell.fails("fill", headed(CLASSES), "the [MASK]")
    assert "can't fill blanks: it has no masked-word head; pretrain one" in said
    none = shell.home / "none"
    for name in ("evaluate", "predict"):
        said = shell.fails(name, none, file)
        assert said.startswith(f"{none} is not a model folder: there is no such folder; name the folder that")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("text,label\nthe mill,good\na river,ugly\n", ":3: the label 'ugly' does not occur in the training data"),
        ("text,label\nthe mill,good\n,bad\n", ":3: the text is empty (column 'text'); fill it in"),
        ("text,label\nthe mill,good\nriver\n", ":3: 1 field under 2 columns; fill in the missing ones"),
        (f"text,label\nthe mill,good\n{LONG},bad\n", ":3: 20,002 tokens, of which 48 can be read"),
    ],
)
def test_bad_rows_to_evaluate_on(shell: Shell, headed: Headed, content: str, problem: str):
    file, model = shell.file("data.csv", content), headed(CLASSES)
    assert shell.fails("evaluate", model, file).startswith(f"{file}{problem}")
    out = shell.goes_on("evaluate", model, file, "--skip-bad").splitlines()
    assert out[0] == "1 example"
    assert out[1].startswith(f"skipped 1 bad row: {file}{problem}")
    found = json.loads(shell.goes_on("evaluate", model, file, "--skip-bad", "--json"))
    assert (found["examples"], found["skipped"]) == (1, 1)


TAGS = Head(task="tag", labels=("B-LOC", "B-PER", "I-PER", "O"), length=48, overlap=12)
ANSWERS = Head(task="answer", labels=ANSWER_ENDS, length=48, overlap=12)


@pytest.mark.parametrize(("kind", "head"), [("tags", TAGS), ("conll", TAGS), ("answer", ANSWERS)])
def test_columns_that_a_task_does_not_read(
    shell: Shell, encoder: Path, headed: Headed, labelled_files: Files, kind: str, head: Head
):
    file, model = labelled_files(kind, 60), headed(head)
    read = {"tag": "tokens and tags", "answer": "question, context and answers"}[head.task]
    for flag in ("--text", "--pair", "--label"):
        problem = f"to {head.task}, the columns read are those called {read}; leave {flag} out"
        assert shell.fails(*finetune(shell, encoder, file, head.task, flag, "x")) == problem
        assert shell.fails("evaluate", model, file, flag, "x") == problem
        if flag != "--label":
            assert shell.fails("predict", model, file, flag, "x") == problem


def test_texts_to_tag_have_a_column(shell: Shell, headed: Headed):
    model, file = headed(TAGS), shell.file("texts.jsonl", '{"a": "anna", "b": "the mill"}\n')
    assert json.loads(shell.goes_on("predict", model, file, "--text", "b"))["words"] == ["the", "mill"]
    said = shell.fails("predict", model, file, "--text", "b", "--pair", "a")
    assert said == "words are tagged in one text, not in a pair; leave --pair out"


def test_numbers_that_are_not_all_named(shell: Shell, headed: Headed, labelled_files: Files):
    model, file = headed(Head(task="regress", labels=("height", "depth"))), labelled_files("regress", 40)
    assert shell.goes_on("evaluate", model, file) == shell.goes_on(
        "evaluate", model, file, "--label", "depth", "--label", "height"
    )
    other = shell.file("other.csv", file.read_text(encoding="utf-8").replace("depth", "width", 1))
    said = shell.fails("evaluate", model, other)
    assert said.startswith(f"{other}: there is no column 'depth'; ")
    said = shell.fails("evaluate", model, file, "--label", "height")
    assert said == f"{file}:2: 1 of the 2 (height, depth) numbers that the model gives; name each with --label"


def untouched(*_: object, **__: object) -> None:
    raise AssertionError("it was computed after all")


@pytest.mark.parametrize(
    "head",
    [
        Head(task="answer", labels=ANSWER_ENDS, length=48, overlap=12),
        Head(task="tag", labels=("B-LOC", "O"), length=48, overlap=12),
        Head(task="multilabel", labels=("a", "b")),
        Head(task="regress", labels=("score",)),
    ],
    ids=lambda head: head.task,
)
def test_a_picture_of_what_has_no_confusions(
    shell: Shell, headed: Headed, monkeypatch: pytest.MonkeyPatch, head: Head
):
    monkeypatch.setattr("heedful.runs.evaluate.evaluate", untouched)
    picture, file = shell.home / "no.png", shell.file("data.csv", "text,label\nmill,a\n")
    said = shell.fails("evaluate", headed(head), file, "--picture", picture)
    assert said == "this task has no confusion matrix to draw; leave --picture out"
    assert not picture.exists()


def test_a_picture_that_cannot_be_drawn(shell: Shell, headed: Headed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("heedful.runs.evaluate.evaluate", untouched)
    picture, file = shell.home / "no.docx", shell.file("data.csv", "text,label\nmill,a\n")
    said = shell.fails("evaluate", headed(CLASSES), file, "--picture", picture)
    assert said == f"{picture} can't be drawn; let its name end in .png, .svg, .pdf"


def test_an_f1_of_three_classes(shell: Shell, encoder: Path):
    file = shell.file("data.csv", "text,label\n" + "mill,a\nriver,b\nferry,c\n" * 9)
    said = shell.fails(*finetune(shell, encoder, file, "classify", "--dev", file, "--metric", "f1"))
    assert said == "--metric 'f1' is not one of this task; choose from accuracy, macro_f1, matthews"


def test_spans_that_begin_inside(shell: Shell, encoder: Path):
    file = shell.file("data.conll", "anna\tI-PER\nlives\tO\n\n" * 9)
    said = shell.fails(*finetune(shell, encoder, file, "tag"))
    assert said.startswith("the tags have I-PER but no B-PER: spans begin with B- here; convert them (this is IOB1")


def test_a_gpu_that_is_not_there(shell: Shell, headed: Headed, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    file = shell.file("data.csv", "text,label\nthe mill,good\n")
    for name in ("predict", "evaluate"):
        said = shell.fails(name, headed(CLASSES), file, "--device", "cuda")
        assert said.startswith("no CUDA GPU can be used here; `heedful doctor` says why")


def test_predict_leaves_no_half_of_an_answer(shell: Shell, headed: Headed):
    file, out = shell.file("texts.txt", "the mill\n\na river\n"), shell.home / "said.jsonl"
    model = headed(CLASSES)
    said = shell.fails("predict", model, file, "--out", out)
    assert said == f"{file}:2: the text is empty; fill it in, {OR_SKIP}"
    assert not out.exists()
    code, _, said = shell.run("predict", model, file, "--out", out, "--skip-bad")
    assert (code, said) == (0, f"heedful: no answer to 1 bad row: {file}:2: the text is empty; fill it in\n")
    assert len(out.read_text(encoding="utf-8").splitlines()) == 3
    assert shell.fails("predict", model, file, "--out", out) == f"{out} exists already; choose another --out"
