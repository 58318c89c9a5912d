"""Texts as tokens and back: `/tokenize` and `/decode`, as in text-embeddings-inference."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from heedful.data.inputs import characters
from heedful.data.tokenizer import Tokenizer
from heedful.predict import Translator
from heedful.serve.asking import as_json, call_of, desk_of, several
from heedful.serve.refusals import Refusal
from heedful.serve.schemas import DecodeRequest, TokenInfo, TokenizeRequest

MOST_CHARACTERS = 200_000
"""Of all texts of a request: every token takes far more room in the answer."""

router = APIRouter(tags=["tokens"])


@router.post("/tokenize", response_model=list[list[TokenInfo]])
async def tokenize(asked: TokenizeRequest, request: Request) -> Response:
    """The tokens of each text, and where in it they stand. A translator's are those that it reads."""
    desk = desk_of(request)
    loaded = desk.models.pick("tokenize", asked.model)
    texts = several(asked.inputs, desk)
    count = sum(map(len, texts))
    if count > MOST_CHARACTERS:
        raise Refusal(413, f"{count:,} characters are more than the {MOST_CHARACTERS:,} of one request; send less")
    call_of(request).fields |= {"model": loaded.name, "inputs": len(texts)}
    return as_json(await asyncio.to_thread(tokens, loaded.predictor, texts, asked.add_special_tokens))


@router.post("/decode", response_model=list[str])
async def decode(asked: DecodeRequest, request: Request) -> Response:
    """The text of ids. A translator's are those that it writes."""
    desk = desk_of(request)
    loaded = desk.models.pick("tokenize", asked.model)
    lists: Any = [asked.ids] if isinstance(asked.ids[0], int) else asked.ids
    several(lists, desk)
    count = sum(map(len, lists))
    if count > MOST_CHARACTERS:
        raise Refusal(413, f"{count:,} ids are more than the {MOST_CHARACTERS:,} of one request; send less")
    call_of(request).fields |= {"model": loaded.name, "inputs": len(lists)}
    return as_json(await asyncio.to_thread(texts_of, loaded.predictor, lists, asked.skip_special_tokens))


def tokens(predictor: Any, texts: list[str], special: bool) -> list[list[dict[str, Any]]]:
    """The tokens of each text."""
    if isinstance(predictor, Translator):
        return [_pieces(predictor, ids, special) for ids in predictor.source.encode(texts)]
    tokenizer: Tokenizer = predictor.tokenizer
    found = []
    for text, encoding in zip(texts, tokenizer.backend.encode_batch(texts, add_special_tokens=special), strict=True):
        places = characters(text, encoding.offsets).tolist()
        marks = encoding.special_tokens_mask
        found.append(
            [
                _token(number, token, None if mark else place)
                for number, token, mark, place in zip(encoding.ids, encoding.tokens, marks, places, strict=True)
            ]
        )
    return found


def texts_of(predictor: Any, lists: list[list[int]], skip: bool) -> list[str]:
    """The text of each list of ids."""
    translates = isinstance(predictor, Translator)
    vocabulary = predictor.target if translates else predictor.tokenizer
    for number in (one for ids in lists for one in ids):
        if not 0 <= number < vocabulary.vocab_size:
            raise Refusal(422, f"id {number} is not one of the {vocabulary.vocab_size:,} of the model's vocabulary")
    if skip or translates:
        return [vocabulary.decode(ids) for ids in lists]
    return [predictor.tokenizer.backend.decode(ids, skip_special_tokens=False) for ids in lists]


def _pieces(translator: Translator, ids: list[int], special: bool) -> list[dict[str, Any]]:
    """A translator's tokens; its vocabularies do not all know where in the text theirs stand."""
    source = translator.source
    found = [
        {**_token(number, piece, None), "special": False}
        for number, piece in zip(ids, source.pieces(ids), strict=True)
    ]
    return [*found, _token(source.eos, source.pieces([source.eos])[0], None)] if special else found


def _token(number: int, text: str, place: list[int] | None) -> dict[str, Any]:
    start, stop = place or (None, None)
    return {"id": number, "text": text, "special": place is None, "start": start, "stop": stop}
