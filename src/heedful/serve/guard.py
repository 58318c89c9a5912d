"""Between the network and the routes: keys, limits, deadlines, metrics and logs, the same for every route.

A body is read whole, and within bounds, before a route sees it: who sends too much, too slowly, or only half of it,
takes nothing from others. Whatever goes wrong behind it, the client gets the usual body without a path or traceback.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.serve.batching import Gone
from heedful.serve.keys import Keys
from heedful.serve.limits import HELD, Limits
from heedful.serve.logs import Log
from heedful.serve.metrics import Meters
from heedful.serve.models import Models
from heedful.serve.refusals import Refusal

OPEN = ("/health", "/", "/favicon.ico")
"""What anyone may read, with GET, beside the files of the page."""
LIGHT = (*OPEN, "/info", "/metrics", "/docs", "/openapi.json", "/v1/models")
"""What is answered at once, even when the server is full, loading or about to stop."""
SENDING = 10.0
"""Seconds beyond the limit of a request in which its answer may still be sent."""
LINGER = 2.0
"""Seconds for which a body that was refused is still read, so that the client sees the answer."""
LINGER_BYTES = 16_000_000
"""And how much of it."""
SENDERS = 4
"""Times as many requests as may be under way may be on their way."""
OPENINGS = 250_000
"""Brackets and braces of a JSON body, those in its texts included: each may become an object."""


@dataclass
class Desk:
    """What all parts of a server share."""

    models: Models
    limits: Limits
    keys: Keys
    meters: Meters
    log: Log
    ready: bool = False
    """All models are warm."""
    draining: bool = False
    """It finishes what it has, and takes nothing more."""
    active: int = 0
    """Requests under way that ask for work."""
    sending: int = 0
    """Requests whose bodies are still on their way."""
    held: int = 0
    """Bytes of bodies, of all of them."""
    hosts: frozenset[str] | None = None
    """Names by which the server may be called; None is any. Else a page elsewhere could give its own name this
    machine's address, and ask in its visitor's browser."""
    cors: bool = False
    """Pages of other sites may ask."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the last of them is done."""


@dataclass(slots=True)
class Call:
    """What is known of one request."""

    until: float
    """The moment of the loop's clock by which it must be answered."""
    fields: dict[str, Any]
    """What its line in the log says."""


