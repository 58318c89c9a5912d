import hashlib
import io
import json
import platform
import re
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch

from heedful.data import lines as text_lines
from heedful.data import tokenizer as wordpiece
from heedful.data.columns import Columns
from heedful.data.inputs import Input
from heedful.data.tokenizer import SPECIAL, Tokenizer
from heedful.errors import UserError
from heedful.models.bert import Bert, BertConfig, initialise
from heedful.predict import Predictor
from heedful.predict.engine import TorchEngine
from heedful.predict.reading import Pace
from heedful.runs import vectors
from heedful.runs.vectors import Best, Hit, embed, search

WORDS = [
    *("the", "a", "cat", "dog", "mat", "rug", "sat", "lay", "on", "in", "house", "book", "read", "and"),
    *("고양이", "개", "집"),
]
TEXTS = [
    "the cat sat on the mat",
    "the dog lay on the rug",
    "a book",
    "고양이 집 고양이",
    "the cat and the dog read a book in the house",
    "the dog lay on the rug",
    "a cat",
]
CONFIG = BertConfig(vocab_size=31, layers=2, dim=26, heads=2, ffn_dim=37, max_length=17)
NAMED = Columns()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n", encoding="utf-8")
    return wordpiece.load(folder)


def make(
    tokenizer: Tokenizer, *, seed: int = 3, config: BertConfig = CONFIG, origin: str = "models/one"
) -> Predictor:
    model = Bert(config, pooler=False)
    initialise(model, 0.3, torch.Generator().manual_seed(seed))
    return Predictor(TorchEngine(model), tokenizer, origin)


@pytest.fixture(scope="module")
def predictor(tokenizer: Tokenizer) -> Predictor:
    return make(tokenizer)


