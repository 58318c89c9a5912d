"""Checked against the truncation and the windows of `tokenizers`, against transformers, and by brute force."""

from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.data import tokenizer as wordpiece
from heedful.data.inputs import (
    Input,
    Inputs,
    QuestionWindow,
    WordWindow,
    answer_tokens,
    characters,
    question_windows,
    shares,
    text_inputs,
    word_windows,
)
from heedful.data.tokenizer import SPECIAL, Tokenizer

RIVER = "The river runs quietly past the old stone mill."
BREAD = "A baker carries warm bread across the wooden bridge."
KOREAN = "강가에 있는 오래된 물레방아가 천천히 돌아갑니다."
FIXTURES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

OfWords = Callable[[Sequence[str]], Tokenizer]


@pytest.fixture(scope="module")
def peer(trained: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> transformers.PreTrainedTokenizerFast:
    """The same tokenizer in transformers' hands."""
    folder = tmp_path_factory.mktemp("tokenizer")
    wordpiece.save(trained, folder)
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


def truncating(tokenizer: Tokenizer, length: int) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.encode_special_tokens = True
    backend.enable_truncation(length, strategy="longest_first")
    return backend


def test_a_text_and_a_pair_by_hand(of_words: OfWords):
    tokenizer = of_words(["a", "b", "c", "d"])
    (one,), (tokens,) = text_inputs(tokenizer, ["a b c"], None, 11)
    assert one.ids.tolist() == [2, 5, 6, 7, 3]
    assert (one.ids.dtype, one.second, tokens) == (np.int32, 5, 5)
    (two,), (tokens,) = text_inputs(tokenizer, ["a b c"], ["d"], 11)
    assert two.ids.tolist() == [2, 5, 6, 7, 3, 8, 3]
    assert (two.second, tokens) == (5, 7)


def test_what_does_not_fit_is_cut_and_counted(of_words: OfWords):
    tokenizer = of_words(["a", "b", "c", "d"])
    (exact, over), tokens = text_inputs(tokenizer, ["a b c", "a b c d"], None, 5)
    assert exact.ids.tolist() == over.ids.tolist() == [2, 5, 6, 7, 3]
    assert tokens.tolist() == [5, 6]
    (pair,), (tokens,) = text_inputs(tokenizer, ["a b c d"], ["d c"], 8)
    # Five tokens beside the special ones: the longer text gives way first.
    assert pair.ids.tolist() == [2, 5, 6, 7, 3, 8, 7, 3]
    assert (pair.second, tokens) == (5, 9)


def test_an_empty_text_is_its_special_tokens(trained: Tokenizer):
    (one,), (tokens,) = text_inputs(trained, [""], None, 8)
    assert (one.ids.tolist(), one.second, tokens) == ([trained.cls, trained.sep], 2, 2)
    (two,), (tokens,) = text_inputs(trained, [""], [""], 8)
    assert (two.ids.tolist(), two.second, tokens) == ([trained.cls, trained.sep, trained.sep], 2, 3)
    for pairs in (None, []):
        none, tokens = text_inputs(trained, [], pairs, 8)
        assert len(none) == len(tokens) == 0


@given(
    lengths=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=11),
    data=st.data(),
)
def test_inputs_end_to_end_are_a_sequence_of_them(lengths: list[tuple[int, int]], data: st.DataObject):
    def plain(some: Iterable[Input]) -> list[tuple[list[int], int]]:
        return [(one.ids.tolist(), one.second) for one in some]

    counter = count(5)
    apart = [Input(np.array(list(islice(counter, a + b)), np.int32), a) for a, b in lengths]
    many = Inputs.of(apart)
    assert Inputs.of(many) is many
    assert (len(many), many.ids.dtype) == (len(apart), np.int32)
    assert many.lengths.tolist() == [a + b for a, b in lengths]
    assert plain(many) == plain(many[number] for number in range(len(many))) == plain(apart)
    assert plain(many[1:-1]) == plain(apart[1:-1])
    assert plain(many[-2::-2]) == plain(apart[-2::-2])
    chosen = data.draw(st.lists(st.integers(0, len(apart) - 1), max_size=17) if apart else st.just([]))
    assert plain(many.take(chosen)) == plain(apart[number] for number in chosen)
    for beyond in (len(apart), -len(apart) - 1):
        with pytest.raises(IndexError):
            many[beyond]


