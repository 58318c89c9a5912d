import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heedful.errors import OfOneProcess, UserError
from heedful.runs import training
from heedful.runs.folder import require_kept
from heedful.runs.options import MachinePart, Recipe
from heedful.runs.training import claimed, computing
from heedful.train.distributed import PeerLost, World


@pytest.mark.parametrize(
    ("there", "advice"),
    [
        ([], "nothing was saved yet; give the command again, with --resume if {} is still there"),
        (["heedful.toml"], "nothing was saved yet; give the command again, with --resume if {} is still there"),
        (["checkpoints/step-00000007"], "what was saved before is intact, and --resume goes on from there"),
        (["checkpoints/step-00000007", "model.safetensors"], "the model in {} is complete"),
    ],
)
def test_who_loses_another_process_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: list[str], advice: str
):
    @contextmanager
    def lost(_: str) -> Iterator[World]:
        yield World()
        raise PeerLost("another process has ended")

    monkeypatch.setattr(training, "world", lost)
    for name in there:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).mkdir() if name.startswith("checkpoints") else (tmp_path / name).touch()
    with pytest.raises(OfOneProcess) as caught, computing(MachinePart(device="cpu"), tmp_path):
        pass
    assert str(caught.value) == f"another process has ended; {advice.format(tmp_path)}"


@pytest.fixture
def handlers() -> Iterator[None]:
    """Signals as they are heeded before a test are heeded so again after it."""
    before = {number: signal.getsignal(number) for number in training.ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", training.ENDING)
def test_a_signal_gives_back_a_folder_of_a_run_that_has_not_begun(tmp_path: Path, number: signal.Signals):
    out, before = tmp_path / "out", signal.getsignal(number)

    def ended() -> None:
        with claimed(out, Recipe()):
            assert (out / "heedful.toml").is_file()
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt, match=f"^ended by {number.name}$"):
        ended()
    assert not out.exists()
    assert signal.getsignal(number) is before


def test_a_run_that_has_begun_keeps_its_folder(tmp_path: Path):
    out = tmp_path / "out"

    def failed() -> None:
        with claimed(out, Recipe(), begun=(out / "seed-0").is_dir):
            (out / "seed-0").mkdir()
            raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        failed()
    assert (out / "heedful.toml").is_file()


@pytest.mark.usefixtures("handlers")
def test_nohup_protects_a_run_from_its_first_moment(tmp_path: Path):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with claimed(tmp_path / "out", Recipe()):
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_what_is_saved_is_saved_where_the_run_is(tmp_path: Path):
    require_kept(claimed_by(tmp_path / "out"))
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"out was moved or emptied while the run went on: it has no heedful\.toml"):
        require_kept(tmp_path / "out")


def test_what_is_said_of_a_run_that_ends_does_not_need_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """They may be in a folder that can't be read any more, which is not what ended it."""

    def refused(_: Path) -> None:
        raise PermissionError("checkpoints")

    monkeypatch.setattr(training.checkpoint, "steps", refused)
    with pytest.raises(OfOneProcess, match="process 1 has gone"), computing(MachinePart(device="cpu"), tmp_path):
        raise PeerLost("process 1 has gone")


def claimed_by(out: Path) -> Path:
    with claimed(out, Recipe()):
        return out
