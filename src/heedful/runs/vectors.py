"""The vectors of a file's texts in a .npy, and search among them by the cosine.

A row of the .npy is a row of the file, in the same order; one that could not be read is all zeros, and is never
found. Beside it a .json says how the vectors were made and of which texts. Memory does not grow with the file.
Knows nothing of indexes: every search looks at every row.

Shapes: R rows, D width, Q queries.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from heedful.data.columns import Columns
from heedful.data.flaws import Flaw
from heedful.data.labelled import TextExample, texts
from heedful.data.lines import Errors
from heedful.durable import file_digest, new_file, write_file
from heedful.errors import UserError
from heedful.formats.sentence_transformers import read_pooling
from heedful.predict.engine import Pool
from heedful.predict.predictor import Predictor
from heedful.predict.reading import Answered, Pace, answered, answers
from heedful.predict.texts import Vectors, cut_remark
from heedful.wording import counted

CHUNK = 4096
"""Rows that are compared at once."""
ALIKE = 0.9
"""The least cosine of two vectors that one model made of one text, be it in another precision."""
AGAIN = "run `heedful embed` again"

Embedded = tuple[TextExample, np.ndarray] | Flaw
"""A text with its vector (D,), or why it has none."""


class Hit(NamedTuple):
    """A text that was found."""

    row: int
    """Its place in the file, from 1, those that could not be read included."""
    where: str
    text: str
    """Both texts of a pair, with a tab between them."""
    similarity: float
    """The cosine, to six decimals."""


def embed(
    predictor: Predictor,
    source: Path | None,
    out: Path,
    *,
    columns: Columns,
    pool: Pool | None = None,
    normalise: bool | None = None,
    truncate: bool | None = None,
    skip_bad: bool = False,
    errors: Errors = "strict",
) -> str:
    """Write the vectors of a file's texts, or of the lines of standard input; a line that says so.

    A text that can't be read ends it; to `skip_bad` gives such texts zeros, so that rows keep their places.
    """
    if out.suffix != ".npy":
        raise UserError(f"{out} does not end in .npy, as numpy's arrays do; try {out.name}.npy")
    if out.is_dir():
        raise UserError(f"{out} is a folder; give the name of a file")
    reader = predictor.vectors(pool, normalise, truncate)
    read = TextDigest()
    items = read.over(texts(source, columns, errors=errors))
    pace = Pace() if source is None else predictor.pace(reader)
    with closing(answered(reader, items, pace)) as found, new_file(out) as file:
        dim, skipped = _write(file, found, skip_bad)
        if not dim:
            raise UserError(f"{source or 'standard input'} has no text to embed; give one that has")
        # Whoever is interrupted here leaves vectors without a description, never with that of others.
        described(out).unlink(missing_ok=True)
    about = {
        "model": predictor.origin,
        "weights": _weights(predictor),
        "pool": reader.pool,
        "normalised": reader.normalise,
        "dim": dim,
        "rows": read.rows,
        "texts": read.hexdigest(),
    }
    write_file(described(out), (json.dumps(about, ensure_ascii=False, indent=2) + "\n").encode())
    said = [f"wrote {out}: {counted(read.rows, 'vector')} of {counted(dim, 'number')}"]
    if skipped:
        said.append(f"{counted(skipped, 'row')} skipped (zeros)")
    if read.pairs and columns.pair is None:  # found by their names
        said.append("each is of a pair of texts; --text COLUMN takes one column alone")
    return "; ".join([*said, *filter(None, [cut_remark(reader)])])


def search(
    predictor: Predictor,
    source: Path,
    queries: Sequence[str],
    *,
    vectors: Path | None = None,
    top: int = 5,
    columns: Columns,
    pool: Pool | None = None,
    truncate: bool | None = None,
    skip_bad: bool = False,
    errors: Errors = "strict",
) -> list[list[Hit]]:
    """The texts of a file that are most similar to each query, best first; of equal ones the first.

    With the file's `vectors`, as `embed` wrote them, the texts are only looked up, and those that can't be read are
    passed over; else they are embedded on the way.
    """
    if top < 1:
        raise UserError(f"top {top} must be at least 1")
    if not queries:
        return []
    about = _about(vectors) if vectors is not None else {}
    if pool is not None and about.get("pool", pool) != pool:
        raise UserError(f"{vectors} was made with pool {about['pool']}, not {pool}; leave --pool out, or {AGAIN}")
    if about.get("weights") is not None and _weights(predictor) not in (None, about["weights"]):
        raise UserError(f"{vectors} was made by another model ({about['model']}); {AGAIN}")
    reader = predictor.vectors(about.get("pool", pool), True, truncate)
    asked = predictor.embed(list(queries), pool=reader.pool, normalise=True, truncate=truncate)
    best = Best(asked, top)
    items = texts(source, columns, errors=errors)
    if vectors is None:
        kept = _read(answers(reader, items, predictor.pace(reader)), best, skip_bad, source)
    else:
        matrix = _open(vectors, about, asked.shape[1], predictor.origin)
        for first in range(0, len(matrix), CHUNK):
            block = matrix[first : first + CHUNK]
            best.offer(np.arange(first, first + len(block)), block)
        if not best.rows():
            raise UserError(f"{vectors} has no vector to compare with: all are zeros, or not numbers; {AGAIN}")
        kept = _look_up(items, best, len(matrix), about)
        if kept is None:
            problem = f"{source} holds other texts than {vectors} was made from"
            raise UserError(f"{problem}; name the same columns, or {AGAIN}")
        if (row := _strange(reader, matrix, kept)) is not None:
            problem = f"{vectors}: row {row + 1} is not what {predictor.origin} makes of that text"
            raise UserError(f"{problem}; name the model it was made with, or {AGAIN}")
    return [
        [Hit(row + 1, kept[row].where, _shown(kept[row]), score) for score, row in zip(scores, rows, strict=True)]
        for scores, rows in best.ranked()
    ]


def _weights(predictor: Predictor) -> str | None:
    """Tells one model from another: the SHA-256 of its weights."""
    path = read_pooling(Path(predictor.origin))[0] / "model.safetensors"
    return file_digest(path) if path.is_file() else None


def described(vectors: Path) -> Path:
    """Where it is written how vectors were made: vectors.npy.json."""
    return vectors.with_name(vectors.name + ".json")


class TextDigest:
    """Tells whether two files hold the same texts in the same rows: the SHA-256 of a line of JSON for each row."""

    def __init__(self) -> None:
        self.rows = self.pairs = 0
        self._digest = hashlib.sha256()

    def over(self, items: Iterable[TextExample | Flaw]) -> Iterator[TextExample | Flaw]:
        """The same rows, counted in as they pass."""
        for item in items:
            self.rows += 1
            content = "null"
            if not isinstance(item, Flaw):
                self.pairs += item.pair is not None
                content = f"[{_quoted(item.text)}, {_quoted(item.pair)}]"
            self._digest.update(f"{content}\n".encode())
            yield item

    def hexdigest(self) -> str:
        """Of all that has passed."""
        return self._digest.hexdigest()


def _quoted(text: str | None) -> str:
    """As `json.dumps` writes it, in a fifth of the time."""
    return "null" if text is None else encode_basestring_ascii(text)


class Best:
    """The rows that are most similar to each query, among those offered so far."""

    def __init__(self, queries: np.ndarray, top: int) -> None:
        self.top = top
        self._queries = _unit(queries.astype(np.float64))
        self._found = [(np.empty(0), np.empty(0, np.int64)) for _ in queries]

    def offer(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Rows (R,) and their vectors (R, D), of any length; zeros and what is not finite are passed over."""
        vectors = vectors.astype(np.float64)
        usable = np.isfinite(vectors).all(1) & vectors.any(1)
        rows = rows[usable]
        # Rounded, since what lies beyond is noise, which must not decide between equal texts; never -0.
        similarities = np.round(self._queries @ _unit(vectors[usable]).T, 6) + 0.0  # (Q, R)
        for number, ((old, before), new) in enumerate(zip(self._found, similarities, strict=True)):
            scores, places = np.concatenate([old, new]), np.concatenate([before, rows])
            order = np.lexsort((places, -scores))[: self.top]
            self._found[number] = scores[order], places[order]

    def rows(self) -> set[int]:
        """Those that are among the best of any query."""
        return {row for _, places in self._found for row in places.tolist()}

    def ranked(self) -> list[tuple[list[float], list[int]]]:
        """Similarities and rows for each query, best first."""
        return [(scores.tolist(), places.tolist()) for scores, places in self._found]


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _shown(example: TextExample) -> str:
    return example.text if example.pair is None else f"{example.text}\t{example.pair}"


