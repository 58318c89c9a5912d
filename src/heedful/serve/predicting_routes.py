"""What a head says of texts and pairs: `/predict` and `/rerank`, as in text-embeddings-inference."""

import math
from typing import Any

from fastapi import APIRouter, Request, Response

from heedful.serve.asking import as_json, ask, desk_of, several
from heedful.serve.embedding_routes import wants_cut
from heedful.serve.schemas import Prediction, PredictRequest, Rank, RerankRequest
from heedful.serve.text_work import TextAsked, score_work

router = APIRouter(tags=["heads"])


@router.post("/predict", response_model=list[Prediction] | list[list[Prediction]])
async def predict(asked: PredictRequest, request: Request) -> Response:
    """Every label with its probability, the most probable first; of models that give numbers, every number.

    One text, or one pair as a list of two, gets one list; a list of such lists gets as many.
    """
    alone = isinstance(asked.inputs, str) or isinstance(asked.inputs[0], str)
    inputs: list[Any] = [asked.inputs] if alone else list(asked.inputs)
    found = await predictions(request, inputs, asked.model, asked.truncate, raw=asked.raw_scores)
    return as_json(found[0] if alone else found)


async def predictions(
    request: Request, inputs: list[Any], model: str | None, truncate: bool | None, *, raw: bool = False
) -> list[list[dict[str, Any]]]:
    """Labels and scores of each text, or list of one or two texts."""
    desk = desk_of(request)
    loaded = desk.models.pick("predict", model)
    cut = wants_cut(truncate, desk)
    sequences = [[one] if isinstance(one, str) else one for one in several(inputs, desk)]
    examples = [TextAsked(one[0], one[1] if len(one) > 1 else None, cut) for one in sequences]
    found = await ask(request, loaded, score_work(loaded.predictor, raw=raw), examples)
    numbers = loaded.predictor.head.task == "regress"
    return [
        [
            {"label": label, "score": score}
            for label, score in (scores.items() if numbers else sorted(scores.items(), key=lambda one: -one[1]))
        ]
        for scores in found
    ]


@router.post("/rerank", response_model=list[Rank])
async def rerank(asked: RerankRequest, request: Request) -> Response:
    """The texts, those that fit the query best first.

    A score is the sigmoid of the model's number for the pair; of a model with two classes, the probability of the
    second.
    """
    desk = desk_of(request)
    loaded = desk.models.pick("rerank", asked.model)
    cut = wants_cut(asked.truncate, desk)
    examples = [TextAsked(asked.query, text, cut) for text in several(asked.texts, desk)]
    found = await ask(request, loaded, score_work(loaded.predictor, raw=True), examples)
    scores = [_score(list(one.values()), raw=asked.raw_scores) for one in found]
    order = sorted(range(len(scores)), key=lambda number: -scores[number])
    shown = [
        {"index": number, "score": scores[number], **({"text": asked.texts[number]} if asked.return_text else {})}
        for number in order
    ]
    return as_json(shown)


def _score(numbers: list[float], *, raw: bool) -> float:
    number = numbers[0] if len(numbers) == 1 else numbers[1] - numbers[0]
    return number if raw else 0.5 * (1.0 + math.tanh(0.5 * number))
