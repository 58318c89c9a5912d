"""From text to what BERT reads: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, and windows over what is too long.

Knows what fits, and where each token came from; nothing of labels. Text that does not fit is never cut in silence:
every result tells how much there was.

Shapes: T tokens of an input, W words of a window, C context tokens of a window.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from heedful.data.flaws import Flaw
from heedful.data.tokenizer import Tokenizer


class Input(NamedTuple):
    """One sequence of tokens."""

    ids: np.ndarray
    """(T,) int32, special tokens included."""
    second: int
    """Where the second segment begins; T without one."""


class TextInput(NamedTuple):
    """A text or a pair, and how long it was before it was made to fit."""

    input: Input
    tokens: int


class WordWindow(NamedTuple):
    """A stretch of a sentence's words, and those among them whose tags are read here."""

    input: Input
    words: np.ndarray
    """(W,) numbers of words in the sentence; every word is read in exactly one window."""
    firsts: np.ndarray
    """(W,) where in the input each one's first piece stands."""


class QuestionWindow(NamedTuple):
    """A question with a stretch of its context."""

    input: Input
    start: int
    """Where in the input the context begins."""
    spans: np.ndarray
    """(C, 2) the characters of the whole context that each context token stands for."""


def too_long(where: str, tokens: int, length: int) -> Flaw:
    """A text that would have to be cut."""
    way_out = "shorten it, or let it be cut (--truncate, in Python truncate=True)"
    return Flaw(where, f"{tokens:,} tokens, of which {length} can be read; {way_out}")


def no_room(where: str, length: int) -> Flaw:
    """A question that is so long that nothing of its context fits beside it."""
    return Flaw(where, f"the question leaves no room for its context in {length} tokens; shorten it")


def text_inputs(
    tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None, length: int
) -> list[TextInput]:
    """Texts, or pairs of texts, as inputs of at most `length` tokens."""
    first = tokenizer.encode(texts)
    if pairs is None:
        return [_text_input(tokenizer, a, None, length) for a in first]
    return [_text_input(tokenizer, a, b, length) for a, b in zip(first, tokenizer.encode(pairs), strict=True)]


def _text_input(tokenizer: Tokenizer, a: list[int], b: list[int] | None, length: int) -> TextInput:
    if b is None:
        tokens = len(a) + 2
        ids = [tokenizer.cls, *a[: length - 2], tokenizer.sep]
        return TextInput(Input(np.array(ids, np.int32), len(ids)), tokens)
    tokens = len(a) + len(b) + 3
    if tokens > length:
        room_a, room_b = shares(len(a), len(b), length - 3)
        a, b = a[:room_a], b[:room_b]
    ids = [tokenizer.cls, *a, tokenizer.sep, *b, tokenizer.sep]
    return TextInput(Input(np.array(ids, np.int32), len(a) + 2), tokens)


def shares(a: int, b: int, room: int) -> tuple[int, int]:
    """How much of two texts fits: the longer one is cut first, then both by half (as `tokenizers` does it)."""
    short = min(a, b, room // 2)
    return (short, room - short) if a <= b else (room - short, short)


def word_windows(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], length: int, overlap: int
) -> list[list[WordWindow]]:
    """The windows of each sentence, which is given as words; neighbours share about `overlap` tokens."""
    flat = tokenizer.encode([word for words in sentences for word in words])
    pieces = iter([ids[: length - 2] or [tokenizer.unk] for ids in flat])
    return [_word_windows(tokenizer, [next(pieces) for _ in words], length, overlap) for words in sentences]


