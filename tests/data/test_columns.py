import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.columns import USUAL_LABELS, USUAL_PAIRS, USUAL_TEXTS, Columns, Found, find, usual
from heedful.errors import UserError


def found(names: str, labelled="yes", **asked) -> tuple:
    return tuple(find("a.csv", names.split(), Columns(**asked), labelled=labelled))


def refusal(names: str, labelled="yes", **asked) -> str:
    with pytest.raises(UserError) as caught:
        found(names, labelled, **asked)
    return str(caught.value)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("id text label", ("text", None, ("label",))),
        ("LABEL Sentence", ("Sentence", None, ("LABEL",))),
        ("Text text label", ("Text", None, ("label",))),
        ("sentence1 sentence2 label", ("sentence1", "sentence2", ("label",))),
        ("Sentence2 Sentence1 score", ("Sentence1", "Sentence2", ("score",))),
        ("label premise hypothesis guid", ("premise", "hypothesis", ("label",))),
        ("question sentence label", ("question", "sentence", ("label",))),
        ("query text label", ("query", "text", ("label",))),
        ("sentence hypothesis label", ("sentence", None, ("label",))),
        ("text2 title rating", ("title", None, ("rating",))),
        ("label title topic", ("title", None, ("label",))),
        ("번호 문장 감정", ("문장", None, ("감정",))),
        ("전제 가설 라벨", ("전제", "가설", ("라벨",))),
        ("문장1 문장2 점수", ("문장1", "문장2", ("점수",))),
    ],
)
def test_usual_names(names, expected):
    assert found(names) == expected


@pytest.mark.parametrize("pair", USUAL_PAIRS)
def test_a_pair_is_taken_only_when_complete(pair):
    first, second = pair
    assert found(f"title {second} {first}", "no") == (first, second, ())
    for half in pair:
        text, other, _ = found(f"title {half}", "no")
        assert other is None
        assert text in USUAL_TEXTS


def test_labels_are_found_if_there_or_left_alone():
    assert found("text label", "if there") == ("text", None, ("label",))
    assert found("text", "if there") == ("text", None, ())
    assert found("text label", "no") == ("text", None, ())


@pytest.mark.parametrize(
    ("names", "asked", "expected"),
    [
        ("text memo label", {"text": "memo"}, ("memo", None, ("label",))),
        ("premise hypothesis label", {"text": "premise"}, ("premise", None, ("label",))),
        ("a b label", {"text": "a", "pair": "b"}, ("a", "b", ("label",))),
        ("text memo label", {"pair": "memo"}, ("text", "memo", ("label",))),
        ("text query label", {"pair": "text", "text": "query"}, ("query", "text", ("label",))),
        ("text title label", {"pair": "text"}, ("title", "text", ("label",))),
        ("text1 text2 premise hypothesis y", {"pair": "hypothesis"}, ("premise", "hypothesis", ("y",))),
        ("text a b label", {"label": ("b", "a")}, ("text", None, ("b", "a"))),
        ("text title", {"label": ("text",)}, ("title", None, ("text",))),
        ("query text title", {"label": ("text",)}, ("title", None, ("text",))),
        ("label text score", {"text": "label"}, ("label", None, ("score",))),
    ],
)
def test_named_columns(names, asked, expected):
    assert found(names, **asked) == expected


def test_labels_that_are_not_read_need_not_be_there():
    assert found("text title", "no", label=("text",)) == ("title", None, ())
    assert found("text title", "no", label=("gone",)) == ("text", None, ())


def test_a_named_column_that_is_missing():
    assert refusal("text label", label=("lable",)) == (
        "a.csv: there is no column 'lable'; did you mean 'label'? The columns are: text, label"
    )
    assert refusal("text label", "if there", label=("lable",)).startswith("a.csv: there is no column 'lable'; did")
    assert refusal("text label", text="memo") == (
        "a.csv: there is no column 'memo'; name one with --text COLUMN, of: text, label"
    )
    assert "there is no column 'x'; name one with --pair COLUMN" in refusal("text label", pair="x")


