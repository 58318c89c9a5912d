import gzip
import json
import unicodedata
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from heedful.data.flaws import Flaw
from heedful.data.questions import Answer, QuestionExample, examples
from heedful.errors import UserError

OR_SKIP = ", or pass over such rows with --skip-bad"
CONTEXT = "The lamp is red. The chair is blue, and the lamp is old."
JAMO = unicodedata.normalize("NFD", "서울은 크다. 부산은 넓다.")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def squad(*questions: dict, context: object = CONTEXT) -> dict:
    return {"version": "x", "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(questions)}]}]}


def asked(key: str, *answers: tuple[str, int], **more) -> dict:
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "question": f"What of {key}?", "answers": found, **more}


def row(file: Path, **fields) -> Path:
    return write(file, json.dumps({"question": "What?", "context": CONTEXT, **fields}))


def problem(file: Path, **options) -> str:
    """What is wrong with the one question of a file."""
    [flaw] = examples(file, **options)
    assert isinstance(flaw, Flaw)
    assert "\n" not in flaw.problem
    assert flaw.problem.endswith(OR_SKIP)
    return flaw.problem.removesuffix(OR_SKIP)


def refusal(file: Path, **options) -> str:
    with pytest.raises(UserError) as caught:
        list(examples(file, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# SQuAD's JSON


@pytest.mark.parametrize("name", ["a.json", "a.JSON.gz"])
def test_squad(tmp_path, name):
    found = squad(asked("q3", ("red", 12), ("lamp is red", 4)), asked("q5", ("blue", 30)))
    found["data"].append(squad(asked("q7", ("old", 3)), context="An old one.")["data"][0])
    data = json.dumps(found, indent=1).encode()
    file = write(tmp_path / name, gzip.compress(data) if name.endswith("gz") else b"\xef\xbb\xbf" + data)
    assert list(examples(file)) == [
        QuestionExample(
            f"{file}: question q3", "q3", "What of q3?", CONTEXT, (Answer("red", 12), Answer("lamp is red", 4))
        ),
        QuestionExample(f"{file}: question q5", "q5", "What of q5?", CONTEXT, (Answer("blue", 30),)),
        QuestionExample(f"{file}: question q7", "q7", "What of q7?", "An old one.", (Answer("old", 3),)),
    ]


def test_questions_that_the_context_does_not_answer(tmp_path):
    questions = [
        asked("a", is_impossible=True, plausible_answers=[{"text": "nowhere", "answer_start": 3}]),
        asked("b"),
        {"id": "c", "question": "What?", "is_impossible": True},
        asked("d", ("red", 12), is_impossible=False),
    ]
    file = write(tmp_path / "a.json", json.dumps(squad(*questions)))
    assert [item.answers for item in examples(file)] == [(), (), (), (Answer("red", 12),)]


def test_an_answer_to_what_is_impossible(tmp_path):
    file = write(tmp_path / "a.json", json.dumps(squad(asked("a", ("red", 12), is_impossible=True))))
    assert problem(file) == "is_impossible is true, yet 'red' is an answer; keep one of the two"


def test_a_question_without_an_id_has_its_number(tmp_path):
    questions = [{"question": "What?", "answers": []}, {"id": 17, "question": "What?", "answers": []}]
    file = write(tmp_path / "a.json", json.dumps(squad(*questions)))
    assert [(item.where, item.id) for item in examples(file)] == [
        (f"{file}: question 1", "1"),
        (f"{file}: question 17", "17"),
    ]


@pytest.mark.parametrize("context", [None, "", " \n", 3])
def test_a_paragraph_without_a_context(tmp_path, context):
    file = write(tmp_path / "a.json", json.dumps(squad(asked("a"), asked("b"), context=context)))
    assert [item.where for item in examples(file)] == [f"{file}: question a", f"{file}: question b"]
    assert all(isinstance(item, Flaw) and item.problem.startswith("the context is ") for item in examples(file))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "what should hold 'data' is []"),
        ({"version": "2"}, "there is no list 'data' in {'version': '2'}"),
        ({"data": {}}, "there is no list 'data' in {'data': {}}"),
        ({"data": ["x"]}, "what should hold 'paragraphs' is 'x'"),
        ({"data": [{"title": "x"}]}, "there is no list 'paragraphs' in {'title': 'x'}"),
        ({"data": [{"paragraphs": [{"context": "x"}]}]}, "there is no list 'qas' in {'context': 'x'}"),
        (squad("x"), "question 1 is 'x'"),  # pyrefly: ignore
    ],
)
def test_json_of_another_shape(tmp_path, content, said):
    file = write(tmp_path / "a.json", json.dumps(content))
    message = refusal(file)
    assert message.startswith(f'{file}: {said}; write {{"data": [{{"paragraphs": [{{"context": …, "qas": ')
    assert message.endswith(", or a row for each question and name it .jsonl")


