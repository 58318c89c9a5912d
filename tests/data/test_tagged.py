import gzip
import json
import lzma
import unicodedata
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.flaws import Flaw
from heedful.data.tagged import TagExample, examples, scheme
from heedful.errors import UserError

OR_SKIP = ", or pass over such rows with --skip-bad"


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def jsonl(path: Path, *rows: dict) -> Path:
    return write(path, "\n".join(map(json.dumps, rows)))


def read(file: Path, **options) -> list:
    """Sentences as `token/tag` with their line, and what is wrong with the others."""
    found = []
    for item in examples(file, **options):
        line = int(item.where.removeprefix(f"{file}:"))
        if isinstance(item, Flaw):
            assert item.problem.endswith(OR_SKIP)
            found.append((line, item.problem.removesuffix(OR_SKIP)))
        else:
            tags = item.tags or [None] * len(item.words)
            found.append(
                (line, [word + (f"/{tag}" if tag else "") for word, tag in zip(item.words, tags, strict=True)])
            )
    return found


# CoNLL


def test_sentences_between_blank_lines(tmp_path):
    file = write(tmp_path / "a.conll", "\n\nAnna\tB-PER\nsings\tO\n\n \t\n\nSeoul\tB-LOC")
    assert list(examples(file)) == [
        TagExample(f"{file}:3", ("Anna", "sings"), ("B-PER", "O")),
        TagExample(f"{file}:8", ("Seoul",), ("B-LOC",)),
    ]


@pytest.mark.parametrize("name", ["a.bio", "a.txt", "a.tsv", "a", "a.ner.gz"])
def test_names_and_packings(tmp_path, name):
    data = b"Anna O\r\n\r\nsings O\r\n"
    file = write(tmp_path / name, gzip.compress(data) if name.endswith(".gz") else data)
    assert read(file) == [(1, ["Anna/O"]), (3, ["sings/O"])]


def test_the_first_and_the_last_of_several_columns(tmp_path):
    file = write(tmp_path / "a.conll", "Anna NNP  B-NP   B-PER \nsings VBZ B-VP O\n")
    assert read(file) == [(1, ["Anna/B-PER", "sings/O"])]
    file = write(tmp_path / "b.conll", "Anna\tNNP\tB-PER\n")
    assert read(file) == [(1, ["Anna/B-PER"])]


def test_tokens_may_hold_spaces_where_tabs_part(tmp_path):
    file = write(tmp_path / "a.conll", "New York\tB-LOC\n 10 \t O \n3\u00a0km\tO\n")
    assert read(file) == [(1, ["New York/B-LOC", "10/O", "3\u00a0km/O"])]
    file = write(tmp_path / "b.conll", "3\u00a0km O\n")
    assert read(file) == [(1, ["3\u00a0km/O"])]


def test_words_are_left_as_written(tmp_path):
    jamo = unicodedata.normalize("NFD", "서울")
    assert read(write(tmp_path / "a.conll", f"{jamo}\tO\n")) == [(1, [f"{jamo}/O"])]
    assert read(jsonl(tmp_path / "a.jsonl", {"words": [jamo], "tags": ["O"]})) == [(1, [f"{jamo}/O"])]


def test_document_starts_are_passed_over(tmp_path):
    file = write(tmp_path / "a.conll", "-DOCSTART- -X- O O\n\nAnna N N O\n-DOCSTART-\nsings V V O\n")
    assert read(file) == [(3, ["Anna/O"]), (5, ["sings/O"])]


def test_comments_are_passed_over_and_hashes_are_not(tmp_path):
    file = write(tmp_path / "a.conll", "# newdoc\n# text = 1 # a O\n#\tO\n# x\n#a\tO\n\n# id 3\n#\tO\n")
    assert read(file) == [(3, ["#/O", "#a/O"]), (8, ["#/O"])]
    file = write(tmp_path / "b.conll", "# text = Anna # sings\nAnna O\n# O\n\n# O\n\n# a b c\nsings O\n# a b c\n")
    assert read(file) == [
        (2, ["Anna/O", "#/O"]),
        (5, ["#/O"]),
        (9, "4 columns, where the lines before have 2; write as many in each line"),
    ]
    assert read(write(tmp_path / "c.conll", "# B-x\na O\n")) == [(1, ["#/B-x", "a/O"])]


