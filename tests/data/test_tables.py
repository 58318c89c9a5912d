import gzip
import io
import json
import lzma
import unicodedata
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.flaws import Flaw, shown, sound
from heedful.data.lines import lines
from heedful.data.tables import ending, is_table, kind, parse, rows, scalar
from heedful.errors import UserError

PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
JAMO = unicodedata.normalize("NFD", "한 é")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(columns: dict[str, list], **options: int) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out, **options)
    return out.getvalue()


def refusal(file: Path, **options) -> str:
    with pytest.raises(UserError) as caught:
        list(rows(file, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def flaws(file: Path, **options) -> list[str]:
    return [str(item) for item in rows(file, **options) if isinstance(item, Flaw)]


def good(file: Path, **options) -> list:
    return [item for item in rows(file, **options) if not isinstance(item, Flaw)]


# flaws


def test_the_first_flaw_is_raised():
    stream = sound([3, Flaw("a.csv:2", "x is 0; write 1"), 5])
    assert next(stream) == 3
    with pytest.raises(UserError, match=r"^a.csv:2: x is 0; write 1$"):
        next(stream)


def test_flaws_are_passed_over_and_kept():
    bad = [Flaw("a.csv:2", "x"), Flaw("a.csv:5", "y")]
    skipped: list[Flaw] = []
    assert list(sound([3, bad[0], 5, bad[1]], skip=True, skipped=skipped)) == [3, 5]
    assert skipped == bad
    assert list(sound([bad[0], (7, {})], skip=True)) == [(7, {})]


def test_values_are_shown_in_one_short_line():
    assert shown("a\nb") == r"'a\nb'"
    assert shown("x" * 38) == "'" + "x" * 38 + "'"
    assert shown("x" * 39) == "'" + "x" * 38 + "…"


# the four kinds

ROWS = {"id": ["3", "5", "7"], "Text": ['He said "a, b". Then\nnext', "", "둘째  행"]}
TABLE = {
    ".jsonl": "\n".join(
        json.dumps({"id": i, "Text": t}) for i, t in zip(ROWS["id"], ROWS["Text"], strict=True)
    ).encode(),
    ".csv": 'id,Text\n3,"He said ""a, b"". Then\nnext"\n5,\n7,둘째  행\n'.encode(),
    ".parquet": parquet(ROWS),
}
NUMBERS = {".jsonl": [1, 2, 3], ".csv": [2, 4, 5], ".parquet": [1, 2, 3]}


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", TABLE)
def test_rows_of_each_kind(tmp_path, kind, packing):
    file = write(tmp_path / f"a{kind}{packing}", PACK[packing](TABLE[kind]))
    expected = [dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)]
    assert list(rows(file)) == list(zip(NUMBERS[kind], expected, strict=True))


def test_tsv_has_no_quotes(tmp_path):
    file = write(tmp_path / "a.tsv", '\ufeffid\tsentence\r\n3\t"one, two\r\n\r\n5\t\r\n7\tit""s\r\n')
    assert list(rows(file)) == [
        (2, {"id": "3", "sentence": '"one, two'}),
        (4, {"id": "5", "sentence": ""}),
        (5, {"id": "7", "sentence": 'it""s'}),
    ]


def test_parquet_rows_are_numbered_across_batches(tmp_path):
    file = write(tmp_path / "a.parquet", parquet({"n": list(range(2003))}, row_group_size=331))
    assert list(rows(file)) == [(n + 1, {"n": n}) for n in range(2003)]


def test_parquet_reads_the_chosen_columns_alone(tmp_path):
    file = write(tmp_path / "a.parquet", parquet({"a": [3], "b": [5], "c": [7]}))
    asked = []
    assert list(rows(file, columns=lambda names: asked.append(names) or names[1:])) == [(1, {"b": 5, "c": 7})]
    assert asked == [["a", "b", "c"]]


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv"])
@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_a_table_without_rows(tmp_path, name, content):
    assert list(rows(write(tmp_path / name, content))) == []


def test_kinds(tmp_path):
    names = ["a.csv", "a.CSV.gz", "b.txt", "c", "d.gz", "e.tar.jsonl.XZ"]
    assert [kind(Path(name)) for name in names] == [
        *((".csv", ""), (".csv", ".gz"), (".txt", ""), (".txt", ""), (".txt", ".gz"), (".jsonl", ".xz"))
    ]
    assert [ending(Path(name)) for name in ("a.JSON.xz", "b.conll", "c.gz")] == [".json", ".conll", ""]
    assert [is_table(Path(name)) for name in ("a.tsv.zst", "a.md")] == [True, False]
    with pytest.raises(UserError, match=r"a.json.gz is JSON as a whole; write one object a line and name it .jsonl"):
        is_table(Path("a.json.gz"))


# the text as written


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", json.dumps({"text": JAMO, "parts": [JAMO, {"deep": JAMO}]})),
        ("b.jsonl", json.dumps({"text": JAMO, "parts": [JAMO, {"deep": JAMO}]}, ensure_ascii=False)),
        ("c.parquet", parquet({"text": [JAMO], "parts": [[JAMO]]})),
    ],
)
def test_text_is_composed_or_left_as_written(tmp_path, name, content):
    file = write(tmp_path / name, content)
    [(_, composed)], [(_, left)] = rows(file), rows(file, normalise=False)
    for row, expected in ((composed, "한 é"), (left, JAMO)):
        assert row["text"] == row["parts"][0] == expected
        assert row["parts"][1:] in ([], [{"deep": expected}])


