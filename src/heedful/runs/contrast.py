"""What a context-free vector and a model see in a word that stands in two sentences.

One vector a word is the same in every sentence, so it is like itself whatever is meant. A model gives the word a
state in each sentence. How alike the two are is told layer by layer, beside a yardstick: how alike different words
are. What the model takes the word for is told by the words that it would put in its place, by the words that it reads
out of the state, and, given a corpus, by the words there whose states are nearest.

Shapes: L layers, N packed tokens, D width, V vocabulary, W words.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data import sources
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError
from heedful.formats.word2vec import WordVectors
from heedful.models.bert import Bert, BertForPretraining
from heedful.predict.blanks import Candidate
from heedful.predict.engine import TorchEngine
from heedful.predict.predictor import Predictor
from heedful.predict.word_states import Read, is_word, pieces_of, places_of, plain, word_states, words_of
from heedful.runs.nearest import Near, nearest, ranked, unit_rows

SENTENCES = 2000
"""Of a corpus: what is read to compare with."""
TOGETHER = 64
"""Sentences that go through the model at once."""
HEADLESS = "the model has no masked-word head, so it can't say what fits in the word's place"


class Sense(NamedTuple):
    """A word in one sentence."""

    sentence: str
    times: int
    """How often the word stands there; the first counts."""
    instead: list[Candidate] | None
    """What the model would put in its place; None from one that fills no blanks, as below."""
    read_as: list[Candidate] | None
    """What the model reads out of the word's own last state, other than the word."""
    like: list[Near] | None
    """Words of the corpus whose states are nearest."""


class Contrast(NamedTuple):
    """Both views of a word."""

    word: str
    pieces: list[str]
    vectors: str
    """What the context-free vectors are."""
    nearest: list[Near]
    """Words near it without context."""
    layer: int
    similarities: list[float]
    """(L + 1) the word in one sentence with itself in the other: before the first layer, and after each."""
    others: list[float]
    """(L + 1) the mean of that for two different words of the sentences."""
    senses: tuple[Sense, Sense]
    lacks: str | None = None
    """What the model can't tell, and why."""

    @property
    def similarity(self) -> float:
        """The word with itself, at the layer that counts."""
        return self.similarities[self.layer]


def contrast(
    predictor: Predictor,
    sentences: tuple[str, str],
    word: str,
    *,
    vectors: WordVectors | None = None,
    corpus: Sequence[str] = (),
    layer: int | None = None,
    top: int = 5,
) -> Contrast:
    """Look at a word in two sentences from both sides."""
    if not isinstance(predictor.engine, TorchEngine):
        raise UserError(f"{predictor.origin} does not show its states; name the folder that it was exported from")
    bert, model, tokenizer = predictor.engine.encoder, predictor.words, predictor.tokenizer
    if top < 1:
        raise UserError(f"--top {top} must be at least 1")
    layers = bert.config.layers
    if layer is not None and not 0 <= layer <= layers:
        raise UserError(f"--layer {layer} is not there; the model has {layers}, and 0 is what goes into the first")
    chosen = layers if layer is None else layer
    pieces = pieces_of(tokenizer, word)
    read = [words_of(tokenizer, sentence, bert.config.max_length) for sentence in sentences]
    places = [places_of(one, word, sentence) for one, sentence in zip(read, sentences, strict=True)]
    if vectors is None:
        alone = own_nearest(bert, tokenizer, pieces, top)
    else:
        alone = nearest(vectors, [word], top=top)[0]  # first: the word may be unknown there
    states = [word_states(bert, [one]) for one in read]  # each (L + 1, W, D)
    own = [found[:, there[0]] for found, there in zip(states, places, strict=True)]  # each (L + 1, D)
    alike = F.cosine_similarity(own[0], own[1], dim=-1)
    like: list[list[Near] | None] = [None, None]
    if corpus:
        given = sources.documents(sources.expand(corpus), sources.TextOptions())
        text = itertools.chain.from_iterable(given)
        like = [*_like(bert, tokenizer, text, torch.stack([one[chosen] for one in own]), chosen, word, top)]
    senses = [
        Sense(
            sentence,
            len(there),
            None if model is None else instead(model, tokenizer, one, one.spans[there[0]], word, top),
            None if model is None else _top(model, tokenizer, state[-1], word, top),
            near,
        )
        for sentence, one, there, state, near in zip(sentences, read, places, own, like, strict=True)
    ]
    return Contrast(
        word,
        [tokenizer.vocabulary[piece] for piece in pieces],
        "the model's own table of tokens" if vectors is None else f"{len(vectors.words):,} word vectors",
        alone,
        chosen,
        _rounded(alike),
        _rounded(_others(states, [one.words for one in read])),
        (senses[0], senses[1]),
        None
        if model is not None
        else HEADLESS
        if corpus
        else f"{HEADLESS}; --corpus TEXT finds what is like it there",
    )


