"""The lines of standard input, each as it arrives: numbered, UTF-8, left as written.

A line that cannot be read is a flaw, in its place. Knows nothing of what the lines hold.
"""

import sys
from collections.abc import Iterator

from heedful.data.flaws import OR_SKIP, Flaw
from heedful.data.lines import CONVERT, MAX_LINE, Errors, lost
from heedful.errors import UserError

FEW_LOST = 3
"""Characters of a line that may be replaced, however short it is."""


def arriving(errors: Errors) -> Iterator[tuple[str, str] | Flaw]:
    """Where a line stands, and the line without its end."""
    if sys.stdin is None:
        raise UserError("standard input is closed; name a file to read")
    number = 0
    # By readline, which gives a line when it has come, not when a block is full.
    while data := sys.stdin.buffer.readline(MAX_LINE + 1):
        number += 1
        where = f"standard input:{number}"
        if len(data) > MAX_LINE:
            raise UserError(f"{where}: a line of over {MAX_LINE >> 20} MiB; put line breaks between texts")
        data = data.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
        if errors == "replace":
            data = data.replace(b"\0", b"")
        try:
            line = data.decode(errors=errors)
        except UnicodeDecodeError as error:
            byte = f"byte 0x{data[error.start]:02x} is not UTF-8"
            or_else = "" if lost(data.decode(errors="replace"), FEW_LOST) else "go on with --errors replace, "
            yield Flaw(where, f"{byte}; {CONVERT}, {or_else}{OR_SKIP}")
            continue
        if errors == "replace" and (share := lost(line, FEW_LOST)):
            yield Flaw(where, f"{share:.0%} of the text is not UTF-8, and would be lost; {CONVERT}, {OR_SKIP}")
            continue
        if "\0" in line:
            yield Flaw(where, f"a NUL byte; remove it, go on with --errors replace, {OR_SKIP}")
        else:
            yield where, line
