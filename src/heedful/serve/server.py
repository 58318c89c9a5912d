"""The server as a process: a socket, models that are loaded while it already listens, and an orderly end.

SIGTERM, or Ctrl+C, ends it when what is under way is done; meanwhile nothing new is taken. A second one ends it at
once.
"""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import signal
import socket
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from heedful.errors import UserError
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
EXPLORING = 4
"""Threads for what the explorer computes, so that it leaves the models some of the cores."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All that a server is told."""

    models: Sequence[Wanted]
    computing: Computing
    limits: Limits
    keys: Keys
    log: Log
    cors: Sequence[str] = ()
    runs: Sequence[Path] = ()


class Server(uvicorn.Server):
    """uvicorn's server, but for its signals: those begin the end, and do not come back when it is over."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave them to whoever started this."""
        yield


def serve(settings: Settings, listening: socket.socket, begun: Callable[[], None], ready: Callable[[], None]) -> None:
    """Serve until told to stop. `begun` is called when it listens, `ready` when the models are warm."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, listening, begun, ready))


async def _serve(
    settings: Settings, listening: socket.socket, begun: Callable[[], None], ready: Callable[[], None]
) -> None:
    desk = Desk(Models(), settings.limits, settings.keys, Meters(), settings.log)
    server = Server(_config(build(desk, cors=settings.cors, runs=settings.runs), settings.log))
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _stop, desk, server)
    _few_threads()
    serving = asyncio.create_task(server.serve([listening]))
    loading = asyncio.create_task(_load(desk, settings, loop))
    try:
        begun()
        await asyncio.wait((serving, loading), return_when=asyncio.FIRST_COMPLETED)
        if loading.done() and loading.exception() is None:
            desk.ready = not desk.draining
            desk.meters.ready.set(int(desk.ready))
            ready()
        else:
            server.should_exit = True
        await serving
        if not loading.done():  # told to stop before the models were there
            loading.cancel()
        elif loading.exception() is not None:
            await loading
    finally:
        for loaded in desk.models:
            loaded.lane.close()
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _load(desk: Desk, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
    for wanted in settings.models:
        loaded = await asyncio.to_thread(
            open_model, wanted, settings.computing, settings.limits, desk.meters, settings.log, loop
        )
        desk.models.add(loaded)


def _stop(desk: Desk, server: Server) -> None:
    if desk.draining:
        server.should_exit = server.force_exit = True
        return
    desk.draining = True
    desk.meters.ready.set(0)
    desk.log.write("draining", requests=desk.active)
    task = asyncio.get_running_loop().create_task(_drain(desk, server))
    task.add_done_callback(lambda _: None)
    server.draining = task  # pyrefly: ignore (kept, so that it is not collected)


async def _drain(desk: Desk, server: Server) -> None:
    """Until the last request that was taken is answered."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(desk.limits.max_seconds + SENDING):
            while desk.active:
                desk.idle.clear()
                await desk.idle.wait()
    server.should_exit = True


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


def _few_threads() -> None:
    """Bound what runs beside the models."""
    import anyio.to_thread

    anyio.to_thread.current_default_thread_limiter().total_tokens = EXPLORING


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; 0 is any port that is free."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise UserError(f"the host {host!r} is not known; use an address of this machine, or 127.0.0.1") from None
    except OverflowError:
        raise UserError(f"port {port} must lie between 0 and 65535; 0 is any that is free") from None
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


def is_loopback(listening: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    return ipaddress.ip_address(listening.getsockname()[0].partition("%")[0]).is_loopback
