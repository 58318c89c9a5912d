"""Word vectors as text, in the format of the original word2vec: what gensim, spaCy and others read and write.

The first line has the number of words and of dimensions; every other line a word and its numbers, with a space
between. The file is UTF-8. GloVe's files, which lack the first line, are read too.

Shapes: V words, D width.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from heedful.data.lines import lines
from heedful.durable import new_file
from heedful.errors import UserError

FILE = "vectors.txt"
BLOCK = 1 << 18
"""Numbers that are written at once."""


class WordVectors(NamedTuple):
    """Words, each with its vector; the most frequent first, where a program says so."""

    words: tuple[str, ...]
    matrix: np.ndarray
    """(V, D) float32."""


def save(words: Sequence[str], matrix: np.ndarray, path: Path) -> None:
    """Write vectors (V, D); whole, or not at all. As many digits as it takes to read the same numbers again."""
    if len(words) != len(matrix):
        raise ValueError(f"there must be a vector a word; got {len(words)} words and {len(matrix)} vectors")
    row = "%s " + " ".join(["%.9g"] * matrix.shape[1]) + "\n"
    with new_file(path) as file:
        file.write(f"{len(words)} {matrix.shape[1]}\n".encode())
        rows = max(1, BLOCK // matrix.shape[1])
        for start in range(0, len(words), rows):
            some = zip(words[start : start + rows], matrix[start : start + rows].tolist(), strict=True)
            file.write("".join(row % (word, *numbers) for word, numbers in some).encode())


def load(path: Path) -> WordVectors:
    """The vectors of a file, or of a folder of `heedful train-vectors`. A word that comes twice counts once."""
    if path.is_dir():
        if not (path / FILE).is_file():
            begun = (path / "checkpoints").is_dir()
            look = f"heedful info {shlex.quote(str(path))}"
            way_out = f"a run in it has not ended: {look}" if begun else "heedful train-vectors makes one"
            raise UserError(f"{path} holds no word vectors: it has no {FILE}; {way_out}")
        path = path / FILE
    if not path.is_file():
        raise UserError(f"{path} does not exist; name a folder of `heedful train-vectors`, or a word2vec text file")
    words: dict[str, int] = {}
    rows: list[np.ndarray] = []
    count = dim = None
    for number, line in lines(path, "strict"):
        word, *numbers = line.rstrip().split(" ")
        if number == 1 and len(numbers) == 1 and word.isdecimal() and numbers[0].isdecimal():
            count, dim = int(word), int(numbers[0])
            continue
        if not line.strip():
            continue
        dim = len(numbers) if dim is None else dim
        if len(numbers) > dim:  # a word may hold spaces
            word, numbers = " ".join([word, *numbers[:-dim]]), numbers[-dim:]
        vector = _vector(numbers, dim, f"{path}:{number}")
        if word not in words:
            words[word] = len(rows)
            rows.append(vector)
    if not rows:
        raise UserError(f"{path} holds no word vectors; give a word2vec text file")
    if count is not None and number < count + 1:
        raise UserError(f"{path} ends after {number - 1} of {count} words; copy or make it again")
    return WordVectors(tuple(words), np.array(rows, np.float32))


def _vector(numbers: list[str], dim: int, where: str) -> np.ndarray:
    try:
        vector = np.fromiter(map(float, numbers), np.float32, len(numbers))
    except ValueError:
        raise UserError(f"{where}: this is no word with numbers behind it; give a word2vec text file") from None
    if not dim:
        raise UserError(f"{where}: there are no numbers behind the word; give a word2vec text file")
    if len(vector) != dim:
        raise UserError(f"{where}: {len(vector)} numbers behind the word, where there should be {dim}")
    if not np.isfinite(vector).all():
        raise UserError(f"{where}: a vector with a number that is none (nan or inf); make the file again")
    return vector
