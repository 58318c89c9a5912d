"""The server as a process: a socket, models that are loaded while it already listens, and an orderly end.

SIGTERM, or Ctrl+C, ends it when what is under way is done; meanwhile nothing new is taken, and models that are still
being loaded are not waited for. A second one ends it at once.
"""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from heedful.errors import UserError
from heedful.formats.word2vec import WordVectors
from heedful.serve.app import build
from heedful.serve.guard import SENDING, Desk
from heedful.serve.keys import Keys
from heedful.serve.limits import Limits
from heedful.serve.loading import Computing, open_model
from heedful.serve.logs import Forwarding, Log
from heedful.serve.metrics import Meters
from heedful.serve.models import Models, Wanted
from heedful.serve.protocol import PatientProtocol

SIGNALS = (signal.SIGTERM, signal.SIGINT)
BACKLOG = 2048


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that a server is told."""

    models: Sequence[Wanted]
    computing: Computing
    limits: Limits
    keys: Keys
    log: Log
    vectors: WordVectors | None = None
    """Word vectors that the explorer shows beside a model's."""
    cors: Sequence[str] = ()
    runs: Sequence[Path] = ()
    host: str = "127.0.0.1"
    """What the address to listen on was called."""


class Server(uvicorn.Server):
    """uvicorn's server, but for its signals: those begin the end, and do not come back when it is over."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave them to whoever started this."""
        yield


class Serving:
    """A server from its beginning to its end."""

    def __init__(self, settings: Settings, listening: socket.socket) -> None:
        self.settings = settings
        self.listening = listening
        self.desk = Desk(Models(), settings.limits, settings.keys, Meters(), settings.log)
        if is_loopback(listening) and not settings.keys:
            self.desk.hosts = names(settings.host, listening)
        app = build(self.desk, cors=settings.cors, runs=settings.runs, vectors=settings.vectors)
        self.server = Server(_config(app, settings.log))
        self._draining: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None

    async def run(self, begun: Callable[[], None], ready: Callable[[], None]) -> None:
        """Serve until told to stop. `begun` is called when it listens, `ready` when the models are warm."""
        serving = asyncio.create_task(self.server.serve([self.listening]))
        loading = self._loading = asyncio.create_task(self._load())
        try:
            begun()
            await asyncio.wait((serving, loading), return_when=asyncio.FIRST_COMPLETED)
            if loading.done() and loading.exception() is None:
                self.desk.ready = not self.desk.draining
                self.desk.meters.ready.set(int(self.desk.ready))
                ready()
            else:
                self.server.should_exit = True
            await serving
            if not loading.done():  # told to stop before the models were there
                loading.cancel()
            elif loading.exception() is not None:
                await loading
        finally:
            for loaded in self.desk.models:
                loaded.lane.close()

    @property
    def stopping(self) -> bool:
        """Whether the end has begun."""
        return self._draining is not None

    @property
    def at_work(self) -> bool:
        """Whether threads still compute what nobody waits for: models that were to be loaded, or answers."""
        return self.desk.active > 0 or self._loading is None or self._loading.cancelled() or not self._loading.done()

    def stop(self) -> None:
        """Begin the end, from within the loop: nothing new is taken. The second time, it ends at once."""
        if self._draining is not None:
            self.server.should_exit = self.server.force_exit = True
            return
        self.desk.draining = True
        self.desk.meters.ready.set(0)
        self.desk.log.write("draining", requests=self.desk.active)
        self._draining = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        """Until the last request that was taken is answered."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.desk.limits.max_seconds + SENDING):
                while self.desk.active:
                    self.desk.idle.clear()
                    await self.desk.idle.wait()
        self.server.should_exit = True

    async def _load(self) -> None:
        loop = asyncio.get_running_loop()
        settings, desk = self.settings, self.desk
        for wanted in settings.models:
            opening = (wanted, settings.computing, settings.limits, desk.meters, settings.log, loop)
            desk.models.add(await asyncio.to_thread(open_model, *opening))


def serve(settings: Settings, listening: socket.socket, begun: Callable[[], None], ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or Ctrl+C."""
    import uvloop

    async def run() -> None:
        serving, loop = Serving(settings, listening), asyncio.get_running_loop()

        def told() -> None:
            if serving.stopping:
                leave(1)
            serving.stop()

        for number in SIGNALS:
            loop.add_signal_handler(number, told)
        await serving.run(begun, ready)
        if serving.at_work:
            leave(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def leave(code: int) -> None:
    """End the process at once: threads that compute can't be told to stop, and would be waited for."""
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            file.flush()
    os._exit(code)


def _config(app: FastAPI, log: Log) -> uvicorn.Config:
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [Forwarding(log)]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    return uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; 0 is any port that is free."""
    if not 0 <= port <= 65535:
        raise UserError(f"port {port} must lie between 0 and 65535; 0 is any that is free")
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise UserError(f"the host {host!r} is not known; use an address of this machine, or 127.0.0.1") from None
    found = socket.socket(family, kind, number)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {port} of {host} is taken; use another, or --port 0 for any that is free"
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise UserError(f"port {port} may not be used; choose one above 1023") from None
        raise UserError(f"{host}:{port} can't be listened on: {error.strerror}") from None
    return found


def address(listening: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def names(host: str, listening: socket.socket) -> frozenset[str]:
    """What a server that only this machine can reach may be called."""
    bound = (host, listening.getsockname()[0].partition("%")[0])
    return frozenset(
        {"localhost", "127.0.0.1", "[::1]", *(f"[{one}]" if ":" in one else one.lower() for one in bound)}
    )


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback
