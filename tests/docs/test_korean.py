"""The Korean pages of docs/learn: the same code, pictures, links, commands and numbers as their English twins."""

import ast
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

LEARN = Path(__file__).parents[2] / "docs" / "learn"
NAMES = sorted(page.name for page in LEARN.glob("*.md"))
NUMBERED = [name for name in NAMES if name[0].isdigit()]
NUMBER = re.compile(r"\d+(?:[.,]\d+)*%?")
HANGUL = re.compile("[가-힣]")
TWIN = re.compile(r"^\[(?:English|한국어)\]\([^)]+\)\n\n", re.MULTILINE)
"""The line that leads to the other language."""


def english(name: str) -> Path:
    return LEARN / name


def korean(name: str) -> Path:
    return LEARN / "ko" / name


def parsed(page: Path) -> list[Token]:
    """A page without its link to the other language."""
    return MarkdownIt("commonmark").enable("table").parse(TWIN.sub("", page.read_text("utf-8"), count=1))


def every(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from every(token.children or [])


def blocks(page: Path) -> list[tuple[str, str]]:
    """The language of each fenced block, and what it says; of Python, what it does, whatever its comments say."""
    fences = [token for token in parsed(page) if token.type == "fence"]
    return [
        (fence.info, ast.dump(ast.parse(fence.content)) if fence.info == "python" else fence.content)
        for fence in fences
    ]


def shape(page: Path) -> list[str]:
    """Headings, items, rows, cells and blocks in their order, without the words."""
    return [f"{token.type} {token.tag}" for token in parsed(page) if token.nesting >= 0 and token.type != "inline"]


def reached(page: Path) -> Counter[Path]:
    """The files that the links of a page lead to; from an English page, the Korean twins of English ones."""
    targets = [str(token.attrs["href"]) for token in every(parsed(page)) if token.type == "link_open"]
    paths = Counter(Path(os.path.normpath(page.parent / target)) for target in targets)
    if page.parent == LEARN:
        return Counter({korean(path.name) if path.parent == LEARN else path: times for path, times in paths.items()})
    return paths


def pictures(page: Path) -> list[Path]:
    images = [token for token in every(parsed(page)) if token.type == "image"]
    return [Path(os.path.normpath(page.parent / str(image.attrs["src"]))) for image in images]


def words(token: Token) -> str:
    """What a reader sees of a paragraph, an item or a cell."""
    return "".join(" " if child.type == "softbreak" else child.content for child in token.children or [])


def cells(page: Path) -> list[str]:
    tokens = parsed(page)
    return [words(token) for before, token in itertools.pairwise(tokens) if before.type in ("td_open", "th_open")]


def prose(page: Path) -> list[str]:
    return [words(token) for token in parsed(page) if token.type == "inline"]


def test_every_page_has_its_twin_and_there_is_no_other():
    assert len(NUMBERED) == 12
    assert sorted(page.name for page in (LEARN / "ko").iterdir()) == NAMES
    assert (LEARN / "README.md").read_text("utf-8").split("\n\n")[1] == "[한국어](ko/README.md)"


@pytest.mark.parametrize("name", NAMES)
def test_code_is_the_same_but_for_its_comments(name: str):
    assert blocks(korean(name)) == blocks(english(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_begins_with_its_title_and_a_link_to_its_twin(name: str):
    title, link, _ = korean(name).read_text("utf-8").split("\n\n", 2)
    assert title.startswith("# ")
    assert link == f"[English](../{name})"


@pytest.mark.parametrize("name", NAMES)
def test_what_stands_on_a_page_stands_on_its_twin_in_the_same_order(name: str):
    assert shape(korean(name)) == shape(english(name))


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_the_same_and_there(name: str):
    assert pictures(korean(name)) == pictures(english(name))
    assert all(picture.is_file() for picture in pictures(korean(name)))


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_the_same_files(name: str):
    assert reached(korean(name)) == reached(english(name))


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_names_in_code_are_the_same(name: str):
    ours, theirs = (
        {token.content for token in every(parsed(page)) if token.type == "code_inline"}
        for page in (korean(name), english(name))
    )
    assert ours == theirs


@pytest.mark.parametrize("name", NAMES)
def test_numbers_agree_cell_by_cell_and_on_the_whole_page(name: str):
    ours, theirs = ([NUMBER.findall(cell) for cell in cells(page)] for page in (korean(name), english(name)))
    assert ours == theirs
    ours, theirs = (set(NUMBER.findall(" ".join(prose(page)))) for page in (korean(name), english(name)))
    assert ours == theirs


@pytest.mark.parametrize("name", NAMES)
def test_titles_are_the_same_wherever_a_page_is_named(name: str):
    titles = {page: korean(page).read_text("utf-8").partition("\n")[0].removeprefix("# ") for page in NUMBERED}
    for title, page in re.findall(r"\[(\d+\. [^]]+)\]\(([^)]+)\)", korean(name).read_text("utf-8")):
        assert titles[page].startswith(title)


@pytest.mark.parametrize("name", NAMES)
def test_marks_of_emphasis_are_read_as_such(name: str):
    """A mark as in **값(value)**을, between a bracket and a letter, closes nothing; a pair of ~ strikes out."""
    texts = [token.content for token in every(parsed(korean(name))) if token.type == "text"]
    assert [text for text in texts if re.search("[*`~]", text)] == []


@pytest.mark.parametrize("name", NAMES)
def test_it_is_korean_and_plain(name: str):
    """What has no Korean word is the title BERT, a formula, a sentence to look at, or a cell of a table."""
    told = [text for text in prose(korean(name)) if text not in cells(korean(name))]
    assert len(told) > 5
    untold = [text for text in told if not HANGUL.search(text)]
    assert untold == [text for text in prose(english(name)) if text in untold]
    assert [text for text in untold if len(text) > 80] == []
    assert [text for text in told if re.search("(?:습|합|입|됩)니다|세요|해요", text)] == []


@pytest.mark.parametrize(
    ("number", "terms"),
    [
        (1, ["어텐션(attention)", "**질의**(query)", "**키**(key)", "**값**(value)", "소프트맥스(softmax)"]),
        (2, ["은닉 상태(hidden state)", "인코더(encoder)", "디코더(decoder)", "양방향", "어텐션 값"]),
        (3, ["순환(recurrence)", "경로", "역전파(backward)"]),
        (4, ["분산", "√d로 나누", "엔트로피"]),
        (5, ["헤드(head)", "512×64"]),
        (6, ["위치 인코딩(positional encoding)", "여러 주파수", "시그모이드", "로터리"]),
        (7, ["잔차 연결(residual connection)", "층 정규화(layer normalization)", "**피드포워드**(feed-forward)"]),
        (8, ["마스킹(masking)", "인과 마스크", "교차 엔트로피", "**빔 탐색**(beam search)", "나는 → 너를"]),
        (9, ["학습률(learning rate)", "워밍업(warm-up)"]),
        (10, ["사전 학습(pretraining)", "세그먼트", "다음 문장 예측", "**평균**"]),
        (11, ["미세 조정(fine-tuning)", "분류", "회귀", "문맥"]),
        (12, ["**패치**(patch)", "합성곱(convolution)"]),
    ],
)
def test_terms_are_those_that_korean_learners_know(number: int, terms: list[str]):
    text = korean(NUMBERED[number - 1]).read_text("utf-8")
    assert [term for term in terms if term not in text] == []
