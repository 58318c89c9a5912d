"""What the server writes down of its work: a line an event on standard error, for people or as JSON.

No text that a user sent is in it, unless that is asked for.
"""

import json
import logging
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Literal, TextIO

LogFormat = Literal["text", "json"]
SHOWN = 200
"""Characters of a user's text, where texts are logged."""


class Log:
    """Writes events."""

    def __init__(
        self, form: LogFormat = "text", *, texts: bool = False, quiet: bool = False, file: TextIO | None = None
    ) -> None:
        self.form = form
        self.texts = texts
        self.quiet = quiet
        """Whether only what went wrong is written down."""
        self.file = file

    def write(self, event: str, level: str = "info", **fields: Any) -> None:
        """One line, at once."""
        if self.quiet and level == "info":
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        if self.form == "json":
            line = json.dumps({"time": stamp, "level": level, "event": event, **fields}, ensure_ascii=False)
        else:
            said = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
            line = f"{stamp} {level} {event} {said}".rstrip()
        file = self.file or sys.stderr
        try:
            file.write(line + "\n")
            file.flush()
        except (OSError, ValueError):  # nobody reads it any more, which is no reason to stop serving
            return

    def failure(self, event: str, error: BaseException, **fields: Any) -> None:
        """What went wrong and where in the code; the error's own words may hold a user's text."""
        places = [
            f"{Path(frame.filename).name}:{frame.lineno}:{frame.name}"
            for frame in traceback.extract_tb(error.__traceback__)[-5:]
        ]
        said = {"message": str(error)[:SHOWN]} if self.texts else {}
        self.write(event, "error", **fields, error=type(error).__name__, at=" < ".join(reversed(places)), **said)

    def text(self, text: str) -> dict[str, str]:
        """The field that holds a user's text, where texts are logged."""
        return {"text": text[:SHOWN]} if self.texts else {}


class Forwarding(logging.Handler):
    """What libraries log becomes events of ours; their tracebacks become places."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One record, one event."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.log.failure(record.name, error)
        else:
            self.log.write(record.name, record.levelname.lower(), message=record.getMessage())


def _plain(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c.isspace() or c == '"' for c in text) else text
