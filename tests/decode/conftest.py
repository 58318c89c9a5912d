"""A model to search in: its scores follow from everything that was written, by tables drawn at random."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

PLACES = 10_007


class Seen(NamedTuple):
    """What a hypothesis has read, as a place in the tables: (B, K)."""

    places: Tensor


class Scorer:
    """Has a `step` and a `keep`; a sentence is a number. V vocabulary, S source length."""

    def __init__(self, vocabulary: int, seed: int = 0, source: int = 3, spread: float = 1.5) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.scores = spread * torch.randn(PLACES, vocabulary, generator=generator)
        self.weights = (2 * torch.randn(PLACES, source, generator=generator)).softmax(-1)
        self.calls: list[tuple[int, ...]] = []
        """The shape of the tokens of every step."""

    def start(self, sentences: Sequence[int], beams: int) -> Seen:
        return Seen(torch.tensor(sentences)[:, None].expand(-1, beams))

    def step(
        self, state: Seen, tokens: Tensor, parents: Tensor | None = None, explain: bool = False
    ) -> tuple[Tensor, Seen, Tensor | None]:
        self.calls.append(tuple(tokens.shape))
        places = state.places if parents is None else state.places.gather(1, parents)
        places = (31 * places + 7 * tokens + 5) % PLACES
        return self.scores[places], Seen(places), self.weights[places] if explain else None

    def keep(self, state: Seen, sentences: Tensor) -> Seen:
        return Seen(state.places[sentences])

    def look(self, sentence: int, read: Sequence[int]) -> tuple[list[float], list[float]]:
        """Log-probabilities of what comes after tokens, the start among them, and the weights over the source."""
        place = sentence
        for token in read:
            place = (31 * place + 7 * token + 5) % PLACES
        return self.scores[place].double().log_softmax(-1).tolist(), self.weights[place].double().tolist()


@pytest.fixture(scope="session")
def scorer() -> type[Scorer]:
    """Makes a model: `scorer(vocabulary, seed)`."""
    return Scorer
