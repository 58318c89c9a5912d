"""Ctrl-C ends a command with a line, also while it is still importing, and leaves nothing behind.

Warnings are lines too.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from heedful.__main__ import interrupt

SWALLOWING = """
import signal
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    print("swallowed")
"""


def heedful(home: Path, *arguments: str | Path, instead: str, of: str) -> subprocess.CompletedProcess[str]:
    """Give a command, for which one module is another."""
    (home / "sitecustomize.py").write_text(
        "import sys\n"
        "class Found:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {of!r}:\n"
        "            import importlib.util\n"
        f"            return importlib.util.spec_from_file_location(name, {str(home / 'instead.py')!r})\n"
        "sys.meta_path.insert(0, Found())\n",
        encoding="utf-8",
    )
    (home / "instead.py").write_text(instead, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "heedful", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(home), *filter(None, sys.path)])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", ["heedful.cli", "torch"])
def test_inside_an_import_it_ends_at_once(tmp_path: Path, name: str):
    """Which would otherwise leave a module half made, or swallow it, as this one does in place of a real one."""
    done = heedful(tmp_path, "doctor", instead=SWALLOWING, of=name)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "heedful: interrupted\n")


def test_in_an_import_of_a_run_that_has_begun_its_folder_is_given_back(tmp_path: Path):
    """Here of what reads the table, which is imported where it is needed."""
    table, out = tmp_path / "text.parquet", tmp_path / "out"
    table.write_bytes(b"")
    interrupted = "import signal\nsignal.raise_signal(signal.SIGINT)\n"
    done = heedful(tmp_path, "pretrain", table, "--out", out, instead=interrupted, of="pyarrow")
    assert (done.returncode, done.stderr) == (130, "heedful: interrupted\n")
    assert not out.exists()


def test_elsewhere_it_is_an_exception():
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, sys._getframe())


def test_a_warning_is_a_line_without_our_source(tmp_path: Path):
    warning = "import warnings\nwarnings.warn('one\\n two', stacklevel=1)\nraise SystemExit(3)\n"
    done = heedful(tmp_path, "doctor", instead=warning, of="torch")
    assert (done.returncode, done.stderr) == (3, "heedful: one two\n")
