"""Tokens on disk: memory-mapped, with sentence and document boundaries, prepared once and in constant memory.

A folder of shards is named by a hash of the input's content, the tokenizer and the options, so the same
preparation is never done twice and a changed input is never mistaken for the old one. It takes its name only
when it is complete. It holds, for the training and for the held-out documents, three flat files: `tokens`,
`sentences` (token offsets) and `documents` (sentence offsets); the tokenizer; and `meta.json`, which knows how large
they are and what they hash to.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from tokenizers import Encoding

from heedful.data import sources
from heedful.data import tokenizer as wordpiece
from heedful.data.heldout import held_out
from heedful.data.tokenizer import Tokenizer
from heedful.durable import file_digest, new_folder
from heedful.errors import OutOfReach, UserError

FORMAT = 1
"""To be raised when the same text and tokenizer would give other shards: also by how sentences are split."""
CHUNK = 1 << 18
"""Characters encoded at once: enough for all cores, little enough to stay small."""

PARTS, FILES = ("train", "heldout"), ("tokens", "sentences", "documents")

Document = Sequence[str]


class Split(NamedTuple):
    """One part of the shards."""

    tokens: np.ndarray
    """Every token, end to end."""
    sentences: np.ndarray
    """(S + 1,) int64: the token each sentence starts at, and the end."""
    documents: np.ndarray
    """(C + 1,) int64: the sentence each document starts at, and the end."""

    def has_pairs(self) -> bool:
        """Whether next-sentence pairs can be made of it."""
        return len(self.documents) > 2 and self.documents[-1] > len(self.documents) - 1


@dataclass(frozen=True)
class Shards:
    """A prepared corpus."""

    folder: Path
    key: str
    tokenizer: Tokenizer
    train: Split
    heldout: Split


def prepare(
    files: Sequence[Path],
    options: sources.TextOptions,
    tokenizer: Tokenizer,
    *,
    share: float,
    cache: Path | None = None,
    folder: Path | None = None,
) -> Shards:
    """The shards of the files' text, `share` of its documents held out; made now unless they are there.

    They go into a folder of the cache that is named by their key, or into the given folder. What is damaged in the
    cache is made anew.
    """
    key = _key(files, options, tokenizer, share)
    if folder is None:
        assert cache is not None
        folder = cache / "shards" / key
        if folder.exists():  # what is not there yet may be completed by another process at any moment
            try:
                return load(folder, verify=True)
            except OutOfReach:
                raise
            except UserError:
                shutil.rmtree(folder, ignore_errors=True)
    found = is_shards(folder)
    if not found:
        with new_folder(folder) as aside:
            write(sources.documents(files, options), tokenizer, aside, key=key, share=share)
    return load(folder, verify=found)


def write(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    key: str,
    share: float,
) -> None:
    """Encode the documents on all cores and write the shards."""
    dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
    with _Writer(folder / "train", dtype) as train, _Writer(folder / "heldout", dtype) as heldout:
        for chunk, ids, lengths in _encoded(documents, tokenizer, dtype):
            sizes = np.array([len(document) for document in chunk])  # sentences
            kept = np.array([not held_out(document, share) for document in chunk])
            for writer, which in ((train, kept), (heldout, ~kept)):
                of_sentence = np.repeat(which, sizes)
                writer.add(ids[np.repeat(of_sentence, lengths)], lengths[of_sentence], sizes[which])
        if not train.documents:
            raise UserError("the text has too few documents to train on; give more text, or a smaller --held-out")
    meta = {
        "format": FORMAT,
        "key": key,
        "tokenizer": tokenizer.fingerprint,
        "dtype": np.dtype(dtype).name,
        "splits": {"train": train.sizes(), "heldout": heldout.sizes()},
        "checksums": {name: file_digest(folder / name) for name in _names()},
    }
    wordpiece.save(tokenizer, folder)
    (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")


def load(folder: Path, *, verify: bool = False) -> Shards:
    """Shards that are already there; to `verify` them reads all of them once, and finds every byte that changed."""
    if not (folder / "meta.json").is_file():
        raise UserError(f"{folder} holds no shards: it has no meta.json")
    way_out = "delete the folder, and prepare the text again"
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if (version := meta["format"]) != FORMAT:  # whose other fields may be others
            raise UserError(f"the shards in {folder} have format {version}, not {FORMAT}; {way_out}")
        splits = [_split(folder / name, meta["dtype"], **meta["splits"][name]) for name in PARTS]
        if verify and "checksums" in meta:  # older shards have none
            _verify(folder, meta["checksums"])
        key, fingerprint = meta["key"], meta["tokenizer"]
    except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
        raise UserError(f"the shards in {folder} are damaged ({_reason(error)}); {way_out}") from None
    except OSError as error:
        raise OutOfReach(f"cannot read the shards in {folder} ({_reason(error)}); mend that, and try again") from None
    tokenizer = wordpiece.load(folder)
    check_tokenizer(tokenizer, fingerprint, folder)
    return Shards(folder, key, tokenizer, *splits)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{Path(error.filename or '').name}: {error.strerror}"
    return f"meta.json has no {error}" if isinstance(error, KeyError) else str(error)


def check_tokenizer(tokenizer: Tokenizer, fingerprint: str, folder: Path) -> None:
    """Refuse a tokenizer that did not make the shards."""
    if tokenizer.fingerprint != fingerprint:
        raise UserError(
            f"the tokenizer does not belong to the shards in {folder}: they were made with another one; "
            "use that one, or give the text instead of the shards"
        )


def is_shards(path: Path) -> bool:
    """Whether a folder holds prepared shards."""
    return (path / "meta.json").is_file() and any((path / f"train.{name}").is_file() for name in FILES)


def _key(files: Sequence[Path], options: sources.TextOptions, tokenizer: Tokenizer, share: float) -> str:
    parts = {
        "format": FORMAT,
        "files": [(sources.kind(file), file_digest(file)) for file in files],
        "options": asdict(options),
        "tokenizer": tokenizer.fingerprint,
        "heldout": share,
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _encoded(
    documents: Iterable[Document], tokenizer: Tokenizer, dtype: type
) -> Iterator[tuple[list[Document], np.ndarray, np.ndarray]]:
    """Chunks of documents, their ids, and the lengths of their sentences in tokens.

    One chunk is encoded on all cores while the next is read and the last one written.
    """

    def encode(chunk: list[Document]) -> list[Encoding]:
        return tokenizer.backend.encode_batch_fast(list(chain.from_iterable(chunk)), add_special_tokens=False)

    def arrays(chunk: list[Document], encodings: list[Encoding]) -> tuple[list[Document], np.ndarray, np.ndarray]:
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), dtype, int(lengths.sum()))
        return chunk, ids, lengths

    with ThreadPoolExecutor(1) as worker:
        waiting = None
        for chunk in _chunks(documents):
            encoding = worker.submit(encode, chunk)
            if waiting:
                yield arrays(waiting[0], waiting[1].result())
            waiting = chunk, encoding
        if waiting:
            yield arrays(waiting[0], waiting[1].result())


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    characters = 0
    for document in documents:
        chunk.append(document)
        characters += sum(map(len, document))
        if characters >= CHUNK:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


class _Writer:
    """The three files of one split. Sentences without tokens and documents without sentences are left out."""

    def __init__(self, stem: Path, dtype: type) -> None:
        self.dtype = dtype
        self.tokens = self.documents = self.sentences = 0
        self.files: dict[str, BinaryIO] = {name: stem.with_suffix(f".{name}").open("wb") for name in FILES}
        for name in ("sentences", "documents"):
            self.files[name].write(np.zeros(1, np.int64).tobytes())

    def __enter__(self) -> "_Writer":
        return self

    def __exit__(self, *raised: object) -> None:
        for file in self.files.values():
            file.close()

    def add(self, ids: np.ndarray, lengths: np.ndarray, sizes: np.ndarray) -> None:
        """Append documents of `sizes` sentences of `lengths` tokens."""
        of_document = np.repeat(np.arange(len(sizes)), sizes)
        real = lengths > 0
        sizes = np.bincount(of_document[real], minlength=len(sizes))
        lengths, sizes = lengths[real], sizes[sizes > 0]
        self.files["tokens"].write(ids.astype(self.dtype).tobytes())
        self.files["sentences"].write((self.tokens + np.cumsum(lengths)).tobytes())
        self.files["documents"].write((self.sentences + np.cumsum(sizes)).tobytes())
        self.tokens += len(ids)
        self.sentences += len(lengths)
        self.documents += len(sizes)

    def sizes(self) -> dict[str, int]:
        return {"tokens": self.tokens, "sentences": self.sentences, "documents": self.documents}


def _verify(folder: Path, checksums: dict[str, str]) -> None:
    for name in _names():
        if file_digest(folder / name) != checksums[name]:
            raise ValueError(f"{name} is not as it was written")


def _names() -> list[str]:
    return [f"{part}.{name}" for part in PARTS for name in FILES]


def _split(stem: Path, dtype: str, *, tokens: int, sentences: int, documents: int) -> Split:
    return Split(
        _mapped(stem.with_suffix(".tokens"), np.dtype(dtype), tokens),
        _mapped(stem.with_suffix(".sentences"), np.dtype(np.int64), sentences + 1),
        _mapped(stem.with_suffix(".documents"), np.dtype(np.int64), documents + 1),
    )


def _mapped(path: Path, dtype: np.dtype, count: int) -> np.ndarray:
    if path.stat().st_size != count * dtype.itemsize:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes instead of {count * dtype.itemsize}")
    return np.memmap(path, dtype, "r") if count else np.empty(0, dtype)
