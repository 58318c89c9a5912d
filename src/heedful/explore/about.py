"""What somebody wants to look at. Plain data, without torch, so that `--help` is instant."""

import base64
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class About:
    """What a page is about."""

    text: str | None = None
    pair: str | None = None
    image: bytes | None = None
    """An image file."""

    def texts(self) -> dict[str, str]:
        """Of a question about them."""
        given = {"text": self.text, "pair": self.pair}
        return {name: value for name, value in given.items() if value is not None}

    def values(self) -> dict[str, str]:
        """Of an address that restores them; an image is there in letters that addresses may hold."""
        if self.image is None:
            return self.texts()
        return {**self.texts(), "image": base64.urlsafe_b64encode(self.image).decode().rstrip("=")}