@pytest.mark.parametrize(("name", "sign"), [("a.csv", ","), ("a.tsv", "\t")])
def test_text_under_a_header_is_composed_or_left(tmp_path, name, sign):
    file = write(tmp_path / name, f"a{sign}b\n{JAMO}{sign}x\n")
    assert list(rows(file)) == [(2, {"a": "한 é", "b": "x"})]
    assert list(rows(file, normalise=False)) == [(2, {"a": JAMO, "b": "x"})]


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", f"{JAMO},b\n{JAMO},c\n"),
        ("a.tsv", f"{JAMO}\tb\n{JAMO}\tc\n"),
        ("a.jsonl", json.dumps({JAMO: JAMO, "b": "c"})),
        ("a.parquet", parquet({JAMO: [JAMO], "b": ["c"]})),
    ],
)
def test_names_of_columns_are_composed_whatever_the_text_is(tmp_path, name, content, normalise):
    asked = []
    found = good(
        write(tmp_path / name, content), normalise=normalise, columns=lambda names: asked.extend(names) or names
    )
    whole = unicodedata.normalize("NFC", JAMO)
    assert [row for _, row in found] == [{whole: whole if normalise else JAMO, "b": "c"}]
    assert asked in ([], [whole, "b"])


@pytest.mark.parametrize("normalise", [True, False])
def test_two_columns_whose_names_differ_in_form_alone(tmp_path, normalise):
    whole = unicodedata.normalize("NFC", JAMO)
    file = write(tmp_path / "a.csv", f"{JAMO},{whole}\nb,c\n")
    assert f"the column {whole!r} is there twice" in refusal(file, normalise=normalise)
    file = write(tmp_path / "a.parquet", parquet({JAMO: ["b"], whole: ["c"]}))
    assert f"the column {whole!r} is there twice" in refusal(file, normalise=normalise)
    file = write(tmp_path / "a.jsonl", json.dumps({JAMO: "b", whole: "c"}))
    (flaw,) = flaws(file, normalise=normalise)
    assert flaw.endswith(f"the key {whole!r} is there twice in one object; keep one of the two")


def test_lines_are_composed_or_left(tmp_path):
    file = write(tmp_path / "a.txt", f"{JAMO}\r\nascii\n")
    assert list(lines(file, "strict")) == [(1, "한 é"), (2, "ascii")]
    assert list(lines(file, "strict", normalise=False)) == [(1, JAMO), (2, "ascii")]


# what is wrong with a row


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "a" "b"}', "not valid JSON (Expecting ',' delimiter at 14); write one object a line"),
        ('{"text": "a"', "not valid JSON ("),
        ("[1, 2]", "[1, 2] is not an object; write one object a line"),
        ('"text"', '"text" is not an object; write one object a line'),
        ("[" * 100_000, "not valid JSON ("),
        ('{"text": ' + "1" * 5003 + "}", "not valid JSON ("),
        ('{"a": 1, "b": 2, "b": 3}', "the key 'b' is there twice in one object; keep one of the two"),
        ('{"a": {"c": 1, "c": 1}}', "the key 'c' is there twice in one object; keep one of the two"),
        (r'{"text": "a\u0000b"}', "a NUL or half a character; mend it or go on with --errors replace"),
        (r'{"tokens": ["a", {"x": "\ud83d"}]}', "a NUL or half a character; mend it or go on with --errors replace"),
        (r'{"\udc00": 3}', "a NUL or half a character; mend it or go on with --errors replace"),
    ],
)
def test_reading_goes_on_after_a_bad_line_of_json(tmp_path, line, reason):
    file = write(tmp_path / "a.jsonl", f'{{"text": "fine"}}\n\n{line}\n{{"text": "too"}}\n')
    found = list(rows(file))
    assert [found[0], found[2]] == [(1, {"text": "fine"}), (4, {"text": "too"})]
    assert isinstance(found[1], Flaw)
    assert str(found[1]).startswith(f"{file}:3: {reason}")
    assert "\n" not in str(found[1])


