"""A text as the tokens that a model reads, each with the characters that it stands for."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.data.inputs import characters
from heedful.data.sentencepiece import Vocabulary
from heedful.data.subwords import SPACE
from heedful.data.tokenizer import MASK, Tokenizer
from heedful.explore.refusals import TooLong
from heedful.predict.reading import short

WIDER = 4
"""Characters of a text, at most, that normalisation may have made one of."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token, and where it comes from."""

    id: int
    text: str
    start: int | None = None
    """The characters of its text, [start, end); None for a special token, and where they can't be told."""
    end: int | None = None
    special: bool = False
    segment: int = 0
    """Which of two texts it belongs to."""


def encoder_tokens(
    tokenizer: Tokenizer, text: str, pair: str | None = None, *, padding: int = 0, longest: int | None = None
) -> tuple[Token, ...]:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, then padding. `[MASK]` in a text is a blank."""

    def mark(number: int, segment: int = 0) -> Token:
        return Token(id=number, text=tokenizer.vocabulary[number], special=True, segment=segment)

    found = [mark(tokenizer.cls), *_pieces(tokenizer, text, 0), mark(tokenizer.sep)]
    if pair is not None:
        found += [*_pieces(tokenizer, pair, 1), mark(tokenizer.sep, 1)]
    found += [mark(tokenizer.pad)] * padding
    check_length(text, len(found), longest)
    return tuple(found)


def _pieces(tokenizer: Tokenizer, text: str, segment: int) -> list[Token]:
    """The tokens of one text, its blanks among them."""
    found: list[Token] = []
    start = 0
    for number, part in enumerate(text.split(MASK)):
        if number:
            end = start + len(MASK)
            found.append(
                Token(id=tokenizer.mask, text=MASK, start=start, end=end, special=True, segment=segment),
            )
            start = end
        (encoding,) = tokenizer.read([part])
        spans = characters(part, encoding.offsets).tolist()
        found += [
            Token(id=number, text=tokenizer.vocabulary[number], start=start + a, end=start + b, segment=segment)
            for number, (a, b) in zip(encoding.ids, spans, strict=True)
        ]
        start += len(part)
    return found


def source_tokens(
    vocabulary: Vocabulary, text: str, end: int, *, pad: int = 0, padding: int = 0, longest: int | None = None
) -> tuple[Token, ...]:
    """What a translator reads: the pieces of a text and its end, then padding."""
    ids = vocabulary.encode([" ".join(text.split())])[0]
    check_length(text, len(ids), longest)
    return (*piece_tokens(vocabulary, ids, text), *_marks(vocabulary, [end] + [pad] * padding))


def target_tokens(vocabulary: Vocabulary, ids: Sequence[int], text: str, start: int) -> tuple[Token, ...]:
    """What a translator goes on from: the start, then the pieces of a text."""
    return (*_marks(vocabulary, [start]), *piece_tokens(vocabulary, ids, text))


def piece_tokens(vocabulary: Vocabulary, ids: Sequence[int], text: str) -> list[Token]:
    """Pieces with the characters of the text that they stand for."""
    pieces = vocabulary.pieces(ids)
    spans = piece_spans(pieces, text)
    return [
        Token(id=number, text=piece, start=None if span is None else span[0], end=None if span is None else span[1])
        for number, piece, span in zip(ids, pieces, spans, strict=True)
    ]


def _marks(vocabulary: Vocabulary, ids: Sequence[int]) -> list[Token]:
    pieces = vocabulary.pieces(ids)
    return [Token(id=number, text=piece, special=True) for number, piece in zip(ids, pieces, strict=True)]


def piece_spans(pieces: Sequence[str], text: str) -> list[tuple[int, int] | None]:
    """The characters [start, end) of a text for each piece of it; None for what can't be found, as the unknown.

    Pieces follow each other in the text, but for spaces, and may have been normalised.
    """
    found: list[tuple[int, int] | None] = []
    place = 0
    for piece in pieces:
        letters = piece.replace(SPACE, " ").strip()
        span = _next(letters, text, place) if letters else None
        place = place if span is None else span[1]
        found.append(span)
    return found


def _next(letters: str, text: str, place: int) -> tuple[int, int] | None:
    """Where some letters stand next: here, here in other characters, or later."""
    while place < len(text) and text[place].isspace():
        place += 1
    if text.startswith(letters, place):
        return place, place + len(letters)
    for end in range(place + 1, min(len(text), place + WIDER * len(letters)) + 1):
        if unicodedata.normalize("NFKC", text[place:end]) == letters:
            while end < len(text) and unicodedata.normalize("NFKC", text[place : end + 1]) == letters:
                end += 1
            return place, end
    later = text.find(letters, place)
    return None if later < 0 else (later, later + len(letters))


def check_length(text: str, tokens: int, longest: int | None) -> None:
    """Refuse what is longer than a model reads."""
    if longest is not None and tokens > longest:
        raise TooLong(f"{short(text)} has {tokens:,} tokens, of which {longest:,} can be looked at; shorten it")