class Counted:
    """An engine that is quick: the vector of an input says how often it holds each of its first 13 tokens."""

    head = None
    max_length = 512
    vocab_size = CONFIG.vocab_size

    def __init__(self, dim: int = 13) -> None:
        self.dim = dim

    def vectors(self, inputs: Sequence[Input], pool: str) -> np.ndarray:
        found = np.zeros((len(inputs), self.dim), np.float32)
        for row, one in zip(found, inputs, strict=True):
            np.add.at(row, one.ids[1:-1] % self.dim, 1)
        return found

    def scores(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        raise NotImplementedError


@pytest.fixture
def counted(tokenizer: Tokenizer) -> Predictor:
    return Predictor(Counted(), tokenizer, "counts")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def refused(run: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        run()
    return str(caught.value)


def brute_force(matrix: np.ndarray, queries: np.ndarray, top: int) -> list[list[tuple[int, float]]]:
    """Rows from 1 and cosines, by comparing one with each."""
    found = []
    for query in queries.astype(np.float64):
        scored = [
            (-round(float(query @ row / np.linalg.norm(query) / np.linalg.norm(row)), 6), number)
            for number, row in enumerate(matrix.astype(np.float64), 1)
            if row.any()
        ]
        found.append([(number, -score) for score, number in sorted(scored)[:top]])
    return found


def places(found: list[list[Hit]]) -> list[list[tuple[int, float]]]:
    return [[(hit.row, hit.similarity) for hit in hits] for hits in found]


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("normalise", [True, False])
def test_a_vector_for_every_text(predictor, file, tmp_path, pool, normalise):
    out = tmp_path / "new" / "vectors.npy"
    line = embed(predictor, file, out, columns=NAMED, pool=pool, normalise=normalise)
    assert line == f"wrote {out}: 7 vectors of 26 numbers"
    found = np.load(out)
    assert (found.dtype, found.shape) == (np.float32, (7, 26))
    for row, text in zip(found, TEXTS, strict=True):
        np.testing.assert_allclose(row, predictor.embed(text, pool=pool, normalise=normalise), atol=1e-5)
    about = json.loads((tmp_path / "new" / "vectors.npy.json").read_text(encoding="utf-8"))
    digest = about.pop("texts")
    assert about == {
        "model": "models/one",
        "weights": None,
        "pool": pool,
        "normalised": normalise,
        "dim": 26,
        "rows": 7,
    }
    lines = "".join(json.dumps([text, None]) + "\n" for text in TEXTS)
    assert digest == hashlib.sha256(lines.encode()).hexdigest()
    assert sorted(path.name for path in out.parent.iterdir()) == ["vectors.npy", "vectors.npy.json"]


def test_unless_told_otherwise_the_folder_says_how_texts_are_pooled(predictor, file, tmp_path):
    embed(predictor, file, tmp_path / "v.npy", columns=NAMED)
    about = json.loads((tmp_path / "v.npy.json").read_bytes())
    assert (about["pool"], about["normalised"]) == (predictor.pooling.pool, predictor.pooling.normalise)


def test_the_file_is_as_numpy_writes_it(counted, file, tmp_path):
    embed(counted, file, tmp_path / "v.npy", columns=NAMED)
    again = io.BytesIO()
    np.save(again, np.load(tmp_path / "v.npy"))
    assert (tmp_path / "v.npy").read_bytes() == again.getvalue()


@pytest.mark.parametrize("dim", [1, 384, 99991])
def test_there_is_room_for_any_number_of_rows(dim):
    starts = set()
    for rows in (0, 1, 999, 10**15):
        header = io.BytesIO()
        starts.add(vectors._write_header(header, rows, dim))
        header.seek(0)
        assert np.lib.format.read_magic(header) == (1, 0)
        assert np.lib.format.read_array_header_1_0(header) == ((rows, dim), False, np.dtype("<f4"))
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("blank", "said"), [((0, 1, 4, 8, 9), "5 rows"), ((0,), "1 row"), ((9,), "1 row"), ((), "none")]
)
@pytest.mark.parametrize("chunk", [1, 3, 4096])
def test_rows_that_cannot_be_read_are_zeros(counted, tmp_path, monkeypatch, blank, said, chunk):
    monkeypatch.setattr(Predictor, "pace", lambda *_: Pace(chunk))
    lines = [" " if number in blank else TEXTS[number % 7] for number in range(10)]
    file, out = tmp_path / "texts.txt", tmp_path / "v.npy"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    skipped = f"; {said} skipped (zeros)" if blank else ""
    line = embed(counted, file, out, columns=NAMED, normalise=False, skip_bad=True)
    assert line == f"wrote {out}: 10 vectors of 13 numbers{skipped}"
    expected = np.zeros((10, 13), np.float32)
    for number, text in enumerate(lines):
        if number not in blank:
            expected[number] = counted.embed(text, normalise=False)
    np.testing.assert_array_equal(np.load(out), expected)
    assert json.loads((tmp_path / "v.npy.json").read_bytes())["rows"] == 10


def test_a_row_that_cannot_be_read_ends_it_and_leaves_nothing(counted, file, tmp_path):
    file.write_text("a cat\n\na dog\n", encoding="utf-8")
    message = refused(lambda: embed(counted, file, tmp_path / "v.npy", columns=NAMED))
    assert message.startswith(f"{file}:2: the text is empty")
    assert list(tmp_path.iterdir()) == [file]


def test_what_is_too_long_is_skipped_or_cut(predictor, file, tmp_path):
    long = "the cat " * 9
    file.write_text(f"a cat\n{long}\n", encoding="utf-8")
    out = tmp_path / "v.npy"
    assert "20 tokens, of which 17 can be read" in refused(lambda: embed(predictor, file, out, columns=NAMED))
    assert "1 row skipped" in embed(predictor, file, out, columns=NAMED, skip_bad=True)
    assert not np.load(out)[1].any()
    said = embed(predictor, file, out, columns=NAMED, truncate=True)
    assert said.endswith("2 vectors of 26 numbers; 1 text is too long; only the beginning is read")
    np.testing.assert_allclose(np.load(out)[1], predictor.embed("the cat " * 7 + "the", truncate=True), atol=1e-5)


def test_standard_input_is_read_where_there_is_no_file(counted, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("a cat\n집\n".encode())))
    embed(counted, None, tmp_path / "v.npy", columns=NAMED)
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), counted.embed(["a cat", "집"]))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    message = refused(lambda: embed(counted, None, tmp_path / "w.npy", columns=NAMED))
    assert message == "standard input has no text to embed; give one that has"