def test_json_that_is_broken(tmp_path):
    file = write(tmp_path / "a.json", '{"data":\n [}')
    assert refusal(file) == f"{file}: not valid JSON (Expecting value at line 2, 3); fetch or write it again"
    file = write(tmp_path / "b.json", '{"data": [], "data": []}')
    assert refusal(file) == f"{file}: the key 'data' is there twice in one object; keep one of the two"
    file = write(tmp_path / "c.json", b'{\n"data": "\xff"}')
    assert refusal(file).startswith(f"{file}:2: byte 0xff is not UTF-8; convert the file")
    assert "there is no list 'data'" in refusal(file, errors="replace")
    assert refusal(tmp_path / "d.json").startswith(f"cannot read {tmp_path}/d.json: No such file")


def test_half_a_character_spoils_its_question_alone(tmp_path):
    questions = [asked("a", ("red", 12)), asked("b", question="What\ud83d?"), asked("c", plausible_answers="\0")]
    file = write(tmp_path / "a.json", json.dumps(squad(*questions)))
    first, flaw, last = examples(file)
    assert (first.id, last.id) == ("a", "c")
    assert str(flaw) == (
        f"{file}: question 2 of the file: a NUL or half a character; mend it or go on with --errors replace{OR_SKIP}"
    )
    assert list(examples(file, errors="replace"))[1].question == "What\ufffd?"


# tables


@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["red", "red."], "answer_start": [12, 12]},
        [{"text": "red", "answer_start": 12}, {"text": "red.", "answer_start": 12}],
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet"])
def test_tables(tmp_path, name, answers):
    file = tmp_path / name
    fields = {"id": "q3", "title": "t", "question": " What? ", "context": CONTEXT, "answers": answers}
    if name == "a.parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist([fields]), file)
    else:
        data = json.dumps(fields).encode()
        write(file, gzip.compress(data) if name.endswith("gz") else data)
    expected = (Answer("red", 12), Answer("red.", 12))
    assert list(examples(file)) == [QuestionExample(f"{file}:1", "q3", " What? ", CONTEXT, expected)]


@pytest.mark.parametrize("answers", [[], {"text": [], "answer_start": []}])
def test_a_row_without_an_answer_or_id(tmp_path, answers):
    [example] = examples(row(tmp_path / "a.jsonl", answers=answers))
    assert (example.id, example.answers) == ("1", ())


def test_broken_rows_are_flaws(tmp_path):
    file = row(tmp_path / "a.jsonl", answers=[])
    write(file, b"{\n" + file.read_bytes())
    flaw, example = examples(file)
    assert str(flaw).startswith(f"{file}:1: not valid JSON (")
    assert (example.where, example.id) == (f"{file}:2", "2")


def test_a_parquet_without_the_columns(tmp_path):
    file = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"question": ["What?"], "text": ["x"]}), file)
    assert refusal(file) == (
        f"{file}: there is no column 'context'; the columns read are id, question, context, answers, is_impossible"
    )


@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.conll.gz", "a"])
def test_files_that_hold_no_questions(tmp_path, name):
    assert refusal(tmp_path / name) == (
        f"{tmp_path / name} holds no questions; give SQuAD's .json, or .jsonl or .parquet with one a row"
    )


# answers


def test_places_count_the_characters_as_written(tmp_path):
    start = JAMO.index(unicodedata.normalize("NFD", "부산"))
    assert start != unicodedata.normalize("NFC", JAMO).index("부산")
    answer = {"text": JAMO[start : start + 5], "answer_start": start}
    for name, content in {
        "a.json": squad({"id": "a", "question": "?", "answers": [answer]}, context=JAMO),
        "a.jsonl": {"id": "a", "question": "?", "context": JAMO, "answers": [answer]},
    }.items():
        [example] = examples(write(tmp_path / name, json.dumps(content, ensure_ascii=False)))
        assert example.context == JAMO
        assert example.answers == (Answer(JAMO[start : start + 5], start),)