def test_a_special_token_in_a_text_is_text(trained: Tokenizer):
    (one,), _ = text_inputs(trained, ["the [SEP] mill"], None, 64)
    assert (one.ids == trained.sep).sum() == 1


def test_as_many_pairs_as_texts(trained: Tokenizer):
    with pytest.raises(ValueError, match="shorter"):
        text_inputs(trained, ["a", "b"], ["c"], 8)


@given(a=st.integers(0, 23), b=st.integers(0, 23), room=st.integers(0, 31))
def test_shares_are_those_of_tokenizers(a: int, b: int, room: int):
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0, "y": 1}, unk_token="x"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.enable_truncation(room, strategy="longest_first")
    ids = backend.encode("x " * a, "y " * b).ids
    if a + b > room:
        assert shares(a, b, room) == (ids.count(0), ids.count(1))


@FIXTURES
@given(data=st.data(), length=st.integers(5, 31))
def test_inputs_are_those_of_tokenizers(trained: Tokenizer, data: st.DataObject, length: int):
    texts = st.lists(st.sampled_from((RIVER + " " + BREAD + " " + KOREAN).split()), max_size=17).map(" ".join)
    first, second = data.draw(texts), data.draw(texts)
    backend = truncating(trained, length)
    (single,), _ = text_inputs(trained, [first], None, length)
    assert single.ids.tolist() == backend.encode(first).ids
    (pair,), (tokens,) = text_inputs(trained, [first], [second], length)
    theirs = backend.encode(first, second)
    assert pair.ids.tolist() == theirs.ids
    assert (np.arange(len(pair.ids)) >= pair.second).astype(int).tolist() == theirs.type_ids
    assert tokens == len(trained.backend.encode(first, second).ids)


def lengths_of(pieces: Sequence[int], of_words: OfWords) -> tuple[Tokenizer, list[str]]:
    """A tokenizer, and words of so many pieces."""
    tokenizer = of_words(["w", "##x"])
    return tokenizer, ["w" + "x" * (count - 1) for count in pieces]


def test_a_sentence_that_fits_is_one_window(of_words: OfWords):
    tokenizer, words = lengths_of([1, 3, 2], of_words)
    ((window,),) = word_windows(tokenizer, [words], 8, 3)
    assert window.input.ids.tolist() == [2, 5, 5, 6, 6, 5, 6, 3]
    assert window.input.second == 8
    assert window.words.tolist() == [0, 1, 2]
    assert window.firsts.tolist() == [1, 2, 5]


def test_windows_by_hand(of_words: OfWords):
    """Six words of one piece, four in a window, two shared: words 2 and 3 are seen best at their inner ends."""
    tokenizer = of_words(list("abcdef"))
    ((one, two),) = word_windows(tokenizer, [list("abcdef")], 6, 2)
    assert one.input.ids.tolist() == [2, 5, 6, 7, 8, 3]
    assert two.input.ids.tolist() == [2, 7, 8, 9, 10, 3]
    # Word 2 sees min(2, 1) in the first and min(0, 3) in the second, word 3 min(3, 0) and min(1, 2).
    assert (one.words.tolist(), one.firsts.tolist()) == ([0, 1, 2], [1, 2, 3])
    assert (two.words.tolist(), two.firsts.tolist()) == ([3, 4, 5], [2, 3, 4])