def test_a_token_without_a_tag(tmp_path):
    file = write(tmp_path / "a.conll", "a\tO\nNew York\nb\nc\td\te\n\nf\tO\n")
    assert read(file) == [
        (2, "'New York' has no tag; write token and tag, parted by a tab"),
        (6, ["f/O"]),
    ]
    file = write(tmp_path / "b.conll", "a\n\nb O\n")
    assert read(file) == [(1, "'a' has no tag; write token and tag, parted by a tab"), (3, ["b/O"])]


def test_columns_that_change(tmp_path):
    file = write(tmp_path / "a.conll", "a X O\n\nb O\nc X O\n\nd Y O\n\ne X Y O\n")
    assert read(file) == [
        (1, ["a/O"]),
        (3, "2 columns, where the lines before have 3; write as many in each line"),
        (6, ["d/O"]),
        (8, "4 columns, where the lines before have 3; write as many in each line"),
    ]


def test_an_empty_token_or_tag(tmp_path):
    file = write(tmp_path / "a.conll", "a\tO\n\tO\n\n \tO\n\nb\t\n\nc\tO\n")
    assert read(file) == [
        (2, "the token is empty; write token and tag, parted by a tab"),
        (4, "the token is empty; write token and tag, parted by a tab"),
        (6, "the tag of 'b' is empty; write token and tag, parted by a tab"),
        (8, ["c/O"]),
    ]


def test_tags_that_are_not_required(tmp_path):
    file = write(tmp_path / "a.txt", "Anna\nsings\n\nSeoul\n")
    assert list(examples(file, required=False)) == [
        TagExample(f"{file}:1", ("Anna", "sings"), None),
        TagExample(f"{file}:4", ("Seoul",), None),
    ]
    file = write(tmp_path / "b.txt", "Anna O\n\nSeoul\n\nBusan O\n")
    assert read(file, required=False) == [
        (1, ["Anna/O"]),
        (3, "1 column, where the lines before have 2; write as many in each line"),
        (5, ["Busan/O"]),
    ]


WORDS = st.lists(st.text("aé가#-", min_size=1).filter(lambda word: word != "-DOCSTART-"), min_size=1)


@given(st.lists(WORDS, max_size=5), st.sampled_from("\t "))
def test_what_is_written_is_read(tmp_path_factory, sentences, sign):
    file = tmp_path_factory.mktemp("written") / "a.conll"
    write(file, "\n".join("".join(f"{word}{sign}O\n" for word in sentence) for sentence in sentences))
    assert [list(item.words) for item in examples(file)] == sentences


def test_bytes_that_are_not_utf8(tmp_path):
    file = write(tmp_path / "a.conll", b"a\tO\n\xff\tO\n")
    with pytest.raises(UserError, match=r"a.conll:2: byte 0xff is not UTF-8"):
        list(examples(file))
    assert read(file, errors="replace") == [(1, ["a/O", "\ufffd/O"])]
    file = write(tmp_path / "a.jsonl", b'{"tokens": ["\xff"], "tags": ["O"]}')
    assert read(file, errors="replace") == [(1, ["\ufffd/O"])]


# tables


@pytest.mark.parametrize("words", ["tokens", "Words"])
@pytest.mark.parametrize("tags", ["tags", "ner_tags", "labels", "POS_tags"])
def test_lists_in_a_table(tmp_path, words, tags):
    row = {"id": 3, words: ["New York", "is"], tags: ["B-LOC", "O"]}
    packed = write(tmp_path / "a.jsonl.xz", lzma.compress(json.dumps(row).encode()))
    assert list(examples(packed)) == [TagExample(f"{packed}:1", ("New York", "is"), ("B-LOC", "O"))]
    file = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({name: [value] for name, value in row.items()}), file)
    assert list(examples(file)) == [TagExample(f"{file}:1", ("New York", "is"), ("B-LOC", "O"))]


