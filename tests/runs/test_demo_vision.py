import shlex
from pathlib import Path

import numpy as np
import pytest

from heedful.cli import main
from heedful.data.images import Images
from heedful.errors import Interrupted
from heedful.predict.images import Seen
from heedful.runs import demo_vision, vision

PNG = b"\x89PNG\r\n\x1a\n"


def started(folder: Path, *more: str) -> list[str]:
    return ["demo", "--part", "vision", "--out", str(folder / "a d"), "--cache", str(folder / "cache"), *more]


def ended(arguments: list[str], capsys: pytest.CaptureFixture) -> tuple[int, list[str], str]:
    """How a command ended, and what it said on both channels."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    said = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    return stop.value.code, said.out.splitlines(), said.err


def untimed(lines: list[str]) -> list[str]:
    """What is said of the result, from its heading on."""
    (first,) = [number for number, line in enumerate(lines) if line.startswith("Handwritten digits that it has")]
    return [line for line in lines[first:] if not line.startswith("That took ")]


def test_a_classifier_that_has_hardly_learned_is_said_to_be_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "a d-vision"
    code, lines, _ = ended(started(tmp_path, "--steps", "2"), capsys)
    assert code == 0
    (share,) = [line for line in lines if line.startswith("  right  ")]
    assert share.endswith("%   of 179; a guess: 10.0%")
    assert float(share.split()[1].rstrip("%")) < 60
    assert "  It had 2 steps to learn; leave --steps out to give it its usual time." in lines
    assert sum(line.startswith("  mistaken: a ") for line in lines) == demo_vision.MISTAKES
    assert sum(line.count("% sure") == demo_vision.SHOWN for line in lines) == 1
    assert (out / "patches.png").read_bytes().startswith(PNG)
    assert (out / "model.safetensors").is_file()
    assert not (tmp_path / "a d").exists()
    files = sorted((out / "digits").iterdir())
    assert len(files) == demo_vision.SHOWN
    assert all(file.stem in "0123456789" for file in files)

    monkeypatch.setattr(demo_vision, "train_vision", lambda _: pytest.fail("trained twice"))
    code, again, _ = ended(started(tmp_path, "--steps", "2"), capsys)
    assert (code, again[0]) == (0, f"{out} is trained already; delete it to train anew")
    assert untimed(again) == untimed(lines)
    code, _, error = ended(started(tmp_path, "--steps", "3"), capsys)
    assert (code, f"{out} holds another run; choose another --out" in error) == (2, True)

    # What it tells one to try does what it says.
    for line in lines[lines.index("Now try:") + 1 :][:2]:
        code, said, error = ended(shlex.split(line)[1:], capsys)
        assert (code, error) == (0, "")
        if " see " in line:
            assert [one.partition(": ")[0] for one in said] == [str(file) for file in files]
        else:
            assert said[0] == "179 images of digits, those held out while training"
            found = float(said[2].split()[1].rstrip("%"))
            assert found == pytest.approx(float(share.split()[1].rstrip("%")), abs=0.06)


def test_a_classifier_that_was_broken_off_is_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def broken_off(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(vision, "save_vit", broken_off)
        assert ended(started(tmp_path, "--steps", "2"), capsys)[0] == 130
    assert not (tmp_path / "a d-vision" / "model.safetensors").exists()
    code, lines, _ = ended(started(tmp_path, "--steps", "2"), capsys)
    assert (code, "resuming at step 2" in lines) == (0, True)
    assert (tmp_path / "a d-vision" / "model.safetensors").is_file()


def test_how_to_go_on_is_said_for_the_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def stopped(_: object) -> None:
        raise Interrupted("stopped and saved at step 3; go on with: heedful train-vision --resume --out x")

    monkeypatch.setattr(demo_vision, "train_vision", stopped)
    code, _, error = ended(started(tmp_path), capsys)
    assert (code, error) == (130, "heedful: stopped and saved at step 3; go on with the same command\n")


def test_digits_in_letters():
    digits = [np.array([[0, 255], [64, 128]], np.uint8), np.array([[191, 0], [0, 0]], np.uint8)]
    answers = [Seen("7", 0.981, {}), Seen("1", 0.5, {})]
    assert demo_vision.printed(digits, answers) == ["  ##   **  ", "..::       ", "7, 98.1% sure   1, 50.0% sure"]


def test_digits_that_are_shown_are_of_several_classes():
    labels = np.array([3, 3, 1, 0, 1, 2])
    images = Images.of(np.zeros((6, 2, 2, 1), np.uint8), labels, tuple("0123"))
    assert demo_vision.distinct(images, 3).tolist() == [0, 2, 3]
    assert demo_vision.distinct(images, 9).tolist() == [0, 2, 3, 5]


class Parrot:
    """Answers as it was told, whatever it is asked."""

    def see(self, pictures: list[np.ndarray]) -> list[Seen]:
        return [Seen("1", 0.5 + 0.1 * number, {}) for number, _ in enumerate(pictures)]


def test_the_surest_mistakes_are_named():
    said: list[str] = []
    images = Images.of(np.zeros((5, 2, 2, 1), np.uint8), np.array([0, 1, 2, 2, 0]), tuple("012"))
    parrot: object = Parrot()
    assert demo_vision._examine(parrot, images, said.append) == pytest.approx(1 / 5)  # pyrefly: ignore
    assert said == [
        "  right   20.0%   of 5; a guess: 33.3%",
        "  mistaken: a 0 for a 1, 90% sure",
        "  mistaken: a 2 for a 1, 80% sure",
        "  mistaken: a 2 for a 1, 70% sure",
    ]


@pytest.mark.parametrize(("out", "folder"), [("demo", "demo-vision"), ("a/b.c", "a/b.c-vision")])
def test_the_classifier_lies_beside_the_bert(out: str, folder: str):
    assert demo_vision.folder(Path(out)) == Path(folder)


def test_a_folder_without_a_name_is_called_by_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert demo_vision.folder(Path()) == tmp_path.parent / f"{tmp_path.name}-vision"
