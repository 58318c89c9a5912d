import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tempfile
import tracemalloc
import unicodedata
from pathlib import Path
from random import Random

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.lines import KEPT, MAX_LINE
from heedful.data.sentences import MAX_SENTENCE, split_sentences
from heedful.data.sources import DOCUMENT_SENTENCES, SUFFIXES, TextOptions, documents, expand, spool
from heedful.errors import UserError

REPLACE = TextOptions(errors="replace")
PACK = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(*files: Path, options: TextOptions = TextOptions()) -> list[list[str]]:  # noqa: B008 (frozen)
    return list(documents(files, options))


def flat(found: list[list[str]]) -> list[str]:
    return [sentence for document in found for sentence in document]


def parquet(columns: dict[str, list], **options: int) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), out, **options)
    return out.getvalue()


def refusal(call, *args, **options) -> str:
    """The one line that a user reads."""
    with pytest.raises(UserError) as caught:
        list(call(*args, **options))
    message = str(caught.value)
    assert "\n" not in message
    return message


# sentences


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        (
            "One is here. Two is there! Is it? Yes… Good.",
            ["One is here.", "Two is there!", "Is it?", "Yes…", "Good."],
        ),
        ('He said "Stop." Then (he left.) Gone', ['He said "Stop."', "Then (he left.)", "Gone"]),
        ("“Go!” She went.", ["“Go!”", "She went."]),
        ("집에 갔다. 잘 잤어요. 그렇죠. 끝", ["집에 갔다.", "잘 잤어요.", "그렇죠.", "끝"]),
        ("첫째다。둘째다！「셋째？」넷째", ["첫째다。", "둘째다！", "「셋째？」", "넷째"]),
        ("그는 “갔다.” 라고 했다. 끝", ["그는 “갔다.” 라고 했다.", "끝"]),
        ("Wait... What?! No way", ["Wait...", "What?!", "No way"]),
        ("He said No. Then he left", ["He said No.", "Then he left"]),
        ("It was 1999. Then came more", ["It was 1999.", "Then came more"]),
        ("", []),
        ("   ", []),
        ("...", ["..."]),
    ],
)
def test_splits_at_sentence_ends(paragraph, sentences):
    assert split_sentences(paragraph) == sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "Mr. Kim met Dr. Lee",
        "J. K. Rowling wrote it",
        "See e.g. Figure or (i.e. Table) or vs. Others",
        "No. 5 is alive",
        "The U.S. Army",
        "Pi is 3.14 and e is 2.71",
        "2024. 3. 15. 10시",
        "1. Introduction",
        "It was (oh!) small and it said hm... and went on",
        "Vaswani et al. (2017)",
        "see www.example.com/A.B.C?D now",
    ],
)
def test_does_not_split_inside_a_sentence(sentence):
    assert split_sentences(sentence) == [sentence]


