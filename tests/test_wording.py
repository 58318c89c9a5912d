import pytest

from heedful.wording import any_of, counted, shortened


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 texts"), (1, "1 text"), (2, "2 texts"), (1234567, "1,234,567 texts")]
)
def test_counts_in_words(number: int, said: str):
    assert counted(number, "text") == said


def test_a_noun_may_have_a_plural_of_its_own():
    assert [counted(number, "class", "classes") for number in (1, 3)] == ["1 class", "3 classes"]


@pytest.mark.parametrize(("most", "said"), [(5, "한 줄\n'"), (4, "한 줄…"), (1, "…")])
def test_long_texts_are_cut_and_nothing_else(most: int, said: str):
    assert shortened("한 줄\n'", most) == said


@pytest.mark.parametrize(("choices", "said"), [("a", "a"), ("ab", "a or b"), ("abc", "a, b or c")])
def test_choices_in_a_sentence(choices: str, said: str):
    assert any_of(list(choices)) == said
