"""A text, as a user gives it, traced through whatever model is asked."""

from heedful.decode import SearchOptions
from heedful.errors import UserError
from heedful.explore.inside import Asked, encoder, translating
from heedful.explore.tokens import check_length, encoder_tokens, source_tokens, target_tokens
from heedful.explore.trace import Trace, trace_encoder, trace_rnn, trace_transformer
from heedful.models.rnn import Rnn
from heedful.predict.predictor import Predictor
from heedful.predict.searching import Sentence

TOKENS = 512
"""That can be looked at: more could neither be shown nor read."""


def traced(asked: Asked, text: str, pair: str | None = None, *, padding: int = 0, placed: bool = True) -> Trace:
    """A text or a pair through an encoder; a text and its translation, by default the model's own, through a
    translator."""
    to = "show its attention"
    if not text.strip():
        raise UserError("the text is empty; write something in it")
    if isinstance(asked, Predictor):
        predictor, bert = encoder(asked, to)
        longest = min(TOKENS, bert.config.max_length)
        tokens = encoder_tokens(predictor.tokenizer, text, pair, padding=padding, longest=longest)
        return trace_encoder(bert, tokens, predictor.tokenizer.pad, placed=placed)
    translator, searcher, model = translating(asked, to)
    marks, longest = searcher.marks, min(TOKENS, searcher.longest)
    source = source_tokens(
        translator.source, text, marks.eos, pad=marks.pad, padding=padding, longest=longest - padding
    )
    if pair is None:  # what the model itself would write
        read = [token.id for token in source[: -1 - padding]]
        best = searcher.search([Sentence(read)], SearchOptions())[0]
        ids = list(best[0].ids) if best else []
        pair = translator.target.decode(ids)
    else:
        (ids,) = translator.target.encode([" ".join(pair.split())])
    check_length(pair, len(ids), longest)
    target = target_tokens(translator.target, ids, pair, marks.sos)
    if isinstance(model, Rnn):
        return trace_rnn(model, source, target, marks)
    return trace_transformer(model, source, target, marks, placed=placed)
