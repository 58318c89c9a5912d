"""What can be known of the server itself: `/health`, `/info`, `/metrics`, `/v1/models` and `/docs`."""

import time
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

import heedful
from heedful.predict import ImagePredictor, Translator
from heedful.serve.asking import OPENAI_ERRORS, as_json, desk_of
from heedful.serve.documentation import page
from heedful.serve.metrics import CONTENT_TYPE
from heedful.serve.models import Loaded
from heedful.serve.refusals import Refusal
from heedful.serve.schemas import OpenAIModel, OpenAIModels

STARTED = int(time.time())

router = APIRouter(tags=["server"])


@router.get("/health", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def health(request: Request) -> Response:
    """200 when all models are warm; 503 before that, and while the server finishes what it has."""
    desk = desk_of(request)
    if desk.draining:
        raise Refusal(503, "the server is about to stop", wait=5)
    if not desk.ready:
        raise Refusal(503, "the models are being loaded", wait=2)
    return Response(status_code=200, media_type="text/plain")


@router.get("/info")
async def info(request: Request, model: str | None = None) -> Response:
    """What is loaded: the first model, or the one that is named, and the limits."""
    desk = desk_of(request)
    limits = desk.limits
    loaded = desk.models.named(model) if model is not None or desk.models.names() else None
    about = {} if loaded is None else described(loaded)
    said = {
        **about,
        "max_concurrent_requests": limits.max_requests,
        "max_client_batch_size": limits.max_inputs,
        "max_payload": limits.max_payload,
        "max_queue": limits.max_queue,
        "max_read": limits.max_read,
        "max_seconds": limits.max_seconds,
        "auto_truncate": limits.truncate,
        "models": {one.name: sorted(one.can) for one in desk.models},
        "version": heedful.__version__,
    }
    return as_json(said)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """What the server counts and measures, for Prometheus."""
    return Response(desk_of(request).meters.text(), media_type=CONTENT_TYPE)


@router.get("/v1/models", response_model=OpenAIModels, responses=OPENAI_ERRORS)
async def openai_models(request: Request) -> Response:
    """The names of the models."""
    return as_json({"object": "list", "data": [_card(one) for one in desk_of(request).models]})


@router.get("/v1/models/{name:path}", response_model=OpenAIModel, responses=OPENAI_ERRORS)
async def openai_model(name: str, request: Request) -> Response:
    """One of the models."""
    return as_json(_card(desk_of(request).models.named(name)))


@router.get("/docs", response_class=HTMLResponse)
async def docs(request: Request) -> HTMLResponse:
    """The routes of this server, on a page that needs nothing from elsewhere."""
    return HTMLResponse(page(request.app.openapi()))


def described(loaded: Loaded) -> dict[str, Any]:
    """A model, as text-embeddings-inference describes its own."""
    predictor = loaded.predictor
    return {
        "model_id": loaded.name,
        "model_sha": None,
        "model_type": _kind(predictor),
        "model_dtype": _dtype(predictor),
        "max_input_length": _length(predictor),
        "max_batch_tokens": loaded.lane.batch_tokens,
        "abilities": sorted(loaded.can),
    }


def _kind(predictor: Any) -> dict[str, Any]:
    if isinstance(predictor, ImagePredictor):
        return {"image_classifier": _labels(predictor.labels)}
    if isinstance(predictor, Translator):
        return {"translator": {}}
    head = predictor.head
    if head is None:
        return {"embedding": {"pooling": predictor.pooling.pool}}
    if head.task in ("classify", "multilabel", "regress"):
        return {"reranker" if len(head.labels) == 1 and head.pairs else "classifier": _labels(head.labels)}
    return {"tagger": _labels(head.labels)} if head.task == "tag" else {"answerer": {}}


def _labels(labels: tuple[str, ...]) -> dict[str, Any]:
    named = {str(number): label for number, label in enumerate(labels)}
    return {"id2label": named, "label2id": {label: number for number, label in enumerate(labels)}}


def _dtype(predictor: Any) -> str:
    engine = predictor.searcher if isinstance(predictor, Translator) else predictor.engine
    models = getattr(engine, "models", None) or [getattr(engine, "model", None)]
    weight = None if models[0] is None else next(models[0].parameters())
    return "exported" if weight is None else str(weight.dtype).removeprefix("torch.")


def _length(predictor: Any) -> int | None:
    if isinstance(predictor, ImagePredictor):
        return None
    if isinstance(predictor, Translator):
        return predictor.searcher.longest
    head = predictor.head
    return (head.length if head is not None else predictor.pooling.length) or predictor.engine.max_length


def _card(loaded: Loaded) -> dict[str, Any]:
    return {"id": loaded.name, "object": "model", "created": STARTED, "owned_by": "heedful"}
