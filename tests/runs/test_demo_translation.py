from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.cli import main
from heedful.data import numbers
from heedful.data.parallel import PairExample
from heedful.errors import Interrupted
from heedful.predict.translator import Translation
from heedful.runs import demo, demo_translation, demo_vision, translator

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few numbers, so that an untrained model is soon asked."""
    for name, count in {"TRAINING": 151, "DEV": 5, "HELD_OUT": 7}.items():
        monkeypatch.setattr(demo_translation, name, count)


def started(folder: Path, *more: str) -> list[str]:
    return ["demo", "--part", "translation", "--out", str(folder / "a d"), "--cache", str(folder / "cache"), *more]


def ended(arguments: list[str], capsys: pytest.CaptureFixture) -> tuple[int, list[str], str]:
    """How a command ended, and what it said on both channels."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    said = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, said.out.splitlines(), said.err


def untimed(lines: list[str]) -> list[str]:
    """What is said of the result, from its heading on."""
    (first,) = [number for number, line in enumerate(lines) if line.startswith("Numbers that it has never seen")]
    return [line for line in lines[first:] if not line.startswith("That took ")]


@pytest.mark.usefixtures("few")
def test_a_translator_that_has_hardly_learned_is_said_to_be_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "a d-translator"
    code, lines, _ = ended(started(tmp_path, "--steps", "2"), capsys)
    assert code == 0
    assert "  exactly right    0.0%   of 7" in lines
    assert "  It had 2 steps to learn; leave --steps out to give it the usual 1,000." in lines
    assert sum(line.startswith("  mistaken: ") for line in lines) == demo_translation.MISTAKES
    assert "  342,007: three hundred forty-two thousand and seven" in lines
    assert sum("%  wrong  " in line for line in lines) == 3 * len(demo_translation.SHOWN)
    assert not any("%  right  " in line for line in lines)
    assert any(f"| heedful translate '{out}' - " in line for line in lines)
    assert (out / "alignment.png").read_bytes().startswith(PNG)
    assert (out / "model.safetensors").is_file()
    assert not (tmp_path / "a d").exists()

    monkeypatch.setattr(demo_translation, "train_translator", lambda _: pytest.fail("trained twice"))
    code, again, _ = ended(started(tmp_path, "--steps", "2"), capsys)
    assert (code, again[0]) == (0, f"{out} is trained already; delete it to train anew")
    assert untimed(again) == untimed(lines)
    code, _, error = ended(started(tmp_path, "--steps", "3"), capsys)
    assert (code, f"{out} holds another run; choose another --out" in error) == (2, True)