def told(found: Contrast) -> Iterator[str]:
    """The same in words."""
    yield found.word
    if len(found.pieces) > 1:
        yield f"  read as {' '.join(found.pieces)}; the mean of its pieces counts"
    yield f"without context ({found.vectors}): {1:.3f} like itself in both, since it has one vector"
    yield f"  nearest        {_list(found.nearest)}"
    layers = len(found.similarities) - 1
    yield (
        f"in context (layer {found.layer} of {layers}): {found.similarity:.3f} like itself in the other sentence; "
        f"two different words of these sentences are {found.others[found.layer]:.3f}"
    )
    for number, (itself, other) in enumerate(zip(found.similarities, found.others, strict=True)):
        name = f"layer {number}" if number else "input"
        yield f"  {name:<14} {itself:6.3f}, different words {other:6.3f}"
    for sense in found.senses:
        more = f"  ({found.word} stands there {sense.times} times; the first counts)" if sense.times > 1 else ""
        yield f"  {sense.sentence}{more}"
        if sense.instead is not None and sense.read_as is not None:
            yield f"    in its place {_list(sense.instead)}"
            yield f"    read as      {_list(sense.read_as)}"
        if sense.like is not None:
            yield f"    in the text  {_list(sense.like)}"
    if found.lacks is not None:
        yield found.lacks


def table(found: Contrast) -> dict[str, Any]:
    """The same as JSON holds it."""
    return {
        "word": found.word,
        "pieces": found.pieces,
        "context_free": {
            "vectors": found.vectors,
            "similarity": 1.0,
            "nearest": [near._asdict() for near in found.nearest],
        },
        "contextual": {
            "layer": found.layer,
            "similarity": found.similarity,
            "by_layer": found.similarities,
            "different_words_by_layer": found.others,
            "sentences": [
                {
                    "text": sense.sentence,
                    "times": sense.times,
                    "in_its_place": _plain(sense.instead),
                    "read_as": _plain(sense.read_as),
                    "in_the_text": _plain(sense.like),
                }
                for sense in found.senses
            ],
        },
    }


def draw(found: Contrast, path: Path) -> str | None:
    """Draw it: how alike the word is to itself, layer by layer, and its nearest words; what to say of the picture."""
    from heedful.runs import pictures  # and with it what draws, for those who ask for it

    alone = [(near.word, near.similarity) for near in found.nearest]
    columns = [pictures.Column(f"without context: {found.word}", "cosine", alone)]
    for sense in found.senses:
        if sense.instead is not None:
            fitting = [(one.token, one.probability) for one in sense.instead]
            columns.append(pictures.Column(f"in its place: “{sense.sentence}”", "probability", fitting))
        elif sense.like is not None:
            near = [(one.word, one.similarity) for one in sense.like]
            columns.append(pictures.Column(f"in the text, like: “{sense.sentence}”", "cosine", near))
    return pictures.contrast(found.word, found.similarities, found.others, found.layer, columns, path, found.lacks)


def _plain(found: Sequence[Near] | Sequence[Candidate] | None) -> list[dict[str, Any]] | None:
    return None if found is None else [one._asdict() for one in found]


def _list(found: Sequence[Near] | Sequence[Candidate]) -> str:
    return ", ".join(
        f"{one.word} {one.similarity:.2f}" if isinstance(one, Near) else f"{one.token} {_percent(one.probability)}"
        for one in found
    )