def test_what_has_no_text_is_refused_and_what_was_there_stays(counted, file, tmp_path):
    out = tmp_path / "v.npy"
    embed(counted, file, out, columns=NAMED)
    before = out.read_bytes(), (tmp_path / "v.npy.json").read_bytes()
    file.write_text(" \n\n", encoding="utf-8")
    message = refused(lambda: embed(counted, file, out, columns=NAMED, skip_bad=True))
    assert message == f"{file} has no text to embed; give one that has"
    assert (out.read_bytes(), (tmp_path / "v.npy.json").read_bytes()) == before
    assert len(list(tmp_path.iterdir())) == 3


def test_other_names_than_npy_and_folders_are_refused(counted, file, tmp_path):
    message = refused(lambda: embed(counted, file, tmp_path / "v.txt", columns=NAMED))
    assert message == f"{tmp_path / 'v.txt'} does not end in .npy, as numpy's arrays do; try v.txt.npy"
    (tmp_path / "v.npy").mkdir()
    assert "is a folder" in refused(lambda: embed(counted, file, tmp_path / "v.npy", columns=NAMED))


def test_a_description_never_stands_beside_the_vectors_of_others(predictor, file, tmp_path, monkeypatch):
    """Interrupted between the two files: what says how the old vectors were made is gone."""
    out = tmp_path / "v.npy"
    embed(predictor, file, out, columns=NAMED, pool="cls")

    def interrupted(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(vectors, "write_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            embed(predictor, file, out, columns=NAMED, pool="mean")
    np.testing.assert_allclose(np.load(out)[2], predictor.embed("a book", pool="mean"), atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt", "v.npy"]


def test_vectors_are_whole_or_not_there(counted, file, tmp_path, monkeypatch):
    """All is on disk before it has the name; who has read the old vectors keeps them."""
    out = tmp_path / "v.npy"
    seen = []
    synced = vectors.os.fsync

    def fsync(handle: int) -> None:
        seen.append((out.exists(), [path.read_bytes() for path in tmp_path.glob(".v.npy.*")]))
        synced(handle)

    with monkeypatch.context() as patch:
        patch.setattr(vectors.os, "fsync", fsync)
        embed(counted, file, out, columns=NAMED)
    assert seen[0] == (False, [out.read_bytes()])
    before = np.load(out, mmap_mode="r")
    embed(counted, file, out, columns=NAMED, normalise=False)
    assert not np.array_equal(np.load(out), before)
    np.testing.assert_array_equal(before, counted.embed(TEXTS))


def test_what_a_dead_process_left_is_removed(counted, file, tmp_path):
    nobody = next(pid for pid in range(2**21, 2**22) if not psutil.pid_exists(pid))
    left = tmp_path / f".w.npy.{nobody}@{platform.node()}.tmp"
    left.touch()
    embed(counted, file, tmp_path / "v.npy", columns=NAMED)
    assert not left.exists()


def test_memory_does_not_grow_with_the_file(tokenizer, file, tmp_path, monkeypatch):
    """The vectors are 10 MB, the texts 5; blocks of 64 rows are a quarter of one, in a few copies and precisions."""
    monkeypatch.setattr(Predictor, "pace", lambda *_: Pace(64))
    monkeypatch.setattr(vectors, "CHUNK", 64)
    monkeypatch.setattr(text_lines, "CHUNK", 1 << 14)
    wide = Predictor(Counted(1009), tokenizer, "counts")
    padded = (f"the {WORDS[n % 17]} {WORDS[n // 17 % 17]}{' ' * 2000}.\n" for n in range(2503))
    file.write_text("".join(padded), encoding="utf-8")
    out = tmp_path / "v.npy"
    runs = [
        lambda: embed(wide, file, out, columns=NAMED),
        lambda: search(wide, file, ["the cat"], columns=NAMED),
        lambda: search(wide, file, ["the cat"], columns=NAMED, vectors=out),
    ]
    for run in runs:
        tracemalloc.start()
        run()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 3 << 20 < out.stat().st_size / 3


@pytest.mark.parametrize("kept", ["no", "normalised", "as they are"])
@pytest.mark.parametrize("top", [1, 3, 100])
@pytest.mark.parametrize("chunk", [2, 4096])
def test_hits_are_those_of_comparing_one_with_each(predictor, file, tmp_path, monkeypatch, kept, top, chunk):
    monkeypatch.setattr(vectors, "CHUNK", chunk)
    queries = ["the dog", "고양이", "a book in the house"]
    out = None
    if kept != "no":
        out = tmp_path / "v.npy"
        embed(predictor, file, out, columns=NAMED, normalise=kept == "normalised")
    found = search(predictor, file, queries, vectors=out, top=top, columns=NAMED)
    matrix = np.array([predictor.embed(text, normalise=False) for text in TEXTS])
    expected = brute_force(matrix, predictor.embed(queries), top)
    assert [[row for row, _ in hits] for hits in places(found)] == [[row for row, _ in hits] for hits in expected]
    for hits, wanted in zip(found, expected, strict=True):
        assert [hit.similarity for hit in hits] == pytest.approx([score for _, score in wanted], abs=3e-6)
        assert [hit.text for hit in hits] == [TEXTS[hit.row - 1] for hit in hits]
        assert [hit.where for hit in hits] == [f"{file}:{hit.row}" for hit in hits]
        assert len(hits) == min(top, 7)


def test_a_text_is_most_similar_to_itself(predictor, file):
    (hits,) = search(predictor, file, [TEXTS[4]], columns=NAMED, top=1)
    assert hits == [Hit(5, f"{file}:5", TEXTS[4], 1.0)]


def test_of_equal_texts_the_first_comes_first(counted, tmp_path, monkeypatch):
    """Equal ones lie within a block and in different blocks; counts of words have many equal cosines besides."""
    monkeypatch.setattr(vectors, "CHUNK", 11)
    random = np.random.default_rng(5)
    lines = [" ".join(random.choice(WORDS[:4], 3)) for _ in range(97)]
    file, out = tmp_path / "texts.txt", tmp_path / "v.npy"
    file.write_text("\n".join(lines), encoding="utf-8")
    embed(counted, file, out, columns=NAMED)
    queries = ["cat", "the dog a", "dog dog cat"]
    expected = brute_force(counted.embed(lines), counted.embed(queries), 41)
    assert len({score for _, score in expected[0]}) < 10
    assert places(search(counted, file, queries, columns=NAMED, top=41)) == expected
    assert places(search(counted, file, queries, columns=NAMED, top=41, vectors=out)) == expected


@pytest.mark.parametrize("seed", range(5))
def test_the_best_whatever_the_blocks(seed):
    """Vectors of any length, some of them zero or not finite, offered in blocks of any size."""
    random = np.random.default_rng(seed)
    matrix = random.integers(-2, 3, (211, 3)).astype(np.float32) * random.choice([1e-20, 1.0, 1e20], (211, 1))
    matrix = matrix.astype(np.float32)
    queries = random.normal(size=(5, 3)).astype(np.float32)
    expected = brute_force(matrix, queries, 17)
    best = Best(queries * 7, 17)
    spoilt = matrix.copy()
    lost = np.flatnonzero(~matrix.any(1))
    assert len(lost) > 1
    spoilt[lost[0], 1], spoilt[lost[1], 2] = np.nan, np.inf
    for block in np.split(np.arange(211), np.sort(random.integers(0, 211, 6))):
        best.offer(block, spoilt[block])
    found = [[(row + 1, score) for score, row in zip(*one, strict=True)] for one in best.ranked()]
    assert found == expected
    assert best.rows() == {row - 1 for hits in expected for row, _ in hits}


def test_zeros_are_never_found(counted, file, tmp_path):
    file.write_text("a cat\n\nthe dog\n", encoding="utf-8")
    out = tmp_path / "v.npy"
    embed(counted, file, out, columns=NAMED, skip_bad=True)
    for found in (
        search(counted, file, ["dog"], columns=NAMED, vectors=out),
        search(counted, file, ["dog"], columns=NAMED, skip_bad=True),
    ):
        assert [(hit.row, hit.where, hit.text) for hit in found[0]] == [
            (3, f"{file}:3", "the dog"),
            (1, f"{file}:1", "a cat"),
        ]
    message = refused(lambda: search(counted, file, ["dog"], columns=NAMED))
    assert message.startswith(f"{file}:2: the text is empty")


def test_a_similarity_of_zero_has_no_sign():
    best = Best(np.array([[1.0, 0.0]]), 1)
    best.offer(np.array([0]), np.array([[-1e-9, 1.0]]))
    ((score,), _), *_ = best.ranked()
    assert str(score) == "0.0"


def test_pairs_and_columns(counted, tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"sentence1": "a cat", "sentence2": "the dog", "other": "집"}, {"sentence1": "a", "sentence2": "mat"}]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    (hits,) = search(counted, file, ["mat"], columns=NAMED, top=1)
    assert (hits[0].row, hits[0].text) == (2, "a\tmat")
    out = tmp_path / "v.npy"
    assert embed(counted, file, out, columns=NAMED).endswith("--text COLUMN takes one column alone")
    assert embed(counted, file, out, columns=Columns(text="sentence2")).endswith(" numbers")
    (hits,) = search(counted, file, ["dog"], columns=Columns(text="sentence2"), top=1, vectors=out)
    assert hits[0].text == "the dog"
    assert "holds other texts" in refused(lambda: search(counted, file, ["dog"], columns=NAMED, vectors=out))


def test_a_second_text_that_has_changed_is_noticed(counted, tmp_path):
    file, out = tmp_path / "pairs.tsv", tmp_path / "v.npy"
    file.write_text("sentence1\tsentence2\na cat\tthe dog\na\tmat\n", encoding="utf-8")
    embed(counted, file, out, columns=NAMED)
    assert len(search(counted, file, ["dog"], columns=NAMED, vectors=out)[0]) == 2
    file.write_text("sentence1\tsentence2\na cat\tthe dog\na\trug\n", encoding="utf-8")
    assert "holds other texts" in refused(lambda: search(counted, file, ["dog"], columns=NAMED, vectors=out, top=1))


def test_queries_are_pooled_as_the_texts_were(predictor, file, tmp_path):
    out = tmp_path / "v.npy"
    embed(predictor, file, out, columns=NAMED, pool="cls")
    matrix = predictor.embed(TEXTS, pool="cls")
    expected = brute_force(matrix, predictor.embed(["the dog"], pool="cls"), 7)
    assert brute_force(matrix, predictor.embed(["the dog"], pool="mean"), 7) != expected
    (hits,) = search(predictor, file, ["the dog"], columns=NAMED, vectors=out, top=7)
    assert [hit.row for hit in hits] == [row for row, _ in expected[0]]
    assert [hit.similarity for hit in hits] == pytest.approx([score for _, score in expected[0]], abs=3e-6)
    message = refused(lambda: search(predictor, file, ["the dog"], columns=NAMED, vectors=out, pool="mean"))
    assert message.startswith(f"{out} was made with pool cls, not mean; leave --pool out")
    (out.parent / "v.npy.json").unlink()
    assert search(predictor, file, ["the dog"], columns=NAMED, vectors=out, top=7, pool="cls") == [hits]


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines, "a cat"],
        lambda lines: lines[:-1],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [*lines[:3], "a dog", *lines[4:]],
        lambda lines: [*lines[:3], " ", *lines[4:]],
        lambda lines: [*lines[:2], lines[2] + " " + lines[3], " ", *lines[4:]],
    ],
)
def test_vectors_of_other_texts_are_refused(counted, file, tmp_path, change):
    out = tmp_path / "v.npy"
    embed(counted, file, out, columns=NAMED)
    assert len(search(counted, file, ["cat"], columns=NAMED, vectors=out)[0]) == 5
    file.write_text("\n".join(change(TEXTS)) + "\n", encoding="utf-8")
    message = refused(lambda: search(counted, file, ["cat"], columns=NAMED, vectors=out, top=1))
    assert message == (
        f"{file} holds other texts than {out} was made from; name the same columns, or run `heedful embed` again"
    )


