"""The explorer over HTTP: a router that a server mounts. Every answer is JSON, an error in one line.

Endpoints are plain functions, which FastAPI runs in threads: no model ever holds up the event loop.
"""

import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from heedful.errors import UserError
from heedful.explore import requests
from heedful.explore.explorer import Explorer, Models
from heedful.explore.numbers import written
from heedful.explore.refusals import NotThere, TooLong
from heedful.formats.word2vec import WordVectors

CHARACTERS = 20_000
"""Of all texts of a question."""
IMAGE_CHARACTERS = 20_000_000
"""Of an image in base64."""
MOST_OFFSET = 2**60
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "No JSON.", "model": requests.Refused},
    404: {"description": "No such model, or it has no such part.", "model": requests.Refused},
    413: {"description": "More than can be looked at.", "model": requests.Refused},
    422: {"description": "A question that can't be answered.", "model": requests.Refused},
}


def router(models: Models, runs: Sequence[Path] = (), vectors: WordVectors | None = None) -> APIRouter:
    """What answers under `/explore` about loaded models and run folders; word vectors stand beside a model's."""
    explorer = Explorer(models, runs, vectors)
    routes = APIRouter(prefix="/explore", tags=["explore"], route_class=ExplorerRoute)
    said = {"responses": REFUSALS, "response_class": Answer}

    @routes.get("/models", **said, summary="What is loaded, and which views each model has")
    def models_() -> Response:
        return Answer(explorer.models())

    @routes.post("/tokens", **said, summary="How a model takes a text apart")
    def tokens(body: requests.Text) -> Response:
        return Answer(explorer.tokens(**_checked(body)))

    @routes.post("/blanks", **said, summary="Candidates for the blanks of a text")
    def blanks(body: requests.Blanks) -> Response:
        return Answer(explorer.blanks(**_checked(body)))

    @routes.post("/generate", **said, summary="Text written by filling blanks, step by step")
    def generate(body: requests.Generate) -> Response:
        return Answer(explorer.generate(**_checked(body)))

    @routes.post("/attention/grid", **said, summary="All heads in small")
    def grid(body: requests.Attention) -> Response:
        return Answer(explorer.grid(**_checked(body)))

    @routes.post("/attention/matrix", **said, summary="The weights of a head, of a layer's mean, or rolled out")
    def matrix(body: requests.Matrix) -> Response:
        return Answer(explorer.matrix(**_checked(body)))

    @routes.post("/head", **said, summary="One token in one head, step by step")
    def head(body: requests.Head) -> Response:
        return Answer(explorer.head(**_checked(body)))

    @routes.post("/positions", **said, summary="How a model tells where a token stands")
    def positions(body: requests.Question) -> Response:
        return Answer(explorer.positions(**_checked(body)))

    @routes.post("/translate", **said, summary="A beam search as a tree")
    def translate(body: requests.Translate) -> Response:
        return Answer(explorer.translate(**_checked(body)))

    @routes.post("/meaning", **said, summary="One word in several sentences")
    def meaning(body: requests.Meaning) -> Response:
        return Answer(explorer.meaning(**_checked(body)))

    @routes.post("/look", **said, summary="Which patches of an image the heads look at")
    def look(body: requests.Look) -> Response:
        return Answer(explorer.look(**_checked(body)))

    @routes.get("/runs", **said, summary="Run folders, and whether they still train")
    def runs_() -> Response:
        return Answer(explorer.runs())

    @routes.get("/runs/{name:path}", **said, summary="What a run has reported since an offset")
    def run(
        name: Annotated[str, InPath(description="As `/explore/runs` gives it.")],
        since: Annotated[int, Query(ge=0, le=MOST_OFFSET, description="`next` of an earlier answer.")] = 0,
        samples_since: Annotated[int, Query(ge=0, le=MOST_OFFSET, description="`samples_next` of it.")] = 0,
    ) -> Response:
        return Answer(explorer.run(name, since, samples_since))

    return routes


class Answer(JSONResponse):
    """A table as JSON, without a detour: large ones are bytes within a moment."""

    def render(self, content: Any) -> bytes:
        """UTF-8."""
        return written(content).encode()


class ExplorerRoute(APIRoute):
    """A route on which a user's mistake is an answer, and no traceback."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with words for what goes wrong."""
        handle = super().get_route_handler()

        async def worded(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return refusal(422, "; ".join(_mistakes(error)))
            except HTTPException:  # FastAPI's, of a body that it can't take apart
                return refusal(400, "the body is no JSON that can be read; send an object in UTF-8")
            except NotThere as error:
                return refusal(404, str(error))
            except TooLong as error:
                return refusal(413, str(error))
            except UserError as error:
                return refusal(422, str(error))

        return worded


def refusal(status: int, words: str) -> Response:
    """An error as text-embeddings-inference words it."""
    kind = "NotFound" if status == 404 else "Validation"
    content = json.dumps({"error": " ".join(words.split()), "error_type": kind}, ensure_ascii=False)
    return Response(content.encode(errors="replace"), status, media_type="application/json")


def _mistakes(error: RequestValidationError) -> Iterator[str]:
    """What is wrong with a question, field by field."""
    for one in error.errors()[:3]:
        where = ".".join(str(part) for part in one["loc"] if part not in ("body", "query", "path"))
        yield f"{where[:60]}: {one['msg']}" if where else f"the body: {one['msg']}"


def _checked(body: BaseModel) -> dict[str, Any]:
    """The fields of a question, in which no text is too long or can't be written down."""
    fields = body.model_dump()
    for name, value in fields.items():
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        if any(map(_unwritable, texts)):
            raise UserError(f"{name} has half of a character in it (a lone surrogate); send whole ones")
        most = IMAGE_CHARACTERS if name == "image" else CHARACTERS
        if (total := sum(map(len, texts))) > most:
            raise TooLong(f"{name} has {total:,} characters, more than the {most:,} that are looked at; shorten it")
    return fields


def _unwritable(text: str) -> bool:
    """Whether a text can't be written as UTF-8, and so is none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
