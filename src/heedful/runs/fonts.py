"""Which installed fonts have the letters of a text, for pictures. Knows nothing of what is drawn."""

import contextlib
import functools
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from matplotlib import font_manager

MOST_NAMED = 8
"""Letters that a message shows."""
BOXES = "empty boxes stand for them"


class Fonts(NamedTuple):
    """What a text is drawn with."""

    families: list[str]
    """The default, and behind it those that have what it lacks."""
    lacking: set[str]
    """The letters that none of them has."""


def choose(text: str) -> Fonts:
    """The fonts for a text.

    matplotlib keeps a list of fonts from when it was first used, which nothing renews: fonts installed since are
    looked for where those of the list don't do.
    """
    letters = {letter for letter in text if _is_drawn(letter)}
    found = _of_known(letters)
    if found.lacking and _learn_new():
        found = _of_known(letters)
    return found


def lacks(letters: Iterable[str], instead: str = BOXES) -> str | None:
    """What to say of letters that no font has, and what stands in their place; nothing where there are none."""
    them = sorted(letters)
    if not them:
        return None
    named = repr("".join(them[:MOST_NAMED])) + (f" and {len(them) - MOST_NAMED:,} more" * (len(them) > MOST_NAMED))
    return (
        f"no installed font has the letters {named}: {instead} in the picture; install a font that has them "
        "(for Korean, Chinese and Japanese, fonts-noto-cjk) and draw it again"
    )


def _is_drawn(letter: str) -> bool:
    return not letter.isspace() and unicodedata.category(letter) not in ("Cc", "Cf")


def _of_known(letters: set[str]) -> Fonts:
    """Of the fonts that matplotlib knows, always the one that has most of the letters still lacking.

    Of equal ones the first by name: matplotlib's own order is that of a disk, and differs between machines.
    """
    families = [*font_manager.FontProperties().get_family()]
    lacking = letters - _has(font_manager.findfont(font_manager.FontProperties()), letters)
    having: list[tuple[str, set[str]]] = []
    for font in sorted(font_manager.fontManager.ttflist, key=lambda one: (one.name, one.fname)) if lacking else ():
        # the font of last resort claims every letter, and draws each as a box
        if font.style == "normal" and "lastresort" not in font.name.replace(" ", "").lower():
            having.append((font.name, _has(font.fname, lacking)))
            if having[-1][1] == lacking:
                break
    while lacking and having:
        name, best = max(having, key=lambda one: len(one[1] & lacking))
        if not best & lacking:
            break
        families.append(name)
        lacking = lacking - best
    return Fonts(families, lacking)


@functools.cache  # once a process: it asks the system for all its fonts
def _learn_new() -> bool:
    """Tell matplotlib of the system's fonts that it doesn't know; whether there were any."""
    known = {font.fname for font in font_manager.fontManager.ttflist}
    new = sorted({*font_manager.findSystemFonts()} - known)
    for path in new:
        with contextlib.suppress(Exception):  # a file can be broken in many ways, and none of them is our matter
            font_manager.fontManager.addfont(path)
    return bool(new)


def _has(font: str, letters: set[str]) -> set[str]:
    try:
        known = font_manager.get_font(font).get_charmap().keys()
    except (OSError, RuntimeError):  # listed once, and gone or unreadable since
        return set()
    return {letter for letter in letters if ord(letter) in known}