@given(st.text(st.sampled_from("aB가3 .!?…。！\"')」\n\t") | st.characters(codec="utf-8"), max_size=200))
def test_splitting_loses_no_character(paragraph):
    sentences = split_sentences(paragraph)
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@pytest.mark.parametrize("text", ["words " * 9001, "가" * 25_013, "a" * 10_000 + " b", ("x" * 9_999 + " ") * 3])
def test_a_paragraph_without_an_end_is_cut(text):
    pieces = split_sentences(text)
    assert len(pieces) == -(-len(text.strip()) // MAX_SENTENCE)
    assert all(len(piece) <= MAX_SENTENCE for piece in pieces)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
    assert {word for piece in pieces for word in piece.split()} == set(text.split()) or " " not in text


@pytest.mark.parametrize("text", ["!" * 1_000_000, ".)" * 500_000, "a. " * 333_333, "a." * 500_000])
def test_splitting_takes_linear_time(text):
    # Each takes a fraction of a second; were it quadratic, the suite would not come back.
    assert sum(map(len, split_sentences(text))) >= len(text.rstrip()) - len(text) // 100


# plain text


def test_blank_lines_end_documents_and_space_collapses(tmp_path):
    file = write(tmp_path / "a.txt", "\n \t\n one\ttwo  three \nfour\n\n\u3000\n\nfive\x0bsix")
    assert read(file) == [["one two three", "four"], ["five six"]]


def test_only_long_lines_are_split(tmp_path):
    short, long = "One. Two.", "This is a sentence of some length. " * 9
    assert len(long.strip()) > 300
    file = write(tmp_path / "a.txt", f"{short}\n{long}\n")
    assert read(file) == [[short, *["This is a sentence of some length."] * 9]]


def test_every_line_end_and_a_byte_order_mark(tmp_path):
    file = write(tmp_path / "a.txt", "\ufeffone\r\ntwo\rthree\n\r\nfour\r\rfive\r")
    assert read(file) == [["one", "two", "three"], ["four"], ["five"]]


def test_a_line_end_across_chunks_is_one(tmp_path):
    # The "\r" is the last byte of the first chunk; taken alone it would make a blank line.
    file = write(tmp_path / "a.txt", b"a" * 1023 + b" " * ((1 << 20) - 1024) + b"\r\nb\r\n")
    assert read(file) == [["a" * 1023, "b"]]


def test_text_is_composed(tmp_path):
    jamo = unicodedata.normalize("NFD", "한글 é")
    assert jamo != "한글 é"
    assert read(write(tmp_path / "a.txt", jamo)) == [["한글 é"]]
    escaped = json.dumps({"text": jamo})
    assert escaped.isascii()
    assert read(write(tmp_path / "a.jsonl", escaped)) == [["한글 é"]]


def test_the_column_of_the_text_is_named_in_any_form(tmp_path):
    jamo = unicodedata.normalize("NFD", "리뷰")
    for one, other in ((jamo, "리뷰"), ("리뷰", jamo)):
        file = write(tmp_path / "a.csv", f"a,{one}\nb,c\n")
        assert list(documents([file], TextOptions(text=other))) == [["c"]]


def test_control_characters_stay(tmp_path):
    assert read(write(tmp_path / "a.txt", "a\x07b\x1bc")) == [["a\x07b\x1bc"]]


@pytest.mark.parametrize("count", [511, 512, 513, 1031])
def test_a_long_document_continues_as_another(tmp_path, count):
    lines = [f"line {i}" for i in range(count)]
    row = json.dumps({"text": "\n".join(lines)})
    for file in (write(tmp_path / "a.txt", "\n".join(lines)), write(tmp_path / "a.jsonl", row)):
        found = read(file)
        assert [len(document) for document in found[:-1]] == [DOCUMENT_SENTENCES] * ((count - 1) // 512)
        assert flat(found) == lines


def test_files_are_separate_documents_and_an_empty_one_is_fine(tmp_path):
    files = [write(tmp_path / "a.txt", "one"), write(tmp_path / "b.txt", ""), write(tmp_path / "c", "two")]
    assert read(*files) == [["one"], ["two"]]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)))
def test_packed_files_read_as_plain_ones(lines):
    text = "\n".join(["first", *lines])
    with tempfile.TemporaryDirectory() as folder:
        found = [read(write(Path(folder, f"a.txt{packing}"), pack(text.encode()))) for packing, pack in PACK.items()]
    assert all(other == found[0] for other in found)
    composed = unicodedata.normalize("NFC", text)
    assert "".join("".join(flat(found[0])).split()) == "".join(composed.removeprefix("\ufeff").split())


@pytest.mark.parametrize("packing", PACK)
def test_text_longer_than_a_chunk(tmp_path, packing):
    lines = [f"{i} 가나다" for i in range(100_003)]
    data = "\n".join(lines).encode()
    half = data.index(b"\n5000 ") + 7  # two members, as `cat a.gz b.gz` makes them
    packed = PACK[packing](data[:half]) + PACK[packing](data[half:])
    assert flat(read(write(tmp_path / f"a.txt{packing}", packed))) == lines