def test_without_a_description_rows_are_counted(counted, file, tmp_path):
    out = tmp_path / "v.npy"
    np.save(out, counted.embed(TEXTS, normalise=False).astype(np.float16))
    (hits,) = search(counted, file, ["book"], columns=NAMED, vectors=out, top=1)
    assert hits[0].text == "a book"
    for lines in ([*TEXTS, "a cat"], TEXTS[:-1], [*TEXTS[:2], "", *TEXTS[3:]]):
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        message = refused(lambda: search(counted, file, ["book"], columns=NAMED, vectors=out))
        assert "holds other texts" in message


def test_vectors_of_another_model_are_refused(predictor, tokenizer, file, tmp_path):
    out = tmp_path / "v.npy"
    embed(predictor, file, out, columns=NAMED)
    narrow = make(tokenizer, config=replace(CONFIG, dim=22), origin="narrow")
    message = refused(lambda: search(narrow, file, ["cat"], columns=NAMED, vectors=out))
    assert (
        message == f"{out} has vectors of 26 numbers and narrow makes 22; run `heedful embed` again, with that model"
    )
    other = make(tokenizer, seed=5, origin="other")
    message = refused(lambda: search(other, file, ["cat"], columns=NAMED, vectors=out))
    assert re.search(r"row \d is not what other makes of that text; name the model", message)


