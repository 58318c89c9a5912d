"""What routes share: a request's inputs, the way to a model, and the answer as JSON."""

from collections.abc import Sequence
from typing import Any, TypeVar

from fastapi import Request, Response
from pydantic_core import to_json

from heedful.serve.batching import Work
from heedful.serve.guard import Call, Desk
from heedful.serve.models import Loaded
from heedful.serve.refusals import Refusal
from heedful.serve.schemas import ErrorBody, OpenAIErrorBody

T = TypeVar("T")

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": said}
    for status, said in {
        400: "The body is not JSON.",
        401: "The key is missing or wrong.",
        403: "The server is called by a wrong name, or by a page of another site.",
        404: "There is no model of that name.",
        408: "The request was not sent in time.",
        413: "Too long, too large or too many at once.",
        422: "A field is wrong.",
        424: "No loaded model can do this, or it failed.",
        429: "The server is full; Retry-After says when to try again.",
        503: "Loading, about to stop, or too slow.",
    }.items()
}
"""What every route may answer instead."""
OPENAI_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {**one, "model": OpenAIErrorBody} for status, one in ERRORS.items()
}
"""The same of routes under /v1/."""


def desk_of(request: Request) -> Desk:
    """What the server shares."""
    return request.app.state.desk


def call_of(request: Request) -> Call:
    """What is known of this request."""
    return request.scope["heedful"]


def several(inputs: T | list[T], desk: Desk) -> list[T]:
    """One or several, as several; not too many."""
    found = inputs if isinstance(inputs, list) else [inputs]
    if not found:
        raise Refusal(422, "there are no inputs; give at least one")
    most = desk.limits.max_inputs
    if len(found) > most:
        raise Refusal(
            413,
            f"{len(found):,} inputs are more than the {most:,} of one request (max-inputs); send them in parts",
            limit="max-inputs",
        )
    return found


async def ask(request: Request, loaded: Loaded, work: Work, examples: Sequence[Any]) -> list[Any]:
    """The answer to each example, after those who came before."""
    call = call_of(request)
    call.fields |= {"model": loaded.name, "inputs": len(examples)}
    return await loaded.lane.ask(work, examples, call.until, request.is_disconnected)


def as_json(content: Any) -> Response:
    """An answer; what is no number is null."""
    return Response(to_json(content, inf_nan_mode="null"), media_type="application/json")
