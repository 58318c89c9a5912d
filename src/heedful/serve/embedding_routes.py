"""Vectors of texts: `/embed`, `/embed_all` and `/similarity` as in text-embeddings-inference, and OpenAI's
`/v1/embeddings`."""

import asyncio
import base64
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from heedful.predict.predictor import Predictor
from heedful.serve.asking import OPENAI_ERRORS, as_json, ask, call_of, desk_of, several
from heedful.serve.guard import Desk
from heedful.serve.models import Loaded
from heedful.serve.refusals import Refusal
from heedful.serve.schemas import (
    EmbedAllRequest,
    EmbedRequest,
    OpenAIEmbeddings,
    OpenAIEmbedRequest,
    SimilarityRequest,
)
from heedful.serve.text_work import Found, TextAsked, state_work, vector_work

MOST_NUMBERS = 4_000_000
"""Of the answer to one request for states."""

router = APIRouter(tags=["vectors"])


@router.post("/embed", response_model=list[list[float]])
async def embed(asked: EmbedRequest, request: Request) -> Response:
    """A vector for each text."""
    desk = desk_of(request)
    loaded = desk.models.pick("embed", asked.model)
    examples = texts_of(asked.inputs, asked.truncate, loaded, desk)
    found = await ask(request, loaded, vector_work(loaded.predictor, asked.pool), examples)
    vectors = finished(found, asked.normalize, asked.dimensions)
    return _joined([to_json(vector.tolist()) for vector in vectors])


@router.post("/embed_all", response_model=list[list[list[float]]])
async def embed_all(asked: EmbedAllRequest, request: Request) -> Response:
    """The state of every token of each text, special tokens included."""
    desk = desk_of(request)
    loaded = desk.models.pick("embed", asked.model)
    examples = texts_of(asked.inputs, asked.truncate, loaded, desk)
    found: list[Found] = await ask(request, loaded, state_work(loaded.predictor), examples)
    numbers = sum(one.answer.size for one in found)
    if numbers > MOST_NUMBERS:
        raise Refusal(
            413, f"the answer has {numbers:,} numbers, and {MOST_NUMBERS:,} can be sent; ask for fewer texts"
        )
    parts = []
    for one in found:
        parts.append(to_json(one.answer.tolist()))
        await asyncio.sleep(0)  # so that others get on with theirs
    return _joined(parts)


@router.post("/similarity", response_model=list[float])
async def similarity(asked: SimilarityRequest, request: Request) -> Response:
    """How near each sentence is to the source: the cosine of their vectors."""
    truncate = None if asked.parameters is None else asked.parameters.truncate
    sentences = [asked.inputs.source_sentence, *asked.inputs.sentences]
    return as_json(await similarities(request, sentences, asked.model, truncate))


async def similarities(
    request: Request, sentences: list[str], model: str | None, truncate: bool | None
) -> list[float]:
    """How near all but the first sentence are to the first."""
    desk = desk_of(request)
    loaded = desk.models.pick("embed", model)
    several(sentences[1:], desk)
    examples = [TextAsked(text, None, wants_cut(truncate, desk)) for text in sentences]
    found = await ask(request, loaded, vector_work(loaded.predictor), examples)
    first, *others = finished(found, True, None)
    return [float(first @ other) for other in others]


@router.post("/v1/embeddings", response_model=OpenAIEmbeddings, responses=OPENAI_ERRORS)
async def openai_embeddings(asked: OpenAIEmbedRequest, request: Request) -> Response:
    """A vector for each text, as OpenAI's clients read it."""
    desk = desk_of(request)
    loaded = desk.models.pick("embed", asked.model)
    examples = texts_of(asked.input, asked.truncate, loaded, desk)
    found: list[Found] = await ask(request, loaded, vector_work(loaded.predictor), examples)
    tokens = sum(one.tokens for one in found)
    call_of(request).fields["tokens"] = tokens
    vectors = finished(found, _normalises(loaded), asked.dimensions)
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": vector.tolist() if asked.encoding_format == "float" else _base64(vector),
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return as_json({"object": "list", "data": data, "model": loaded.name, "usage": usage})


def texts_of(inputs: Any, truncate: bool | None, loaded: Loaded, desk: Desk) -> list[TextAsked]:
    """Texts, or ids of tokens, which are put together to texts again, as examples."""
    if isinstance(inputs, list) and inputs and isinstance(inputs[0], int):
        inputs = [inputs]
    cut = wants_cut(truncate, desk)
    predictor = loaded.predictor
    return [
        TextAsked(one if isinstance(one, str) else _decoded(predictor, one), None, cut)
        for one in several(inputs, desk)
    ]


def wants_cut(truncate: bool | None, desk: Desk) -> bool:
    """Whether a text may be cut: as the request says, else as the server was told."""
    return desk.limits.truncate if truncate is None else truncate


def finished(found: list[Found], normalise: bool, dimensions: int | None) -> list[np.ndarray]:
    """The vectors as they were asked for."""
    vectors = np.stack([one.answer for one in found])
    if dimensions is not None:
        if dimensions > vectors.shape[1]:
            raise Refusal(422, f"dimensions {dimensions} is more than the model's {vectors.shape[1]}")
        vectors = vectors[:, :dimensions]
    if normalise:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return list(vectors)


def _decoded(predictor: Predictor, ids: list[int]) -> str:
    wrong = next((one for one in ids if not 0 <= one < predictor.tokenizer.vocab_size), None)
    if wrong is not None:
        raise Refusal(
            422, f"id {wrong} is not one of the {predictor.tokenizer.vocab_size:,} of the model's vocabulary"
        )
    return predictor.tokenizer.decode(ids)


def _normalises(loaded: Loaded) -> bool:
    return loaded.predictor.pooling.normalise


def _base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _joined(parts: list[bytes]) -> Response:
    return Response(b"[" + b",".join(parts) + b"]", media_type="application/json")