def test_memory_does_not_grow_with_the_file(tmp_path):
    line = "word " * 50 + "\n"
    files = [write(tmp_path / f"{n}.txt", line * (n << 14)) for n in (1, 4)]
    peaks = []
    for file in files:
        tracemalloc.start()
        assert sum(1 for _ in documents([file], TextOptions())) == file.stat().st_size // len(line) // 512
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


# what is wrong with a file


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("options", [TextOptions(), REPLACE])
def test_binary_data(tmp_path, packing, options):
    file = write(tmp_path / f"a.txt{packing}", PACK[packing](b"\xff\xd8" + b"x" * 65_533 + b"\0"))
    message = refusal(documents, [file], options)
    assert message.startswith(f"{file} looks like binary data, not text; give UTF-8")


def test_utf16_is_told_the_way_out(tmp_path):
    file = write(tmp_path / "a.txt", "한글 text\n".encode("utf-16"))
    assert "iconv makes it from UTF-16" in refusal(documents, [file], TextOptions())


@pytest.mark.parametrize("before", [20_011, 175_003])
def test_a_late_nul(tmp_path, before):
    file = write(tmp_path / "a.txt", b"word\r\n" * before + b"a\0b\n")
    message = refusal(documents, [file], TextOptions())
    assert message == f"{file}:{before + 1}: a NUL byte; remove it or go on with --errors replace"
    assert read(file, options=REPLACE)[-1][-1] == "ab"


def test_broken_utf8(tmp_path):
    file = write(tmp_path / "a.txt", "한글\r\n\r\n둘\r\n".encode() + "셋".encode("cp949") + b"\n")
    message = refusal(documents, [file], TextOptions())
    assert message.startswith(f"{file}:4: byte 0xbc is not UTF-8; convert the text")
    assert message.endswith("go on with --errors replace")
    assert read(file, options=REPLACE) == [["한글"], ["둘", "\ufffd\ufffd"]]


def test_broken_utf8_in_a_later_chunk(tmp_path):
    file = write(tmp_path / "a.txt", b"word word\n" * 300_007 + b"\xff\n")
    assert f"{file}:300008: byte 0xff" in refusal(documents, [file], TextOptions())


