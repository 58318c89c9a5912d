"""What is held out: decided by content alone, never by order.

A document of a corpus is always on the same side, in whatever corpus and beside whatever else; a larger share holds
out what a smaller one did and more. Of a list, which is all there at once, the share is held out as exactly as equal
contents, which stay together, allow. Knows nothing of files.
"""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

from heedful.errors import UserError

T = TypeVar("T")


def held_out(document: Sequence[str], share: float) -> bool:
    """Whether a document, as sentences, belongs to the held-out `share` (0 to 1) of all documents."""
    return _place("\n".join(document)) < share


def apart(items: Sequence[T], contents: Sequence[str], share: float) -> tuple[list[T], list[T]]:
    """Items to train on and those held out, each in their order; what has equal content stays together.

    Contents are held out in the order of their hashes, but for those that would lead away from the share; at least
    one is, and one is left. Nothing is held out where the share is less than half an item.
    """
    counts = Counter(contents)
    wanted = share * len(items)
    if wanted < 0.5 or len(counts) < 2:
        return list(items), []
    ranked = sorted(counts, key=_place)
    chosen: set[str] = set()
    held = 0
    for content in ranked:
        nearer = abs(held + counts[content] - wanted) < abs(held - wanted)
        if nearer and len(chosen) + 1 < len(ranked):
            chosen.add(content)
            held += counts[content]
    if not chosen:  # all are too many
        chosen = {min(ranked, key=counts.__getitem__)}
    kept = [one for one, content in zip(items, contents, strict=True) if content not in chosen]
    return kept, [one for one, content in zip(items, contents, strict=True) if content in chosen]


def require_both(training: Sequence[T], held: Sequence[T], share: float, noun: str) -> None:
    """Refuse a list of which nothing is left, or nothing is held out."""
    if training and held:
        return
    count = len(training) + len(held)
    if count > 1 and share * count >= 0.5:  # so it can't be parted
        raise UserError(f"all {count} {noun} have one text, so no part can be held out; give others with --dev FILE")
    raise UserError(f"{count} {noun} are too few to hold out a part of {share:g}; give others with --dev FILE")


def _place(content: str) -> float:
    """From 0 to 1, as if by chance."""
    return int.from_bytes(blake2b(content.encode(), digest_size=8).digest(), "big") / 2**64
