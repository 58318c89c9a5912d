"""What the server says when it can't answer: a status, and one line that names the value, the rule and the way out.

The body is `{"error": …, "error_type": …}` as in text-embeddings-inference; under /v1/ it is OpenAI's, since its
clients show no other.
"""

import json
import math
import re

from heedful.errors import UserError

KINDS = {
    400: "Validation",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "NotAllowed",
    408: "Timeout",
    413: "Validation",
    415: "Validation",
    422: "Validation",
    424: "Backend",
    429: "Overloaded",
    500: "Internal",
    503: "Unhealthy",
}
_FLAGS = re.compile(r" ?\((?:use )?--[^)]*\)|, in Python \S+")


class Refusal(Exception):  # noqa: N818 (most are no errors of ours)
    """A request that gets no answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        wait: float | None = None,
        limit: str | None = None,
        allow: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.wait = wait
        """Seconds after which it is worth another try."""
        self.limit = limit
        """The limit that was hit, for the metrics."""
        self.allow = allow
        """The methods that a route has."""

    def body(self, path: str = "") -> bytes:
        """What the client of a route reads."""
        kind = KINDS.get(self.status, "Validation")
        said: dict[str, object] = {"error": self.message, "error_type": kind}
        if path.startswith("/v1/"):
            said = {"error": {"message": self.message, "type": kind, "param": None, "code": self.status}}
        return json.dumps(said, ensure_ascii=False).encode(errors="replace")

    @property
    def headers(self) -> dict[str, str]:
        """What the client's library reads."""
        found = {} if self.wait is None else {"retry-after": str(max(1, math.ceil(self.wait)))}
        if self.allow is not None:
            found["allow"] = self.allow
        if self.status == 401:
            found["www-authenticate"] = "Bearer"
        return found


def refused(error: UserError) -> Refusal:
    """A mistake that the model found in what it was asked; options of the command line are not named to clients."""
    return Refusal(422, _FLAGS.sub("", str(error)))
