"""How much a client may ask for. Plain data, so that `--help` is instant."""

from dataclasses import dataclass

from heedful.arguments import flag
from heedful.errors import UserError

HELD = 32
"""Requests of the largest size whose bodies may be held at once."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the server takes on."""

    max_inputs: int = 32
    """Texts or images of one request."""
    max_payload: int = 8_000_000
    """Bytes of one request."""
    max_requests: int = 512
    """Requests at the same time; more are answered 429."""
    max_queue: int = 2048
    """Texts or images that may wait for one model; more are answered 429."""
    max_read: int = 65536
    """Tokens that a model reads for one input in all its windows or rounds; more are answered 413."""
    max_seconds: float = 30.0
    """Seconds that a request may take, sending it included."""
    batch_tokens: int | None = None
    """Tokens that a model reads at once, from however many requests (by default as many as suit the device)."""
    truncate: bool = False
    """Cut what is too long, unless a request says otherwise; else it is answered 413."""

    def __post_init__(self) -> None:
        for name in ("max_inputs", "max_payload", "max_requests", "max_queue", "max_read", "batch_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{flag(name)} {value} must be at least 1")
        if not 0.1 <= self.max_seconds <= 86400:
            raise UserError(f"--max-seconds {self.max_seconds:g} must lie between 0.1 and 86400, which is a day")
        if self.max_queue < self.max_inputs:
            raise UserError(
                f"--max-queue {self.max_queue} is less than --max-inputs {self.max_inputs}, the inputs of one request"
            )