def test_texts_that_were_cut_are_no_sign_of_another_model(predictor, file, tmp_path):
    file.write_text("the cat " * 9 + "\n", encoding="utf-8")
    out = tmp_path / "v.npy"
    embed(predictor, file, out, columns=NAMED, truncate=True)
    (hits,) = search(predictor, file, ["cat"], columns=NAMED, vectors=out)
    assert [hit.row for hit in hits] == [1]


def cut(out: Path) -> None:
    out.write_bytes(out.read_bytes()[:-1])


def longer(out: Path) -> None:
    np.save(out, np.vstack([np.load(out), np.load(out)]))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda out: out.unlink(), "cannot read {out}: No such file or directory; write it with `heedful embed`"),
        (cut, "{out} is not a whole .npy file"),
        (lambda out: out.write_bytes(b"not an array"), "{out} is not a whole .npy file"),
        (lambda out: out.write_bytes(b""), "{out} is not a whole .npy file"),
        (lambda out: np.save(out, np.full((7, 13), np.nan, np.float32)), "{out} has no vector to compare with"),
        (lambda out: np.save(out, np.zeros((7, 13), np.float32)), "{out} has no vector to compare with"),
        (lambda out: np.save(out, np.zeros(7, np.float32)), "{out} does not hold a vector a row"),
        (lambda out: np.save(out, np.zeros((7, 13), np.int64)), "{out} does not hold a vector a row"),
        (longer, "{out} and v.npy.json do not belong together; run `heedful embed` again"),
        (lambda out: np.save(out, np.zeros((7, 14), np.float32)), "{out} and v.npy.json do not belong together"),
        (lambda out: Path(f"{out}.json").write_bytes(b"{"), "{out}.json is damaged ("),
        (lambda out: Path(f"{out}.json").write_bytes(b"\xff"), "{out}.json is damaged ("),
        (lambda out: Path(f"{out}.json").write_bytes(b"[]"), "{out}.json does not describe vectors; run"),
        (lambda out: Path(f"{out}.json").write_bytes(b"{}"), "{out}.json does not describe vectors; run"),
    ],
)
def test_spoilt_vectors_are_refused(counted, file, tmp_path, spoil, message):
    out = tmp_path / "v.npy"
    embed(counted, file, out, columns=NAMED)
    spoil(out)
    said = refused(lambda: search(counted, file, ["cat"], columns=NAMED, vectors=out))
    assert said.startswith(message.format(out=out))
    assert "`heedful embed`" in said


def test_what_cannot_be_asked_is_refused(predictor, file, tmp_path):
    assert refused(lambda: search(predictor, file, ["cat"], columns=NAMED, top=0)) == "top 0 must be at least 1"
    assert "the text is empty" in refused(lambda: search(predictor, file, ["cat", " "], columns=NAMED))
    long = "cat " * 16
    assert "18 tokens" in refused(lambda: search(predictor, file, [long], columns=NAMED))
    assert len(search(predictor, file, [long], columns=NAMED, truncate=True)[0]) == 5
    assert search(predictor, file, [], columns=NAMED) == []
    file.write_text("\n \n", encoding="utf-8")
    message = refused(lambda: search(predictor, file, ["cat"], columns=NAMED, skip_bad=True))
    assert message == f"{file} has no text to search; give a file that has"
    assert "cannot read" in refused(lambda: search(predictor, tmp_path / "none.txt", ["cat"], columns=NAMED))
