"""Ctrl-C ends a command with a line, also while it is still importing."""

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


@pytest.mark.parametrize("name", ["heedful.cli", "torch"])
def test_inside_an_import_it_ends_at_once(tmp_path: Path, name: str):
    """Which would otherwise leave a module half made, or swallow it, as this one does in place of a real one."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Found:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {name!r}:\n"
        "            import importlib.util\n"
        f"            return importlib.util.spec_from_file_location(name, {str(tmp_path / 'swallowing.py')!r})\n"
        "sys.meta_path.insert(0, Found())\n",
        encoding="utf-8",
    )
    (tmp_path / "swallowing.py").write_text(SWALLOWING, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "heedful", "doctor"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "heedful: interrupted\n")


def test_elsewhere_it_is_an_exception():
    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGINT, sys._getframe())
