"""One word in several sentences: how alike its states are, what is near to it in each, and all of it on a map.

The numbers are those of `heedful contrast`. Beside them stands what a vector without context would say.

Shapes: L layers, D width, N sentences, P points.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from heedful.errors import UserError
from heedful.explore.positions import cosines
from heedful.explore.refusals import NotThere, TooLong
from heedful.models.bert import Bert
from heedful.predict.predictor import Predictor
from heedful.predict.word_states import Read, pieces_of, places_of, word_states, words_of
from heedful.runs.contrast import instead, own_nearest
from heedful.runs.nearest import Near

NEIGHBOURS = 8
"""Words to show for each sentence."""
TRIED = 16
"""Words that are tried in a word's place, by a model that can't say which fit there."""
BATCH_TOKENS = 2048
TOKENS = 384
"""Of all sentences together: each is read again with every word that is tried."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A word that was put in the other's place."""

    word: str
    similarity: float
    """How alike the states of the two are there."""
    probability: float | None = None
    """How well it fits there, if the model fills blanks."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A state on the map."""

    x: float
    y: float
    label: str
    sentence: int
    kind: str
    """The word itself, or a neighbour."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """A word, seen in its sentences."""

    layer: int
    layers: int
    similarity: np.ndarray
    """(N, N): of the word's states in each two sentences."""
    neighbours: list[list[Neighbour]]
    points: list[Point]
    context_free: list[Near]
    """Nearest in the model's own table of tokens, where a word has one vector whatever the sentence."""


def meaning(
    predictor: Predictor, bert: Bert, word: str, sentences: Sequence[str], layer: int | None = None
) -> Meaning:
    """Look at a word in several sentences after a layer: 0 is what goes into the first, by default the last."""
    if not sentences:
        raise UserError("there is no sentence; give at least one that has the word in it")
    tokenizer, layers = predictor.tokenizer, bert.config.layers
    if layer is not None and not 0 <= layer <= layers:
        raise NotThere(f"layer {layer} is not there; the model has {layers}, and 0 is what goes into the first")
    chosen = layers if layer is None else layer
    pieces = pieces_of(tokenizer, word)
    read = [words_of(tokenizer, sentence, bert.config.max_length) for sentence in sentences]
    if (total := sum(len(one.ids) for one in read)) > TOKENS:
        raise TooLong(f"the sentences have {total:,} tokens, of which {TOKENS} can be looked at; give fewer")
    spans = [one.spans[places_of(one, word, sentence)[0]] for one, sentence in zip(read, sentences, strict=True)]
    alone = [Read(one.ids, [word], [span]) for one, span in zip(read, spans, strict=True)]
    own = torch.cat([_states(bert, [one], chosen) for one in alone])
    context_free = own_nearest(bert, tokenizer, pieces, max(TRIED, NEIGHBOURS))
    near, near_states = [], []
    for one, span, state in zip(read, spans, own, strict=True):
        found, states = _neighbours(predictor, bert, one, span, word, state, chosen, context_free)
        near.append(found)
        near_states.append(states)
    labels = [(word, number, "word") for number in range(len(own))]
    labels += [(other.word, number, "neighbour") for number, found in enumerate(near) for other in found]
    flat = plane(torch.cat([own, *near_states]).numpy())
    return Meaning(
        layer=chosen,
        layers=layers,
        similarity=cosines(own.numpy()),
        neighbours=near,
        points=[
            Point(x=float(x), y=float(y), label=label, sentence=number, kind=kind)
            for (x, y), (label, number, kind) in zip(flat, labels, strict=True)
        ],
        context_free=context_free[:NEIGHBOURS],
    )


def _neighbours(
    predictor: Predictor,
    bert: Bert,
    read: Read,
    span: tuple[int, int],
    word: str,
    state: Tensor,
    layer: int,
    context_free: Sequence[Near],
) -> tuple[list[Neighbour], Tensor]:
    """What is nearest to the word when it stands in its place, and its states there.

    Tried are the words that the model itself would put there or, if it can't say, those near without context.
    """
    tokenizer, (first, last) = predictor.tokenizer, span
    tried: dict[str, float | None] = {one.word: None for one in context_free}
    if predictor.words is not None:
        fitting = instead(predictor.words, tokenizer, read, span, word, NEIGHBOURS)
        tried = {one.token: one.probability for one in fitting}
    places = {token: number for number, token in enumerate(tokenizer.vocabulary)}
    variants = [
        Read([*read.ids[:first], places[other], *read.ids[last:]], [other], [(first, first + 1)]) for other in tried
    ]
    if not variants:
        return [], state[None][:0]
    states = _states(bert, variants, layer)
    alike = torch.nn.functional.cosine_similarity(states, state[None], dim=-1)
    order = alike.argsort(descending=True, stable=True)[:NEIGHBOURS].tolist()
    words = list(tried)
    found = [
        Neighbour(word=words[place], similarity=float(alike[place]), probability=tried[words[place]])
        for place in order
    ]
    return found, states[order]


def _states(bert: Bert, read: Sequence[Read], layer: int) -> Tensor:
    """The state of each sentence's one word after a layer, a few sentences at once: (N, D)."""
    together = max(1, BATCH_TOKENS // max(len(one.ids) for one in read))
    parts = (read[start : start + together] for start in range(0, len(read), together))
    return torch.cat([word_states(bert, part)[layer] for part in parts])


def plane(vectors: np.ndarray) -> np.ndarray:
    """The plane in which vectors of length 1 differ most (their first two principal components): (P, D) -> (P, 2).

    The same vectors always lie the same way round: the largest number of each direction is positive.
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float64)
    centred = unit - unit.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    axes = np.zeros((2, vectors.shape[1]))
    axes[: len(directions[:2])] = directions[:2]
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])
    return centred @ (axes * np.where(signs == 0, 1, signs)[:, None]).T
