"""HTTP on one connection: uvicorn's, which here also loses patience.

A client that opens a connection and does not finish a request's head, or does not read its answer, is let go of.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from heedful.serve.refusals import Refusal

HEAD_SECONDS = 20.0
"""From the beginning of a connection to the end of the first request's head."""
STALL_SECONDS = 30.0
"""For which nothing of an answer may be taken off."""
MOST_HEAD = 65536
"""Bytes of a request's head, and of what may follow its body."""
TOO_LARGE = "the request's head or trailer is too large"


class PatientProtocol(HttpToolsProtocol):
    """Connections that end when their clients stall."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._hearing: asyncio.TimerHandle | None = None
        self._stalling: asyncio.TimerHandle | None = None
        self._head = 0
        """Bytes since the last head was whole, or the last piece of a body."""
        self._told = 0
        """Bytes of what a request says of itself: its address, its headers and its trailers."""

    def connection_made(self, transport: Any) -> None:
        """A client has come."""
        super().connection_made(transport)
        self._hear()

    def data_received(self, data: bytes) -> None:
        """Some bytes of a request, or of several."""
        self._head += len(data)
        super().data_received(data)
        if self._head > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response(TOO_LARGE)

    def on_url(self, url: bytes) -> None:
        """Some of an address."""
        self._tell(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or behind a body a trailer."""
        self._tell(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A request's head is whole."""
        self._heard()
        self._head = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of its body, which has a limit of its own."""
        self._head = 0
        super().on_body(body)

    def on_message_begin(self) -> None:
        """The next request begins."""
        super().on_message_begin()
        self._told = 0
        if self._hearing is None:
            self._hear()

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        super().pause_writing()
        self._moved()
        self._stalling = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read some."""
        super().resume_writing()
        self._moved()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._heard()
        self._moved()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What can't be read as HTTP at all is told in the usual shape, unless another answer is under way."""
        if not self._between() and (self.cycle.response_started or not self.cycle.more_body):
            self.transport.close()
            return
        body = Refusal(400, f"{msg.rstrip('.')}; check the request's head").body()
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def _tell(self, size: int) -> None:
        self._told += size
        if self._told > MOST_HEAD:
            raise ValueError(TOO_LARGE)  # which the parser makes an error of its own

    def _between(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _hear(self) -> None:
        self._hearing = self.loop.call_later(HEAD_SECONDS, self._unheard)

    def _unheard(self) -> None:
        self._hearing = None
        if self._between() and not self.transport.is_closing():
            self.transport.close()

    def _heard(self) -> None:
        if self._hearing is not None:
            self._hearing.cancel()
            self._hearing = None

    def _moved(self) -> None:
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None
