import gzip
import io
import itertools
import json
import lzma
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.flaws import Flaw
from heedful.data.lines import CONVERT
from heedful.data.parallel import USUAL_SIDES, PairExample, Sides, aligned, sides, sources, table
from heedful.errors import UserError

OR_SKIP = ", or pass over such rows with --skip-bad"
JAMO = unicodedata.normalize("NFD", "좋다 é")
SPACES = "\t\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000 "


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def jsonl(path: Path, *rows: object) -> Path:
    return write(path, "\n".join(map(json.dumps, rows)))


def parquet(path: Path, columns: dict[str, list]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def plain(items) -> list:
    """Pairs without their place, and what is wrong with the others."""
    return [item.problem if isinstance(item, Flaw) else tuple(item)[1:] for item in items]


def refusal(items) -> str:
    with pytest.raises(UserError) as caught:
        list(items)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# aligned files


def test_a_line_and_its_translation(tmp_path):
    source, target = write(tmp_path / "a.en", "One.\nTwo.\n"), write(tmp_path / "a.ko", "하나.\r\n둘.")
    assert list(aligned(source, target)) == [
        PairExample(f"{source}:1", "One.", "하나."),
        PairExample(f"{source}:2", "Two.", "둘."),
    ]


def test_packed_files(tmp_path):
    plain_text = write(tmp_path / "a.de", "Ja\nNein\n")
    text = b"Yes\nNo\n"
    for file in (
        write(tmp_path / "a.en.gz", gzip.compress(text)),
        write(tmp_path / "a.en.xz", lzma.compress(text)),
        write(tmp_path / "a.en.zst", zstandard.compress(text)),
    ):
        assert plain(aligned(file, plain_text)) == [("Yes", "Ja"), ("No", "Nein")]
        assert plain(aligned(plain_text, file)) == [("Ja", "Yes"), ("Nein", "No")]


def test_white_space_and_composition(tmp_path):
    source = write(tmp_path / "a", f"{SPACES}a{SPACES}b{SPACES}\n{JAMO}\n")
    assert plain(aligned(source, source)) == [("a b", "a b"), ("좋다 é", "좋다 é")]


def test_empty_lines(tmp_path):
    source, target = write(tmp_path / "a.en", "a\n\n\u3000\nd\n\n"), write(tmp_path / "a.de", "A\n\nC\n \n\n")
    assert list(aligned(source, target)) == [
        PairExample(f"{source}:1", "a", "A"),
        Flaw(f"{source}:3", f"the source is empty, but its target {target}:3 is not; fill it in{OR_SKIP}"),
        Flaw(f"{source}:4", f"the target {target}:4 is empty, but its source is not; fill it in{OR_SKIP}"),
    ]


@pytest.mark.parametrize(("first", "second"), [(1000, 998), (998, 1000), (1, 0), (0, 1), (3, 2), (1, 2003)])
def test_different_numbers_of_lines(tmp_path, first, second):
    source, target = write(tmp_path / "a.en", "a\n" * first), write(tmp_path / "a.de", "b\n" * second)
    found = aligned(source, target)
    shared = min(first, second)
    assert plain(itertools.islice(found, shared)) == [("a", "b")] * shared
    lines = "1 line" if first == 1 else f"{first:,} lines"
    assert refusal(found) == (
        f"{source} has {lines} but {target} has {second:,}: "
        "line by line one must be the translation of the other; align them again"
    )


@given(st.lists(st.tuples(*[st.text("ab \u00a0", max_size=5)] * 2), max_size=11))
def test_every_line_is_a_pair_a_flaw_or_empty_twice(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("aligned")
    source, target = folder / "a", folder / "b"
    for file, side in ((source, 0), (target, 1)):
        write(file, "".join(pair[side] + "\n" for pair in pairs))
    kept = [(n, a.split(), b.split()) for n, (a, b) in enumerate(pairs, 1) if a.split() or b.split()]
    found = list(aligned(source, target))
    assert [item.where for item in found] == [f"{source}:{n}" for n, _, _ in kept]
    assert [isinstance(item, Flaw) for item in found] == [not (a and b) for _, a, b in kept]
    assert [item[1:] for item in found if isinstance(item, PairExample)] == [
        (" ".join(a), " ".join(b)) for _, a, b in kept if a and b
    ]


def test_aligned_files_that_cannot_be_read(tmp_path):
    good, bad = write(tmp_path / "a", "a\nb\n"), write(tmp_path / "b", b"a\n\xff\n")
    assert f"{bad}:2: byte 0xff is not UTF-8" in refusal(aligned(good, bad))
    assert plain(aligned(good, bad, errors="replace")) == [("a", "a"), ("b", "\ufffd")]
    assert refusal(aligned(good, tmp_path / "c")).startswith(f"cannot read {tmp_path / 'c'}: ")
    for name in ("a.csv", "a.tsv.gz", "a.jsonl"):
        message = f"{tmp_path / name} is a table, not lines of text; give one table with both sides as columns"
        assert refusal(aligned(good, tmp_path / name)) == message
        assert refusal(aligned(tmp_path / name, good)) == message


# which columns


@pytest.mark.parametrize(
    ("names", "source", "target", "expected"),
    [
        ("id source target", None, None, ("source", "target")),
        ("target Source id", None, None, ("Source", "target")),
        ("id tgt src", None, None, ("src", "tgt")),
        ("trg src id", None, None, ("src", "trg")),
        ("번호 원문 번역문", None, None, ("원문", "번역문")),
        ("source input output", None, None, ("input", "output")),
        ("source id tgt", None, None, ("source", "tgt")),
        ("en de", None, None, ("en", "de")),
        ("de source", None, None, ("source", "de")),
        ("target en", None, None, ("en", "target")),
        ("en de", "de", None, ("de", "en")),
        ("en de", None, "en", ("de", "en")),
        ("en de fr", "fr", "en", ("fr", "en")),
        ("en source target", "en", None, ("en", "target")),
        ("en source target", None, "en", ("source", "en")),
        ("source target", "target", "source", ("target", "source")),
        ("source target", "target", None, ("target", "source")),
    ],
)
def test_columns(names, source, target, expected):
    for required in (True, False):
        assert sides(names.split(), source, target, required=required) == expected


@pytest.mark.parametrize("pair", USUAL_SIDES)
def test_usual_columns(pair):
    assert sides(["id", pair[1].upper(), "x", pair[0].title()], None, None) == (pair[0].title(), pair[1].upper())


@pytest.mark.parametrize(
    ("names", "source", "target"),
    [("id en de", None, None), ("id x y", "x", None), ("id x y", None, "y"), ("en", None, None), ("", None, None)],
)
def test_columns_that_cannot_be_told(names, source, target):
    listed = names.replace(" ", ", ") or "none"
    message = f"^source and target cannot be told among the columns {listed}; name them with --source and --target$"
    with pytest.raises(ValueError, match=message):
        sides(names.split(), source, target)


@pytest.mark.parametrize(
    ("names", "source", "expected"),
    [("en", None, "en"), ("id source x", None, "source"), ("id en de", "de", "de"), ("en", "en", "en")],
)
def test_a_source_alone_where_no_target_is_required(names, source, expected):
    assert sides(names.split(), source, None, required=False) == Sides(expected, None)
    with pytest.raises(ValueError, match="cannot be told"):
        sides(names.split(), source, None)


@pytest.mark.parametrize("names", ["target", "id en de", "id en target"])
def test_no_source_even_where_no_target_is_required(names):
    message = f"^the source cannot be told among the columns {names.replace(' ', ', ')}; name it with --source$"
    with pytest.raises(ValueError, match=message):
        sides(names.split(), None, None, required=False)


def test_names_that_are_wrong():
    with pytest.raises(ValueError, match=r"^there is no column 'x' among a, b; name one with --source COLUMN$"):
        sides(["a", "b"], "x", "b")
    with pytest.raises(ValueError, match=r"^there is no column 'x' among a, b; name one with --target COLUMN$"):
        sides(["a", "b"], "a", "x", required=False)
    with pytest.raises(ValueError, match=r"^'a' is named by --source and by --target; name two different columns$"):
        sides(["a", "b"], "a", "a")
    many = [f"c{number}" for number in range(23)]
    with pytest.raises(ValueError, match=r"among c0, .*, c18, c19, …; name one"):
        sides(many, "x", None)


# tables


def test_every_kind_of_table(tmp_path):
    for file in (
        write(tmp_path / "a.csv", f'id,en,ko\n3,"one,  two",{JAMO}\n5,three,셋\n'),
        write(tmp_path / "a.tsv.gz", gzip.compress(f"id\ten\tko\n3\tone, two \t{JAMO}\n5\tthree\t셋\n".encode())),
        jsonl(tmp_path / "a.jsonl", {"id": 3, "en": "one,\ntwo", "ko": JAMO}, {"ko": "셋", "id": 5, "en": "three"}),
        parquet(tmp_path / "a.parquet", {"id": [3, 5], "en": ["one, two", "three"], "ko": [JAMO, "셋"]}),
    ):
        assert plain(table(file, "en", "ko")) == [("one, two", "좋다 é"), ("three", "셋")]
        assert plain(table(file, "ko", "en")) == [("좋다 é", "one, two"), ("셋", "three")]
        problem = refusal(table(file, "en", "de")) if file.suffix != ".jsonl" else str(next(table(file, "en", "de")))
        assert "there is no column 'de' among id, en, ko; name one with --target COLUMN" in problem


def test_places(tmp_path):
    file = write(tmp_path / "a.csv", 'a,b\n"one\ntwo",x\nthree,y\nfour\n')
    assert list(table(file, None, None)) == [
        PairExample(f"{file}:2", "one two", "x"),
        PairExample(f"{file}:4", "three", "y"),
        Flaw(f"{file}:5", "1 field under 2 columns; fill in the missing ones"),
    ]


def test_parquet_reads_no_other_column(tmp_path, monkeypatch):
    read = []
    whole = pyarrow.parquet.ParquetFile.iter_batches

    def spy(self, *args, columns, **options):
        read.append(columns)
        return whole(self, *args, columns=columns, **options)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", spy)
    file = parquet(tmp_path / "a.parquet", {JAMO: ["a"], "x": ["b"], "target": ["c"]})
    assert plain(table(file, JAMO, None)) == [("a", "c")]
    assert plain(table(file, unicodedata.normalize("NFC", JAMO), None)) == [("a", "c")]
    assert read == [[JAMO, "target"]] * 2


def test_empty_texts_of_a_table(tmp_path):
    file = write(tmp_path / "a.tsv", "source\ttarget\n\t \na\t\n\tB\nc\tC\n")
    no_source = f"the source is empty (column 'source'); fill it in{OR_SKIP}"
    no_target = f"the target is empty (column 'target'); fill it in{OR_SKIP}"
    assert plain(table(file, None, None)) == [no_target, no_source, ("c", "C")]
    assert plain(table(file, None, None, required=False)) == [("a", None), no_source, ("c", "C")]


def test_values_that_are_no_text(tmp_path):
    values = ["b", 3, True, ["a"], {"a": 1}, None, "b"]
    file = jsonl(tmp_path / "a.jsonl", *({"source": "a", "target": value} for value in values))
    not_text = [
        f"the target (column 'target') is {shown}, not text; write it as text{OR_SKIP}"
        for shown in ("3", "True", "['a']", "{'a': 1}")
    ]
    missing = f"the target is missing (column 'target'); fill it in{OR_SKIP}"
    assert plain(table(file, None, None)) == [("a", "b"), *not_text, missing, ("a", "b")]
    assert plain(table(file, None, None, required=False)) == [("a", "b"), *not_text, ("a", None), ("a", "b")]
    file = parquet(tmp_path / "a.parquet", {"source": [2, None], "target": ["a", "b"]})
    assert plain(table(file, None, None)) == [
        f"the source (column 'source') is 2, not text; write it as text{OR_SKIP}",
        f"the source is missing (column 'source'); fill it in{OR_SKIP}",
    ]


def test_rows_of_jsonl_that_lack_a_column(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", {"en": "a"}, {"de": "B", "en": "b"}, {"en": "c", "id": 3}, {"de": "D"}, [])
    no_source = f"the source is missing (column 'en'); fill it in{OR_SKIP}"
    no_object = "[] is not an object; write one object a line"
    assert plain(table(file, "en", "de")) == [
        f"there is no column 'de' among en; name one with --target COLUMN{OR_SKIP}",
        ("b", "B"),
        f"the target is missing (column 'de'); fill it in{OR_SKIP}",
        *(no_source, no_object),
    ]
    rest = [("a", None), ("b", "B"), ("c", None), no_source, no_object]
    assert plain(table(file, "en", "de", required=False)) == rest
    assert plain(table(file, None, None, required=False)) == rest


def test_a_target_that_is_named_is_never_guessed(tmp_path):
    file = jsonl(tmp_path / "a.jsonl", {"en": "a", "note": "x"}, {"en": "b", "note": "y", "de": "B"})
    assert plain(table(file, "en", "de", required=False)) == [("a", None), ("b", "B")]


def test_no_target_where_none_is_required(tmp_path):
    for file in (
        write(tmp_path / "a.csv", "id,source,x\n3,a,b\n"),
        jsonl(tmp_path / "a.jsonl", {"id": 3, "source": "a", "x": "b"}),
        parquet(tmp_path / "a.parquet", {"id": [3], "source": ["a"], "x": ["b"]}),
    ):
        assert plain(table(file, None, None, required=False)) == [("a", None)]
    file = write(tmp_path / "b.csv", "en,x\na,b\n")
    message = f"{file}: there is no column 'de' among en, x; name one with --target COLUMN"
    assert refusal(table(file, "en", "de", required=False)) == message


def test_languages_inside_one_column(tmp_path):
    pairs = [{"en": "Yes", "de": "Ja"}, {"de": "Nein", "en": "No"}]
    for file in (
        jsonl(tmp_path / "a.jsonl", *({"id": 3, "translation": pair} for pair in pairs)),
        jsonl(tmp_path / "b.jsonl", *({"translation": pair} for pair in pairs)),
        parquet(tmp_path / "a.parquet", {"id": ["3", "5"], "translation": pairs}),
    ):
        assert plain(table(file, None, None)) == [("Yes", "Ja"), ("No", "Nein")]
        assert plain(table(file, "de", "en")) == [("Ja", "Yes"), ("Nein", "No")]
        assert plain(sources(file, "de")) == [("Ja", None), ("Nein", None)]
    assert "no column 'fr' among en, de; name one with --target" in refusal(table(file, "en", "fr"))


def test_a_translation_that_is_a_text(tmp_path):
    for file in (
        write(tmp_path / "a.csv", "en,translation,id\na,A,3\n"),
        parquet(tmp_path / "a.parquet", {"en": ["a"], "translation": ["A"], "id": [3]}),
    ):
        assert plain(table(file, "en", "translation")) == [("a", "A")]
        message = f"{file}: source and target cannot be told among the columns en, translation, id; "
        assert refusal(table(file, None, None)) == message + "name them with --source and --target"


def test_tables_whose_columns_cannot_be_told(tmp_path):
    message = "source and target cannot be told among the columns id, en, de; name them with --source and --target"
    for file in (
        write(tmp_path / "a.csv", "id,en,de\n3,a,b\n"),
        parquet(tmp_path / "a.parquet", {"id": [3], "en": ["a"], "de": ["b"]}),
    ):
        assert refusal(table(file, None, None)) == f"{file}: {message}"
    file = jsonl(tmp_path / "a.jsonl", {"id": 3, "en": "a", "de": "b"}, {"source": "a", "target": "b"})
    assert plain(table(file, None, None)) == [message + OR_SKIP, ("a", "b")]


def test_files_that_are_no_tables(tmp_path):
    assert refusal(table(tmp_path / "a.txt", None, None)).startswith(f"{tmp_path / 'a.txt'} is not a table; ")
    assert "is JSON as a whole" in refusal(table(tmp_path / "a.json", None, None))
    assert "is JSON as a whole" in refusal(sources(tmp_path / "a.json", None))
    file = write(tmp_path / "a.csv", b"a,b\nx,\xff\n")
    assert f"{file}:2: byte 0xff is not UTF-8" in refusal(table(file, None, None))
    assert plain(table(file, None, None, errors="replace")) == [("x", "\ufffd")]


# what is to be translated


def test_lines_to_translate(tmp_path):
    file = write(tmp_path / "a.txt.gz", gzip.compress(f"\n a  b \n\n{JAMO}\n\u3000\n".encode()))
    assert list(sources(file, None)) == [
        PairExample(f"{file}:{number}", text, None) for number, text in enumerate(("", "a b", "", "좋다 é", ""), 1)
    ]


def test_a_column_to_translate(tmp_path):
    for file in (
        write(tmp_path / "a.csv", "en,de\na,A\n,\n b  c,\n"),
        jsonl(tmp_path / "a.jsonl", *({"en": text, "de": "A"} for text in ("a", "", " b\nc"))),
        parquet(tmp_path / "a.parquet", {"en": ["a", " ", "b c"], "de": ["", "", "A"]}),
    ):
        assert plain(sources(file, None)) == [("a", None), ("", None), ("b c", None)]
        assert plain(sources(file, "en")) == [("a", None), ("", None), ("b c", None)]
    assert plain(sources(file, "de")) == [("", None), ("", None), ("A", None)]
    file = jsonl(tmp_path / "b.jsonl", {"src": "a"}, {"src": 3}, {"x": "b"}, {"src": "c", "x": "d"}, {"src": None})
    assert plain(sources(file, None)) == [
        ("a", None),
        f"the source (column 'src') is 3, not text; write it as text{OR_SKIP}",
        f"there is no column 'src' among x; name one with --source COLUMN{OR_SKIP}",
        ("c", None),
        f"the source is missing (column 'src'); fill it in{OR_SKIP}",
    ]
    file = write(tmp_path / "b.csv", "id,en,de\n3,a,b\n")
    message = f"{file}: the source cannot be told among the columns id, en, de; name it with --source"
    assert refusal(sources(file, None)) == message
    assert plain(sources(file, "de")) == [("b", None)]


def test_standard_input_to_translate(monkeypatch):
    def typed(errors="strict") -> list:
        data = b"\xef\xbb\xbf one\r\n\n" + JAMO.encode() + b"\na\0b\n\xff\nlast"
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        return list(sources(None, None, errors=errors))

    found = typed()
    assert [item.where for item in found] == [f"standard input:{number}" for number in range(1, 7)]
    assert plain(found) == [
        *(("one", None), ("", None), ("좋다 é", None)),
        f"a NUL byte; remove it, go on with --errors replace{OR_SKIP}",
        f"byte 0xff is not UTF-8; {CONVERT}, go on with --errors replace{OR_SKIP}",
        ("last", None),
    ]
    assert plain(typed("replace"))[3:] == [("ab", None), ("\ufffd", None), ("last", None)]
    monkeypatch.setattr(sys, "stdin", None)
    assert refusal(sources(None, None)) == "standard input is closed; name a file to read"


def test_a_column_of_what_is_no_table(tmp_path):
    rest = "is not a table, hence has no column 'en'; leave out --source, or give a file that ends in .jsonl .csv"
    assert refusal(sources(None, "en")).startswith(f"standard input {rest}")
    assert refusal(sources(tmp_path / "a.txt", "en")).startswith(f"{tmp_path / 'a.txt'} {rest}")
