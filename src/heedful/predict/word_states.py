"""The states of a text's words in every layer of an encoder.

Shapes: L layers, N packed tokens, D width, W words.
"""

import itertools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from heedful.data.batch import collate
from heedful.data.inputs import Input
from heedful.data.tokenizer import Tokenizer
from heedful.errors import UserError
from heedful.models.bert import Bert
from heedful.nn.transfer import on_device
from heedful.tasks.scoring import layout


class Read(NamedTuple):
    """A sentence as the model reads it."""

    ids: list[int]
    """With [CLS] and [SEP]."""
    words: list[str]
    """In lower case."""
    spans: list[tuple[int, int]]
    """Where in `ids` each word's pieces begin and end."""


def pieces_of(tokenizer: Tokenizer, word: str) -> list[int]:
    """The ids of a word; an error if it is none, or can't be spelled."""
    (encoding,) = tokenizer.read([word])
    if (parts := len(set(encoding.word_ids))) != 1:
        raise UserError(f"{word!r} is {parts} words to the model; give one")
    if tokenizer.unk in encoding.ids:
        raise UserError(f"the model's vocabulary can't spell {word!r}; choose another word, or another model")
    return encoding.ids


def words_of(tokenizer: Tokenizer, sentence: str, longest: int | None = None) -> Read:
    """A sentence taken apart; an error if it is longer than may be."""
    (encoding,) = tokenizer.read([sentence])
    ids = [tokenizer.cls, *encoding.ids, tokenizer.sep]
    if longest is not None and len(ids) > longest:
        raise UserError(
            f"{sentence[:40]!r} has {len(ids)} tokens, of which the model reads {longest} at most; shorten it"
        )
    words, spans = [], []
    for _, group in itertools.groupby(range(len(encoding.ids)), encoding.word_ids.__getitem__):
        first, *rest = group
        last = rest[-1] if rest else first
        words.append(plain(sentence[encoding.offsets[first][0] : encoding.offsets[last][1]]))
        spans.append((first + 1, last + 2))  # after [CLS]
    return Read(ids, words, spans)


def places_of(found: Read, word: str, sentence: str) -> list[int]:
    """Which of the sentence's words it is."""
    places = [place for place, other in enumerate(found.words) if other == plain(word)]
    if not places:
        there = ", ".join(dict.fromkeys(filter(is_word, found.words))) or "none"
        raise UserError(f"{word!r} is not in {sentence[:60]!r}; its words are: {there[:200]}")
    return places


def plain(word: str) -> str:
    """A word as words are compared."""
    return unicodedata.normalize("NFC", word).lower()


def is_word(text: str) -> bool:
    """Whether there is a letter in it."""
    return any(character.isalpha() for character in text)


@torch.inference_mode()
def word_states(bert: Bert, sentences: Sequence[Read]) -> Tensor:
    """(L + 1, W, D) the states of all words of some sentences, each the mean of its pieces'."""
    bert.eval()
    device = next(bert.parameters()).device
    inputs = collate([Input(np.array(one.ids, np.int32), len(one.ids)) for one in sentences])
    packed = layout(inputs, device)
    x = bert.embeddings(on_device(inputs.ids, device), None, packed)
    rotation, found = bert.rotation(x, packed), [x]
    for layer in bert.layers:
        x, _ = layer(x, packed, False, rotation)
        found.append(x)
    if bert.final_norm is not None:
        found[-1] = bert.final_norm(x)
    states = torch.stack(found).float().cpu()  # (L + 1, N, D)
    starts = itertools.accumulate((len(one.ids) for one in sentences), initial=0)
    spans = [(start + a, start + b) for start, one in zip(starts, sentences, strict=False) for a, b in one.spans]
    return torch.stack([states[:, first:last].mean(1) for first, last in spans], 1)