def test_no_usual_name():
    assert refusal("a b c") == ("a.csv: no column is known to hold the text; name it with --text COLUMN, of: a, b, c")
    assert refusal("text b c") == (
        "a.csv: no column is known to hold the label; name it with --label COLUMN, of: text, b, c"
    )
    assert "the label; name it with --label" in refusal("text label", text="label")
    assert refusal("").endswith("of: none")
    many = " ".join(f"c{n}" for n in range(23))
    assert refusal(many).endswith(" c18, c19, …")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"text": "a", "label": ("a",)}, "'a' is named by --text and by --label; name two different columns"),
        ({"text": "a", "pair": "a"}, "'a' is named by --text and by --pair; name two different columns"),
        ({"label": ("a", "a")}, "'a' is named by --label and by --label; name two different columns"),
    ],
)
def test_a_column_is_one_thing(asked, said):
    assert refusal("a b", **asked) == f"a.csv: {said}"


NAMES = st.lists(
    st.sampled_from([*USUAL_TEXTS, *USUAL_LABELS, *(name for pair in USUAL_PAIRS for name in pair), "id", "Text"]),
    unique=True,
)


@given(NAMES, st.sampled_from(["no", "if there", "yes"]), st.data())
def test_what_is_found_is_there_and_differs(names, labelled, data):
    one = st.none() | st.sampled_from(names or [None])
    asked = Columns(text=data.draw(one), pair=data.draw(one))
    try:
        columns = find("a.csv", names, asked, labelled=labelled)
    except UserError:
        return
    assert isinstance(columns, Found)
    used = [columns.text, *filter(None, [columns.pair]), *columns.label]
    assert len(set(used)) == len(used)
    assert set(used) <= set(names)
    assert asked.text in (None, columns.text)
    assert asked.pair in (None, columns.pair)


def test_usual_goes_by_the_order_known():
    assert usual(["b", "A", "a"], ["a", "b"]) == "A"
    assert usual(["c"], ["a", "b"]) is None


def test_columns_named_in_another_form_are_the_same():
    jamo = [unicodedata.normalize("NFD", name) for name in ("리뷰", "제목", "라벨1")]
    asked = {"text": jamo[0], "pair": jamo[1], "label": (jamo[2],)}
    assert found("라벨1 제목 리뷰", **asked) == ("리뷰", "제목", ("라벨1",))


def test_columns_of_the_training_come_before_usual_ones():
    trained = Columns(text="title", label=("topic",))
    assert found("text label title topic", trained=trained) == ("title", None, ("topic",))
    assert found("text label title topic", "no", trained=trained) == ("title", None, ())
    assert found("sentence1 sentence2 label title", trained=trained) == ("title", None, ("label",))
    assert found("text label topic", trained=trained) == ("text", None, ("topic",))
    assert found("text label", trained=trained) == ("text", None, ("label",))


def test_columns_that_are_named_come_before_those_of_the_training():
    trained = Columns(text="title", label=("topic",))
    assert found("text label title topic", text="text", trained=trained) == ("text", None, ("topic",))
    assert found("text label title topic", label=("label",), trained=trained) == ("title", None, ("label",))
    # What is named for one thing is not taken for another, as it was in training.
    assert found("text label title topic", label=("title",), trained=trained) == ("text", None, ("title",))
    assert found("text label title topic", text="topic", trained=trained) == ("topic", None, ("label",))
    assert found("topic text", "no", text="topic", trained=trained) == ("topic", None, ())


def test_a_pair_of_the_training_is_taken_whole_or_not_at_all():
    trained = Columns(text="a", pair="b")
    assert found("sentence1 sentence2 a b y", trained=trained) == ("a", "b", ("y",))
    assert found("sentence1 sentence2 a y", trained=trained) == ("sentence1", "sentence2", ("y",))
    assert found("a b c y", text="c", trained=trained) == ("c", None, ("y",))
    trained = Columns(pair="b")  # the first half was found by its name
    assert found("text b y", trained=trained) == ("text", "b", ("y",))


def test_several_numbers_of_the_training_are_taken_together():
    trained = Columns(label=("h", "d"))
    assert found("text y d h", trained=trained) == ("text", None, ("h", "d"))
    assert found("text y d", trained=trained) == ("text", None, ("y",))
