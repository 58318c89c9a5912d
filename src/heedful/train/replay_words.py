"""Many small updates of word vectors, recorded once and then replayed as one piece (a CUDA graph).

Every update must see what the one before it has learnt, so they can't be joined to a large one; and each is so small
that a GPU would wait for its kernels to be launched. A recording of some of them in a row takes that wait away.

Shapes: as in models/word2vec.py; U updates.
"""

import torch
from torch import Tensor

from heedful.models.word2vec import TOGETHER, Blocks, SkipGram, learn

UPDATES = 32
"""U: updates of a recording."""
RECORDED = UPDATES * TOGETHER["cuda"]
"""Blocks of a recording."""


class WordReplay:
    """`learn` for text that fills recordings: RECORDED blocks, or a multiple of that."""

    def __init__(self, model: SkipGram) -> None:
        self.model = model
        self.graph: torch.cuda.CUDAGraph | None = None
        self.text: Blocks | None = None
        self.told: Tensor | None = None

    def learn(self, text: Blocks) -> Tensor:
        """The losses of some of the updates, as `learn` tells them."""
        if text.size % RECORDED:
            raise ValueError(f"the number of blocks must be a multiple of {RECORDED}; got {text.size}")
        if self.graph is None:
            self._record(text.part(0, RECORDED))
        assert self.graph is not None
        assert self.text is not None
        assert self.told is not None
        total = torch.zeros_like(self.told)
        for first in range(0, text.size, RECORDED):
            for place, tensor in zip(self.text, text.part(first, first + RECORDED), strict=True):
                place.copy_(tensor)
            self.graph.replay()
            total += self.told
        return total

    def _record(self, sample: Blocks) -> None:
        """Record on a stream of its own, after a round that warms up; neither teaches the tables anything."""
        self.text = Blocks(*(tensor.clone() for tensor in sample))
        self.text.pairs.zero_()
        self.text.noise.zero_()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            learn(self.model, self.text, UPDATES)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.told = learn(self.model, self.text, UPDATES)
