from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.numbers import LIMIT, dataset, english, korean, parse_english, parse_korean, write
from heedful.data.parallel import PairExample, table
from heedful.errors import UserError

WORDED = [
    (0, "zero", "영"),
    (1, "one", "일"),
    (7, "seven", "칠"),
    (10, "ten", "십"),
    (13, "thirteen", "십삼"),
    (20, "twenty", "이십"),
    (42, "forty-two", "사십이"),
    (99, "ninety-nine", "구십구"),
    (100, "one hundred", "백"),
    (111, "one hundred eleven", "백십일"),
    (205, "two hundred five", "이백오"),
    (342, "three hundred forty-two", "삼백사십이"),
    (1000, "one thousand", "천"),
    (1001, "one thousand and one", "천일"),
    (1100, "one thousand one hundred", "천백"),
    (2023, "two thousand and twenty-three", "이천이십삼"),
    (6116, "six thousand one hundred sixteen", "육천백십육"),
    (10_000, "ten thousand", "만"),
    (10_010, "ten thousand and ten", "만 십"),
    (11_111, "eleven thousand one hundred eleven", "만 천백십일"),
    (20_000, "twenty thousand", "이만"),
    (100_000, "one hundred thousand", "십만"),
    (110_000, "one hundred ten thousand", "십일만"),
    (342_007, "three hundred forty-two thousand and seven", "삼십사만 이천칠"),
    (1_000_000, "one million", "백만"),
    (1_010_080, "one million ten thousand and eighty", "백일만 팔십"),
    (10_000_000, "ten million", "천만"),
    (10**8, "one hundred million", "일억"),
    (100_010_000, "one hundred million ten thousand", "일억 일만"),
    (1_100_000_000, "one billion one hundred million", "십일억"),
    (10**12, "one trillion", "일조"),
    (1_000_000_000_001, "one trillion and one", "일조 일"),
    (1_000_100_010_001, "one trillion one hundred million ten thousand and one", "일조 일억 일만 일"),
    (5_000_000_000_300, "five trillion three hundred", "오조 삼백"),
    (
        LIMIT - 1,
        "nine quadrillion nine hundred ninety-nine trillion nine hundred ninety-nine billion "
        "nine hundred ninety-nine million nine hundred ninety-nine thousand nine hundred ninety-nine",
        "구천구백구십구조 구천구백구십구억 구천구백구십구만 구천구백구십구",
    ),
]


@pytest.mark.parametrize(("number", "in_english", "in_korean"), WORDED)
def test_words(number, in_english, in_korean):
    assert (english(number), korean(number)) == (in_english, in_korean)
    assert (parse_english(in_english), parse_korean(in_korean)) == (number, number)


# Half of the numbers have groups of zeros, which random digits almost never do.
NUMBERS = st.integers(0, LIMIT - 1) | st.lists(
    st.tuples(st.integers(0, 15), st.integers(1, 9)), max_size=3, unique_by=lambda part: part[0]
).map(lambda parts: sum(digit * 10**place for place, digit in parts))


@given(NUMBERS)
def test_words_tell_the_number(number):
    assert parse_english(english(number)) == number
    assert parse_korean(korean(number)) == number


def test_words_of_all_small_numbers_are_different():
    for words, parse in ((english, parse_english), (korean, parse_korean)):
        all_of_them = [words(number) for number in range(12_007)]
        assert len(set(all_of_them)) == 12_007
        assert [parse(text) for text in all_of_them] == list(range(12_007))


@pytest.mark.parametrize(
    "text",
    [
        *("", " one", "one  hundred", "One", "forty two", "hundred", "one thousand one", "three hundred and two"),
        *("and one", "one one", "one thousand one million", "nine hundred ninety-nine quadrillion", "forty-twelve"),
        "one dozen",
    ],
)
def test_what_is_no_english_number(text):
    with pytest.raises(ValueError, match=r"is not how a number is worded|is no word of"):
        parse_english(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "일십", "일백", "일천", "일만", "십일만오", "만십", "억", "조", "일억만", "십백", "일이", "영일"),
        *(" 일", "일 ", "일 만 억", "만조", "일억 일조", "만 만", "이십 오", "다섯"),
    ],
)
def test_what_is_no_korean_number(text):
    with pytest.raises(ValueError, match=r"is not how a number is worded|is no part of"):
        parse_korean(text)