def _write(file: BinaryIO, found: Iterable[Answered[TextExample, np.ndarray]], skip_bad: bool) -> tuple[int, int]:
    """Vectors as a .npy; their width, 0 if there is none, and the number of rows skipped."""
    rows = dim = start = skipped = gap = 0
    for some in itertools.chain.from_iterable(map(_together, found)):
        if isinstance(some, Flaw):
            if not skip_bad:
                raise UserError(str(some))
            rows += 1
            skipped += 1
            gap += 1
            continue
        rows += len(some)
        if not dim:
            dim = some.shape[1]
            start = _write_header(file, 0, dim)
        if gap:  # what is never written reads as zeros
            file.seek(4 * dim * gap, os.SEEK_CUR)
            gap = 0
        file.write(np.ascontiguousarray(some, "<f4").data)
    if dim:
        file.truncate(start + 4 * dim * rows)
        file.seek(0)
        assert _write_header(file, rows, dim) == start  # numpy leaves room for the number of rows to grow
    return dim, skipped


def _together(block: Answered[TextExample, np.ndarray]) -> Iterator[np.ndarray | Flaw]:
    """Vectors (R, D) as many at once as come without a flaw between them, or else one by one."""
    if isinstance(block.found, np.ndarray):
        yield block.found
        return
    for one in block.found:
        yield one if isinstance(one, Flaw) else one[None]


