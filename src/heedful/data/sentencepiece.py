"""Vocabularies of Marian folders from elsewhere: source.spm, target.spm and vocab.json, without tokenizer.json.

Reads what sentencepiece (Kudo and Richardson 2018) writes, without that package: the normalisation is done here as
there, the segmentation by `tokenizers`. Ids are those of vocab.json, which source and target may share.
"""

import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import models

from heedful.data.subwords import EOS, PAD, SPACE, UNK, Subwords
from heedful.errors import UserError

_NORMAL, _USER_DEFINED, _BYTE = 1, 4, 6  # types of pieces
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


class MarianPieces:
    """Text to ids and back, with the same methods as `Subwords`.

    The ids are those of sentencepiece, but where two segmentations are equally good to the last digit. Marian starts
    a translation with <pad>; a model that starts otherwise says so in its config, hence `sos`.
    """

    def __init__(
        self, model: bytes, ids: dict[str, int], *, sos: int | None = None, origin: str = "the sentencepiece model"
    ) -> None:
        missing = [token for token in (PAD, EOS, UNK) if token not in ids]
        if missing:
            raise UserError(f"the vocab.json of {origin} lacks {', '.join(missing)}; Marian needs all three")
        if sorted(ids.values()) != list(range(len(ids))):
            raise UserError(f"the ids in the vocab.json of {origin} are not 0 to {len(ids) - 1}; copy it again")
        read = _read(model, origin)
        self.kind = read.kind
        self.pad, self.eos, self.unk = ids[PAD], ids[EOS], ids[UNK]
        self.sos = self.pad if sos is None else sos
        self._ids = ids
        self._model = model
        self._normalise = _Normaliser(read)
        self._segments = _segmenter(read, origin)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self._ids)

    @cached_property
    def fingerprint(self) -> str:
        """Differs whenever any text might get other ids."""
        return hashlib.sha256(self._model + json.dumps(self._ids, sort_keys=True).encode()).hexdigest()

    @cached_property
    def vocabulary(self) -> list[str]:
        """The piece of each id."""
        return sorted(self._ids, key=self._ids.__getitem__)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens; a language code like >>fra<< before it is one token."""
        codes, rests = zip(*map(self._split_code, texts), strict=True) if texts else ((), ())
        written = [self._normalise(rest) for rest in rests]
        encodings = self._segments.encode_batch(written, add_special_tokens=False)
        return [
            code + [self._ids.get(text[start:end], self.unk) for start, end in encoding.offsets]
            for code, text, encoding in zip(codes, written, encodings, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special tokens are left out."""
        special = {self.pad, self.eos, self.unk, self.sos}
        return "".join(self.pieces([number for number in ids if number not in special])).replace(SPACE, " ").strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces of ids as they are written, special tokens too."""
        return [self.vocabulary[number] for number in ids]

    def unknown(self, text: str) -> list[str]:
        """The characters of a text that the vocabulary does not know, each once, in their order."""
        characters = list(dict.fromkeys(self._normalise(self._split_code(text)[1])))
        return [
            character for character, ids in zip(characters, self.encode(characters), strict=True) if self.unk in ids
        ]

    def _split_code(self, text: str) -> tuple[list[int], str]:
        end = text.find("<<") + 2
        if text.startswith(">>") and text[:end] in self._ids:
            return [self._ids[text[:end]]], text[end:]
        return [], text


Vocabulary = Subwords | MarianPieces
"""What a translator may read and write with."""


def load_marian(folder: str | Path, *, sos: int | None = None) -> tuple[MarianPieces, MarianPieces]:
    """The vocabularies of source and target; a target_vocab.json beside vocab.json has the ids of the target."""
    folder = Path(folder)
    ids = _ids(folder / "vocab.json")
    of_target = folder / "target_vocab.json"
    source, target = (
        MarianPieces(_bytes(folder / name), numbers, sos=sos, origin=str(folder / name))
        for name, numbers in (
            ("source.spm", ids),
            ("target.spm", _ids(of_target) if of_target.is_file() else ids),
        )
    )
    return source, target


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path.parent} has no {path.name}; copy the whole Marian folder") from None


def _ids(path: Path) -> dict[str, int]:
    try:
        ids = json.loads(_bytes(path))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); copy it again") from None
    if not isinstance(ids, dict) or not all(type(number) is int for number in ids.values()):
        raise UserError(f"{path} is not an object of pieces and ids; copy it again")
    return ids


class _Model(NamedTuple):
    """What the file says: the parts of sentencepiece's ModelProto that change ids."""

    kind: str
    pieces: list[tuple[str, float, int]]
    """Each with its score and its type."""
    units: tuple[int, ...]
    """The trie of what the normalisation replaces; empty if it replaces nothing."""
    replacements: bytes
    """Each ends with a zero byte."""
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool


def _read(data: bytes, origin: str) -> _Model:
    try:
        parts = list(_fields(data))
        trainer = dict(_fields(b"".join(part for number, part in parts if number == 2)))
        normalizer = dict(_fields(b"".join(part for number, part in parts if number == 3)))
        pieces = []
        for fields in (dict(_fields(part)) for number, part in parts if number == 1):
            [score] = struct.unpack("<f", fields.get(2, bytes(4)))
            pieces.append((fields[1].decode(), score, fields.get(3, _NORMAL)))
        charsmap = normalizer.get(2, b"") or bytes(4)
        [size] = struct.unpack_from("<I", charsmap)
        units = struct.unpack_from(f"<{size // 4}I", charsmap, 4)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error):
        raise UserError(f"{origin} is no sentencepiece model; copy it again") from None
    kind = _KINDS.get(trainer.get(3, 1), "unknown")
    unsupported = {
        f"the kind {kind}": kind not in ("unigram", "bpe"),
        "byte fallback": any(kind == _BYTE for _, _, kind in pieces),
        "spaces at the end of pieces": trainer.get(24, 0),
        "user-defined pieces in BPE": kind == "bpe" and any(kind == _USER_DEFINED for _, _, kind in pieces),
        "no pieces": not pieces,
    }
    for what, there in unsupported.items():
        if there:
            raise UserError(f"{origin} has {what}, which is not supported; use unigram or bpe with plain pieces")
    flags = (bool(normalizer.get(number, 1)) for number in (3, 4, 5))
    return _Model(kind, pieces, units, charsmap[4 + size :], *flags)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message: numbers as int, everything else as bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        match tag & 7:
            case 0:
                value, at = _varint(data, at)
            case 1 | 5 as wire:
                size = 8 if wire == 1 else 4
                value, at = data[at : at + size], at + size
            case 2:
                size, at = _varint(data, at)
                value, at = data[at : at + size], at + size
            case wire:
                raise ValueError(f"wire type {wire}")
        if at > len(data):
            raise ValueError("cut off")
        yield tag >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1


class _Normaliser:
    """Text as sentencepiece has it before it is taken apart.

    The normalizer that `tokenizers` has for such tables replaces grapheme by grapheme, and leaves Hangul apart that
    sentencepiece joins; so the table, a double-array trie of UTF-8 bytes (Aoe 1989), is walked here: from each place
    the longest entry is replaced.
    """

    def __init__(self, model: _Model) -> None:
        self._model = model
        self._steps: dict[tuple[int, str], tuple[int, str | None] | None] = {}

    def __call__(self, text: str) -> str:
        mapped = self._replaced(text) if self._model.units else text
        space = SPACE if self._model.escape_whitespaces else " "
        if self._model.remove_extra_whitespaces:
            mapped = " ".join(part for part in mapped.split(" ") if part)
        if text and self._model.add_dummy_prefix:
            mapped = " " + mapped
        mapped = mapped.replace(" ", space)
        return mapped.rstrip(space) if self._model.remove_extra_whitespaces else mapped

    def _replaced(self, text: str) -> str:
        root = _offset(self._model.units[0])
        parts, at = [], 0
        while at < len(text):
            found, end = text[at], at + 1
            node, reached = root, at
            while reached < len(text) and (step := self._step(node, text[reached])):
                node, value = step
                reached += 1
                if value is not None:
                    found, end = value, reached
            parts.append(found)
            at = end
        return "".join(parts)

    def _step(self, node: int, character: str) -> tuple[int, str | None] | None:
        """The node that a character leads to, and what the entry that ends there is replaced with."""
        key = node, character
        if key not in self._steps:
            self._steps[key] = self._walk(node, character.encode("utf-8", "surrogatepass"))
        return self._steps[key]

    def _walk(self, node: int, data: bytes) -> tuple[int, str | None] | None:
        units, texts, unit = self._model.units, self._model.replacements, 0
        for byte in data:
            node ^= byte
            unit = units[node] if node < len(units) else 0
            if unit & 0x800000FF != byte:
                return None
            node ^= _offset(unit)
        if not unit >> 8 & 1 or node >= len(units):
            return node, None
        start = units[node] & 0x7FFFFFFF
        return node, texts[start : texts.find(b"\0", start)].decode(errors="replace")


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


def _segmenter(model: _Model, origin: str) -> tokenizers.Tokenizer:
    """What takes normalised text apart. Only the places it finds are used: ids come from vocab.json."""
    scores = {piece: score for piece, score, kind in model.pieces if kind == _NORMAL}
    if not scores:
        raise UserError(f"{origin} has no pieces; copy it again")
    if model.kind == "unigram":
        best = max(scores.values())
        free = {piece: len(piece.encode()) * best - 0.1 for piece, _, kind in model.pieces if kind == _USER_DEFINED}
        return tokenizers.Tokenizer(models.Unigram([(UNK, 0.0), *(scores | free).items()], unk_id=0))
    # Any two pieces that make up a third may be merged, the best third first.
    merges = [
        (piece[:cut], piece[cut:])
        for piece in sorted(scores, key=lambda piece: (-scores[piece], piece))
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    numbers = {piece: number for number, piece in enumerate([UNK, *scores])}
    return tokenizers.Tokenizer(models.BPE(numbers, merges, unk_token=UNK, fuse_unk=True))
