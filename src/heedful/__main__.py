"""`heedful`, and `python -m heedful`. Ctrl-C is minded before anything else is imported."""

import os
import signal
import sys
import warnings
from types import FrameType
from typing import Any

IMPORTS = "<frozen importlib._bootstrap>"
"""The file of Python's own import."""
STARTING = ("__main__", "heedful.__main__", "heedful.cli", "heedful.arguments", "heedful.commands.")
"""How the names begin of those who import what a command needs, before it begins."""


def interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; or end at once while a command that has not begun is imported.

    A module that an exception leaves half made fails later, and elsewhere; some swallow it, some abort. What is
    imported later is another matter: then there may be something to give back or to remove.
    """
    outermost = None
    while frame is not None:
        if frame.f_code.co_filename == IMPORTS:
            outermost = frame
        frame = frame.f_back
    importer = None if outermost is None else outermost.f_back
    if importer is not None and importer.f_globals["__name__"].startswith(STARTING):
        print("heedful: interrupted", file=sys.stderr, flush=True)
        os._exit(130)
    raise KeyboardInterrupt


def in_a_line(message: Warning | str, *_: Any, **__: Any) -> str:
    """A warning as commands speak, without the place in our source that gave it."""
    from heedful import launch

    return f"heedful: {launch.signed(' '.join(str(message).split()))}\n"


def main() -> None:
    """Run the command that was typed."""
    warnings.formatwarning = in_a_line
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody wants it ignored
        signal.signal(signal.SIGINT, interrupt)
    from heedful.cli import main as run

    run()


if __name__ == "__main__":
    main()
