"""The explorer on the same server: its API under /explore/, its page at /, and the files that the page needs."""

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

import heedful
from heedful.formats.word2vec import WordVectors
from heedful.serve.guard import Desk
from heedful.serve.refusals import Refusal

PAGE = Path(heedful.__file__).parent / "explore" / "static"
API = "heedful.explore.api"
DAY = {"cache-control": "max-age=86400"}


def mount(app: FastAPI, desk: Desk, runs: Sequence[Path] = (), vectors: WordVectors | None = None) -> None:
    """Add what is there of it."""
    if find_spec("heedful.explore") is not None and find_spec(API) is not None:
        app.include_router(importlib.import_module(API).router(desk.models, runs=runs, vectors=vectors))

    @app.get("/static/plotly.min.js", include_in_schema=False)
    async def plotly() -> Response:
        file = plotly_file()
        if file is None:
            raise Refusal(404, "plotly is not installed; `pip install 'heedful[serve]'` brings it")
        return FileResponse(file, media_type="text/javascript", headers=DAY)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        index = PAGE / "index.html"
        return FileResponse(index, media_type="text/html") if index.is_file() else RedirectResponse("docs")

    if PAGE.is_dir():
        app.mount("/static", StaticFiles(directory=PAGE), name="static")


def plotly_file() -> Path | None:
    """plotly.js as the installed package has it, which need not be imported for that."""
    found = find_spec("plotly")
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        file = Path(folder) / "package_data" / "plotly.min.js"
        if file.is_file():
            return file
    return None