def test_sentences_keep_to_themselves(of_words: OfWords):
    tokenizer = of_words(list("abcdef"))
    together = word_windows(tokenizer, [list("ab"), list("abcdef"), list("f")], 6, 2)
    assert [len(windows) for windows in together] == [1, 2, 1]
    for words, windows in zip((list("ab"), list("abcdef"), list("f")), together, strict=True):
        assert_same_windows(windows, word_windows(tokenizer, [words], 6, 2)[0])
    assert word_windows(tokenizer, [], 6, 2) == []


def assert_same_windows(one: list[WordWindow], other: list[WordWindow]) -> None:
    for left, right in zip(one, other, strict=True):
        assert left.input.ids.tolist() == right.input.ids.tolist()
        assert left.words.tolist() == right.words.tolist()
        assert left.firsts.tolist() == right.firsts.tolist()


def test_a_word_that_no_tokenizer_sees_is_unknown(of_words: OfWords):
    ((window,),) = word_windows(of_words(["a"]), [["a", "\u200b", " ", "a"]], 8, 2)
    assert window.input.ids.tolist() == [2, 5, 1, 1, 5, 3]
    assert window.firsts.tolist() == [1, 2, 3, 4]


def test_a_word_longer_than_a_window_keeps_its_beginning(of_words: OfWords):
    tokenizer, words = lengths_of([2, 17, 1], of_words)
    ((one, two, three),) = word_windows(tokenizer, [words], 7, 2)
    assert [window.words.tolist() for window in (one, two, three)] == [[0], [1], [2]]
    assert two.input.ids.tolist() == [2, 5, 6, 6, 6, 6, 3]


@FIXTURES
@given(
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=29),
    length=st.integers(4, 13),
    overlap=st.integers(0, 15),
)
def test_every_word_is_read_once_where_it_sees_most(
    tokenizer_of_pieces: Tokenizer, pieces: list[int], length: int, overlap: int
):
    words = ["w" + "x" * (count - 1) for count in pieces]
    (windows,) = word_windows(tokenizer_of_pieces, [words], length, overlap)
    kept = [min(count, length - 2) for count in pieces]
    starts = np.cumsum([0, *kept])
    whole = [5 if place == 0 else 6 for count in kept for place in range(count)]
    held = [_held(window, kept) for window in windows]

    read = np.concatenate([window.words for window in windows])
    assert sorted(read.tolist()) == list(range(len(words)))
    for window, (first, last) in zip(windows, held, strict=True):
        assert len(window.input.ids) == window.input.second <= length
        assert window.input.ids.tolist() == [2, *whole[starts[first] : starts[last]], 3]
        assert (window.firsts == starts[window.words] - starts[first] + 1).all()
        for word in window.words:
            best = max(_sight(starts, word, *other) for other in held if other[0] <= word < other[1])
            assert _sight(starts, word, first, last) == best
    for (first, last), (following, _) in pairwise(held):
        assert first < following <= last  # it moves on, and leaves nothing out
        if following > first + 1:
            assert starts[last] - starts[following] <= overlap
        assert starts[last + 1] - starts[first] > length - 2  # as many words as fit
    assert held[-1][1] == len(words)


@pytest.fixture(scope="session")
def tokenizer_of_pieces() -> Tokenizer:
    model = tokenizers.models.WordPiece(
        {token: i for i, token in enumerate([*SPECIAL, "w", "##x"])}, unk_token="[UNK]"
    )
    backend = tokenizers.Tokenizer(model)
    backend.add_special_tokens(list(SPECIAL))
    return Tokenizer(backend)


def _held(window: WordWindow, kept: list[int]) -> tuple[int, int]:
    """Which words a window holds, told from one of those that are read in it, and there always is one."""
    word, place = int(window.words[0]), int(window.firsts[0])
    first, before = word, place - 1
    while before > 0:
        first -= 1
        before -= kept[first]
    assert before == 0
    last, after = first, len(window.input.ids) - 2
    while after > 0:
        after -= kept[last]
        last += 1
    assert after == 0
    return first, last


def _sight(starts: np.ndarray, word: int, first: int, last: int) -> int:
    return min(starts[word] - starts[first], starts[last] - starts[word + 1])


