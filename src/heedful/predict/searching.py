"""What searches: sources in, hypotheses out, in the order in which they came. Knows nothing of text.

Sources are batched by length inside. See `predict/ctranslate2.py` for the other engine.

Shapes: B sentences, S source length, T target length.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from heedful.data.bitext import Marks
from heedful.decode import Ensemble, Hypothesis, Limits, Recorder, SearchOptions, Task, Turn, rounded, search
from heedful.decode import Marks as SearchMarks
from heedful.models.transformer import Transformer
from heedful.nn.gpus import current
from heedful.predict.engine import by_length, check_range
from heedful.predict.packed import packed
from heedful.predict.recorded import RecordedSteps
from heedful.tasks.translation import Translating

BATCH_TOKENS = {"cpu": 4096, "cuda": 16384}
"""The most source tokens of a batch, padding included, for each of its beams."""


SCORED_ROWS = 1024
"""Tokens whose whole vocabulary is scored at once, where only the given token counts."""


class Sentence(NamedTuple):
    """A source to translate, as ids without marks, and how its target must begin."""

    ids: Sequence[int]
    prefix: Sequence[int] = ()
    number: int = 0
    """Which of all sentences this is: what is drawn for it depends on that."""


class Searcher(Protocol):
    """A model that searches for translations."""

    longest: int
    """Most tokens of a source, and of a target."""

    def search(
        self, sentences: Sequence[Sentence], options: SearchOptions, look: Callable[[], None] | None = None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each sentence. Now and then the caller gets a look, and may end it by raising."""
        ...

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[np.ndarray]:
        """The log-probability of each token of given targets, their ends included: one array (T + 1,) a pair."""
        ...

    def align(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[np.ndarray]:
        """How much each target token looked at each of the source, ends included: (T + 1, S + 1) a pair."""
        ...


class TorchSearcher:
    """One torch model or several that decide together, put at rest, where their weights are.

    Of a model that is `learning` nothing is prepared that its next weights would belie. Threads take turns, since
    recordings have one set of buffers.
    """

    def __init__(
        self, models: Sequence[Translating], marks: Marks, never: Sequence[int], *, learning: bool = False
    ) -> None:
        self.models = models
        self.marks = marks
        self.search_marks = SearchMarks(marks.sos, marks.eos, tuple(never))
        self.longest = min(model.config.max_length for model in models) - 1
        self.device = next(models[0].parameters()).device
        self.half = any(next(model.parameters()).dtype is torch.float16 for model in models)
        self.steps = [_steps(model, self.device, learning) for model in models]
        self.recorder = Recorder(self.device) if self.device.type == "cuda" else None
        self._turn = Lock()

    def search(
        self, sentences: Sequence[Sentence], options: SearchOptions, look: Callable[[], None] | None = None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each sentence; every few steps a look, which may raise."""
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        room = BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"]) // options.width
        with self._resting():
            for chosen in by_length([len(one.ids) + 1 for one in sentences], room, padded=True):
                drawn = _drawn(options, sentences[chosen[0]])
                answers = self._batch([sentences[number] for number in chosen], drawn, look=look)
                for number, answer in zip(chosen, answers, strict=True):
                    found[number] = answer
        return found

    def watched(self, sentence: Sentence, options: SearchOptions) -> tuple[list[Hypothesis], list[Turn]]:
        """The same for one sentence, and what each step chose from."""
        turns: list[Turn] = []
        with self._resting():
            (found,) = self._batch([sentence], options, turns.append)
        return found, turns

    def _batch(
        self,
        sentences: Sequence[Sentence],
        options: SearchOptions,
        watch: Callable[[Turn], None] | None = None,
        look: Callable[[], None] | None = None,
    ) -> list[list[Hypothesis]]:
        real = len(sentences)
        if self.recorder is not None:  # which knows a few sizes only
            sentences = [*sentences, *[sentences[-1]] * (rounded(real) - real)]
        source, mask = self._rectangle([[*one.ids, self.marks.eos] for one in sentences])
        states = []
        for model, steps in zip(self.models, self.steps, strict=True):
            memory: Any = model.encode(source, mask)  # each kind of model has its own
            if self.half:
                check_range(bool(memory.states.isfinite().all()))
            states.append(steps.start(memory, options.width))
        steps, state = (self.steps[0], states[0]) if len(states) == 1 else (Ensemble(self.steps), tuple(states))
        task = Task(
            state,
            [Limits(*options.limits(len(one.ids) + 1, self.longest)) for one in sentences],
            [one.prefix for one in sentences],
            mask,
        )
        found = search(steps, task, self.search_marks, options, self.device, self.recorder, watch, look)[:real]
        if self.half:
            check_range(all(found))  # nothing ends with a score that is no number
        return found

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[np.ndarray]:
        """The log-probability of each token of given targets, their ends included: one array (T + 1,) a pair."""

        def run(source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
            each = [_log_probs(model, source, mask, target) for model in self.models]
            return torch.stack(each).logsumexp(0) - math.log(len(each))

        return [row[: len(pair[1]) + 1] for row, pair in zip(self._each(pairs, run), pairs, strict=True)]

    def align(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[np.ndarray]:
        """How much each target token looked at each of the source, ends included: (T + 1, S + 1) a pair."""

        def run(source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
            return torch.stack([model.align(source, mask, target[:, :-1]) for model in self.models]).mean(0)

        found = self._each(pairs, run)
        return [table[: len(two) + 1, : len(one) + 1] for table, (one, two) in zip(found, pairs, strict=True)]

    def _each(
        self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], run: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> list[np.ndarray]:
        found: list[np.ndarray] = [np.empty(0)] * len(pairs)
        _, sos, eos = self.marks
        room = BATCH_TOKENS.get(self.device.type, BATCH_TOKENS["cpu"])
        with self._resting():
            for chosen in by_length([max(map(len, pair)) + 2 for pair in pairs], room, padded=True):
                source, mask = self._rectangle([[*pairs[number][0], eos] for number in chosen])
                target, _ = self._rectangle([[sos, *pairs[number][1], eos] for number in chosen])
                answers = run(source, mask, target).float().cpu().numpy()
                if self.half:
                    check_range(bool(np.isfinite(answers).all()))
                for number, answer in zip(chosen, answers, strict=True):
                    found[number] = answer
        return found

    def _rectangle(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """(B, S), filled up with padding, and where it is real."""
        table = np.full((len(rows), max(map(len, rows))), self.marks.pad, np.int64)
        mask = np.zeros(table.shape, bool)
        for number, row in enumerate(rows):
            table[number, : len(row)] = row
            mask[number, : len(row)] = True
        return torch.from_numpy(table).to(self.device), torch.from_numpy(mask).to(self.device)

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """No gradients, no dropout, and nobody else; and the GPU that is meant, which each thread is told."""
        with self._turn, current(self.device):
            for model in self.models:
                model.eval()
            with torch.inference_mode():
                yield


def _drawn(options: SearchOptions, first: Sentence) -> SearchOptions:
    """Other draws for every batch, named by its first sentence."""
    if not options.sample:
        return options
    seed = np.random.SeedSequence([options.seed, first.number]).generate_state(1, np.uint64)[0]
    return replace(options, seed=int(seed >> 1))


def _log_probs(model: Translating, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
    """Of each token of a target but its start: (B, T + 1) -> (B, T). The vocabulary is scored a few rows at once."""
    states = model.states(source, mask, target[:, :-1])  # (B, T, D)
    chosen = target[:, 1:]
    parts = zip(states.flatten(0, 1).split(SCORED_ROWS), chosen.flatten().split(SCORED_ROWS), strict=True)
    found = [model.output(rows).float().log_softmax(-1).gather(-1, ids[:, None])[:, 0] for rows, ids in parts]
    return torch.cat(found).view_as(chosen)


def _steps(model: Translating, device: torch.device, learning: bool) -> Translating | RecordedSteps:
    """What writes token by token: a Transformer, as the device likes it."""
    if not isinstance(model, Transformer):
        return model
    ready = model if learning else packed(model).eval()
    return RecordedSteps(ready) if device.type == "cuda" else ready