@pytest.mark.usefixtures("few")
def test_a_translator_that_was_broken_off_is_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def broken_off(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(translator, "save_translator", broken_off)
        assert ended(started(tmp_path, "--steps", "2"), capsys)[0] == 130
    assert not (tmp_path / "a d-translator" / "model.safetensors").exists()
    code, lines, _ = ended(started(tmp_path, "--steps", "2"), capsys)
    assert (code, "resuming at step 2" in lines) == (0, True)
    assert (tmp_path / "a d-translator" / "model.safetensors").is_file()


@pytest.mark.usefixtures("few")
def test_how_to_go_on_is_said_for_the_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def stopped(_: object) -> None:
        raise Interrupted("stopped and saved at step 3; go on with: heedful train-translator --resume --out x")

    monkeypatch.setattr(demo_translation, "train_translator", stopped)
    code, _, error = ended(started(tmp_path), capsys)
    assert (code, error) == (130, "heedful: stopped and saved at step 3; go on with the same command\n")


@pytest.mark.parametrize(
    ("typed", "parts"),
    [
        ([], [("bert", "d"), ("translation", "d-translator"), ("vision", "d-vision")]),
        (["--part", "all"], [("bert", "d"), ("translation", "d-translator"), ("vision", "d-vision")]),
        (["--part", "bert"], [("bert", "d")]),
        (["--part", "translation"], [("translation", "d-translator")]),
        (["--part", "vision"], [("vision", "d-vision")]),
    ],
)
def test_the_parts_of_the_demo(
    typed: list[str], parts: list[tuple[str, str]], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    called = []

    def recorder(name: str) -> object:
        def record(out: Path, *, steps: int, seed: int, cache: Path, say: object) -> None:
            called.append((name, str(out), steps, seed, cache, callable(say)))

        return record

    monkeypatch.setattr(demo, "demo", recorder("bert"))
    monkeypatch.setattr(demo_translation, "demo", recorder("translation"))
    monkeypatch.setattr(demo_vision, "demo", recorder("vision"))
    code, _, _ = ended(["demo", "--out", "d", "--steps", "13", "--seed", "7", "--cache", "c", *typed], capsys)
    assert code == 0
    assert called == [(*part, 13, 7, Path("c"), True) for part in parts]


def test_no_number_is_both_learned_and_asked_for():
    parts = demo_translation.split(0)
    numbers_of = [{int(pair.where.partition(":")[2]) for pair in part} for part in parts]
    learned, dev, asked = numbers_of
    shown = {*demo_translation.SHOWN}
    assert [len(one) for one in (dev, asked)] == [200, 1000]
    assert 20_000 - len(shown) <= len(learned) <= 20_000
    assert len(learned | dev | asked) == len(learned) + len(dev) + len(asked)
    assert not shown & (learned | dev)
    assert max(learned | dev | asked | shown) <= demo_translation.LARGEST
    assert demo_translation.split(0) == parts
    assert demo_translation.split(1) != parts


def test_numbers_that_are_shown_are_taken_out(monkeypatch: pytest.MonkeyPatch):
    learned, dev, asked = demo_translation.split(0)
    taken = [int(part[11].where.partition(":")[2]) for part in (learned, dev)]
    monkeypatch.setattr(demo_translation, "SHOWN", tuple(taken))
    assert demo_translation.split(0) == ([*learned[:11], *learned[12:]], [*dev[:11], *dev[12:]], asked)


class Parrot:
    """Translates as it was told, whatever it is asked."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = answers

    def translate(self, texts: list[str], **_: object) -> list[Translation]:
        return [Translation(answer, 0.0, 0.0, []) for _, answer in zip(texts, self.answers, strict=True)]


def test_only_what_is_exactly_right_counts():
    said: list[str] = []
    asked = [PairExample("", numbers.english(number), numbers.korean(number)) for number in (3, 20, 10_001, 7, 5)]
    answers = ["삼", "이십이", "만일", "", "육"]
    parrot: object = Parrot(answers)
    assert demo_translation._examine(parrot, asked, said.append) == pytest.approx(1 / 5)
    assert said == [
        "  exactly right   20.0%   of 5",
        "  mistaken: twenty",
        "      wrote 이십이, should have written 이십",
        "  mistaken: ten thousand and one",
        "      wrote 만일, should have written 만 일",
        "  mistaken: seven",
        "      wrote nothing, should have written 칠",
    ]


@pytest.mark.parametrize(("out", "folder"), [("demo", "demo-translator"), ("a/b.c", "a/b.c-translator")])
def test_the_translator_lies_beside_the_bert(out: str, folder: str):
    assert demo_translation.folder(Path(out)) == Path(folder)


@pytest.mark.parametrize(("out", "folder"), [(".", "here-translator"), ("..", "up-translator")])
def test_a_folder_without_a_name_is_called_by_its_own(
    out: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    here = tmp_path / "up" / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert demo_translation.folder(Path(out)) == (here / out).resolve().parent / folder


@given(st.integers(0, demo_translation.LARGEST))
def test_every_number_can_be_written_and_spelled(number: int):
    korean = numbers.korean(number)
    assert len(korean) < (demo_translation.SEARCH.max_length or 0)  # in the worst case a piece a letter
    assert {*korean} - {" "} <= demo_translation.ROMAN.keys()