class Guard:
    """An ASGI app around another."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self.app = app
        self.desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        desk, begun = self.desk, time.perf_counter()
        loop = asyncio.get_running_loop()
        call = Call(loop.time() + desk.limits.max_seconds, {})
        scope["heedful"] = call
        reply = Reply(send, scope["path"])
        try:
            self._check_caller(scope)
            async with asyncio.timeout_at(call.until + SENDING):
                if _light(scope):  # whose body is nobody's business
                    await self.app(scope, receive, reply)
                else:
                    await self._answer(scope, receive, reply, call)
        except (Gone, ClientDisconnect):
            reply.status = reply.status or 499
        except Refusal as refusal:
            await self._refuse(refusal, receive, reply)
        except TimeoutError:
            await self._refuse(_slow(desk.limits), receive, reply)
        except Exception as error:  # what a client sees of it is that it happened
            desk.log.failure("failure", error, route=_route(scope))
            if not reply.status:
                await reply.refuse(Refusal(500, "something went wrong in the server; it is noted in its log"))
        finally:
            self._note(scope, call, reply, time.perf_counter() - begun)

    def _check_caller(self, scope: Scope) -> None:
        """Raise a `Refusal` if this caller may not ask."""
        desk, headers = self.desk, Headers(scope=scope)
        host = _name(headers.get("host", ""))
        if desk.hosts is not None and host and host not in desk.hosts:
            raise Refusal(
                403,
                f"{host!r:.60} is not a name of this server; call it {' or '.join(sorted(desk.hosts))}, or give it a "
                "key",
            )
        if scope["method"] == "POST" and headers.get("sec-fetch-site") == "cross-site" and not desk.cors:
            raise Refusal(403, "pages of other sites may not ask; the server can allow it (cors)")
        if desk.keys and not _open(scope):
            header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not desk.keys.opens(header):
                raise Refusal(401, "the key is missing or wrong; send it as 'Authorization: Bearer KEY'", limit="key")

    def _admit(self) -> None:
        """Raise a `Refusal` if there is no room for more work."""
        desk = self.desk
        if desk.draining:
            raise Refusal(503, "the server is about to stop and takes nothing new; try again later", wait=5)
        if not desk.ready:
            raise Refusal(503, "the models are being loaded; try again in a moment", wait=2)
        if desk.active >= desk.limits.max_requests:
            most = desk.limits.max_requests
            raise Refusal(
                429,
                f"{most} requests are under way, and no more may be (max-requests); try again later",
                wait=max((one.lane.expected for one in desk.models), default=1.0) / 2,
                limit="max-requests",
            )

    async def _answer(self, scope: Scope, receive: Receive, reply: "Reply", call: Call) -> None:
        """Read the body, and only then take a place: who sends slowly keeps nobody else from work."""
        desk = self.desk
        self._admit()
        body = await self._read(scope, receive, call)
        try:
            _check_openings(body)
            self._admit()
            desk.active += 1
            desk.meters.active.set(desk.active)
            try:
                if desk.log.texts and body and _textual(scope):
                    call.fields |= desk.log.text(body.decode(errors="replace"))
                await self.app(scope, _replay(body, receive), reply)
            finally:
                desk.active -= 1
                desk.meters.active.set(desk.active)
                if not desk.active:
                    desk.idle.set()
        finally:
            desk.held -= len(body)

    async def _read(self, scope: Scope, receive: Receive, call: Call) -> bytes:
        """All of a body, if it is not too much and comes in time; what has come is held, until it is given back."""
        desk, limits = self.desk, self.desk.limits
        headers = Headers(scope=scope)
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > limits.max_payload:
            raise _large(limits)
        if not announced and "transfer-encoding" not in headers:
            return b""
        if desk.sending >= SENDERS * limits.max_requests:
            raise Refusal(
                429,
                f"{desk.sending} requests are being sent, and no more may be (max-requests); try again later",
                wait=1,
                limit="max-requests",
            )
        desk.sending += 1
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout_at(call.until):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Gone
                    part, more = message.get("body", b""), message.get("more_body", False)
                    if size + len(part) > limits.max_payload:
                        raise _large(limits)
                    if desk.held + len(part) > HELD * limits.max_payload:
                        raise Refusal(
                            429, "too many large requests are under way; try again later", wait=1, limit="max-payload"
                        )
                    parts.append(part)
                    size += len(part)
                    desk.held += len(part)
            return b"".join(parts)
        except BaseException as error:
            desk.held -= size
            if not isinstance(error, TimeoutError):
                raise
            raise Refusal(
                408,
                f"the request was not sent within the {limits.max_seconds:g} seconds that it may take (max-seconds)",
                limit="max-seconds",
            ) from None
        finally:
            desk.sending -= 1

    async def _refuse(self, refusal: Refusal, receive: Receive, reply: "Reply") -> None:
        if refusal.limit is not None:
            self.desk.meters.rejected.labels(refusal.limit).inc()
        if reply.status:
            return  # the connection is closed in the middle, which is all that can still be told
        close = refusal.status == 408 or refusal.limit == "max-payload"  # whose bodies were not read to their ends
        await reply.refuse(refusal, receive if close else None)

    def _note(self, scope: Scope, call: Call, reply: "Reply", seconds: float) -> None:
        route, status = _route(scope), reply.status or 500
        meters = self.desk.meters
        meters.requests.labels(route, str(status)).inc()
        meters.seconds.labels(route).observe(seconds)
        if route in ("/health", "/metrics", "/static") and status < 400:
            return
        self.desk.log.write(
            "request", method=scope["method"], route=route, status=status, ms=round(1000 * seconds, 1), **call.fields
        )


class Reply:
    """What is sent back: remembers how far it came."""

    def __init__(self, send: Send, path: str) -> None:
        self._send = send
        self._path = path
        self.status = 0

    async def __call__(self, message: Message) -> None:
        """As ASGI's `send`."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)

    async def refuse(self, refusal: Refusal, receive: Receive | None = None) -> None:
        """Say no. With `receive`, the connection ends there, after what is still under way was passed over."""
        body = refusal.body(self._path)
        headers = {**refusal.headers, "content-type": "application/json", "content-length": str(len(body))}
        if receive is not None:
            headers["connection"] = "close"
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": raw})
        await self._send({"type": "http.response.body", "body": body, "more_body": receive is not None})
        if receive is None:
            return
        left = LINGER_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        break
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _open(scope: Scope) -> bool:
    path = scope["path"]
    return scope["method"] in ("GET", "HEAD") and (path in OPEN or path.startswith("/static/"))


def _light(scope: Scope) -> bool:
    path = scope["path"]
    return scope["method"] != "POST" and (path in LIGHT or path.startswith(("/static/", "/v1/models/")))


def _route(scope: Scope) -> str:
    """The route's pattern: names of models and mistakes would be too many series."""
    path = getattr(scope.get("route"), "path", None)
    if isinstance(path, str) and path:
        return path
    return "/static" if scope["path"].startswith("/static/") else "other"


def _textual(scope: Scope) -> bool:
    return b"json" in next((value for name, value in scope["headers"] if name == b"content-type"), b"")


def _replay(body: bytes, receive: Receive) -> Receive:
    """What a route receives: the body in one, and what comes after it."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _name(host: str) -> str:
    """A host without its port."""
    host = host.strip().lower()
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _check_openings(body: bytes) -> None:
    """Raise a `Refusal` if a body would be taken apart into far too much."""
    if body[:64].lstrip()[:1] in (b"{", b"[") and body.count(b"[") + body.count(b"{") > OPENINGS:
        raise Refusal(
            413,
            f"the body has more than {OPENINGS:,} brackets and braces; send less at once",
            limit="max-inputs",
        )


def _large(limits: Limits) -> Refusal:
    return Refusal(
        413,
        f"the request is larger than {limits.max_payload:,} bytes (max-payload); send less at once",
        limit="max-payload",
    )


def _slow(limits: Limits) -> Refusal:
    return Refusal(
        503,
        f"the answer took longer than the {limits.max_seconds:g} seconds that a request may take (max-seconds)",
        wait=limits.max_seconds,
        limit="max-seconds",
    )
