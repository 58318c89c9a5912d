"""Arrays of every kind of file, a few rows at a time, whole or damaged."""

import gzip
import lzma
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from heedful.data.stored_arrays import StoredArray, read_idx, read_npy, read_npz
from heedful.errors import UserError

ROWS = np.arange(7 * 3 * 5, dtype=np.uint8).reshape(7, 3, 5)
PACK = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstandard.ZstdCompressor().compress}


def idx(array: np.ndarray, kind: int = 0x08) -> bytes:
    big = array.astype(array.dtype.newbyteorder(">"))
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + big.tobytes()


def npy(path: Path, array: np.ndarray) -> bytes:
    np.save(path, array)
    return path.read_bytes()


def read_in_pieces(stored: StoredArray) -> np.ndarray:
    pieces = list(stored.pieces(3))
    assert [len(piece) for piece in pieces] == [3, 3, 1]
    return np.concatenate(pieces)


@pytest.mark.parametrize("packing", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("kind", ["npy", "idx"])
def test_what_was_written_is_read(tmp_path: Path, kind: str, packing: str):
    content = npy(tmp_path / "plain.npy", ROWS) if kind == "npy" else idx(ROWS)
    file = tmp_path / f"rows.{kind}{packing}"
    file.write_bytes(PACK[packing](content) if packing else content)
    stored = (read_npy if kind == "npy" else read_idx)(file)
    assert (stored.shape, stored.dtype, stored.where) == ((7, 3, 5), np.uint8, str(file))
    assert (read_in_pieces(stored) == ROWS).all()
    assert (stored.whole() == ROWS).all()
    assert (stored.whole() == ROWS).all()  # it can be read again


@pytest.mark.parametrize("dtype", [">f4", "<f8", "<i8", ">i2", "<U4", "|b1"])
def test_every_type_of_numbers(tmp_path: Path, dtype: str):
    rows = ROWS.astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    stored = read_npy(tmp_path / "rows.npy")
    assert stored.dtype == rows.dtype
    assert (read_in_pieces(stored) == rows).all()


def test_idx_numbers_have_their_highest_byte_first(tmp_path: Path):
    (tmp_path / "rows.idx").write_bytes(idx(np.array([1, 258, -3], np.int32), 0x0C))
    assert read_idx(tmp_path / "rows.idx").whole().tolist() == [1, 258, -3]


def test_an_array_by_columns(tmp_path: Path):
    np.save(tmp_path / "rows.npy", np.asfortranarray(ROWS))
    stored = read_npy(tmp_path / "rows.npy")
    assert stored.by_columns
    assert (read_in_pieces(stored) == ROWS).all()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive(tmp_path: Path, save):
    save(tmp_path / "both.npz", x=ROWS, y=np.arange(7), count=7)
    each = read_npz(tmp_path / "both.npz")
    assert list(each) == ["x", "y", "count"]
    found = {name: each[name]() for name in ("x", "y")}
    with pytest.raises(UserError, match=r"both.npz:count is a single value"):
        each["count"]()
    assert found["x"].where == f"{tmp_path / 'both.npz'}:x"
    assert (read_in_pieces(found["x"]) == ROWS).all()
    assert found["y"].whole().tolist() == list(range(7))
    assert found["x"].digest() != found["y"].digest()


def test_a_digest_tells_the_content(tmp_path: Path):
    np.save(tmp_path / "a.npy", ROWS)
    np.save(tmp_path / "b.npy", ROWS)
    np.save(tmp_path / "c.npy", ROWS + 1)
    a, b, c = (read_npy(tmp_path / f"{name}.npy").digest() for name in "abc")
    assert a == b != c
    assert StoredArray.of("memory", ROWS).digest() != StoredArray.of("memory", ROWS + 1).digest()
    assert (StoredArray.of("memory", ROWS[:, :, ::2]).whole() == ROWS[:, :, ::2]).all()


def member(file: Path) -> StoredArray:
    return read_npz(file)["x"]()


def refused(read: Callable[[Path], StoredArray], file: Path) -> str:
    with pytest.raises(UserError) as error:
        read(file).whole()
    told = str(error.value)
    assert str(file) in told
    assert "\n" not in told
    return told


def test_what_is_damaged_is_told(tmp_path: Path):
    file = tmp_path / "rows.npy"
    whole = npy(file, ROWS)
    for content, told in [
        (whole[:-1], "cut short"),
        (whole + b"!", "goes on after its (7, 3, 5)"),
        (whole[:40], "no npy array"),
        (b"text", "no npy array"),
        (b"", "no npy array"),
    ]:
        file.write_bytes(content)
        assert told in refused(read_npy, file)
    file = tmp_path / "rows-idx3-ubyte"
    whole = idx(ROWS)
    for content, told in [
        (whole[:-1], "cut short"),
        (whole + b"!", "goes on after"),
        (whole[:9], "cut short in its header"),
        (b"\0\0\x07\x01", "no IDX file: it begins with 00000701"),
        (b"", "no IDX file"),
    ]:
        file.write_bytes(content)
        assert told in refused(read_idx, file)
    file = tmp_path / "rows.npy.gz"
    file.write_bytes(gzip.compress(npy(tmp_path / "rows.npy", ROWS))[:-9])
    assert "damaged or cut short" in refused(read_npy, file)


def test_a_damaged_archive_is_told(tmp_path: Path):
    file = tmp_path / "rows.npz"
    np.savez(file, x=ROWS)
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    assert "no npz file" in refused(member, file)
    broken = bytearray(whole)
    broken[whole.index(ROWS.tobytes()) + 5] ^= 255
    file.write_bytes(broken)
    assert "damaged" in refused(member, file)
    assert "No such file" in refused(member, tmp_path / "missing.npz")


def test_nothing_is_unpickled(tmp_path: Path):
    file = tmp_path / "rows.npy"
    np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    assert "Python objects" in refused(read_npy, file)
    file.write_bytes(pickle.dumps(ROWS))
    assert "no npy array" in refused(read_npy, file)
    np.save(file, np.uint8(3))
    assert "a single value" in refused(read_npy, file)
