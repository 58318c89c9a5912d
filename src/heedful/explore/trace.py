"""A model at work on one text, along the explaining path: every attention of every layer with what goes into it.

Weights are not kept: a site gives them when asked, one layer at a time. Knows ids and tokens, not where the text
comes from, and nothing of HTTP.

Shapes: S source length, T target length, D width, L layers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heedful.data.bitext import Marks
from heedful.errors import UserError
from heedful.explore.sites import DotProduct, Scored, Site
from heedful.explore.tokens import Token
from heedful.models.bert import Bert
from heedful.models.rnn import Rnn
from heedful.models.transformer import Memory, Transformer
from heedful.nn.attention import MultiHeadAttention, causal_mask
from heedful.nn.layers import DecoderLayer, EncoderLayer
from heedful.nn.layout import Padded
from heedful.predict.packed import twin_of

PARTS = ("encoder", "decoder", "cross")
"""The three uses of attention (Vaswani et al. 2017, section 3.2.3)."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What happened inside a model."""

    tokens: tuple[Token, ...]
    """What the encoder reads."""
    target: tuple[Token, ...] = ()
    """What the decoder goes on from, its start included."""
    parts: Mapping[str, tuple[Site, ...]] = field(default_factory=dict)
    """One site a layer for each use of attention."""
    states: Tensor
    """(S or T, D): what the last layer gives, of the decoder if there is one."""

    @property
    def nbytes(self) -> int:
        """What it takes to remember it."""
        return self.states.nbytes + sum(site.nbytes for sites in self.parts.values() for site in sites)

    def sides(self, part: str) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        """The tokens that look, and those that are looked at."""
        if part == "encoder":
            return self.tokens, self.tokens
        return self.target, self.target if part == "decoder" else self.tokens


@torch.inference_mode()
def trace_encoder(bert: Bert, tokens: Sequence[Token], pad: int, *, placed: bool = True) -> Trace:
    """A text or a pair through an encoder; not `placed`, as if no token knew where it stands."""
    bert.eval()
    device = next(bert.parameters()).device
    ids, real = _row(tokens, device), _real(tokens, pad, device)
    segments = torch.tensor([[token.segment for token in tokens]], device=device)
    if bert.config.segments == 1 and segments.any():
        raise UserError("the model has one segment, so it can't read pairs of texts; give single texts")
    layout = Padded(None if real.all() else real[None])
    embeddings = bert.embeddings
    if not placed:
        embeddings = twin_of(embeddings)
        embeddings.positions = None
    x = embeddings(ids, segments if segments.any() else None, layout)
    rotation = bert.rotation(x, layout) if placed else None
    mask = real.expand(len(tokens), -1)
    sites = []
    for layer in bert.layers:
        assert isinstance(layer, EncoderLayer)
        read = layer.reads(x)[0]
        attention = _attention(layer)
        sites.append(DotProduct(attention=attention, asking=read, asked=read, mask=mask, rotation=rotation))
        x, _ = layer(x, layout, True, rotation)
    last = x if bert.final_norm is None else bert.final_norm(x)
    return Trace(tokens=tuple(tokens), parts={"encoder": tuple(sites)}, states=last[0])


@torch.inference_mode()
def trace_transformer(
    model: Transformer, tokens: Sequence[Token], target: Sequence[Token], marks: Marks, *, placed: bool = True
) -> Trace:
    """A source and its translation through encoder and decoder; not `placed`, without positions in either."""
    model.eval()
    if not placed:
        model = twin_of(model)
        model.positions = torch.zeros_like(model.positions)
    device = model.positions.device
    real = _real(tokens, marks.pad, device)
    x = model.embed_source(_row(tokens, device))
    mask = real.expand(len(tokens), -1)
    encoder, decoder, cross = [], [], []
    for layer in model.encoder:
        assert isinstance(layer, EncoderLayer)
        read = layer.reads(x)[0]
        encoder.append(DotProduct(attention=_attention(layer), asking=read, asked=read, mask=mask))
        x, _ = layer(x, Padded(real[None]), True)
    memory = Memory(x if model.encoder_norm is None else model.encoder_norm(x), real[None])
    y = model.embed_target(_row(target, device))
    past, seen = causal_mask(len(target), device), real.expand(len(target), -1)
    for layer, keys in zip(model.decoder, model.memory_keys(memory), strict=True):
        assert isinstance(layer, DecoderLayer)
        read, asking = layer.reads(y)[0], layer.asks(y)[0]
        decoder.append(DotProduct(attention=layer.attention, asking=read, asked=read, mask=past))
        cross.append(
            DotProduct(attention=layer.cross_attention, asking=asking, asked=memory.states[0], mask=seen),
        )
        y, _ = layer(y, keys, memory.mask[:, None, None], True)
    last = y if model.decoder_norm is None else model.decoder_norm(y)
    parts = {"encoder": tuple(encoder), "decoder": tuple(decoder), "cross": tuple(cross)}
    return Trace(tokens=tuple(tokens), target=tuple(target), parts=parts, states=last[0])


@torch.inference_mode()
def trace_rnn(model: Rnn, tokens: Sequence[Token], target: Sequence[Token], marks: Marks) -> Trace:
    """A source and its translation through a recurrent model, which has one attention: the decoder's."""
    model.eval()
    device = next(model.parameters()).device
    real = _real(tokens, marks.pad, device)
    state = model.start(model.encode(_row(tokens, device), real[None]), beams=1)
    queries, joined = [], []
    for token in _row(target, device).split(1, dim=1):
        _, state, _ = model.step(state, token, explain=True)
        query = state.hidden[0][-1, :, 0]  # (1, D): what the last of the decoder's cells gives
        queries.append(query)
        joined.append(model.attend(query[:, None], state)[0][0])
    site = Scored(
        score=model.score,
        asking=torch.cat(queries),
        asked=state.keys[0],
        values=state.values[0],
        mask=real.expand(len(target), -1),
    )
    return Trace(tokens=tuple(tokens), target=tuple(target), parts={"cross": (site,)}, states=torch.cat(joined))


def _attention(layer: EncoderLayer) -> MultiHeadAttention:
    assert isinstance(layer.attention, MultiHeadAttention), "locality is for images"
    return layer.attention


def _row(tokens: Sequence[Token], device: torch.device) -> Tensor:
    return torch.tensor([[token.id for token in tokens]], device=device)


def _real(tokens: Sequence[Token], pad: int, device: torch.device) -> Tensor:
    """(S,), False at the padding behind a text."""
    return torch.tensor([not (token.special and token.id == pad) for token in tokens], device=device)
