"""What `huggingface_hub`'s `InferenceClient` asks when it is given this server's address as its model.

One route for every task: what is meant follows from the inputs, the task in the path, and what the model can do.
Answers have the shapes of that client's tasks.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from heedful.data.tokenizer import MASK
from heedful.decode import SearchOptions
from heedful.serve.asking import as_json, ask, desk_of, several
from heedful.serve.embedding_routes import finished, similarities, texts_of, wants_cut
from heedful.serve.image_routes import decoded, seen
from heedful.serve.models import Loaded
from heedful.serve.predicting_routes import predictions
from heedful.serve.refusals import Refusal
from heedful.serve.schemas import MOST_SHOWN, PipelineRequest
from heedful.serve.text_work import vector_work
from heedful.serve.translate_work import Source, TranslateWork
from heedful.serve.validation import told
from heedful.serve.word_work import AnswerWork, FillWork, Question, TagWork, Text, Words

router = APIRouter(include_in_schema=False)

TASKS = {
    "feature-extraction": "embed",
    "sentence-similarity": "embed",
    "text-classification": "predict",
    "token-classification": "tag",
    "question-answering": "answer",
    "fill-mask": "fill",
    "translation": "translate",
    "image-classification": "see",
}
PARAMETERS = {
    "embed": ("normalize", "truncate"),
    "predict": ("top_k",),
    "tag": ("aggregation_strategy", "ignore_labels"),
    "answer": ("handle_impossible_answer", "top_k"),
    "fill": ("top_k",),
    "translate": ("truncation",),
    "see": ("top_k",),
}
"""What may stand beside the inputs of each."""
ORDER = ("see", "translate", "answer", "tag", "predict", "fill", "embed")
"""What a model is taken to be for, where neither the path nor the inputs say."""


@router.post("/")
async def pipeline(request: Request) -> Response:
    """Any task, of the first model."""
    return await _answered(request, None, None)


@router.post("/models/{name:path}")
async def model_pipeline(name: str, request: Request) -> Response:
    """Any task of a model by its name; a task may follow as /pipeline/TASK."""
    name, _, task = name.partition("/pipeline/")
    return await _answered(request, name, task or None)


async def _answered(request: Request, name: str | None, task: str | None) -> Response:
    desk = desk_of(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if task is not None and task not in TASKS:
        raise Refusal(404, f"there is no task {task!r:.60}; choose from {', '.join(TASKS)}")
    body = await request.body()
    if not kind.endswith("json") and not body.lstrip().startswith(b"{"):  # the client names no type for an image
        return as_json(_classes(await seen(request, [body], name), {}))
    try:
        asked = PipelineRequest.model_validate_json(body)
    except ValidationError as error:
        raise told(error.errors()) from None
    ability = _meant(desk.models.named(name), asked, task)
    loaded = desk.models.pick(ability, name)
    return as_json(await ABILITIES[ability](request, loaded, asked, _said(asked, ability)))


def _said(asked: PipelineRequest, ability: str) -> dict[str, Any]:
    """What is asked for beside the inputs; what we don't know is refused, for leaving it out gives another answer."""
    beside = {"truncate": asked.truncate, "normalize": asked.normalize} if ability == "embed" else {}
    given = {name: value for name, value in {**beside, **(asked.parameters or {})}.items() if value is not None}
    unknown = next((name for name in given if name not in PARAMETERS[ability]), None)
    if unknown is not None:
        known = ", ".join(PARAMETERS[ability])
        raise Refusal(422, f"parameters: {unknown!r:.60} is not taken here; choose from {known}")
    return given


def _meant(loaded: Loaded, asked: PipelineRequest, task: str | None) -> str:
    if task is not None:
        return TASKS[task]
    if isinstance(asked.inputs, dict):
        return "embed" if "source_sentence" in asked.inputs else "answer"
    able = [one for one in ORDER if one in loaded.can]
    if "fill" in able:
        texts = asked.inputs if isinstance(asked.inputs, list) else [asked.inputs]
        return "fill" if any(MASK in one for one in texts if isinstance(one, str)) else "embed"
    return able[0]


async def _vectors(request: Request, loaded: Loaded, asked: PipelineRequest, said: dict[str, Any]) -> Any:
    truncate = _flag(said, "truncate")
    if isinstance(asked.inputs, dict):
        given = asked.inputs
        source, sentences = given.get("source_sentence"), given.get("sentences")
        if not isinstance(source, str) or not isinstance(sentences, list) or not all(map(_is_text, sentences)):
            raise Refusal(422, "inputs: give a source_sentence and a list of sentences")
        return await similarities(request, [source, *sentences], loaded.name, truncate)
    desk = desk_of(request)
    examples = texts_of(_texts(asked), truncate, loaded, desk)
    found = await ask(request, loaded, vector_work(loaded.predictor), examples)
    normalise = _flag(said, "normalize")
    vectors = finished(found, loaded.predictor.pooling.normalise if normalise is None else normalise, None)
    return [vector.tolist() for vector in vectors]


