"""The FastAPI app: every route, behind one guard.

Its OpenAPI document names the routes that the loaded models can answer; the others say what is loaded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException

import heedful
from heedful.errors import UserError
from heedful.formats.word2vec import WordVectors
from heedful.serve import (
    about_routes,
    embedding_routes,
    image_routes,
    pipeline_routes,
    predicting_routes,
    token_routes,
    translating_routes,
    word_routes,
)
from heedful.serve.asking import ERRORS
from heedful.serve.explorer import mount
from heedful.serve.guard import Desk, Guard
from heedful.serve.models import ROUTES
from heedful.serve.refusals import Refusal, refused
from heedful.serve.validation import told

ROUTERS = (
    embedding_routes.router,
    predicting_routes.router,
    word_routes.router,
    translating_routes.router,
    image_routes.router,
    token_routes.router,
    pipeline_routes.router,
)


def build(
    desk: Desk, *, cors: Sequence[str] = (), runs: Sequence[Path] = (), vectors: WordVectors | None = None
) -> FastAPI:
    """The app around what a desk knows; `cors` are the origins whose pages may ask."""
    app = FastAPI(
        title="heedful",
        description="Attention models over HTTP.",
        version=heedful.__version__,
        docs_url=None,
        redoc_url=None,
    )
    app.state.desk = desk
    desk.cors = bool(cors)
    for router in ROUTERS:
        app.include_router(router, responses=ERRORS)
    app.include_router(
        about_routes.router, responses={status: ERRORS[status] for status in (401, 403, 404, 422, 503)}
    )
    mount(app, desk, runs, vectors)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(UserError, _mistaken)
    app.add_middleware(Guard, desk=desk)
    if cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["retry-after"],
        )
    held: dict[tuple[str, ...], dict[str, Any]] = {}

    def document() -> dict[str, Any]:
        names = tuple(desk.models.names())
        if names not in held:
            held.clear()
            held[names] = _document(app, desk)
        return held[names]

    setattr(app, "openapi", document)  # noqa: B010 (as FastAPI tells to do it)
    return app


def _document(app: FastAPI, desk: Desk) -> dict[str, Any]:
    """What can be asked now; it changes only while models are loaded."""
    found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    found["paths"] = {
        path: told for path, told in found["paths"].items() if path not in ROUTES or desk.models.can(ROUTES[path])
    }
    if desk.keys:
        found.setdefault("components", {})["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"key": []}]
    return found


async def _invalid(request: Request, error: Exception) -> Any:
    assert isinstance(error, RequestValidationError)
    if request.method == "POST" and "json" not in request.headers.get("content-type", "application/json"):
        raise Refusal(422, "the body must be JSON, and say so: Content-Type: application/json") from None
    raise told(error.errors()) from None


async def _http(request: Request, error: Exception) -> Any:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        raise Refusal(404, "there is no such route; GET /docs names them") from None
    if error.status_code == 405:
        allow = (error.headers or {}).get("Allow", "")
        raise Refusal(405, f"{request.method} is not for this route; use {allow or 'another method'}", allow=allow)
    if error.status_code == 400:
        raise Refusal(400, "the body can't be read; check its JSON, its form and its encoding (UTF-8)") from None
    raise Refusal(error.status_code, str(error.detail)) from None


async def _mistaken(_: Request, error: Exception) -> Any:
    assert isinstance(error, UserError)
    raise refused(error) from None