def _word_windows(tokenizer: Tokenizer, pieces: list[list[int]], length: int, overlap: int) -> list[WordWindow]:
    ends = np.cumsum([len(ids) for ids in pieces])  # (words,) where each word's pieces end
    starts = ends - [len(ids) for ids in pieces]
    stretches = _stretches(starts, ends, length - 2, overlap)
    # A word is read where it sees most of both sides.
    sight = [np.minimum(starts - starts[first], ends[last - 1] - ends) for first, last in stretches]
    owner = np.argmax(
        [
            np.where((ends > starts[first]) & (ends <= ends[last - 1]), seen, -1)
            for seen, (first, last) in zip(sight, stretches, strict=True)
        ],
        axis=0,
    )
    windows = []
    for number, (first, last) in enumerate(stretches):
        ids = [tokenizer.cls, *(piece for word in pieces[first:last] for piece in word), tokenizer.sep]
        words = np.flatnonzero(owner == number)
        if not len(words):  # its neighbours see all of them better
            continue
        windows.append(WordWindow(Input(np.array(ids, np.int32), len(ids)), words, starts[words] - starts[first] + 1))
    return windows


def _stretches(starts: np.ndarray, ends: np.ndarray, room: int, overlap: int) -> list[tuple[int, int]]:
    """Which words each window holds: as many as fit, beginning again within the overlap."""
    found, first = [], 0
    while True:
        last = int(np.searchsorted(ends, starts[first] + room, side="right"))
        found.append((first, last))
        if last == len(ends):
            return found
        first = max(first + 1, int(np.searchsorted(starts, ends[last - 1] - overlap, side="left")))


def question_windows(
    tokenizer: Tokenizer, questions: Sequence[str], contexts: Sequence[str], length: int, overlap: int
) -> list[list[QuestionWindow]]:
    """The windows of each question over its context; none where the question leaves no room for one.

    Neighbours share `overlap` tokens of the context.
    """
    asked = tokenizer.encode(questions)
    distinct = list(dict.fromkeys(contexts))  # many questions are asked about one context
    encodings = tokenizer.backend.encode_batch(distinct, add_special_tokens=False)
    read = {
        context: (encoding.ids, characters(context, encoding.offsets))
        for context, encoding in zip(distinct, encodings, strict=True)
    }
    return [
        _question_windows(tokenizer, question, *read[context], length, overlap)
        for question, context in zip(asked, contexts, strict=True)
    ]


def characters(text: str, offsets: Sequence[tuple[int, int]]) -> np.ndarray:
    """(tokens, 2) the characters of a text that each token stands for, given what `tokenizers` says of them.

    Of a letter that is written in parts and was joined, as macOS writes Hangul, `tokenizers` counts the first alone.
    """
    spans = np.array(offsets, np.int32).reshape(-1, 2)
    if len(spans) and not unicodedata.is_normalized("NFC", text):
        for place, limit in enumerate([*spans[1:, 0].tolist(), len(text)]):
            while spans[place, 1] < limit and _joins(text[spans[place, 1]]):
                spans[place, 1] += 1
    return spans


def _joins(character: str) -> bool:
    """Whether a character is a part of the letter before it."""
    return unicodedata.category(character) in ("Mn", "Mc") or "\u1160" <= character <= "\u11ff"


def _question_windows(
    tokenizer: Tokenizer, question: list[int], context: list[int], spans: np.ndarray, length: int, overlap: int
) -> list[QuestionWindow]:
    room = length - len(question) - 3
    if room <= overlap:
        return []
    windows = []
    for first in range(0, max(1, len(context) - overlap), room - overlap):
        part = context[first : first + room]
        ids = [tokenizer.cls, *question, tokenizer.sep, *part, tokenizer.sep]
        start = len(question) + 2
        windows.append(QuestionWindow(Input(np.array(ids, np.int32), start), start, spans[first : first + room]))
    return windows


def answer_tokens(window: QuestionWindow, start: int, end: int) -> tuple[int, int]:
    """The first and last token of a window for the characters [start, end) of the context; `[CLS]` if not here."""
    spans = window.spans
    if not len(spans) or spans[0, 0] > start or spans[-1, 1] < end:
        return 0, 0
    # The first token that ends after the start, and the last that begins before the end: blanks at the edges of an
    # answer belong to no token, and several tokens may stand for one character.
    first = int(np.searchsorted(spans[:, 1], start, side="right"))
    last = int(np.searchsorted(spans[:, 0], end, side="left")) - 1
    return (window.start + first, window.start + last) if first <= last else (0, 0)
