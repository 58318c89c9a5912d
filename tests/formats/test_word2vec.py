import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from heedful.errors import UserError
from heedful.formats import word2vec

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(matrix=arrays.arrays(np.float32, (3, 5), elements=finite))
def test_every_number_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, matrix: np.ndarray):
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    word2vec.save(("the", "강", "naïve"), matrix, path)
    found = word2vec.load(path)
    assert found.words == ("the", "강", "naïve")
    assert found.matrix.dtype == np.float32
    assert (found.matrix == matrix).all()


def test_the_file_is_what_others_write(tmp_path: Path):
    word2vec.save(("a", "b"), np.array([[0.5, -1, 0.1], [3, 1e-7, 2]], np.float32), tmp_path / "vectors.txt")
    lines = (tmp_path / "vectors.txt").read_text(encoding="utf-8").splitlines()
    assert lines == ["2 3", "a 0.5 -1 0.100000001", "b 3 1.00000001e-07 2"]
    assert word2vec.load(tmp_path).words == ("a", "b")  # a folder stands for its file


def test_words_and_vectors_must_be_as_many(tmp_path: Path):
    with pytest.raises(ValueError, match="got 1 words and 2 vectors"):
        word2vec.save(("a",), np.zeros((2, 3), np.float32), tmp_path / "vectors.txt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("2 2\nold 1 2\nnew 3 4\n", ("old", "new")),
        ("old 1 2\nnew 3 4\n", ("old", "new")),  # as GloVe writes
        ("2 2\nold 1 2 \nnew 3 4 \n", ("old", "new")),  # as the first word2vec wrote
        ("2 2\nnew york 1 2\n. . 3 4\n", ("new york", ". .")),
        ("3 2\nold 1 2\nold 5 6\nnew 3 4\n\n", ("old", "new")),
        ("2 2\r\nold 1 2\r\nnew 3 4", ("old", "new")),
    ],
)
def test_files_of_other_programs_are_read(tmp_path: Path, content: str, words: tuple[str, ...]):
    (tmp_path / "other.vec").write_bytes(content.encode())
    found = word2vec.load(tmp_path / "other.vec")
    assert found.words == words
    assert found.matrix.tolist() == [[1, 2], [3, 4]]


def test_a_packed_file_is_read(tmp_path: Path):
    (tmp_path / "vectors.txt.gz").write_bytes(gzip.compress(b"1 2\nold 1 2\n"))
    assert word2vec.load(tmp_path / "vectors.txt.gz").words == ("old",)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds no word vectors"),
        ("0 5\n", "holds no word vectors"),
        ("2 2\nold 1 2\n", "ends after 1 of 2 words"),
        ("1 2\nold 1\n", r":2: 1 numbers behind the word, where there should be 2"),
        ("once upon a time\n", r":1: this is no word with numbers behind it"),
        ("1 2\nold 1 nan\n", r":2: a vector with a number that is none"),
        ("word\n", r":1: there are no numbers behind the word"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: str, complaint: str):
    path = tmp_path / "vectors.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=complaint):
        word2vec.load(path)


def test_what_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(
        UserError, match=r"holds no word vectors: it has no vectors\.txt; heedful train-vectors makes"
    ):
        word2vec.load(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(UserError, match=r"it has no vectors\.txt; a run in it has not ended: heedful info "):
        word2vec.load(tmp_path)
    with pytest.raises(UserError, match="gone does not exist"):
        word2vec.load(tmp_path / "gone")