@pytest.mark.parametrize("words", [english, korean])
@pytest.mark.parametrize("number", [-1, LIMIT])
def test_numbers_without_words(words, number):
    message = f"^{number:,} has no words here; take a number from 0 to 9,999,999,999,999,999$"
    with pytest.raises(UserError, match=message):
        words(number)


# the data


def numbers(pairs: list[PairExample]) -> list[int]:
    for pair in pairs:
        assert pair.where == f"numbers:{parse_english(pair.source)}"
    found = [parse_korean(pair.target or "") for pair in pairs]
    assert found == [parse_english(pair.source) for pair in pairs]
    return found


def test_what_is_held_out_is_never_learned():
    learned, held_out = map(numbers, dataset(5, 2003, 307))
    assert (len(learned), len(held_out)) == (2003, 307)
    assert len({*learned, *held_out}) == 2003 + 307
    assert set(range(100)) <= set(learned)
    assert max(learned) < 10**12


def test_lengths_are_even_and_zeros_frequent():
    learned, held_out = map(numbers, dataset(11, 4100, 1000))
    lengths = Counter(len(str(number)) for number in learned + held_out)
    assert [lengths[length] for length in range(1, 13)] == [10, 90] + 10 * [500]
    for found in (learned, held_out):
        lengths = Counter(len(str(number)) for number in found)
        assert all(lengths[length] > 0.6 * len(found) / 10 for length in range(3, 13))
        long = [number for number in found if number >= 10**6]
        # By chance alone, one of a thousand would end in three zeros, and about one of a hundred hold them.
        assert 0.1 < sum(number % 1000 == 0 for number in long) / len(long) < 0.3
        assert 0.15 < sum("000" in str(number).rstrip("0") for number in long) / len(long) < 0.4
        assert 0.1 < sum("0" not in str(number)[1:] for number in long) / len(long) < 0.3


def test_the_longer_make_up_for_what_the_shorter_lack():
    learned, held_out = map(numbers, dataset(2, 100 + 3000, 900, 99_999))
    lengths = Counter(len(str(number)) for number in learned + held_out)
    assert [lengths[length] for length in range(1, 6)] == [10, 90, 900, 1500, 1500]
    assert sum(number < 1000 for number in held_out) > 100


@given(st.integers(0, 2500), st.integers(0, 300), st.integers(0, 300))
def test_any_sizes(largest, more, held_out):
    training = min(100, largest + 1) + more
    if training + held_out > largest + 1:
        with pytest.raises(UserError, match=f"0 to {largest:,} are fewer; take fewer"):
            dataset(0, training, held_out, largest)
    else:
        both = [numbers(pairs) for pairs in dataset(0, training, held_out, largest)]
        assert [len(part) for part in both] == [training, held_out]
        assert len({*both[0], *both[1]}) == training + held_out
        assert max(both[0] + both[1]) <= largest


def test_all_numbers_there_are():
    learned, held_out = map(numbers, dataset(3, 1000, 235, 1234))
    assert sorted(learned + held_out) == list(range(1235))


def test_the_seed_decides():
    assert dataset(3, 211, 31) == dataset(3, 211, 31)
    assert dataset(3, 211, 31) != dataset(5, 211, 31)
    # Of another Python, too: else results made with a seed do not compare.
    assert numbers(dataset(0, 100, 3)[1]) == [82_866_110_858, 8_000_000_533, 628_142_000_000]


@pytest.mark.parametrize(("training", "held_out"), [(99, 3), (100, -1), (-5, 3)])
def test_too_few_to_learn(training, held_out):
    message = f"^{training} numbers to learn and {held_out} held out; take at least 100 and 0$"
    with pytest.raises(UserError, match=message):
        dataset(0, training, held_out)


def test_a_range_without_words():
    with pytest.raises(UserError, match="has no words here"):
        dataset(0, 100, 1, LIMIT)


def test_write(tmp_path: Path):
    file = tmp_path / "new" / "numbers.tsv"
    learned, held_out = dataset(7, 101, 5)
    write(file, held_out)
    assert file.read_text("utf-8").splitlines()[0] == "english\tkorean"
    assert [item[1:] for item in table(file, None, None)] == [pair[1:] for pair in held_out]
    write(file, learned)
    assert len(list(table(file, "english", "korean"))) == 101
    assert [path.name for path in file.parent.iterdir()] == ["numbers.tsv"]
