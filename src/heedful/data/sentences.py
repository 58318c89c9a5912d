"""Where sentences end, in English and Korean (and wherever "。" is written).

One pattern finds the marks and a small check turns down those that end nothing: "Mr.", "J. K.", "e.g.",
"2024. 3. 15.". In doubt it does not split, since a sentence too long costs less than half a sentence. It
knows nothing of files or documents, and takes time linear in the text whatever the text is.
"""

import re
from collections.abc import Iterator

MAX_SENTENCE = 10_000
"""The most characters a sentence may have; what is longer is cut at a space, or hard where there is none."""

# What stands before a dot that ends no sentence; last, initials and what has dots inside: J, U.S, e.g, a.m
_ABBREVIATION = re.compile(
    r"mr|mrs|ms|dr|prof|rev|st|jr|sr|gen|sen|gov|capt|col|lt|sgt|vs|cf|al|eg|ie|figs?|eq|vol|pp|eds|mt|dept"
    r"|approx|(?:[^\W\d_]\.)*[a-z]",
    re.IGNORECASE,
)

# A run of marks, what closes after it, and the space, if any. As nothing after the first mark can fail to
# match, the search never goes back, and "!!!!…" takes linear time.
_END = re.compile(r"[.!?…。！？]+([\"'”’»)\]}）］】」』〉》]*)(\s*)")


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of one paragraph, stripped, none empty or longer than `MAX_SENTENCE`."""
    bounds = [0]
    for mark in _END.finditer(paragraph):
        if _ends_sentence(paragraph, bounds[-1], mark):
            bounds.append(mark.end())
    bounds.append(len(paragraph))
    pieces = (piece for i in range(len(bounds) - 1) for piece in _cut(paragraph, bounds[i], bounds[i + 1]))
    return [stripped for piece in pieces if (stripped := piece.strip())]


def _ends_sentence(text: str, start: int, mark: re.Match[str]) -> bool:
    """Whether the sentence that began at `start` ends at this mark."""
    end = mark.end()
    if end == len(text):
        return False
    last = text[mark.start(1) - 1]
    if not mark[2] and last not in "。！？":
        return False
    # A Korean quotation goes on after its closing quote: "갔다." 라고 했다.
    if text[end].islower() or text.startswith(("라고", "라는"), end):
        return False
    if last != ".":
        return True
    at = mark.start()
    begin = text.rfind(" ", start, at) + 1 or start
    word = text[begin:at].lstrip("\"'“‘([")
    if word.isdigit() and begin == start:
        return False  # the number of a list's item
    if text[end].isdigit() and (word[-1:].isdigit() or word.lower() == "no"):
        return False  # a date, or "No. 5"
    return not _ABBREVIATION.fullmatch(word)


def _cut(text: str, start: int, end: int) -> Iterator[str]:
    """`text[start:end]` in pieces of at most `MAX_SENTENCE` characters."""
    while end - start > MAX_SENTENCE:
        space = text.rfind(" ", start + 1, start + MAX_SENTENCE + 1)
        cut = space if space > 0 else start + MAX_SENTENCE
        yield text[start:cut]
        start = cut
    yield text[start:end]
