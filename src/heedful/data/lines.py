"""The lines of a text file, plain or packed as gz, xz or zst: streamed and numbered.

The text is UTF-8, brought to NFC or left as written. Memory does not grow with the file, nor with a line that never
ends. What is wrong is told with file and line. Knows nothing of what the lines hold.
"""

import gzip
import itertools
import lzma
import unicodedata
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

from heedful.errors import UserError

PACKINGS = (".gz", ".xz", ".zst")
MAX_LINE = 16 << 20
"""The most bytes of a line."""
CHUNK = 1 << 20
"""Bytes read at a time."""

Errors = Literal["strict", "replace"]
"""What to do with bytes that are not UTF-8."""

FEW_LOST, MOST_LOST = 10, 0.1
"""Characters, or their share of a text, that may be replaced."""
CONVERT = "convert the text (iconv -f CP949 -t UTF-8, or from what else it is in)"

KEPT = ".stdin.txt"
"""The name of a file that standard input was kept in, since it is read more than once."""

_OPEN = {"": Path.open, ".gz": gzip.open, ".xz": lzma.open}
_HEAD = 64 << 10


def packing(file: Path) -> str:
    """How a file is packed: one of the known endings, or "" for not at all."""
    ending = file.suffix.lower()
    return ending if ending in PACKINGS else ""


def lines(file: Path, errors: Errors, *, normalise: bool = True) -> Iterator[tuple[int, str]]:
    """The lines of a file without their ends, numbered from 1; in NFC, or without `normalise` as written."""
    name, number, seen, pending = called(file), 1, 0, b""
    for chunk in itertools.chain(chunks(file), [b""]):
        if 0 <= chunk.find(b"\0") < _HEAD - seen:
            raise UserError(
                f"{name} looks like binary data, not text; give UTF-8 text (iconv makes it from UTF-16), "
                f"or let the name say what it is: {' '.join(PACKINGS)} .parquet"
            )
        pending += chunk if seen else chunk.removeprefix(b"\xef\xbb\xbf")
        seen += len(chunk)
        # Whole blocks are decoded at once, which is what makes this fast. A last "\r" may be half of "\r\n".
        end = max(pending.rfind(b"\n"), pending.rfind(b"\r", 0, -1)) + 1 if chunk else len(pending)
        block, pending = pending[:end], pending[end:]
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        _check_length(name, number, block)
        text = _decode(name, number, block, errors)
        if normalise and not text.isascii():
            text = unicodedata.normalize("NFC", text)
        whole = text.split("\n")
        if not whole[-1]:
            whole.pop()
        yield from enumerate(whole, number)
        number += len(whole)
        _check_length(name, number, pending)


def called(file: Path) -> str:
    """What a message calls a file: as its user does, who knows nothing of where standard input is kept."""
    return "standard input" if file.name == KEPT else str(file)


def _check_length(name: str, number: int, data: bytes) -> None:
    """Refuse a first line that is too long. Later lines are not: a chunk is shorter than the limit."""
    if len(data) > MAX_LINE and data.find(b"\n", 0, MAX_LINE + 1) < 0:
        size = f"{MAX_LINE >> 20} MiB"
        raise UserError(f"{name}:{number}: a line of over {size}; put line breaks between sentences")


def _decode(name: str, number: int, block: bytes, errors: Errors) -> str:
    """The text of the lines from `number` on."""
    if (nul := block.find(b"\0")) >= 0:
        if errors == "strict":
            line = number + block.count(b"\n", 0, nul)
            raise UserError(f"{name}:{line}: a NUL byte; remove it or go on with --errors replace")
        block = block.replace(b"\0", b"")
    try:
        text = block.decode(errors=errors)
    except UnicodeDecodeError as error:
        line = number + block.count(b"\n", 0, error.start)
        or_else = "" if lost(block.decode(errors="replace")) else " or go on with --errors replace"
        raise UserError(f"{name}:{line}: byte 0x{block[error.start]:02x} is not UTF-8; {CONVERT}{or_else}") from error
    if errors == "replace" and (share := lost(text)):
        line = number + text.count("\n", 0, text.index("\ufffd"))
        raise UserError(f"{name}:{line}: {share:.0%} of the text is not UTF-8, and would be lost; {CONVERT}")
    return text


def lost(text: str, few: int = FEW_LOST) -> float:
    """The share of a text that was replaced, if it is too much of it: then it is in another encoding."""
    count = text.count("\ufffd")
    return count / len(text) if count > max(few, MOST_LOST * len(text)) else 0.0


def chunks(file: Path) -> Iterator[bytes]:
    """The bytes of a file, unpacked, in chunks of `CHUNK` but for the last."""
    name = packing(file)
    with reading(file):
        if name == ".zst":
            yield from _unpack_zst(file)
        else:
            with _OPEN[name](file, "rb") as stream:
                yield from iter(partial(stream.read, CHUNK), b"")


def _unpack_zst(file: Path) -> Iterator[bytes]:
    # Not through zstandard's stream_reader, which takes a file cut short for a whole one.
    import zstandard

    frame = None
    ready = bytearray()
    with file.open("rb") as raw:
        # 512 bytes unpack to at most 16 MiB, so that memory stays small whatever they hold.
        while piece := raw.read(512):
            while piece:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    ready += frame.decompress(piece)
                except zstandard.ZstdError as error:
                    raise OSError(error) from error
                piece = frame.unused_data  # of the next frame
                frame = None if frame.eof else frame
            while len(ready) >= CHUNK:
                yield bytes(ready[:CHUNK])
                del ready[:CHUNK]
    if frame:
        raise EOFError("it ends inside a frame")
    if ready:
        yield bytes(ready)


@contextmanager
def reading(file: Path) -> Generator[None, None, None]:
    """Turn what the system and the unpackers raise into a user's error."""
    try:
        yield
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        # Unpackers raise OSError too, but without a number.
        if isinstance(error, OSError) and error.errno:
            way_out = "check that it is there and that you may read it"
            raise UserError(f"cannot read {error.filename or file}: {error.strerror}; {way_out}") from error
        reason = " ".join(str(error).split())
        raise UserError(f"{file} is damaged or cut short ({reason}); fetch or write it again") from error