@pytest.mark.parametrize(
    ("text", "start", "said"),
    [
        ("blue", 29, "is not at 29, where ' blue, and the lamp is old.' stands; it is at 30: write that"),
        ("blue", 0, "is not at 0, where 'The lamp is red. The chair is ' stands; it is at 30: write that"),
        ("lamp", 5, "is not at 5, where 'amp is red. The chair is blue,' stands; count the characters before it"),
        (
            "green",
            12,
            "is not at 12, where 'red. The chair is blue, and th' stands; it is not in the context at all, mend it",
        ),
        ("old.", -4, "is not at -4, which is outside; it is at 52: write that"),
        ("red", 56, "is not at 56, which is outside; it is at 12: write that"),
        ("old.x", 52, "is not at 52, where 'old.' stands; it is not in the context at all, mend it"),
    ],
)
def test_an_answer_that_is_not_at_its_place(tmp_path, text, start, said):
    file = row(
        tmp_path / "a.jsonl", answers=[{"text": "red", "answer_start": 12}, {"text": text, "answer_start": start}]
    )
    assert problem(file) == f"the answer {text!r} {said}"
    assert problem(file, required=False) == f"the answer {text!r} {said}"


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (None, "the answers are missing; write [] where there is none in the context"),
        ("red", 'the answers are \'red\'; write a list of {"text": …, "answer_start": …}'),
        (["red"], "the answers are ['red']; write a list of"),
        ({"text": ["red"]}, "the answers are {'text': ['red']}; write a list of"),
        ({"text": ["red"], "answer_start": [12, 13]}, "1 answers with 2 starts; write one for each"),
        ([{"text": "", "answer_start": 0}], "an answer's text is ''; write what stands in the context, or no"),
        ([{"text": " ", "answer_start": 3}], "an answer's text is ' '; write what"),
        ([{"text": 5, "answer_start": 3}], "an answer's text is 5; write what"),
        ([{"answer_start": 3}], "an answer's text is None; write what"),
        ([{"text": "red"}], "the answer_start of 'red' is None; count the characters before it"),
        (
            [{"text": "red", "answer_start": "12"}],
            "the answer_start of 'red' is '12'; count the characters before it",
        ),
        ([{"text": "red", "answer_start": 12.0}], "the answer_start of 'red' is 12.0; count"),
        ([{"text": "h", "answer_start": True}], "the answer_start of 'h' is True; count"),
    ],
)
def test_answers_that_are_none(tmp_path, answers, said):
    assert problem(row(tmp_path / "a.jsonl", answers=answers)).startswith(said)


def test_answers_that_are_not_required(tmp_path):
    for file in (row(tmp_path / "a.jsonl"), row(tmp_path / "b.jsonl", answers=None)):
        assert [item.answers for item in examples(file, required=False)] == [None]
        assert problem(file).startswith("the answers are missing; ")
    [example] = examples(row(tmp_path / "c.jsonl", answers=[]), required=False)
    assert example.answers == ()


# questions


@pytest.mark.parametrize("name", ["question", "context"])
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "missing; write it as '{}'"),
        ("", "empty; fill it in"),
        (" \n", "empty; fill it in"),
        (["a"], "['a'], not text; write it as text"),
    ],
)
def test_questions_and_contexts_that_are_none(tmp_path, name, value, said):
    file = row(tmp_path / "a.jsonl", **{"answers": [], name: value})
    assert problem(file) == f"the {name} is {said.format(name)}"


def test_no_id_twice(tmp_path):
    rows = [{"id": key, "question": "What?", "context": "x", "answers": []} for key in ("a", "b", "a", 2)]
    rows[1]["question"] = ""
    rows.append({"id": "b", "question": "What?", "context": "x", "answers": []})
    file = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    found = list(examples(file))
    assert [isinstance(item, Flaw) for item in found] == [False, True, True, False, True]
    assert str(found[2]) == f"{file}:3: the id 'a' is there twice; give each question its own{OR_SKIP}"
    assert str(found[4]).startswith(f"{file}:5: the id 'b' is there twice; ")
    assert found[3].id == "2"
    asked = list(examples(file, required=False))  # who does not score may ask twice
    assert [isinstance(item, Flaw) for item in asked] == [False, True, False, False, False]