def test_tags_that_are_numbers(tmp_path):
    assert read(jsonl(tmp_path / "a.jsonl", {"tokens": ["a", "b"], "ner_tags": [0, 3]})) == [(1, ["a/0", "b/3"])]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"tokens": list("abcdef"), "tags": ["O"] * 5}, "5 tags for 6 tokens; write one for each"),
        ({"tokens": ["a"], "tags": []}, "0 tags for 1 token; write one for each"),
        ({"tokens": ["a", 3], "tags": ["O", "O"]}, "token 2 is 3, not text; write it as text"),
        ({"tokens": ["a", None], "tags": ["O", "O"]}, "token 2 is None, not text; write it as text"),
        ({"tokens": ["", "a"], "tags": ["O", "O"]}, "token 1 is empty or a blank; leave it out, and its tag"),
        ({"tokens": [" \u3000"], "tags": ["O"]}, "token 1 is empty or a blank; leave it out, and its tag"),
        ({"tokens": [], "tags": []}, "there are no tokens; write at least one"),
        ({"tokens": "a b", "tags": ["O"]}, "the tokens are 'a b', not a list; write a list of texts"),
        ({"tokens": ["a"], "tags": "O"}, "the tags are 'O', not a list; write a list of texts"),
        ({"tokens": ["a", "b"], "tags": ["O", None]}, "tag 2 is None, not a name; write it as text"),
        ({"tokens": ["a", "b"], "tags": [" ", "O"]}, "tag 1 is ' ', not a name; write it as text"),
        ({"tokens": ["a"], "tags": None}, "the tags are missing; write one for each token"),
        ({"tokens": ["a"]}, "there is no column of tags; call it tags, ner_tags, labels or pos_tags"),
        ({"text": "a", "tags": ["O"]}, "there is no column of tokens; call it tokens or words"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path, row, problem):
    fine = {"tokens": ["a"], "tags": ["O"]}
    file = jsonl(tmp_path / "a.jsonl", fine, row, fine)
    assert read(file) == [(1, ["a/O"]), (2, problem), (3, ["a/O"])]


def test_broken_rows_of_a_table_are_flaws_too(tmp_path):
    file = write(tmp_path / "a.jsonl", '{"tokens": ["a"], "tags": ["O"]\n{"tokens": ["a"], "tags": ["O"]}\n')
    flaw, example = examples(file)
    assert isinstance(flaw, Flaw)
    assert flaw.problem.startswith("not valid JSON (")
    assert example == TagExample(f"{file}:2", ("a",), ("O",))


def test_tags_of_a_table_that_are_not_required(tmp_path):
    file = jsonl(
        tmp_path / "a.jsonl", {"tokens": ["a"]}, {"words": ["b"], "tags": None}, {"words": ["c"], "tags": ["O"]}
    )
    assert read(file, required=False) == [(1, ["a"]), (2, ["b"]), (3, ["c/O"])]
    table = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"tokens": [["a"]]}), table)
    assert list(examples(table, required=False)) == [TagExample(f"{table}:1", ("a",), None)]
    with pytest.raises(UserError, match=r"a.parquet: there is no column of tags; call it tags, "):
        list(examples(table))


def test_json_as_a_whole_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"a.json is JSON as a whole; "):
        list(examples(write(tmp_path / "a.json", "[]")))


# schemes


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O B-PER I-PER B-PER", "BIO"),
        ("I-PER O", "BIO"),
        ("B-creative-work", "BIO"),
        ("O B-PER I-PER E-PER S-PER", "BIOES"),
        ("S-PER O", "BIOES"),
        ("O B-PER L-PER U-LOC", "BIOES"),
        ("O O", "plain"),
        ("", "plain"),
        ("NOUN VERB", "plain"),
        ("O B-PER NOUN", "plain"),
        ("O B- I-PER", "plain"),
        ("O B I", "plain"),
        ("O X-PER", "plain"),
        ("0 1", "plain"),
    ],
)
def test_schemes(tags, expected):
    assert scheme(tags.split()) == expected
    assert scheme(iter(tags.split())) == expected


def test_tags_are_composed(tmp_path):
    whole = "B-사람"
    jamo = unicodedata.normalize("NFD", whole)
    file = write(tmp_path / "a.conll", f"Anna\t{jamo}\n\nBo\t{whole}\n")
    assert read(file) == [(1, [f"Anna/{whole}"]), (3, [f"Bo/{whole}"])]
    file = jsonl(tmp_path / "a.jsonl", {"tokens": ["Anna", "Bo"], "tags": [jamo, whole]})
    assert read(file) == [(1, [f"Anna/{whole}", f"Bo/{whole}"])]
