"""What only we serve of encoders: `/fill`, `/generate`, `/tag` and `/answer`."""

from typing import Any

from fastapi import APIRouter, Request, Response

from heedful.serve.asking import as_json, ask, desk_of, several
from heedful.serve.schemas import (
    AnswerRequest,
    Candidate,
    FillRequest,
    FoundAnswer,
    GeneratedText,
    GenerateRequest,
    TaggedText,
    TagRequest,
)
from heedful.serve.word_work import AnswerWork, FillWork, Question, TagWork, Text, Words, WriteWork, Writing

router = APIRouter(tags=["words"])


@router.post("/fill", response_model=list[list[Candidate]] | list[list[list[Candidate]]])
async def fill(asked: FillRequest, request: Request) -> Response:
    """The most probable words for every [MASK] of a text, or of each of several."""
    desk = desk_of(request)
    loaded = desk.models.pick("fill", asked.model)
    work = FillWork(loaded.predictor.reader("fill", top=asked.top))
    found = await ask(request, loaded, work, [Text(text) for text in several(asked.inputs, desk)])
    shown = [[[one._asdict() for one in blank] for blank in blanks] for blanks in found]
    return as_json(shown[0] if isinstance(asked.inputs, str) else shown)


@router.post("/generate", response_model=GeneratedText, response_model_exclude_none=True)
async def generate(asked: GenerateRequest, request: Request) -> Response:
    """Text written by filling blanks and emptying them again."""
    desk = desk_of(request)
    loaded = desk.models.pick("fill", asked.model)
    options = asked.model_dump(include={"tokens", "order", "steps", "temperature", "top_k", "seed"})
    work = WriteWork(loaded.predictor, desk.limits.max_read)
    found = (await ask(request, loaded, work, [Writing(asked.inputs, options)]))[0]
    shown: dict[str, Any] = {"text": found.text, "probability": found.probability}
    return as_json({**shown, "steps": found.steps} if asked.watch else shown)


@router.post("/tag", response_model=TaggedText | list[TaggedText])
async def tag(asked: TagRequest, request: Request) -> Response:
    """A tag for every word, and the spans that they make up, by the characters of the text."""
    desk = desk_of(request)
    loaded = desk.models.pick("tag", asked.model)
    inputs: Any = asked.inputs
    examples = [Words(one if isinstance(one, str) else tuple(one)) for one in several(inputs, desk)]
    found = await ask(
        request, loaded, TagWork(loaded.predictor, loaded.predictor.reader("tag"), desk.limits.max_read), examples
    )
    shown = [{**one._asdict(), "entities": [span._asdict() for span in one.entities]} for one in found]
    return as_json(shown[0] if isinstance(inputs, str) else shown)


@router.post("/answer", response_model=list[FoundAnswer] | list[list[FoundAnswer]])
async def answer(asked: AnswerRequest, request: Request) -> Response:
    """The best answers to a question in its context, or to each of several."""
    desk = desk_of(request)
    loaded = desk.models.pick("answer", asked.model)
    reader = loaded.predictor.reader(
        "answer", n_best=asked.n_best, longest=asked.longest, may_be_empty=asked.may_be_empty
    )
    questions = [Question(one.question, one.context) for one in several(asked.inputs, desk)]
    found = await ask(request, loaded, AnswerWork(reader, desk.limits.max_read), questions)
    shown = [[one._asdict() for one in best] for best in found]
    return as_json(shown if isinstance(asked.inputs, list) else shown[0])
