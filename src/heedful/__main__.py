"""`heedful`, and `python -m heedful`. Ctrl-C is minded before anything else is imported."""

import os
import signal
import sys
from types import FrameType

IMPORTS = "<frozen importlib._bootstrap>"
"""The file of Python's own import."""


def interrupt(_: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; or end at once while something is imported.

    A module that an exception leaves half made fails later, and elsewhere; some swallow it, some abort.
    """
    while frame is not None:
        if frame.f_code.co_filename == IMPORTS:
            print("heedful: interrupted", file=sys.stderr, flush=True)
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def main() -> None:
    """Run the command that was typed."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody wants it ignored
        signal.signal(signal.SIGINT, interrupt)
    from heedful.cli import main as run

    run()


if __name__ == "__main__":
    main()
