"""Translations: `/translate`, with n-best lists, forced beginnings and alignments."""

from fastapi import APIRouter, Request, Response

from heedful.decode import SearchOptions
from heedful.errors import UserError
from heedful.predict.ctranslate2 import CTranslate2Searcher
from heedful.predict.ctranslate2 import refuse as refuse_options
from heedful.runs.translate import as_table
from heedful.serve.asking import as_json, ask, desk_of, several
from heedful.serve.embedding_routes import wants_cut
from heedful.serve.refusals import refused
from heedful.serve.schemas import TranslateRequest, Translations
from heedful.serve.translate_work import Source, TranslateWork

router = APIRouter(tags=["translation"])
NOT_OF_THE_SEARCH = {"model", "inputs", "prefix", "alignments", "truncate"}


@router.post("/translate", response_model=Translations | list[Translations], response_model_exclude_none=True)
async def translate(asked: TranslateRequest, request: Request) -> Response:
    """The best translations of a text, or of each of several."""
    desk = desk_of(request)
    loaded = desk.models.pick("translate", asked.model)
    translator = loaded.predictor
    try:
        options = SearchOptions(**asked.model_dump(exclude=NOT_OF_THE_SEARCH))
        if isinstance(translator.searcher, CTranslate2Searcher):
            refuse_options(options)
    except UserError as error:
        raise refused(error) from None
    cut = wants_cut(asked.truncate, desk)
    examples = [Source(text, asked.prefix, cut, options.width) for text in several(asked.inputs, desk)]
    found = await ask(request, loaded, TranslateWork(translator, options, asked.alignments), examples)
    shown = [{"translations": [as_table(one) for one in best]} for best in found]
    return as_json(shown[0] if isinstance(asked.inputs, str) else shown)