@pytest.mark.parametrize("depth", [30, 700, 990])
def test_lists_within_lists_are_read_or_refused_but_never_crash(tmp_path, depth):
    file = write(tmp_path / "a.jsonl", f'{{"a": {"[" * depth + "]" * depth}}}\n{{"a": 3}}\n')
    found = list(rows(file))
    assert found[1] == (2, {"a": 3})
    if depth != 700:  # where the interpreter's version decides
        assert isinstance(found[0], Flaw) == (depth == 990)


def test_replacing_mends_what_is_deep_inside(tmp_path):
    file = write(tmp_path / "a.jsonl", r'{"tokens": ["a\u0000b", {"x\ud83d": "\ud83d"}, 3, null]}')
    assert list(rows(file, errors="replace")) == [(1, {"tokens": ["ab", {"x\ufffd": "\ufffd"}, 3, None]})]


@pytest.mark.parametrize("fields", ["x", "x,y,z"])
def test_reading_goes_on_after_a_row_of_another_width(tmp_path, fields):
    few = "," not in fields
    said = "1 field under 2 columns; fill in the missing ones" if few else "3 fields under 2 columns; "
    in_csv = said if few else f"{said}put quotes around a field that holds a comma"
    in_tsv = said if few else f"{said}write a tab inside a field as a space"
    file = write(tmp_path / "a.csv", f'a,text\n1,"two\nlines"\n\n{fields}\n3,4\n')
    assert flaws(file) == [f"{file}:5: {in_csv}"]
    assert good(file) == [(2, {"a": "1", "text": "two\nlines"}), (6, {"a": "3", "text": "4"})]
    file = write(tmp_path / "a.tsv", f"a\ttext\n1\t2\n{fields}\n5\t7\n".replace(",", "\t"))
    assert flaws(file) == [f"{file}:3: {in_tsv}"]
    assert [number for number, _ in good(file)] == [2, 4]


def test_reading_goes_on_after_a_bad_parquet_row(tmp_path):
    file = write(tmp_path / "a.parquet", parquet({"text": ["a", "b\0c", "d"], "parts": [["a"], ["b"], ["c\0"]]}))
    assert flaws(file) == [
        f"{file}:{n}: a NUL or half a character; mend it or go on with --errors replace" for n in (2, 3)
    ]
    assert good(file) == [(1, {"text": "a", "parts": ["a"]})]
    assert [row["text"] for _, row in good(file, errors="replace")] == ["a", "bc", "d"]


# what is wrong with a file


def test_two_columns_of_one_name(tmp_path):
    same = pyarrow.table([["a"], ["b"]], names=["text", "text"])
    pyarrow.parquet.write_table(same, tmp_path / "a.parquet")
    write(tmp_path / "a.csv", "\ntext,id,text\n")
    write(tmp_path / "a.tsv", "id\tid\n3\t5\n")
    assert refusal(tmp_path / "a.csv") == (
        f"{tmp_path}/a.csv:2: the column 'text' is there twice; rename one of the two"
    )
    assert f"{tmp_path}/a.tsv:1: the column 'id' is there twice" in refusal(tmp_path / "a.tsv")
    assert f"{tmp_path}/a.parquet: the column 'text' is there twice" in refusal(tmp_path / "a.parquet")


@pytest.mark.parametrize("row", ['"open,2\n3,4', '"a"b,2'])
def test_bad_quotes(tmp_path, row):
    file = write(tmp_path / "a.csv", f"a,text\n1,2\n{row}\n")
    message = refusal(file)
    assert message.startswith(f"{file}:3: not valid CSV (")
    assert message.endswith("; close each quote, and double those inside a field")


def test_bytes_that_are_not_utf8(tmp_path):
    file = write(tmp_path / "a.csv", b'text\n"one\ntwo"\n\xff\n')
    assert refusal(file).startswith(f"{file}:4: byte 0xff is not UTF-8")
    assert list(rows(file, errors="replace")) == [(2, {"text": "one\ntwo"}), (4, {"text": "\ufffd"})]


def test_text_is_not_a_table(tmp_path):
    file = write(tmp_path / "a.txt", "text")
    assert refusal(file) == f"{file} is not a table; give a file that ends in .jsonl .csv .tsv .parquet"


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv.gz", "a.tsv.xz", "a.parquet"])
def test_a_file_that_is_not_there(tmp_path, name):
    assert refusal(tmp_path / name).startswith(f"cannot read {tmp_path / name}: No such file or directory; ")


# values


def test_json_of_several_lines_tells_the_line():
    with pytest.raises(ValueError, match=r"^not valid JSON \(Expecting value at line 3, 2\); write it again$"):
        parse('{"a":\n\n ]', "write it again")


@given(st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_scalars_are_written_as_json_writes_them(value):
    assert scalar(value) == json.dumps(value)
    assert scalar(f" {value}") == f" {value}"


@pytest.mark.parametrize("value", [None, float("nan"), [], ["a"], {}, b"a"])
def test_what_is_no_scalar(value):
    assert scalar(value) is None
