"""The embedded translation task: numbers in English words to numbers in Korean words.

English counts by thousands and Korean by ten thousands, so that no word stands for another: 342,007 is "three hundred
forty-two thousand and seven" and 삼십사만 이천칠. Who translates it must learn which parts belong together.

Every number has one wording in each language, and the wording tells the number. Knows nothing of tokens.
"""

import random
from collections.abc import Callable, Iterable
from pathlib import Path

from heedful.data.parallel import PairExample
from heedful.durable import write_file
from heedful.errors import UserError

LIMIT = 10**16
"""The first number without words here."""

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_THOUSANDS = ("", "thousand", "million", "billion", "trillion", "quadrillion")
_ENGLISH_VALUES = {word: value for value, word in enumerate(_ONES)} | {
    word: 10 * value for value, word in enumerate(_TENS) if word
}

_DIGITS = "영일이삼사오육칠팔구"
_PLACES = ("", "십", "백", "천")
_TEN_THOUSANDS = ("", "만", "억", "조")

_SMALL = 100
"""Numbers below it are always learned: the words of all others are made of theirs."""


def english(number: int) -> str:
    """A number in English words; "and" stands before a last part below a hundred, if thousands come before it."""
    _check(number)
    if number == 0:
        return _ONES[0]
    parts = [
        f"{_below_thousand(group)} {name}".rstrip()
        for group, name in reversed(list(zip(_groups(number, 1000), _THOUSANDS, strict=False)))
        if group
    ]
    if number > 1000 and 0 < number % 1000 < 100:
        parts.insert(-1, "and")
    return " ".join(parts)


def korean(number: int) -> str:
    """A number in Sino-Korean words, a space between the groups of ten thousand.

    일 is left out before 십, 백 and 천, and before 만 where that begins the number; not before 억 and 조.
    """
    _check(number)
    if number == 0:
        return _DIGITS[0]
    if number // 10_000 == 1:
        return f"만 {_below_ten_thousand(number % 10_000)}".rstrip()
    groups = reversed(list(zip(_groups(number, 10_000), _TEN_THOUSANDS, strict=False)))
    return " ".join(_below_ten_thousand(group) + name for group, name in groups if group)


def parse_english(text: str) -> int:
    """The number that `english` words so. Raises ValueError for any other text."""
    total = group = 0
    for word in text.replace("-", " ").split():
        if word in _ENGLISH_VALUES:
            group += _ENGLISH_VALUES[word]
        elif word == "hundred":
            group *= 100
        elif word in _THOUSANDS:
            total, group = total + group * 1000 ** _THOUSANDS.index(word), 0
        elif word != "and":
            raise ValueError(f"{word!r} is no word of an English number")
    return _confirmed(total + group, text, english)


def parse_korean(text: str) -> int:
    """The number that `korean` words so. Raises ValueError for any other text."""
    total = group = digit = 0
    for letter in text.replace(" ", ""):
        if letter in _DIGITS:
            digit = _DIGITS.index(letter)
        elif letter in _PLACES:
            group, digit = group + (digit or 1) * 10 ** _PLACES.index(letter), 0
        elif letter in _TEN_THOUSANDS:
            total += (group + digit or 1) * 10_000 ** _TEN_THOUSANDS.index(letter)
            group = digit = 0
        else:
            raise ValueError(f"{letter!r} is no part of a Korean number")
    return _confirmed(total + group + digit, text, korean)


def dataset(
    seed: int, training: int, heldout: int, largest: int = 10**12 - 1
) -> tuple[list[PairExample], list[PairExample]]:
    """Pairs to learn from and pairs to be asked for, of different numbers from 0 to `largest`.

    All lengths in digits are as frequent as each other, as far as there are numbers of that length; many numbers are
    round or have zeros inside. Those below a hundred are all learned.
    """
    _check(largest)
    small = list(range(min(_SMALL, largest + 1)))
    if min(training - len(small), heldout) < 0:
        raise UserError(f"{training} numbers to learn and {heldout} held out; take at least {len(small)} and 0")
    if training + heldout > largest + 1:
        raise UserError(f"{training + heldout:,} different numbers, but 0 to {largest:,} are fewer; take fewer")
    generator = random.Random(seed)
    drawn = _drawn(generator, training - len(small) + heldout, largest)
    generator.shuffle(drawn)
    learned = small + drawn[heldout:]
    generator.shuffle(learned)
    return [_pair(number) for number in learned], [_pair(number) for number in drawn[:heldout]]


def write(path: Path, pairs: Iterable[PairExample]) -> None:
    """Write pairs as a table of two columns, english and korean."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ["english\tkorean", *(f"{pair.source}\t{pair.target}" for pair in pairs)]
    write_file(path, "".join(f"{row}\n" for row in rows).encode())


def _check(number: int) -> None:
    if not 0 <= number < LIMIT:
        raise UserError(f"{number:,} has no words here; take a number from 0 to {LIMIT - 1:,}")


def _groups(number: int, size: int) -> list[int]:
    """The digits of a number to the base `size`, the last one first."""
    groups = []
    while number:
        number, group = divmod(number, size)
        groups.append(group)
    return groups


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_ONES[hundreds]} hundred"] if hundreds else []
    if rest >= len(_ONES):
        words.append(_TENS[rest // 10] + (f"-{_ONES[rest % 10]}" if rest % 10 else ""))
    elif rest:
        words.append(_ONES[rest])
    return " ".join(words)


def _below_ten_thousand(number: int) -> str:
    places = reversed(list(zip(_groups(number, 10), _PLACES, strict=False)))
    return "".join(("" if digit == 1 and name else _DIGITS[digit]) + name for digit, name in places if digit)


def _confirmed(number: int, text: str, words: Callable[[int], str]) -> int:
    """A number that was read from a text, if the text is how it is worded."""
    if number >= LIMIT or words(number) != text:
        raise ValueError(f"{text!r} is not how a number is worded")
    return number


def _pair(number: int) -> PairExample:
    return PairExample(f"numbers:{number}", english(number), korean(number))


def _drawn(generator: random.Random, count: int, largest: int) -> list[int]:
    """Different numbers of three digits and more, as evenly over the lengths as there are numbers."""
    lengths = [range(10**places, min(10 ** (places + 1), largest + 1)) for places in range(2, len(str(largest)))]
    drawn: list[int] = []
    for taken, span in enumerate(sorted(lengths, key=len)):  # what a short one lacks, the longer ones make up for
        share = min((count - len(drawn)) // (len(lengths) - taken), len(span))
        drawn += _of_length(generator, share, span)
    return drawn


def _of_length(generator: random.Random, count: int, span: range) -> list[int]:
    """Different numbers from a span in which all have as many digits."""
    if 2 * count > len(span):  # with so many, every kind is well among them
        return generator.sample(span, count)
    found: dict[int, None] = {}
    while len(found) < count:
        found[_with_zeros(generator, generator.choice(span))] = None
    return list(found)


def _with_zeros(generator: random.Random, number: int) -> int:
    """A number as it is, made round, with a gap of zeros, or with zeros here and there; never at its first digit."""
    digits = list(str(number))
    start, end = sorted(generator.sample(range(1, len(digits) + 1), 2))
    match generator.choice(("as it is", "round", "gap", "here and there")):
        case "round":
            digits[start:] = "0" * (len(digits) - start)
        case "gap":
            digits[start:end] = "0" * (end - start)
        case "here and there":
            digits[1:] = (generator.choice((digit, "0")) for digit in digits[1:])
    return int("".join(digits))
