"""From text to what BERT reads: `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, and windows over what is too long.

Knows what fits, and where each token came from; nothing of labels. Text that does not fit is never cut in silence:
every result tells how much there was.

Shapes: T tokens of an input, W words of a window, C context tokens of a window; B inputs, N tokens of them all.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import NamedTuple, overload

import numpy as np

from heedful.data.flaws import Flaw
from heedful.data.tokenizer import Tokenizer


class Input(NamedTuple):
    """One sequence of tokens."""

    ids: np.ndarray
    """(T,) int32, special tokens included."""
    second: int
    """Where the second segment begins; T without one."""


class Inputs(Sequence[Input]):
    """Inputs end to end in few arrays: a GPU reads many faster than Python makes an object of each."""

    def __init__(self, ids: np.ndarray, offsets: np.ndarray, seconds: np.ndarray) -> None:
        self.ids = ids
        """(N,) int32."""
        self.offsets = offsets
        """(B + 1,) int64: where each input begins in `ids`, and N."""
        self.seconds = seconds
        """(B,) int64: where in each input its second segment begins."""

    @classmethod
    def of(cls, inputs: Sequence[Input]) -> "Inputs":
        """Any inputs; those that are so already stay as they are."""
        if isinstance(inputs, Inputs):
            return inputs
        lengths = np.array([len(one.ids) for one in inputs], np.int64)
        ids = np.concatenate([one.ids for one in inputs]) if inputs else np.empty(0, np.int32)
        return cls(ids, begins(lengths), np.array([one.second for one in inputs], np.int64))

    @property
    def lengths(self) -> np.ndarray:
        """(B,) tokens of each."""
        return np.diff(self.offsets)

    def take(self, numbers: Sequence[int]) -> "Inputs":
        """Some of them, in this order."""
        chosen = np.array(numbers, np.int64)
        lengths = self.lengths[chosen]
        offsets = begins(lengths)
        # Where each token comes from: as far from its input's begin as it will be.
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        return Inputs(self.ids[places], offsets, self.seconds[chosen])

    def __len__(self) -> int:
        return len(self.seconds)

    @overload
    def __getitem__(self, number: int) -> Input: ...
    @overload
    def __getitem__(self, number: slice) -> "Inputs": ...

    def __getitem__(self, number: int | slice) -> "Input | Inputs":
        if isinstance(number, slice):
            return self.take(range(len(self))[number])
        place = range(len(self))[number]  # as any sequence: from the end too, and not beyond
        return Input(self.ids[self.offsets[place] : self.offsets[place + 1]], int(self.seconds[place]))

    def __iter__(self) -> Iterator[Input]:
        for (first, end), second in zip(pairwise(self.offsets.tolist()), self.seconds.tolist(), strict=True):
            yield Input(self.ids[first:end], second)


def begins(lengths: np.ndarray) -> np.ndarray:
    """(B,) -> (B + 1,): where each begins if they lie end to end, and where the last ends."""
    return np.concatenate([[0], np.cumsum(lengths)])


class TextInputs(NamedTuple):
    """Texts or pairs, and how long they were before they were made to fit."""

    inputs: Inputs
    tokens: np.ndarray
    """(B,) int64."""


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


def text_inputs(tokenizer: Tokenizer, texts: Sequence[str], pairs: Sequence[str] | None, length: int) -> TextInputs:
    """Texts, or pairs of texts, as inputs of at most `length` tokens."""
    others = repeat(None, len(texts)) if pairs is None else tokenizer.encode(pairs)
    ids: list[int] = []
    ends, seconds, tokens = [0], [], []
    for a, b in zip(tokenizer.encode(texts), others, strict=True):
        tokens.append(len(a) + 2 if b is None else len(a) + len(b) + 3)
        first, second = a, b
        if b is None:
            first = a[: length - 2]
        elif tokens[-1] > length:
            room_a, room_b = shares(len(a), len(b), length - 3)
            first, second = a[:room_a], b[:room_b]
        ids += [tokenizer.cls, *first, tokenizer.sep]
        seconds.append(len(ids) - ends[-1])
        if second is not None:
            ids += [*second, tokenizer.sep]
        ends.append(len(ids))
    inputs = Inputs(np.array(ids, np.int32), np.array(ends), np.array(seconds, np.int64))
    return TextInputs(inputs, np.array(tokens, np.int64))


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
    encodings = tokenizer.read(distinct)
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