@pytest.mark.parametrize(("size", "fits"), [(MAX_LINE, True), (MAX_LINE + 1, False)])
def test_the_longest_line(tmp_path, size, fits):
    file = write(tmp_path / "a.txt", b"one\n" + b"a" * size + b"\ntwo\n")
    if fits:
        assert sum(len(document) for document in read(file)) == 2 + -(-size // MAX_SENTENCE)
    else:
        message = refusal(documents, [file], TextOptions())
        assert message == f"{file}:2: a line of over 16 MiB; put line breaks between sentences"


def test_a_gigantic_line_is_not_read_to_its_end(tmp_path):
    packer = zstandard.ZstdCompressor().compressobj()
    data = b"".join([packer.compress(b"a" * (1 << 20)) for _ in range(256)]) + packer.flush()
    file = write(tmp_path / "a.txt.zst", data)
    tracemalloc.start()
    message = refusal(documents, [file], TextOptions())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert f"{file}:1: a line of over 16 MiB" in message
    assert peak < 128 << 20


@pytest.mark.parametrize("content", ["", "\n \n\t\n", "\ufeff"])
def test_no_text_at_all(tmp_path, content):
    file = write(tmp_path / "corpus.txt", content)
    assert refusal(documents, [file], TextOptions()).startswith(f"{file} holds no text; ")
    files = [write(tmp_path / f"{i}.txt", content) for i in range(5)]
    message = refusal(documents, files, TextOptions())
    assert message.startswith(f"{files[0]}, {files[1]}, {files[2]} and 2 more hold no text; ")


@pytest.mark.parametrize("packing", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("name", ["a.txt", "a.parquet"])
def test_a_damaged_archive(tmp_path, packing, name):
    whole = PACK[packing](Random(3).randbytes(5003).hex().encode())
    broken = [whole[:-1], whole[: len(whole) // 2], whole[:7], b"not packed at all"]
    if packing != ".xz":  # whose reader leaves what follows alone
        broken.append(whole + b"garbage beyond")
    if packing != ".zst":  # which has no checksum by default
        broken.append(whole[:2000] + bytes(byte ^ 255 for byte in whole[2000:2100]) + whole[2100:])
    for data in broken:
        file = write(tmp_path / f"{name}{packing}", data)
        message = refusal(documents, [file], TextOptions())
        assert message.startswith(f"{file} is damaged or cut short (")
        assert message.endswith("; fetch or write it again")


def test_a_damaged_parquet(tmp_path):
    whole = parquet({"text": [f"{i**20:x}" for i in range(211)]})
    for data in (b"", b"PAR1", whole[:-1], whole[: len(whole) // 2], b"x" * len(whole)):
        file = write(tmp_path / "a.parquet", data)
        assert refusal(documents, [file], TextOptions()).startswith(f"{file} is damaged or cut short (")


def test_parquet_text_that_is_not_utf8(tmp_path):
    bad = pyarrow.Array.from_buffers(
        pyarrow.string(), 1, [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0"), pyarrow.py_buffer(b"\xff")]
    )
    file = write(tmp_path / "a.parquet", parquet({"text": bad}))
    assert refusal(documents, [file], TextOptions()).startswith(f"{file}: text after row 0 is not UTF-8; ")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl.gz", "a.txt.zst", "a.parquet"])
def test_a_file_that_vanished(tmp_path, name):
    message = refusal(documents, [tmp_path / name], TextOptions())
    assert message.startswith(f"cannot read {tmp_path / name}: No such file or directory; check that")


@pytest.mark.parametrize("name", ["a.txt", "a.xz"])
def test_a_file_that_may_not_be_read(tmp_path, monkeypatch, name):
    def deny(*args, **options):
        raise PermissionError(13, "Permission denied")

    file = write(tmp_path / name, "text")
    monkeypatch.setattr("heedful.data.lines._OPEN", {"": deny, ".xz": deny})
    message = refusal(documents, [file], TextOptions())
    assert message.startswith(f"cannot read {file}: Permission denied; check that it is there and")


def test_options_check_themselves():
    with pytest.raises(UserError, match="errors 'ignore' is not known; try strict or replace"):
        TextOptions(errors="ignore")  # pyrefly: ignore


# tables

ROWS = {"id": ["3", "5", "7"], "Text": ['He said "a, b". Then\nnext', "", "둘째  행"]}
TABLE = {
    ".jsonl": "\n".join(
        json.dumps({"id": i, "Text": t}) for i, t in zip(ROWS["id"], ROWS["Text"], strict=True)
    ).encode(),
    ".csv": 'id,Text\n3,"He said ""a, b"". Then\nnext"\n5,\n7,둘째  행\n'.encode(),
    ".parquet": parquet(ROWS),
}


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("kind", TABLE)
def test_tables_of_each_kind(tmp_path, kind, packing):
    file = write(tmp_path / f"a{kind}{packing}", PACK[packing](TABLE[kind]))
    assert read(file) == [['He said "a, b". Then', "next"], ["둘째 행"]]
    assert read(file, options=TextOptions(text="id")) == [["3"], ["5"], ["7"]]


def test_tsv_has_no_quotes(tmp_path):
    file = write(tmp_path / "a.tsv", '\ufeffid\tsentence\r\n3\t"one, two\r\n\r\n5\t\r\n7\tit""s\r\n')
    assert read(file) == [['"one, two'], ['it""s']]


def test_a_csv_field_longer_than_the_usual_limit(tmp_path):
    file = write(tmp_path / "a.csv", "text\n" + "word " * 100_003 + "\n")
    assert " ".join(read(file)[0]) == ("word " * 100_003).strip()


def test_a_parquet_of_many_batches(tmp_path):
    texts = [f"row {i}" for i in range(2003)]
    file = write(tmp_path / "a.parquet", parquet({"text": texts, "n": list(range(2003))}, row_group_size=331))
    assert read(file) == [[text] for text in texts]


def test_documents_reads_one_column_of_a_parquet(tmp_path, monkeypatch):
    asked = []
    iter_batches = pyarrow.parquet.ParquetFile.iter_batches
    monkeypatch.setattr(
        pyarrow.parquet.ParquetFile,
        "iter_batches",
        lambda self, **options: asked.append(options["columns"]) or iter_batches(self, **options),
    )
    read(write(tmp_path / "a.parquet", TABLE[".parquet"]))
    assert asked == [["Text"]]


def test_an_unpacked_parquet_is_not_left_behind(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    file = write(tmp_path / "a.parquet.gz", gzip.compress(TABLE[".parquet"]))
    next(documents([file], TextOptions()))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        (["title", "TEXT", "body"], "TEXT"),
        (["id", "comment", "Review"], "Review"),
        (["Text", "text"], "Text"),
        (["번호", "문장"], "문장"),
        (["제목", "내용", "본문"], "본문"),
    ],
)
def test_the_text_column_is_found(tmp_path, columns, chosen):
    file = write(tmp_path / "a.csv", f"{','.join(columns)}\n{','.join(f'in {c}' for c in columns)}\n")
    assert read(file) == [[f"in {chosen}"]]


@pytest.mark.parametrize("kind", [".jsonl", ".csv", ".tsv", ".parquet"])
def test_no_such_column(tmp_path, kind):
    rows = {".csv": b"a,b\n1,2\n", ".tsv": b"a\tb\n1\t2\n", ".jsonl": b'{"a": "1", "b": "2"}'}
    rows[".parquet"] = parquet({"a": ["1"], "b": ["2"]})
    file = write(tmp_path / f"x{kind}", rows[kind])
    message = refusal(documents, [file], TextOptions())
    assert message.startswith(str(file))
    assert message.endswith("no column is known to hold the text; name one with --text COLUMN, of: a, b")
    message = refusal(documents, [file], TextOptions(text="c"))
    assert message.endswith("there is no column c; name one with --text COLUMN, of: a, b")


def test_a_jsonl_row_without_the_column(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"text": "one"}\n\n{"content": "two"}\n')
    message = refusal(documents, [file], TextOptions())
    assert message == f"{file}:3: there is no column text; name one with --text COLUMN, of: content"


def test_null_text_is_skipped_and_other_values_are_refused(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"text": "one"}\n{"text": null}\n{"text": " "}\n{"text": [5, 7]}\n')
    stream = documents([file], TextOptions())
    assert next(stream) == ["one"]
    assert refusal(lambda: stream) == f"{file}:4: text is [5, 7], not text; choose another with --text COLUMN"
    table = write(tmp_path / "a.parquet", parquet({"text": [None, 5]}))
    assert f"{table}:2: text is 5, not text" in refusal(documents, [table], TextOptions())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "a" "b"}', "not valid JSON (Expecting ',' delimiter at 14); write one object a line"),
        ('{"text": "a"', "not valid JSON ("),
        ("[1, 2]", "[1, 2] is not an object; write one object a line"),
        ('"text"', '"text" is not an object; write one object a line'),
        ("[" * 100_000, "not valid JSON ("),
        ('{"text": ' + "1" * 5003 + "}", "not valid JSON ("),
    ],
)
def test_bad_jsonl(tmp_path, line, reason):
    file = write(tmp_path / "a.jsonl", f'{{"text": "fine"}}\n\n{line}\n')
    assert refusal(documents, [file], TextOptions()).startswith(f"{file}:3: {reason}")


@pytest.mark.parametrize(("escape", "mended"), [("a\\ud83db", "a\ufffdb"), ("a\\u0000b", "ab")])
def test_json_escapes_that_are_not_text(tmp_path, escape, mended):
    file = write(tmp_path / "a.jsonl", f'{{"text": "\\ud83d\\ude00"}}\n{{"text": "{escape}"}}')
    message = refusal(documents, [file], TextOptions())
    assert message.startswith(f"{file}:2: ")
    assert message.endswith("go on with --errors replace")
    assert read(file, options=REPLACE) == [["😀"], [mended]]


@pytest.mark.parametrize("fields", ["x", "x,y,z"])
def test_csv_and_tsv_rows_of_another_width(tmp_path, fields):
    few = "," not in fields
    said = "1 field under 2 columns; fill in the missing ones" if few else "3 fields under 2 columns; "
    in_csv = said if few else f"{said}put quotes around a field that holds a comma"
    in_tsv = said if few else f"{said}write a tab inside a field as a space"
    file = write(tmp_path / "a.csv", f'a,text\n1,"two\nlines"\n\n{fields}\n')
    message = refusal(documents, [file], TextOptions())
    assert message == f"{file}:5: {in_csv}"
    file = write(tmp_path / "a.tsv", f"a\ttext\n1\t2\n{fields}\n".replace(",", "\t"))
    message = refusal(documents, [file], TextOptions())
    assert message == f"{file}:3: {in_tsv}"


@pytest.mark.parametrize("row", ['"open,2\n3,4', '"a"b,2'])
def test_bad_quotes(tmp_path, row):
    file = write(tmp_path / "a.csv", f"a,text\n1,2\n{row}\n")
    message = refusal(documents, [file], TextOptions())
    assert message.startswith(f"{file}:3: not valid CSV (")
    assert message.endswith("; close each quote, and double those inside a field")


def test_two_columns_of_one_name(tmp_path):
    same = pyarrow.table([["a"], ["b"]], names=["text", "text"])
    pyarrow.parquet.write_table(same, tmp_path / "a.parquet")
    for name, content in {"a.csv": "text,id,text\n", "a.tsv": "text\ttext\n"}.items():
        write(tmp_path / name, content)
    for name in ("a.csv", "a.tsv", "a.parquet"):
        message = refusal(documents, [tmp_path / name], TextOptions())
        assert message.startswith(str(tmp_path / name))
        assert message.endswith("the column 'text' is there twice; rename one of the two")


def test_broken_utf8_in_a_table_names_the_line(tmp_path):
    file = write(tmp_path / "a.csv", b'text\n"one\ntwo"\n\xff\n')
    assert refusal(documents, [file], TextOptions()).startswith(f"{file}:4: byte 0xff is not UTF-8")
    assert read(file, options=REPLACE) == [["one", "two"], ["\ufffd"]]


# inputs


def test_suffixes():
    assert {".txt", ".jsonl.gz", ".csv.xz", ".tsv.zst", ".parquet"} <= set(SUFFIXES)


def test_a_folder_is_searched(tmp_path):
    kept = ["B.TXT", "a.txt", "sub/b.jsonl.gz", "sub/deep/c.parquet"]
    for name in [*kept, "image.png", "noise.gz", ".hidden.txt", ".git/d.txt", "sub/.e.txt"]:
        write(tmp_path / name, "x")
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "nowhere")
    assert expand([str(tmp_path)]) == [tmp_path / name for name in kept]


@pytest.mark.parametrize("mark", ["heedful.toml", "tokenizer.json"])
def test_folders_that_were_made_here_are_passed_over(tmp_path, mark):
    text = write(tmp_path / "a.txt", "a")
    write(tmp_path / "deep" / "model" / mark, "")
    write(tmp_path / "deep" / "model" / "vocab.txt", "a")
    write(tmp_path / "deep" / "model" / "checkpoints" / "text.txt", "a")
    other = write(tmp_path / "deep" / "b.txt", "b")
    assert expand([str(tmp_path)]) == [text, other]


def test_a_whole_json_is_told_the_way_out(tmp_path):
    file = write(tmp_path / "a.JSON", "[]")
    assert refusal(expand, [str(file)]) == f"{file} is JSON as a whole; write one object a line and name it .jsonl"


def test_files_and_globs_in_the_order_given_each_once(tmp_path, monkeypatch):
    for name in ("b.txt", "a.txt", "sub/c.txt", "wiki_01", "[x].txt"):
        write(tmp_path / name, "x")
    monkeypatch.chdir(tmp_path)
    names = expand(["wiki_*", "b.txt", "./a.txt", "*.txt", str(tmp_path / "a.txt"), "**/c.txt", "[x].txt", "."])
    assert [str(name) for name in names] == ["wiki_01", "b.txt", "a.txt", "[x].txt", "sub/c.txt"]


def test_inputs_that_are_not_there(tmp_path):
    file = write(tmp_path / "corpus.txt", "x")
    assert refusal(expand, [f"{tmp_path}/corpsu.txt"]) == (
        f"{tmp_path}/corpsu.txt does not exist; did you mean {file}?"
    )
    assert refusal(expand, [f"{tmp_path}/zzz"]) == (f"{tmp_path}/zzz does not exist; name a file, a folder or a glob")
    assert f"nor does the folder {tmp_path}/no; " in refusal(expand, [f"{tmp_path}/no/a.txt"])
    assert refusal(expand, [f"{tmp_path}/*.csv"]).startswith(f"no file matches {tmp_path}/*.csv; ")
    assert "name a file, a folder or a glob" in refusal(expand, [])
    assert "name a file, a folder or a glob" in refusal(expand, [str(file), ""])
    assert refusal(expand, ["a" * 5000]).startswith("cannot read aaa")


def test_a_folder_without_text_says_what_is_read(tmp_path):
    write(tmp_path / "a.png", "x")
    message = refusal(expand, [str(tmp_path)])
    assert message == (
        f"{tmp_path} holds no text; the files read end in .txt .text .md .jsonl .csv .tsv .parquet, "
        "each with or without .gz .xz .zst"
    )
    assert "no file matches" in refusal(expand, [f"{tmp_path.parent}/{tmp_path.name[:-1]}[0-9]"])


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    message = refusal(expand, [str(tmp_path / "pipe")])
    assert message.startswith(f"{tmp_path}/pipe is no plain file")
    assert message.endswith("pipe it into - instead")


def test_standard_input_is_kept(tmp_path):
    data = Random(3).randbytes((1 << 20) + 7)
    file = spool(io.BytesIO(data), tmp_path / "new" / "folder")
    assert file == tmp_path / "new" / "folder" / KEPT
    assert file.read_bytes() == data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("하나\n둘\n".encode("cp949"), "standard input:1: byte 0xc7 is not UTF-8; convert the text (iconv "),
        (b"one\n" * 100_003 + b"\0", "standard input:100004: a NUL byte; remove it"),
        (b"\0", "standard input looks like binary data"),
        (b"a" * (MAX_LINE + 1), "standard input:1: a line of over 16 MiB"),
        (b" \n", "standard input holds no text"),
    ],
)
def test_what_is_wrong_with_standard_input_is_told_by_that_name(tmp_path, data, said):
    assert refusal(documents, [spool(io.BytesIO(data), tmp_path)], TextOptions()).startswith(said)


def test_standard_input_that_is_empty_or_has_no_place(tmp_path):
    assert refusal(spool, io.BytesIO(), tmp_path) == (
        "standard input is empty; pipe text into it or name a file instead of -"
    )
    assert list(tmp_path.iterdir()) == []
    file = write(tmp_path / "file", "x")
    message = refusal(spool, io.BytesIO(b"x"), file)
    assert message.startswith(f"cannot write {file}/{KEPT}: ")


def test_heavy_libraries_are_not_imported():
    code = "import heedful.data.sources, sys; print({'torch', 'pyarrow', 'zstandard'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"