def assert_as_in_transformers(ours: list[QuestionWindow], theirs: transformers.BatchEncoding, length: int) -> None:
    assert len(ours) == len(theirs["input_ids"])
    for number, window in enumerate(ours):
        ids = theirs["input_ids"][number]
        assert window.input.ids.tolist() == ids
        assert len(ids) <= length
        kinds = theirs["token_type_ids"][number]
        assert (np.arange(len(ids)) >= window.input.second).astype(int).tolist() == kinds
        of_context = [place for place, kind in enumerate(theirs.sequence_ids(number)) if kind == 1]
        assert of_context == list(range(window.start, window.start + len(window.spans)))
        offsets = [theirs["offset_mapping"][number][place] for place in of_context]
        assert window.spans.tolist() == [list(pair) for pair in offsets]


@FIXTURES
@given(
    context=st.lists(st.sampled_from((RIVER + " " + BREAD + " " + KOREAN).split()), min_size=1, max_size=19),
    spaces=st.sampled_from([" ", "  ", "\n", " \u200b"]),
    length=st.integers(23, 41),
    overlap=st.integers(0, 11),
)
def test_windows_are_those_of_transformers(
    trained: Tokenizer,
    peer: transformers.PreTrainedTokenizerFast,
    context: list[str],
    spaces: str,
    length: int,
    overlap: int,
):
    question, text = "What runs?", spaces.join(context)
    taken = len(trained.encode([question])[0]) + 3
    (ours,) = question_windows(trained, [question], [text], length, overlap)
    if length - taken <= overlap:
        assert ours == []
        return
    theirs = peer(
        question,
        text,
        truncation="only_second",
        max_length=length,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    assert_as_in_transformers(ours, theirs, length)


def test_question_windows_by_hand(of_words: OfWords):
    tokenizer = of_words(list("abcdefq"))
    (windows,) = question_windows(tokenizer, ["q"], ["a b  c d e"], 7, 1)  # room for three
    assert [window.input.ids.tolist() for window in windows] == [[2, 11, 3, 5, 6, 7, 3], [2, 11, 3, 7, 8, 9, 3]]
    assert [window.start for window in windows] == [3, 3]
    assert [window.input.second for window in windows] == [3, 3]
    assert [window.spans.tolist() for window in windows] == [
        [[0, 1], [2, 3], [5, 6]],
        [[5, 6], [7, 8], [9, 10]],
    ]


def test_many_questions_about_one_context(of_words: OfWords):
    tokenizer = of_words(list("abcdq"))
    contexts = ["a b", "c", "a b"]
    found = question_windows(tokenizer, ["q", "q q", "d"], contexts, 9, 1)
    assert [[window.input.ids.tolist() for window in windows] for windows in found] == [
        [[2, 9, 3, 5, 6, 3]],
        [[2, 9, 9, 3, 7, 3]],
        [[2, 8, 3, 5, 6, 3]],
    ]


@pytest.mark.parametrize(("length", "windows"), [(8, 0), (9, 0), (10, 6), (11, 3)])
def test_a_question_that_leaves_no_room_has_no_windows(of_words: OfWords, length: int, windows: int):
    """Four words of question and three special tokens: beyond the two that are shared, a window must move on."""
    tokenizer = of_words(list("abq"))
    (found,) = question_windows(tokenizer, ["q q q q"], ["a b a b a b a b"], length, 2)
    assert len(found) == windows


def test_a_context_without_tokens_is_one_empty_window(of_words: OfWords):
    ((window,),) = question_windows(of_words(["q"]), ["q"], [" \u200b"], 8, 2)
    assert window.input.ids.tolist() == [2, 5, 3, 3]
    assert window.spans.shape == (0, 2)
    assert answer_tokens(window, 0, 1) == (0, 0)


def test_places_are_counted_in_characters(tmp_path: Path):
    """Letters outside the first plane, and letters written in parts that become one."""
    words = [*SPECIAL, "a", "é", "한", "😀", "q"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"strip_accents": false}', encoding="utf-8")
    tokenizer = wordpiece.load(tmp_path)
    text = "😀 e\u0301 a \u1112\u1161\u11ab\u200b"
    ((window,),) = question_windows(tokenizer, ["q"], [text], 12, 2)
    assert window.input.ids.tolist()[3:-1] == [8, 6, 5, 7]
    assert [text[start:end] for start, end in window.spans] == ["😀", "e\u0301", "a", "\u1112\u1161\u11ab"]
    assert answer_tokens(window, 7, 10) == (6, 6)


def test_letters_in_parts_belong_to_the_token_before():
    assert characters("e\u0301e", [(0, 1), (2, 3)]).tolist() == [[0, 2], [2, 3]]
    # Two tokens for one letter end alike at the next one.
    assert characters("e\u0301\u0302 e", [(0, 1), (0, 1), (4, 5)]).tolist() == [[0, 1], [0, 3], [4, 5]]
    assert characters("e\u0301e\u0301", [(0, 1), (1, 2), (2, 3)]).tolist() == [[0, 1], [1, 2], [2, 4]]
    assert characters("e\u0301", []).shape == (0, 2)


WINDOW = QuestionWindow(
    Input(np.arange(9, dtype=np.int32), 4), 4, np.array([[10, 13], [14, 16], [16, 20], [22, 23]], np.int32)
)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (10, 13, (4, 4)),
        (14, 20, (5, 6)),
        (10, 23, (4, 7)),
        (16, 20, (6, 6)),
        (17, 19, (6, 6)),  # inside a token
        (11, 15, (4, 5)),
        (13, 16, (5, 5)),  # a blank before it
        (14, 22, (5, 6)),  # blanks behind it
        (20, 22, (0, 0)),  # nothing but blanks
        (9, 13, (0, 0)),  # begins before the window
        (22, 24, (0, 0)),  # ends after it
        (30, 33, (0, 0)),
        (0, 3, (0, 0)),
    ],
)
def test_answer_tokens_by_hand(start: int, end: int, expected: tuple[int, int]):
    assert answer_tokens(WINDOW, start, end) == expected


