"""Text from a model that fills blanks: it fills them, empties some of them again, and fills those anew.

Mask-predict (Ghazvininejad et al. 2019, section 3) fills all blanks at once, then empties and refills those it is
least sure of, fewer each time. Gibbs sampling (Wang & Cho 2019) goes round the blanks, empties one at a time and
draws a token for it given all the others. Either way only the blanks are written, never the text around them.
Knows nothing of folders.

Shapes: T tokens of the text, M blanks, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from heedful.data.inputs import Input
from heedful.data.tokenizer import CONTINUES, MASK, Tokenizer
from heedful.errors import UserError
from heedful.models.bert import BertForPretraining
from heedful.predict.blanks import BATCH_TOKENS, with_blanks, word_probabilities

Order = Literal["mask-predict", "gibbs"]

STEPS = 10
TEMPERATURES = {"mask-predict": 0.0, "gibbs": 1.0}
"""Mask-predict looks for the one best text; Gibbs sampling that always takes the best token soon stands still."""

CLOSING = frozenset(".,!?;:%)]}'’”…、。")
"""Tokens that are written without the space before them."""
OPENING = frozenset("([{'‘“")
"""Tokens after which the next one is written without a space."""

LEAST = float(np.finfo(np.float32).smallest_subnormal)
"""What a probability of zero may be at most: the model computes in single precision."""


class Generated(NamedTuple):
    """A text without blanks, and how it came about."""

    text: str
    """What was given, as it was written, with its blanks filled."""
    steps: list[str]
    """The text after each step, with [MASK] where the next one writes anew."""
    probability: float
    """The mean over the written tokens of how probable each is, given all the rest."""


class Written(NamedTuple):
    """A token that a step wrote."""

    position: int
    """Among the tokens of the text, [CLS] at 0."""
    token: str
    probability: float
    """How probable the model found it there as it wrote it."""


class Step(NamedTuple):
    """The text after a step, with [MASK] where the next one writes anew, and what this one wrote."""

    text: str
    written: list[Written]


def generate(
    model: BertForPretraining,
    tokenizer: Tokenizer,
    text: str,
    *,
    tokens: int = 12,
    order: Order = "mask-predict",
    steps: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    seed: int = 0,
    watch: Callable[[Step], None] | None = None,
) -> Generated:
    """Write where the text has [MASK], or else `tokens` tokens after it; the text may be empty.

    A step of mask-predict fills what is empty; there are 10, or as many as blanks if these are fewer. A step of
    Gibbs sampling goes once round all blanks; there are 10. Tokens are drawn from the `top_k` best, or from all; at
    a higher temperature the rare ones come more often, and at 0 the best is taken. It is 0 for mask-predict and 1
    for Gibbs sampling unless given. `watch` is told of every step; what it raises ends the writing. The model is put
    at rest (no dropout).
    """
    _check(tokens, order, steps, temperature, top_k, seed)
    model.eval()
    draft = _draft(model, tokenizer, text, tokens)
    bold = TEMPERATURES[order] if temperature is None else temperature
    choice = Choice(temperature=bold, top_k=top_k, random=np.random.default_rng(seed))
    most = min(STEPS, len(draft.blanks)) if order == "mask-predict" else STEPS
    shown = []
    for step in ORDERS[order](draft, choice, most if steps is None else steps):
        shown.append(step.text)
        if watch is not None:
            watch(step)
    return Generated(draft.show(), shown, draft.probability())


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How one token is chosen among those that may stand in a place."""

    temperature: float
    top_k: int | None
    random: np.random.Generator

    def __call__(self, probabilities: np.ndarray, allowed: np.ndarray) -> int:
        """One of the allowed tokens, by the probability (V,) of each."""
        # Never quite zero, so that something allowed is found even where the model is certain of something else.
        scores = np.log(np.maximum(probabilities.astype(np.float64), LEAST))
        scores[~allowed] = -np.inf
        if self.temperature == 0:
            return int(scores.argmax())
        if self.top_k is not None:
            scores[np.argsort(-scores, kind="stable")[self.top_k :]] = -np.inf
        with np.errstate(over="ignore"):  # a temperature close to zero: all but the best are impossible
            weights = np.exp((scores - scores.max()) / self.temperature)
        return int(self.random.choice(len(weights), p=weights / weights.sum()))


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A text being written: `ids` changes at the blanks, and nowhere else."""

    model: BertForPretraining
    tokenizer: Tokenizer
    pieces: Sequence[str]
    """The M + 1 stretches of text before, between and after the blanks."""
    ids: np.ndarray
    """(T,) with [CLS] and [SEP]."""
    blanks: np.ndarray
    """(M,) where the blanks stand."""

    @cached_property
    def words(self) -> np.ndarray:
        """(V,) True at what a piece like ##s may follow: words and their pieces, and blanks, which may become one."""
        vocabulary = self.tokenizer.vocabulary
        words = np.array([token.startswith(CONTINUES) or any(map(str.isalnum, token)) for token in vocabulary])
        words[self.tokenizer.special] = False
        words[self.tokenizer.mask] = True
        return words

    def empty(self, chosen: Sequence[int] | np.ndarray) -> None:
        """Make the chosen blanks, given by their numbers, blank again."""
        self.ids[self.blanks[chosen]] = self.tokenizer.mask

    def write(self, chosen: Sequence[int] | np.ndarray, choice: Choice) -> np.ndarray:
        """Fill the chosen blanks at once, all given the same rest; how probable the model finds what was written."""
        places = self.blanks[chosen]
        found = word_probabilities(
            self.model, self.tokenizer, [Input(self.ids.copy(), len(self.ids))], places
        ).numpy()
        # From left to right, since a piece of a word looks at what was written before it.
        for place, row in zip(places, found, strict=True):
            self.ids[place] = choice(row, self._allowed(place))
        return found[np.arange(len(places)), self.ids[places]]

    def told(self, chosen: Sequence[int] | np.ndarray, sure: np.ndarray) -> list[Written]:
        """What stands in the chosen blanks, and how probable each was as it was written."""
        places = self.blanks[chosen].tolist()
        return [
            Written(place, self.tokenizer.vocabulary[self.ids[place]], float(probability))
            for place, probability in zip(places, sure, strict=True)
        ]

    def _allowed(self, place: int) -> np.ndarray:
        """(V,) True at what may be written: no special token, and pieces that continue a word only after one."""
        allowed = ~self.tokenizer.special
        if not self.words[self.ids[place - 1]]:
            allowed &= ~self.tokenizer.continues
        if self.tokenizer.continues[self.ids[place + 1]]:
            allowed &= self.words
        return allowed if allowed.any() else ~self.tokenizer.special

    def probability(self) -> float:
        """How probable a written token is, given all the rest; the mean over the blanks."""
        length = len(self.ids)
        at_once = max(1, BATCH_TOKENS // length)
        total = 0.0
        for first in range(0, len(self.blanks), at_once):
            places = self.blanks[first : first + at_once]
            rows = np.arange(len(places))
            copies = np.tile(self.ids, (len(places), 1))
            copies[rows, places] = self.tokenizer.mask
            batch = [Input(ids, length) for ids in copies]
            found = word_probabilities(self.model, self.tokenizer, batch, rows * length + places).numpy()
            total += float(found[rows, self.ids[places]].sum(dtype=np.float64))
        return total / len(self.blanks)

    def show(self) -> str:
        """The text as people write it, with [MASK] for what is blank."""
        return joined(self.pieces, [self.tokenizer.vocabulary[self.ids[place]] for place in self.blanks])


def joined(pieces: Sequence[str], tokens: Sequence[str]) -> str:
    """Stretches of text with a token between each two, as people write it."""
    shown, close = pieces[0], False
    for token, after in zip(tokens, pieces[1:], strict=True):
        if close or token in CLOSING or token.startswith(CONTINUES):
            shown = shown.rstrip()
        shown += token.removeprefix(CONTINUES) + after
        close = token in OPENING and after.isspace()
    return shown


def stretches(text: str) -> list[str]:
    """What stands around the blanks of a text; a space between those that touch, so that each is a word."""
    first, *between = text.split(MASK)
    return [first, *(piece or " " for piece in between[:-1]), *between[-1:]]


def mask_predict(draft: Draft, choice: Choice, steps: int) -> Iterator[Step]:
    """Fill all blanks; then, step by step, empty those that are least sure and fill them given the others.

    Of M blanks, M (steps - t) / steps are filled in step t, counted from 0, and never less than one.
    """
    blanks = len(draft.blanks)
    sure = np.zeros(blanks)
    chosen = np.arange(blanks)
    for left in range(steps - 1, -1, -1):
        sure[chosen] = draft.write(chosen, choice)
        written = draft.told(chosen, sure[chosen])
        if left:
            chosen = np.sort(np.argsort(sure, kind="stable")[: max(1, blanks * left // steps)])
            draft.empty(chosen)
        yield Step(draft.show(), written)


def gibbs(draft: Draft, choice: Choice, steps: int) -> Iterator[Step]:
    """Go round the blanks in random order, again and again: empty one, draw it given all others.

    The first round begins with every blank empty, so that each is drawn given those before it.
    """
    for _ in range(steps):
        written = []
        for number in choice.random.permutation(len(draft.blanks)):
            draft.empty([number])
            written += draft.told([number], draft.write([number], choice))
        yield Step(draft.show(), written)


ORDERS: dict[str, Callable[[Draft, Choice, int], Iterator[Step]]] = {"mask-predict": mask_predict, "gibbs": gibbs}


def _check(
    tokens: int, order: str, steps: int | None, temperature: float | None, top_k: int | None, seed: int
) -> None:
    if order not in ORDERS:
        raise UserError(f"order {order!r} is not known; choose from {', '.join(ORDERS)}")
    for name, value, least in (("tokens", tokens, 1), ("steps", steps, 1), ("top_k", top_k, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise UserError(f"{name} {value} must be at least {least}")
    if temperature is not None and not 0 <= temperature < math.inf:
        raise UserError(f"temperature {temperature} must be a number from 0 on; 0 takes the best token, try 0.7 or 1")


def _draft(model: BertForPretraining, tokenizer: Tokenizer, text: str, tokens: int) -> Draft:
    """The text with its blanks, or with new ones at its end."""
    ids, pieces = with_blanks(tokenizer, text), stretches(text)
    blanks = len(pieces) - 1 or tokens
    length = len(ids) if len(pieces) > 1 else len(ids) + tokens
    longest = model.config.max_length
    if length > longest:
        raise UserError(
            f"the text and its blanks are {length:,} tokens, {blanks:,} of them blank, of which the model reads "
            f"{longest} at most; shorten the text or write fewer tokens"
        )
    if len(pieces) == 1:
        ids[-1:-1] = [tokenizer.mask] * tokens
        pieces = [text + " " if text and not text[-1].isspace() else text, *[" "] * (tokens - 1), ""]
    array = np.array(ids, np.int32)
    return Draft(
        model=model, tokenizer=tokenizer, pieces=pieces, ids=array, blanks=np.flatnonzero(array == tokenizer.mask)
    )
