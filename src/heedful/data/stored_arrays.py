"""Arrays in files, read a few rows at a time: npy and IDX, plain or packed, and the members of an npz.

Nothing is unpickled. Memory does not grow with the array. Knows nothing of what the numbers mean.
"""

import hashlib
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from heedful.data.lines import CHUNK, chunks
from heedful.durable import file_digest
from heedful.errors import UserError

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True)
class StoredArray:
    """An array of which only the shape and the type are in memory."""

    where: str
    """The file, and for an npz the name in it."""
    shape: tuple[int, ...]
    dtype: np.dtype
    by_columns: bool
    """Whether the first index changes fastest (Fortran's order); such an array is read as a whole."""
    data: "Callable[[], Stream]"
    """Opens the bytes where the numbers begin."""
    file: Path | None
    """None for an array in memory."""

    @classmethod
    def of(cls, where: str, array: np.ndarray) -> "StoredArray":
        """An array that is in memory already."""
        return cls(where, array.shape, array.dtype, False, lambda: Stream(iter([array.tobytes()])), None)

    def digest(self) -> str:
        """Tells the content; for a file, without unpacking it."""
        inside = self.where.removeprefix(str(self.file))
        content = hashlib.sha256(self.data().read(-1)).hexdigest() if self.file is None else file_digest(self.file)
        return f"{content}{inside}"

    def pieces(self, rows: int) -> Iterator[np.ndarray]:
        """The array from its first row to its last, so many rows at a time."""
        if self.by_columns:
            whole = self.whole()
            yield from (whole[start : start + rows] for start in range(0, self.shape[0], rows))
            return
        stream = self.data()
        for start in range(0, self.shape[0], rows):
            yield self._read(stream, (min(rows, self.shape[0] - start), *self.shape[1:]))
        self._check_end(stream)

    def whole(self) -> np.ndarray:
        """The array in memory."""
        stream = self.data()
        shape = self.shape[::-1] if self.by_columns else self.shape
        read = self._read(stream, shape)
        self._check_end(stream)
        return read.T if self.by_columns else read

    def _read(self, stream: "Stream", shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape, dtype=object)) * self.dtype.itemsize
        content = stream.read(size)
        if len(content) < size:
            raise UserError(f"{self.where} is cut short: it should be {self.shape}; fetch or write it again")
        return np.frombuffer(content, self.dtype).reshape(shape)

    def _check_end(self, stream: "Stream") -> None:
        if stream.read(1):
            raise UserError(f"{self.where} goes on after its {self.shape}; fetch or write it again")


Read = Callable[[], StoredArray]


class Stream:
    """Bytes in chunks, read in any amounts."""

    def __init__(self, found: Iterator[bytes]) -> None:
        self.found = found
        self.ready = bytearray()

    def read(self, size: int) -> bytes:
        """The next bytes; fewer only at the end."""
        size = sys.maxsize if size < 0 else size
        while len(self.ready) < size and (chunk := next(self.found, b"")):
            self.ready += chunk
        taken = bytes(self.ready[:size])
        del self.ready[:size]
        return taken


def read_npy(file: Path) -> StoredArray:
    """The array of an npy file, which may be packed."""
    return _npy(str(file), file, lambda: Stream(chunks(file)))


def read_npz(file: Path) -> dict[str, Read]:
    """How each array of an npz file is read, by its name: others in it may be what can't be."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}; check that it is there and that you may") from None
    except zipfile.BadZipFile:
        raise UserError(f"{file} is no npz file, or is cut short; write it with numpy.savez") from None
    names = {member.removesuffix(".npy"): member for member in members}
    return {
        name: partial(_npy, f"{file}:{name}", file, partial(_member, file, member)) for name, member in names.items()
    }


def read_idx(file: Path) -> StoredArray:
    """The array of an IDX file, which may be packed: the form in which MNIST and its kin are kept."""
    stream = Stream(chunks(file))
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES or not magic[3]:
        raise UserError(f"{file} is no IDX file: it begins with {magic.hex()}; fetch or write it again")
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise UserError(f"{file} is cut short in its header; fetch or write it again")
    shape = struct.unpack(f">{magic[3]}I", sizes)

    def numbers() -> Stream:
        stream = Stream(chunks(file))
        stream.read(4 + len(sizes))
        return stream

    return StoredArray(str(file), shape, np.dtype(_IDX_TYPES[magic[2]]), False, numbers, file)


def _member(file: Path, member: str) -> Stream:
    return Stream(_unzipped(file, member))


def _unzipped(file: Path, member: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(file) as archive, archive.open(member) as stream:
            while chunk := stream.read(CHUNK):
                yield chunk
    except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise UserError(f"{file}:{member} is damaged ({error}); write it again") from None


def _npy(where: str, file: Path, bytes_of: Callable[[], Stream]) -> StoredArray:
    shape, by_columns, dtype = _header(where, bytes_of())
    if dtype.hasobject:
        raise UserError(
            f"{where} holds Python objects, which are not read; save texts after .astype(str), "
            "numbers with a type such as uint8"
        )
    if not shape:
        raise UserError(f"{where} is a single value; give an array")

    def numbers() -> Stream:
        stream = bytes_of()
        _header(where, stream)
        return stream

    return StoredArray(where, shape, dtype, by_columns, numbers, file)


def _header(where: str, stream: Stream) -> tuple[tuple[int, ...], bool, np.dtype]:
    try:
        version = cast(tuple[int, int], np.lib.format.read_magic(stream))  # pyrefly: ignore
        return _READ_HEADER[version](stream)  # pyrefly: ignore
    except (ValueError, KeyError, EOFError):
        raise UserError(f"{where} is no npy array, or its beginning is broken; write it with numpy.save") from None