def test_several_tokens_for_one_character():
    """A capital İ becomes two letters, and so may become two tokens: the answer has both, in their order."""
    window = WINDOW._replace(spans=np.array([[0, 1], [2, 3], [2, 3], [3, 5], [6, 7]], np.int32))
    assert answer_tokens(window, 2, 3) == (5, 6)
    assert answer_tokens(window, 2, 5) == (5, 7)
    assert answer_tokens(window, 0, 3) == (4, 6)


@FIXTURES
@given(data=st.data(), length=st.integers(25, 41), overlap=st.integers(0, 9))
def test_answers_are_found_in_every_window_that_holds_them(
    trained: Tokenizer, peer: transformers.PreTrainedTokenizerFast, data: st.DataObject, length: int, overlap: int
):
    """Words of the context as answers; transformers says which token a character is in."""
    context = f"{RIVER} {KOREAN} {BREAD}"
    words = [(start, start + len(word)) for word, start in _places(context)]
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, min(first + 3, len(words) - 1)))
    start, end = words[first][0], words[last][1]
    (ours,) = question_windows(trained, ["why?"], [context], length, overlap)
    theirs = peer(
        "why?",
        context,
        truncation="only_second",
        max_length=length,
        stride=overlap,
        return_overflowing_tokens=True,
    )
    for number, window in enumerate(ours):
        tokens = theirs.char_to_token(number, start, 1), theirs.char_to_token(number, end - 1, 1)
        expected = (0, 0) if None in tokens else tokens
        assert answer_tokens(window, start, end) == expected


def _places(text: str) -> list[tuple[str, int]]:
    found, start = [], 0
    for word in text.split(" "):
        found.append((word, start))
        start += len(word) + 1
    return found
