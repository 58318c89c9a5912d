"""The explorer on the same server: its API under /explore/, its page at /, and the files that the page needs."""

import base64
import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from fastapi.routing import APIRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heedful.explore import api
from heedful.explore.export import IMPORT_MAP, PAGE, plotly_file
from heedful.formats.word2vec import WordVectors
from heedful.serve.guard import Desk
from heedful.serve.refusals import Refusal

THREADS = 4
"""For what the explorer computes, so that it leaves the models some of the cores, and files their threads."""
DAY = {"cache-control": "max-age=86400"}
FRESH = {"cache-control": "no-cache"}
"""Ask each time whether there is a newer one: the page and its modules belong together."""
POLICY = "; ".join(
    (
        "default-src 'self'",
        f"script-src 'self' 'sha256-{base64.b64encode(hashlib.sha256(IMPORT_MAP.encode()).digest()).decode()}'",
        "style-src 'self' 'unsafe-inline'",  # colours and places of marks, on the elements themselves
        "img-src 'self' data: blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""What the page may load: nothing from elsewhere, and no script but its own."""


def mount(app: FastAPI, desk: Desk, runs: Sequence[Path] = (), vectors: WordVectors | None = None) -> None:
    """Add the explorer to the routes of an app."""
    routes, limiter = api.router(desk.models, runs=runs, vectors=vectors), CapacityLimiter(THREADS)
    for route in routes.routes:
        if isinstance(route, APIRoute):
            route.endpoint = threaded(route.endpoint, limiter)
    app.include_router(routes)

    @app.get("/static/plotly.min.js", include_in_schema=False)
    async def plotly() -> Response:
        file = plotly_file()
        if file is None:
            raise Refusal(404, "plotly is not installed; `pip install 'heedful[serve]'` brings it")
        return FileResponse(file, media_type="text/javascript", headers=DAY)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {**FRESH, "content-security-policy": POLICY}
        return FileResponse(PAGE / "index.html", media_type="text/html", headers=headers)

    app.mount("/static", fresh(StaticFiles(directory=PAGE)), name="static")


def threaded(endpoint: Callable[..., Any], limiter: CapacityLimiter) -> Callable[..., Any]:
    """An endpoint in a thread, of which there are only so many."""

    @functools.wraps(endpoint)
    async def wrapped(**given: Any) -> Any:
        return await to_thread.run_sync(functools.partial(endpoint, **given), limiter=limiter)

    return wrapped


def fresh(app: ASGIApp) -> ASGIApp:
    """An app whose answers are asked for again each time."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in FRESH.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await app(scope, receive, with_header)

    return wrapped