def _write_header(file: BinaryIO, rows: int, dim: int) -> int:
    """Where the numbers begin."""
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, dim)})
    return file.tell()


def _read(found: Iterable[Embedded], best: Best, skip_bad: bool, source: Path) -> dict[int, TextExample]:
    """Embed the texts and offer them; those that are among the best, by their rows."""
    kept: dict[int, TextExample] = {}
    rows = enumerate(found)
    empty = True
    while block := list(itertools.islice(rows, CHUNK)):
        examples: dict[int, TextExample] = {}
        vectors = []
        for row, item in block:
            if not isinstance(item, Flaw):
                examples[row], vector = item
                vectors.append(vector)
            elif not skip_bad:
                raise UserError(str(item))
        if vectors:
            empty = False
            best.offer(np.array(list(examples)), np.array(vectors))
            kept = {row: kept.get(row) or examples[row] for row in best.rows()}
    if empty:
        raise UserError(f"{source} has no text to search; give a file that has")
    return kept


def _about(vectors: Path) -> dict[str, Any]:
    """How vectors were made; nothing is said of those that came from elsewhere."""
    path = described(vectors)
    if not path.is_file():
        return {}
    try:
        about = json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); {AGAIN}") from None
    if not isinstance(about, dict) or about.get("pool") not in ("cls", "mean"):
        raise UserError(f"{path} does not describe vectors; {AGAIN}")
    return about


def _open(vectors: Path, about: dict[str, Any], dim: int, origin: str) -> np.ndarray:
    """The vectors (R, D), not read yet."""
    try:
        matrix = np.load(vectors, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise UserError(f"cannot read {vectors}: {error.strerror or error}; write it with `heedful embed`") from None
    except (ValueError, EOFError):
        raise UserError(f"{vectors} is not a whole .npy file of numbers; {AGAIN}") from None
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or matrix.dtype.kind != "f":
        raise UserError(f"{vectors} does not hold a vector a row; {AGAIN}")
    if any(about.get(name, size) != size for name, size in zip(("rows", "dim"), matrix.shape, strict=True)):
        raise UserError(f"{vectors} and {described(vectors).name} do not belong together; {AGAIN}")
    if matrix.shape[1] != dim:
        raise UserError(
            f"{vectors} has vectors of {counted(matrix.shape[1], 'number')} and {origin} makes {dim}; "
            f"{AGAIN}, with that model"
        )
    return matrix


def _look_up(
    items: Iterable[TextExample | Flaw], best: Best, rows: int, about: dict[str, Any]
) -> dict[int, TextExample] | None:
    """The texts that are among the best, by their rows; None if the vectors are not of these texts."""
    read = TextDigest()
    wanted = best.rows()
    kept = {row: item for row, item in enumerate(read.over(items)) if row in wanted and not isinstance(item, Flaw)}
    same = read.rows == rows and len(kept) == len(wanted) and about.get("texts", read.hexdigest()) == read.hexdigest()
    return kept if same else None


def _strange(reader: Vectors, matrix: np.ndarray, kept: dict[int, TextExample]) -> int | None:
    """A row that this model can't have made: vectors of another may be as wide as its own, but mean nothing to it."""
    for row, example in kept.items():
        (prepared,) = reader.prepare([example])
        if not isinstance(prepared, Flaw):  # else it was cut, which need not be so now
            one, other = _unit(np.array([reader.answer([prepared])[0], matrix[row]], np.float64))
            return row if one @ other < ALIKE else None
    return None
