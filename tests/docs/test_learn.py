"""The pages of docs/learn: their code runs, their links lead somewhere, their commands exist."""

import contextlib
import io
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import matplotlib.image
import numpy as np
import pytest

from heedful.cli import COMMANDS, main

Lesson = Callable[[str], ModuleType]
ROOT = Path(__file__).parents[2]
LEARN = ROOT / "docs" / "learn"
CODE = LEARN / "code"
ENGLISH = sorted(LEARN.glob("*.md"))
PAGES = [*ENGLISH, *sorted(LEARN.glob("ko/*.md"))]
PATH = [page for page in PAGES if page.name[0].isdigit()]
RUNS = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"\bheedful ([a-z][a-z-]*)([^|]*)")
SLOW = {"translator", "warmup", "patches_compared", "look_up"}
"""What trains when it draws; the tests run miniatures instead."""
DRAWING = {page.name: re.findall(r"python docs/learn/code/(\w+)\.py", page.read_text("utf-8"))[0] for page in PATH}


def named(page: Path) -> str:
    return page.relative_to(LEARN).as_posix()


def inline(page: Path) -> list[str]:
    """What stands between backticks, outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL))


def links(page: Path) -> list[str]:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    return [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]


def test_the_path_has_no_gap():
    numbers = [int(page.name[:2]) for page in PATH if page.parent == LEARN]
    assert numbers == list(range(1, 13))
    for page, following in itertools.pairwise(PATH[:12]):
        assert following.name in links(page)
        assert page.name in links(following)
    assert [link for link in links(LEARN / "README.md") if link[0].isdigit()][:12] == [
        page.name for page in PATH[:12]
    ]


@pytest.mark.parametrize(
    ("number", "phrases"),
    [
        (1, ["concat", "location", "softmax"]),
        (2, ["LSTM", "GRU", "both directions", "tanh"]),
        (3, ["n·d²", "n²·d", "backward"]),
        (4, ["variance", "√d", "W_o"]),
        (5, ["The cat sat on the mat", "The animal didn't cross the street because it was too tired", "512×64"]),
        (6, ["I ate pizza", "pizza ate I", "10000^(2i/d)", "sigmoid", "Rotary"]),
        (7, ["max(0, xW₁ + b₁)W₂ + b₂", "Pre-norm", "Post-norm"]),
        (8, ["`<sos>`", "`<eos>`", "I love you", "Beam search"]),
        (9, ["warm-up"]),
        (10, ["`[CLS] Paris is a beautiful city [SEP] I love Paris [SEP]`", "15%", "80%", "98%", "**mean**"]),
        (11, ["He got bit by Python", "Python is my favorite programming language", "word2vec", "regress"]),
        (12, ["patches", "convolution"]),
    ],
)
def test_what_a_learner_looks_for_is_there(number: int, phrases: list[str]):
    text = PATH[number - 1].read_text("utf-8")
    assert [phrase for phrase in phrases if phrase not in text] == []


def test_a_language_is_whole_or_not_there():
    assert {page.name for page in PAGES if page.parent != LEARN} in (set(), {page.name for page in ENGLISH})


@pytest.mark.parametrize("page", PATH, ids=named)
def test_code_prints_what_the_page_says(page: Path):
    blocks = RUNS.findall(page.read_text("utf-8"))
    assert blocks
    assert page.read_text("utf-8").count("```python") == len(blocks)
    for code, says in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, page.name, "exec"), {})
        assert printed.getvalue() == says


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path):
    assert links(page)
    assert [link for link in links(page) if not (page.parent / link).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_and_flags_exist(page: Path, capsys: pytest.CaptureFixture):
    used = [(found[1], set(FLAG.findall(found[2]))) for line in inline(page) for found in COMMAND.finditer(line)]
    known = {}
    for command, asked in used:
        assert command in COMMANDS
        with pytest.raises(SystemExit):
            main([command, "--help"])
        known[command] = set(FLAG.findall(capsys.readouterr().out))
        assert asked <= known[command], command
    alone = {flag for line in inline(page) if line.startswith("--") for flag in FLAG.findall(line)}
    assert alone <= set().union(*known.values()), "a flag of no command on the page"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_and_modules_that_are_named_exist(page: Path):
    for line in inline(page):
        for module in re.findall(r"python -m ([\w.]+)", line):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module
        for path in re.findall(r"\b(?:docs|scripts|src|bench)/[\w./-]+", line):
            assert (ROOT / path).exists(), path
        for path in re.findall(r"\bcode/\w+\.py", line):
            assert (CODE / Path(path).name).is_file(), path


@pytest.mark.parametrize("page", PATH, ids=named)
def test_a_page_shows_the_picture_of_its_code(page: Path):
    (picture,) = [link for link in links(page) if link.endswith(".png")]
    source = (CODE / f"{DRAWING[page.name]}.py").read_text("utf-8")
    assert f'save(figure, "{Path(picture).stem}")' in source
    assert (page.parent / picture).stat().st_size < 100_000


def test_no_code_and_no_picture_is_left_over():
    assert {path.stem for path in CODE.glob("*.py")} == {*DRAWING.values(), "drawing"}
    shown = {Path(link).name for page in ENGLISH for link in links(page) if link.endswith(".png")}
    assert {path.name for path in (LEARN / "pictures").iterdir()} == shown


@pytest.mark.parametrize("name", sorted(set(DRAWING.values()) - SLOW))
def test_main_draws_the_picture_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lesson: Lesson):
    monkeypatch.setattr(lesson("drawing"), "PICTURES", tmp_path)
    lesson(name).main()
    (drawn,) = tmp_path.iterdir()
    again, kept = (matplotlib.image.imread(path) for path in (drawn, LEARN / "pictures" / drawn.name))
    assert again.shape == kept.shape
    assert np.abs(again - kept).mean() < 0.02