def _percent(share: float) -> str:
    """To a tenth, or where that would be nothing to a thousandth."""
    return f"{share:.1%}" if share >= 0.0005 else f"{share:.3%}"


@torch.inference_mode()
def instead(
    model: BertForPretraining, tokenizer: Tokenizer, read: Read, span: tuple[int, int], word: str, count: int
) -> list[Candidate]:
    """What fits in the word's place: the model sees a blank there."""
    first, last = span
    ids = [*read.ids[:first], tokenizer.mask, *read.ids[last:]]
    device = next(model.parameters()).device
    hidden = model.bert(torch.tensor([ids], device=device)).hidden[0, first]
    return _top(model, tokenizer, hidden, word, count)


@torch.inference_mode()
def _top(model: BertForPretraining, tokenizer: Tokenizer, state: Tensor, word: str, count: int) -> list[Candidate]:
    """The most probable whole words for a last state (D,), but for the word itself."""
    device = next(model.parameters()).device
    probabilities = model.words(state[None].to(device)).float().softmax(-1)[0, : tokenizer.vocab_size].cpu()
    probabilities[torch.from_numpy(~_whole(tokenizer, word))] = -1.0
    best = probabilities.topk(min(count, len(probabilities)))
    return [
        Candidate(tokenizer.vocabulary[place], float(probability))
        for place, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        if probability >= 0
    ]


def own_nearest(bert: Bert, tokenizer: Tokenizer, pieces: list[int], count: int) -> list[Near]:
    """The whole words whose rows of the token table are nearest to the mean of the pieces'."""
    table = bert.embeddings.tokens.weight.detach().float().cpu().numpy()[: tokenizer.vocab_size]  # (V, D)
    similarities = unit_rows(table) @ unit_rows(table[pieces].mean(0, keepdims=True))[0]
    spelled = tokenizer.vocabulary[pieces[0]] if len(pieces) == 1 else ""
    without = set(np.flatnonzero(~_whole(tokenizer, spelled)).tolist())
    return ranked(tokenizer.vocabulary, similarities, without, count)


def _whole(tokenizer: Tokenizer, but: str) -> np.ndarray:
    """(V,) True at the tokens that are words by themselves, but for one."""
    words = np.array([is_word(token) and plain(token) != plain(but) for token in tokenizer.vocabulary])
    return words & ~tokenizer.continues & ~tokenizer.special


def _others(states: Sequence[Tensor], words: Sequence[list[str]]) -> Tensor:
    """(L + 1,) the mean similarity of two different words, one of each sentence; 1 if there are none."""
    one, other = (F.normalize(found, dim=-1) for found in states)  # (L + 1, W, D)
    different = torch.tensor([[a != b and is_word(a) and is_word(b) for b in words[1]] for a in words[0]])
    if not different.any():
        return torch.ones(len(one))
    return (one @ other.transpose(1, 2))[:, different].mean(1)


def _rounded(numbers: Tensor) -> list[float]:
    return [round(number, 6) for number in numbers.tolist()]


def _like(
    bert: Bert,
    tokenizer: Tokenizer,
    sentences: Iterable[str],
    states: Tensor,
    layer: int,
    word: str,
    count: int,
) -> list[list[Near]]:
    """For each state (2, D) of a layer, the words of some sentences whose states are nearest, each word once."""
    read = (words_of(tokenizer, sentence) for sentence in itertools.islice(sentences, SENTENCES))
    usable = (one for one in read if len(one.ids) <= bert.config.max_length)
    best: list[dict[str, float]] = [{} for _ in states]
    while some := list(itertools.islice(usable, TOGETHER)):
        words = [other for one in some for other in one.words]
        found = F.normalize(word_states(bert, some)[layer], dim=-1)  # (W, D)
        for known, row in zip(best, (F.normalize(states, dim=-1) @ found.T).tolist(), strict=True):
            for other, similarity in zip(words, row, strict=True):
                if is_word(other) and other != plain(word):
                    known[other] = max(known.get(other, -1.0), similarity)
    return [ranked(list(known), np.array(list(known.values()), np.float32), set(), count) for known in best]
