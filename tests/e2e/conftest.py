"""How commands are given in these tests: in this process, or each in one of its own that may be killed; and how the
explorer's page is read, in a real browser."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from heedful import predict
from heedful.cli import main
from tests.e2e.browsing import Host, Reader, page_models

SCRIPT = """
import json, os, pathlib, signal, sys
import sacrebleu, scipy.stats, sklearn.metrics, torch._dynamo, tyro
from heedful.cli import main
from heedful.runs import finetune, seeds, translator
from heedful.train import checkpoint

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def at(owner, name, *, call=1, after=False, match="", act=die):
    "Do something in the call-th call of a function whose first argument has the text in it."
    real, seen = getattr(owner, name), []

    def wrapped(*arguments, **named):
        hit = not match or match in str(arguments[0])
        if hit:
            seen.append(name)
        hit = hit and len(seen) == call
        if hit and not after:
            act()
        result = real(*arguments, **named)
        if hit and after:
            act()
        return result

    setattr(owner, name, wrapped)

for line in sys.stdin:
    patch, arguments, out, err = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    else:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        exec(patch)
        main(arguments)
"""
"""Loads everything once, and gives each command in a process of its own, with something done to it first."""


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def heedful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, list[str | Path]], Ended]]:
    """Gives a command, with what is done to it."""
    out, err = (tmp_path_factory.mktemp("said") / name for name in ("out", "err"))
    server = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"},
    )

    def run(patch: str, arguments: list[str | Path]) -> Ended:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([patch, [str(one) for one in arguments], str(out), str(err)]) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return Ended(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))

    with server:
        yield run
        assert server.stdin is not None
        server.stdin.close()  # which ends it


class Shell:
    """Gives commands in this process and looks at how they end."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture) -> None:
        self.home = home
        self.capsys = capsys

    def run(self, *arguments: str | Path) -> tuple[int, str, str]:
        """The exit code, and what it said."""
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        said = self.capsys.readouterr()
        return stop.value.code or 0, said.out, said.err

    def fails(self, *arguments: str | Path) -> str:
        """What stands on the one line on standard error of a command that must fail, and leaves no folder."""
        code, _, said = self.run(*arguments)
        assert code == 2, said
        assert said.startswith("heedful: ")
        assert said.endswith("\n")
        assert said.count("\n") == 1
        assert "Traceback" not in said
        assert not (self.home / "out").exists()
        return said.removeprefix("heedful: ").removesuffix("\n")

    def goes_on(self, *arguments: str | Path) -> str:
        """What a command says that must go well."""
        code, out, said = self.run(*arguments)
        assert (code, said) == (0, "")
        return out

    def file(self, name: str, content: str | bytes) -> Path:
        """A file in the test's own folder."""
        path = self.home / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture) -> Shell:
    """Gives commands in this process."""
    return Shell(tmp_path, capsys)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_CHROMIUM = "no Chromium to read the page with; install it (apt install chromium)"
QUIET = ("no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for all tests that had no browser."""
    skipped = [one for one in terminalreporter.stats.get("skipped", []) if NO_CHROMIUM in str(one.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests of the explorer's page were skipped: {NO_CHROMIUM}")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is."""
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    return CHROMIUM


@pytest.fixture(scope="session")
def host(
    chromium: str, tmp_path_factory: pytest.TempPathFactory, translator: Callable[[str], Path], colours: Path
) -> Iterator[Host]:
    """The server that the page talks to, with very small models."""
    folders = page_models(tmp_path_factory.mktemp("page"))
    folders |= {"translator": translator("other"), "recurrent": translator("rnn"), "colours": colours}
    with Host({name: predict.load(folder, "cpu") for name, folder in folders.items()}) as running:
        yield running


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """Chromium. Not for the whole session: while it is there, no other test could run an event loop."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=[f"--{flag}" for flag in QUIET])
        yield started
        started.close()


@pytest.fixture(scope="module")
def _reading(browser: Any, host: Host) -> Iterator[Reader]:
    with Reader(browser, host) as reading:
        yield reading


@pytest.fixture
def reader(_reading: Reader) -> Iterator[Reader]:
    """Somebody before the page, whom the tests of a module share: views are told everything by their links."""
    yield _reading
    _reading.page.unroute_all()
    _reading.page.mouse.move(2, 2)
    _reading.check()


@pytest.fixture
def newcomer(browser: Any, host: Host) -> Iterator[Reader]:
    """Somebody who has never been here."""
    with Reader(browser, host) as reading:
        yield reading