async def _predictions(request: Request, loaded: Loaded, asked: PipelineRequest, said: dict[str, Any]) -> Any:
    inputs: Any = asked.inputs if isinstance(asked.inputs, list) else [asked.inputs]
    if not all(_is_text(one) or (isinstance(one, list) and 1 <= len(one) <= 2) for one in inputs):
        raise Refusal(422, "inputs: give a text, or a list of texts or of lists of one or two texts")
    found = await predictions(request, inputs, loaded.name, None)
    return [one[: _count(said, len(one))] for one in found]


async def _tags(request: Request, loaded: Loaded, asked: PipelineRequest, said: dict[str, Any]) -> Any:
    ignored = _ignored(said)
    work = TagWork(loaded.predictor, loaded.predictor.reader("tag"), desk_of(request).limits.max_read)
    texts = several(_texts(asked), desk_of(request))
    found = await ask(request, loaded, work, [Words(text) for text in texts])
    shown = [
        [
            {
                "entity_group": one.label,
                "score": one.probability,
                "word": one.text,
                "start": one.start,
                "end": one.end,
            }
            for one in tagged.entities
            if one.label not in ignored
        ]
        for tagged in found
    ]
    return shown if isinstance(asked.inputs, list) else shown[0]


async def _answers(request: Request, loaded: Loaded, asked: PipelineRequest, said: dict[str, Any]) -> Any:
    given = asked.inputs if isinstance(asked.inputs, dict) else {}
    question, context = given.get("question"), given.get("context")
    if not isinstance(question, str) or not isinstance(context, str):
        raise Refusal(422, "inputs: give a question and its context")
    count, empty = _count(said, 1), _flag(said, "handle_impossible_answer")
    reader = loaded.predictor.reader("answer", n_best=count, may_be_empty=empty)
    found = (
        await ask(
            request, loaded, AnswerWork(reader, desk_of(request).limits.max_read), [Question(question, context)]
        )
    )[0]
    shown = [{"answer": one.text, "score": one.probability, "start": one.start, "end": one.end} for one in found]
    return shown if count > 1 else shown[0]


async def _blanks(request: Request, loaded: Loaded, asked: PipelineRequest, said: dict[str, Any]) -> Any:
    work = FillWork(loaded.predictor.reader("fill", top=_count(said, 5)))
    texts = several(_texts(asked), desk_of(request))
    found = await ask(request, loaded, work, [Text(text) for text in texts])
    ids = loaded.predictor.tokenizer.backend.token_to_id
    shown = []
    for text, blanks in zip(texts, found, strict=True):
        pieces = text.split(MASK)
        each = [
            [
                {
                    "score": one.probability,
                    "token": ids(one.token),
                    "token_str": one.token,
                    "sequence": MASK.join(pieces[: number + 1]) + one.token + MASK.join(pieces[number + 1 :]),
                }
                for one in blank
            ]
            for number, blank in enumerate(blanks)
        ]
        shown.append(each[0] if len(each) == 1 else each)
    return shown if isinstance(asked.inputs, list) else shown[0]


async def _translations(request: Request, loaded: Loaded, asked: PipelineRequest, said: dict[str, Any]) -> Any:
    desk = desk_of(request)
    cut = wants_cut(None, desk) or str(said.get("truncation") or "") in ("longest_first", "only_first")
    options = SearchOptions()
    examples = [Source(text, "", cut, options.width) for text in several(_texts(asked), desk)]
    found = await ask(request, loaded, TranslateWork(loaded.predictor, options, False), examples)
    return [{"translation_text": best[0].text} for best in found]


async def _pictures(request: Request, loaded: Loaded, asked: PipelineRequest, said: dict[str, Any]) -> Any:
    found = await seen(request, [decoded(text) for text in _texts(asked)], loaded.name)
    return _classes(found, said)


def _classes(found: list[Any], said: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"label": label, "score": score} for label, score in found[0].best(_count(said, 5)).items()]


def _texts(asked: PipelineRequest) -> list[str]:
    found = asked.inputs if isinstance(asked.inputs, list) else [asked.inputs]
    if not all(map(_is_text, found)):
        raise Refusal(422, "inputs: give a text or a list of texts")
    return [one for one in found if isinstance(one, str)]


def _is_text(one: Any) -> bool:
    return isinstance(one, str)


def _ignored(said: dict[str, Any]) -> list[str]:
    labels = said.get("ignore_labels") or []
    if not isinstance(labels, list) or not all(map(_is_text, labels)):
        raise Refusal(422, "ignore_labels must be a list of labels")
    return labels


def _flag(said: dict[str, Any], name: str) -> bool | None:
    value = said.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refusal(422, f"{name} must be true or false")
    return value


def _count(said: dict[str, Any], usual: int) -> int:
    count = said.get("top_k")
    if count is None:
        return usual
    if not isinstance(count, int) or not 1 <= count <= MOST_SHOWN:
        raise Refusal(422, f"top_k must be a whole number from 1 to {MOST_SHOWN}")
    return count


ABILITIES: dict[str, Callable[[Request, Loaded, PipelineRequest, dict[str, Any]], Awaitable[Any]]] = {
    "embed": _vectors,
    "predict": _predictions,
    "tag": _tags,
    "answer": _answers,
    "fill": _blanks,
    "translate": _translations,
    "see": _pictures,
}
