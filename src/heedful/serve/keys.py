"""Who may ask: a Bearer key, from a file or from the environment."""

import hmac
import os
from collections.abc import Sequence
from pathlib import Path

from heedful.errors import UserError

VARIABLE = "HEEDFUL_API_KEY"


class Keys:
    """The keys that open the server; with none it is open to everyone who reaches it."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._known = [key.encode() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._known)

    def opens(self, header: bytes) -> bool:
        """Whether an Authorization header has one of them, in a time that does not tell which or how much of it."""
        scheme, _, given = header.partition(b" ")
        right = False
        for key in self._known:
            right |= hmac.compare_digest(given.strip(), key)
        return right and scheme.lower() == b"bearer"


def read_keys(file: Path | None) -> Keys:
    """The keys of a file, one a line; without a file, that of the environment."""
    if file is None:
        found = [os.environ[VARIABLE]] if os.environ.get(VARIABLE) else []
        return Keys([_checked(key.strip(), f"${VARIABLE}") for key in found])
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{file} is no text, so no key file; write a key on a line of its own") from None
    except OSError as error:
        raise UserError(f"the key file {file} can't be read ({error.strerror}); name one that can") from None
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise UserError(f"the key file {file} is empty; write a key on a line of its own")
    return Keys([_checked(key, str(file)) for key in found])


def _checked(key: str, origin: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise UserError(f"a key of {origin} has blanks or letters beyond ASCII; use printable ASCII without blanks")
    return key
