"""Which documents are held out: decided by a document's content alone.

The same document is always on the same side, whatever corpus it came in, in whatever order and beside
whatever else; a larger share holds out what a smaller one did and more. Knows nothing of files.
"""

from collections.abc import Sequence
from hashlib import blake2b


def held_out(document: Sequence[str], share: float) -> bool:
    """Whether a document, as sentences, belongs to the held-out `share` (0 to 1) of all documents."""
    digest = blake2b("\n".join(document).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64 < share
