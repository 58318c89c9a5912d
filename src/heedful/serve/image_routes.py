"""What is in images: `/see`. They come as files, one or several, or as base64 in JSON."""

import base64
import binascii
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError
from starlette.datastructures import UploadFile

from heedful.predict.images import Seen
from heedful.serve.asking import as_json, ask, desk_of, several
from heedful.serve.image_work import Picture, see_work
from heedful.serve.refusals import Refusal
from heedful.serve.schemas import MOST_SHOWN, Prediction, SeeRequest
from heedful.serve.validation import told

router = APIRouter(tags=["images"])

_BINARY = {"schema": {"type": "string", "format": "binary"}}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": SeeRequest.model_json_schema()},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"files": {"type": "array", "items": _BINARY["schema"]}},
                    "required": ["files"],
                }
            },
            "image/png": _BINARY,
            "image/jpeg": _BINARY,
        },
    }
}


@router.post("/see", response_model=list[Prediction] | list[list[Prediction]], openapi_extra=BODY)
async def see(
    request: Request,
    model: str | None = None,
    top: Annotated[int, Query(ge=1, le=MOST_SHOWN)] = 5,
) -> Response:
    """The most probable classes of an image, or of each of several.

    Send the file itself (Content-Type: image/png), files of a form, or base64 in JSON, with model and top as fields.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        images: list[bytes] | bytes = await _uploaded(request)
    elif kind.startswith("image/") or kind == "application/octet-stream":
        images = await request.body()
    elif kind.endswith("json"):
        try:
            asked = SeeRequest.model_validate_json(await request.body())
        except ValidationError as error:
            raise told(error.errors()) from None
        model, top = asked.model or model, asked.top
        images = [decoded(one) for one in asked.inputs] if isinstance(asked.inputs, list) else decoded(asked.inputs)
    else:
        raise Refusal(
            415, f"{kind or 'no content type'!r:.60} is no image; send image/…, multipart/form-data or JSON"
        )
    found = await seen(request, images if isinstance(images, list) else [images], model)
    shown = [[{"label": label, "score": score} for label, score in one.best(top).items()] for one in found]
    return as_json(shown if isinstance(images, list) else shown[0])


async def seen(request: Request, images: list[bytes], model: str | None) -> list[Seen]:
    """The class of each image."""
    desk = desk_of(request)
    loaded = desk.models.pick("see", model)
    pictures = [Picture(content) for content in several(images, desk)]
    return await ask(request, loaded, see_work(loaded.predictor), pictures)


async def _uploaded(request: Request) -> list[bytes]:
    most = desk_of(request).limits.max_inputs
    async with request.form(max_files=most, max_fields=most) as form:
        files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        return [await file.read() for file in files]


def decoded(text: str) -> bytes:
    """The bytes of a file in base64, or in a data URI."""
    _, comma, after = text.partition(",")
    try:
        return base64.b64decode(after if comma and text.startswith("data:") else text, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal(422, "an image is not base64; send the file's bytes in base64") from None
