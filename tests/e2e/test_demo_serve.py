"""The demonstration ends in the explorer."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from heedful.cli import main
from heedful.commands import making
from heedful.errors import UserError
from heedful.runs import demo_vision


@pytest.fixture
def demonstration(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    folders = ("--out", str(tmp_path / "d"), "--cache", str(tmp_path / "cache"))
    command = [sys.executable, "-m", "heedful", "demo", "--part", "vision", "--steps", "2", *folders, "--serve"]
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        yield process
        process.kill()


def test_what_was_trained_is_explored(demonstration: subprocess.Popen[str]):
    assert demonstration.stdout is not None
    lines = iter(demonstration.stdout.readline, "")
    (where,) = next(found for line in lines if (found := re.findall(r"^explore d-vision at (http://\S+)/ ", line)))
    with urlopen(f"{where}/explore/models") as answer:
        assert [(one["name"], one["family"]) for one in json.load(answer)] == [("d-vision", "vit")]
    with urlopen(f"{where}/explore/runs") as answer:
        assert json.load(answer) == [{"name": "d-vision", "state": "complete"}]
    demonstration.send_signal(signal.SIGTERM)
    assert demonstration.wait(30) == 0


@pytest.mark.parametrize(
    ("found", "started", "typed"),
    [
        ("/usr/bin/heedful", ".venv/bin/heedful", "heedful"),
        (None, ".venv/bin/heedful", ".venv/bin/heedful"),
        (None, "/a b/heedful", "'/a b/heedful'"),
        (None, "/there/heedful/__main__.py", f"{sys.executable} -m heedful"),
    ],
)
def test_without_it_the_last_line_says_how(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, found: str | None, started: str, typed: str
):
    monkeypatch.setattr(demo_vision, "demo", lambda *_, **__: None)
    monkeypatch.setattr(making.shutil, "which", lambda _: found)
    monkeypatch.setattr(sys, "argv", [started])
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--part", "vision", "--out", "my demo"])
    assert stop.value.code == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"See inside, in a browser: {typed} explore 'my demo-vision' --runs 'my demo-vision'"


def test_what_serving_lacks_is_said_before_the_training(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def lacking() -> None:
        raise UserError("serving needs uvicorn; install it with `pip install 'heedful[serve]'`")

    monkeypatch.setattr(making, "require", lacking)
    monkeypatch.setattr(demo_vision, "demo", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--part", "vision", "--serve"])
    assert stop.value.code == 2
    assert "serving needs uvicorn" in capsys.readouterr().err
