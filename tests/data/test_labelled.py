import io
import json
import lzma
import sys
import unicodedata
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest

from heedful.data.columns import Columns
from heedful.data.flaws import Flaw
from heedful.data.labelled import TextExample, examples, many_labels, texts
from heedful.data.lines import CONVERT, MAX_LINE
from heedful.errors import UserError

OR_SKIP = ", or pass over such rows with --skip-bad"
JAMO = unicodedata.normalize("NFD", "좋다 é")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def jsonl(path: Path, *rows: dict) -> Path:
    return write(path, "\n".join(map(json.dumps, rows)))


def parquet(path: Path, columns: dict[str, list]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def read(file: Path, target=None, columns: Columns = Columns(), **options) -> list:  # noqa: B008 (frozen)
    """Examples without their place, and what is wrong with the others."""
    found = examples(file, columns, target=target, **options)
    return [item.problem if isinstance(item, Flaw) else tuple(item)[1:] for item in found]


def targets(file: Path, target: str, **options) -> list:
    return [item if isinstance(item, str) else item[-1] for item in read(file, target, **options)]


def refusal(call, *args, **options) -> str:
    with pytest.raises(UserError) as caught:
        list(call(*args, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# text and pairs


def test_places_and_texts(tmp_path):
    file = write(tmp_path / "a.csv", 'id,Text,label\n3,"one\ntwo", pos \n5, three ,neg\n')
    assert list(examples(file, Columns(), target="label")) == [
        TextExample(f"{file}:2", "one\ntwo", None, "pos"),
        TextExample(f"{file}:4", " three ", None, "neg"),
    ]


def test_pairs(tmp_path):
    file = write(tmp_path / "a.tsv.xz", lzma.compress(b"label\tpremise\thypothesis\nyes\tIt rains\tIt is wet\n"))
    assert read(file, "label") == [("It rains", "It is wet", "yes")]
    assert read(file, "label", Columns(text="hypothesis")) == [("It is wet", None, "yes")]


def test_text_is_left_as_written(tmp_path):
    for file in (
        write(tmp_path / "a.csv", f"text\n{JAMO}\n"),
        jsonl(tmp_path / "a.jsonl", {"text": JAMO}),
        parquet(tmp_path / "a.parquet", {"text": [JAMO]}),
        write(tmp_path / "a.txt", JAMO),
    ):
        assert read(file) == [(JAMO, None, None)]


def test_texts_that_are_values_of_another_kind(tmp_path):
    values = ["a", 3, 2.5, True, None, float("nan"), ["b"], {"c": 1}, "", " \t"]
    file = jsonl(tmp_path / "a.jsonl", *({"text": value} for value in values), {"other": "a"})
    missing = f"the text is missing (column 'text'); fill it in{OR_SKIP}"
    empty = f"the text is empty (column 'text'); fill it in{OR_SKIP}"
    assert read(file) == [
        *(("a", None, None), ("3", None, None), ("2.5", None, None), ("true", None, None)),
        *(missing, missing),
        f"the text (column 'text') is ['b'], not text; write it as text{OR_SKIP}",
        f"the text (column 'text') is {{'c': 1}}, not text; write it as text{OR_SKIP}",
        *(empty, empty, missing),
    ]


def test_a_second_text_that_is_empty_or_missing(tmp_path):
    rows = [{"text1": "a", "text2": "b"}, {"text1": "a", "text2": ""}, {"text1": "a"}, {"text2": "b"}]
    assert read(jsonl(tmp_path / "a.jsonl", *rows)) == [
        ("a", "b", None),
        f"the second text is empty (column 'text2'); fill it in{OR_SKIP}",
        f"the second text is missing (column 'text2'); fill it in{OR_SKIP}",
        f"the text is missing (column 'text1'); fill it in{OR_SKIP}",
    ]


def test_bad_rows_keep_their_place(tmp_path):
    file = write(tmp_path / "a.csv", "text,label\na,x\nb\n,y\nc,z\n")
    found = list(examples(file, Columns(), target="label"))
    assert [isinstance(item, Flaw) for item in found] == [False, True, True, False]
    assert [item.where for item in found] == [f"{file}:{line}" for line in (2, 3, 4, 5)]


def test_only_the_columns_needed_are_read_from_parquet(tmp_path, monkeypatch):
    asked = []
    iter_batches = pyarrow.parquet.ParquetFile.iter_batches
    monkeypatch.setattr(
        pyarrow.parquet.ParquetFile,
        "iter_batches",
        lambda self, **options: asked.append(options["columns"]) or iter_batches(self, **options),
    )
    file = parquet(tmp_path / "a.parquet", {"id": [3], "label": ["x"], "text2": ["b"], "text1": ["a"]})
    assert read(file, "label") == [("a", "b", "x")]
    assert read(file) == [("a", "b", None)]
    assert asked == [["text1", "text2", "label"], ["text1", "text2"]]


# columns


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_columns_that_are_missing_from_a_header(tmp_path, name):
    file = tmp_path / name
    if name == "a.csv":
        write(file, "text,b\n1,2\n")
    else:
        parquet(file, {"text": ["1"], "b": ["2"]})
    assert refusal(read, file, "label") == (
        f"{file}: no column is known to hold the label; name it with --label COLUMN, of: text, b"
    )
    assert refusal(read, file, "label", Columns(label=("tex",))).startswith(
        f"{file}: there is no column 'tex'; did you mean 'text'?"
    )
    assert "no column is known to hold the text" in refusal(read, file, None, Columns(label=("text",)))


def test_in_jsonl_a_row_without_the_columns_is_a_flaw(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", {"text": "a"}, {"Text": "b", "y": 3}, {"Text": "c"}, {"text": "d", "y": 5})
    assert read(file, "label") == [
        "no column is known to hold the label; name it with --label COLUMN, of: text",
        ("b", None, "3"),
        f"the label is missing (column 'y'); fill it in{OR_SKIP}",
        f"the text is missing (column 'Text'); fill it in{OR_SKIP}",
    ]


def test_several_label_columns_are_for_numbers(tmp_path):
    file = write(tmp_path / "a.csv", "text,a,b\nx,1,2\n")
    columns = Columns(label=("a", "b"))
    for target in ("label", "labels"):
        assert refusal(read, file, target, columns) == (
            "--label names 2 columns (a, b); several are for numbers, name one"
        )
    assert read(file, "numbers", columns) == [("x", None, (1.0, 2.0))]


# one label


def test_one_label(tmp_path):
    values = ["pos", 3, True, 2.0, " neg ", None, "", "  ", float("nan"), ["a", "b"], {"a": 1}]
    file = jsonl(tmp_path / "a.jsonl", *({"text": "t", "label": value} for value in values), {"text": "t"})
    missing = f"the label is missing (column 'label'); fill it in{OR_SKIP}"
    assert targets(file, "label") == [
        *("pos", "3", "true", "2.0", "neg"),
        *[missing] * 4,
        f"the label is a list, ['a', 'b']; read several labels with --many-labels{OR_SKIP}",
        f"the label is {{'a': 1}}, not a name; write it as text{OR_SKIP}",
        missing,
    ]


def test_one_label_from_parquet(tmp_path):
    file = parquet(tmp_path / "a.parquet", {"text": ["t"] * 3, "label": [5, 7, None]})
    assert targets(file, "label") == ["5", "7", f"the label is missing (column 'label'); fill it in{OR_SKIP}"]


# several labels


def test_several_labels(tmp_path):
    values = [["a", 3, True, "a", ""], [], "b, c ,,b", "", 5, None, ["a", None], [["a"]], {"a": 1}]
    file = jsonl(tmp_path / "a.jsonl", *({"text": "t", "labels": value} for value in values))
    assert targets(file, "labels") == [
        *(("a", "3", "true"), (), ("b", "c"), (), ("5",)),
        f"the label is missing (column 'labels'); fill it in{OR_SKIP}",
        f"a label is None, not a name; write each as text{OR_SKIP}",
        f"a label is ['a'], not a name; write each as text{OR_SKIP}",
        f"a label is {{'a': 1}}, not a name; write each as text{OR_SKIP}",
    ]


def test_the_separator(tmp_path):
    file = write(tmp_path / "a.csv", 'text,label\nx,"a, b|c"\ny,\n')
    assert targets(file, "labels") == [("a", "b|c"), ()]
    assert targets(file, "labels", separator="|") == [("a, b", "c"), ()]
    assert refusal(read, file, "labels", separator="").startswith("the separator of labels is empty; ")


def test_many_labels_are_told_from_one(tmp_path):
    def told(file: Path, columns: Columns = Columns()) -> bool:  # noqa: B008 (frozen)
        return many_labels(file, columns)

    several = [
        {"text": "t"},
        {"text": "t", "label": None},
        {"text": "t", "label": ["a"]},
        {"text": "t", "label": "a"},
    ]
    assert told(jsonl(tmp_path / "a.jsonl", *several))
    assert not told(jsonl(tmp_path / "b.jsonl", *several[::-1]))
    assert not told(jsonl(tmp_path / "c.jsonl", {"text": "t"}))
    assert told(write(tmp_path / "d.jsonl", b'[broken\n{"a": "no text"}\n{"text": "\xff", "label": []}'))
    assert told(parquet(tmp_path / "a.parquet", {"text": ["t"], "y": ["a"], "all": [["a"]]}), Columns(label=("all",)))
    assert not told(parquet(tmp_path / "a.parquet", {"text": ["t"], "y": ["a"], "all": [["a"]]}))
    assert not told(write(tmp_path / "a.csv", 'text,label\nt,"[1, 2]"\n'))
    assert not told(write(tmp_path / "a.txt", "t"))


# numbers


def test_numbers(tmp_path):
    values = [
        3,
        2.5,
        "1e-3",
        " 7 ",
        True,
        "many",
        "nan",
        "inf",
        float("nan"),
        float("inf"),
        10**400,
        "1_000",
        {"a": 1},
    ]
    file = jsonl(tmp_path / "a.jsonl", *({"text": "t", "score": value} for value in [*values, None, " "]))
    wrong = ["True", "'many'", "'nan'", "'inf'", "nan", "inf", "1" + "0" * 38 + "…", "'1_000'", "{'a': 1}"]
    assert targets(file, "numbers") == [
        *((3.0,), (2.5,), (0.001,), (7.0,)),
        *(f"the label is {value}, not a finite number; write one{OR_SKIP}" for value in wrong),
        *[f"the label is missing (column 'score'); fill it in{OR_SKIP}"] * 2,
    ]
    assert all(type(number) is float for target in targets(file, "numbers")[:4] for number in target)


def test_lists_of_numbers(tmp_path):
    values = [[1, "2"], [3, 5], [7], [], [1, None], 3]
    file = jsonl(tmp_path / "a.jsonl", *({"text": "t", "y": value} for value in values))
    assert targets(file, "numbers") == [
        *((1.0, 2.0), (3.0, 5.0)),
        f"1 number in a row, 2 in the first; write as many in each{OR_SKIP}",
        f"the list of numbers is empty; fill it in{OR_SKIP}",
        f"the label is None, not a finite number; write one{OR_SKIP}",
        f"1 number in a row, 2 in the first; write as many in each{OR_SKIP}",
    ]


def test_numbers_of_several_columns(tmp_path):
    rows = [{"text": "t", "a": 1, "b": 2}, {"text": "t", "b": 2}, {"text": "t", "a": [1], "b": 3}]
    rows.append({"text": "t", "a": 1, "b": [2, 3]})
    file = jsonl(tmp_path / "a.jsonl", *rows)
    assert targets(file, "numbers", columns=Columns(label=("b", "a"))) == [
        (2.0, 1.0),
        f"the label is missing (column 'b', 'a'); fill it in{OR_SKIP}",
        f"the label is [1], not a finite number; write one{OR_SKIP}",
        f"the label is [2, 3], not a finite number; write one{OR_SKIP}",
    ]


def test_decimal_numbers_of_parquet(tmp_path):
    file = parquet(tmp_path / "a.parquet", {"text": ["t"], "price": pyarrow.array([Decimal("3.50")])})
    columns = Columns(label=("price",))
    assert targets(file, "numbers", columns=columns) == [(3.5,)]
    assert targets(file, "label", columns=columns) == ["3.50"]


# labels that are not required


@pytest.mark.parametrize("target", ["label", "labels", "numbers"])
def test_labels_that_need_not_be_there(tmp_path, target):
    without = write(tmp_path / "a.csv", "text\na\nb\n")
    assert targets(without, target, required=False) == [None, None]
    plain = write(tmp_path / "a.txt", "a\nb\n")
    assert targets(plain, target, required=False) == [None, None]
    rows = [{"text": "a"}, {"text": "b", "y": "3"}, {"text": "c", "y": None}, {"text": "d"}]
    value = {"label": "3", "labels": ("3",), "numbers": (3.0,)}[target]
    assert targets(jsonl(tmp_path / "a.jsonl", *rows), target, required=False) == [None, value, None, None]


def test_a_label_that_was_named_must_be_there(tmp_path):
    file = write(tmp_path / "a.csv", "text\na\n")
    assert "there is no column 'y'" in refusal(read, file, "label", Columns(label=("y",)), required=False)


# plain text


def test_lines_of_text(tmp_path):
    file = write(tmp_path / "a.txt.xz", lzma.compress(b"one\r\n\n \t\n two \n"))
    empty = f"the text is empty; fill it in{OR_SKIP}"
    assert list(examples(file, Columns(text="ignored"), target=None)) == [
        TextExample(f"{file}:1", "one", None),
        *(Flaw(f"{file}:2", empty), Flaw(f"{file}:3", empty)),
        TextExample(f"{file}:4", " two ", None),
    ]


def test_lines_of_text_have_no_labels(tmp_path):
    file = write(tmp_path / "a.md", "one\n")
    assert refusal(read, file, "label") == (
        f"{file} is not a table, hence has no labels; give a file that ends in .jsonl .csv .tsv .parquet"
    )


def test_json_as_a_whole_is_refused(tmp_path):
    file = write(tmp_path / "a.json", "[]")
    for call in (read, lambda file: texts(file, Columns()), lambda file: [many_labels(file, Columns())]):
        assert refusal(call, file).startswith(f"{file} is JSON as a whole; ")


def test_bytes_that_are_not_utf8(tmp_path):
    file = write(tmp_path / "a.csv", b"text\n\xff\n")
    assert f"{file}:2: byte 0xff is not UTF-8" in refusal(read, file)
    assert read(file, errors="replace") == [("\ufffd", None, None)]


# texts without labels, and standard input


def test_texts_of_a_file(tmp_path):
    file = write(tmp_path / "a.csv", "sentence1,sentence2,label\na,b,x\n")
    assert list(texts(file, Columns())) == [TextExample(f"{file}:2", "a", "b", None)]


def standard_input(monkeypatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def test_lines_of_standard_input(monkeypatch):
    data = b"\xef\xbb\xbfone\r\n\n" + JAMO.encode() + b"\na\0b\n\xff\nlast"
    standard_input(monkeypatch, data)
    assert list(texts(None, Columns())) == [
        TextExample("standard input:1", "one", None),
        Flaw("standard input:2", f"the text is empty; fill it in{OR_SKIP}"),
        TextExample("standard input:3", JAMO, None),
        Flaw("standard input:4", f"a NUL byte; remove it, go on with --errors replace{OR_SKIP}"),
        Flaw(
            "standard input:5",
            f"byte 0xff is not UTF-8; {CONVERT}, go on with --errors replace{OR_SKIP}",
        ),
        TextExample("standard input:6", "last", None),
    ]
    standard_input(monkeypatch, data)
    assert [item.text for item in list(texts(None, Columns(), errors="replace"))[3:]] == ["ab", "\ufffd", "last"]


@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_lines_in_another_encoding_are_not_destroyed(monkeypatch, errors):
    standard_input(monkeypatch, "돈이 아깝다\n".encode("cp949"))
    (flaw,) = texts(None, Columns(), errors=errors)
    assert f"{CONVERT}, or pass over" in str(flaw)
    assert "--errors" not in str(flaw)


def test_standard_input_is_read_as_it_arrives(monkeypatch):
    class Typed(io.RawIOBase):
        """A terminal: each read gives what was typed so far, one line."""

        lines = iter([b"one\n", b"two\n"])
        reads = 0

        def readable(self):
            return True

        def readinto(self, buffer):
            self.reads += 1
            line = next(self.lines, b"")
            buffer[: len(line)] = line
            return len(line)

    typed = Typed()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(typed)))
    stream = texts(None, Columns())
    assert next(stream) == TextExample("standard input:1", "one", None)
    assert typed.reads == 1
    assert next(stream) == TextExample("standard input:2", "two", None)
    assert typed.reads == 2
    assert list(stream) == []


@pytest.mark.parametrize(("size", "fits"), [(MAX_LINE - 1, True), (MAX_LINE, False)])
def test_the_longest_line_of_standard_input(monkeypatch, size, fits):
    standard_input(monkeypatch, b"one\n" + b"a" * size + b"\ntwo\n")
    if fits:
        assert [len(item.text) for item in texts(None, Columns())] == [3, size, 3]
    else:
        message = refusal(texts, None, Columns())
        assert message == "standard input:2: a line of over 16 MiB; put line breaks between texts"
        assert sys.stdin.buffer.tell() == 4 + MAX_LINE + 1


def test_labels_are_composed_and_texts_are_not(tmp_path):
    whole = unicodedata.normalize("NFC", JAMO)
    file = jsonl(tmp_path / "a.jsonl", {"text": JAMO, "label": JAMO}, {"text": "t", "label": f" {whole} "})
    assert read(file, "label") == [(JAMO, None, whole), ("t", None, whole)]
    rows = {"text": "t", "label": [JAMO, "a", whole]}, {"text": "t", "label": f"{JAMO}, a,{whole}"}
    assert targets(jsonl(tmp_path / "b.jsonl", *rows), "labels") == [(whole, "a"), (whole, "a")]


def test_columns_are_named_in_any_form(tmp_path):
    whole = unicodedata.normalize("NFC", JAMO)
    for one, other in ((JAMO, whole), (whole, JAMO)):
        file = write(tmp_path / "a.csv", f"{one},y\nt,a\n")
        assert read(file, "label", Columns(text=other)) == [("t", None, "a")]
        file = write(tmp_path / "b.csv", f"text,{one}\nt,a\n")
        assert read(file, "label", Columns(label=(other,))) == [("t", None, "a")]
