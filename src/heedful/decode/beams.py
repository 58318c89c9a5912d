"""A batch of sentences to search for, and how far a search has come with it. Knows only ids.

Shapes: B sentences, K beams, S source length, T most tokens of any target.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.decode.constraints import NEVER
from heedful.decode.options import SearchOptions

ROOM = 32
"""What the room for tokens is a multiple of."""


class Marks(NamedTuple):
    """The ids with a meaning to the search."""

    sos: int
    eos: int
    never: tuple[int, ...] = ()
    """What is never written."""


class Limits(NamedTuple):
    """Fewest and most tokens of one target, its end not counted."""

    fewest: int
    most: int


class Hypothesis(NamedTuple):
    """A translation, as ids without start and end."""

    ids: tuple[int, ...]
    log_prob: float
    """Of all its tokens and its end together; of repeated ones as the penalty on them leaves it."""
    score: float
    """What hypotheses are compared by: the log-probability after the penalties."""


class Turn(NamedTuple):
    """What one step of a beam search chose from, for those who watch: the 2K best continuations, best first."""

    sums: Tensor
    """(B, 2K): the log-probability of each; minus infinity where there is none."""
    parents: Tensor
    """(B, 2K): the beam that each continues."""
    tokens: Tensor
    """(B, 2K): what each writes."""
    staying: Tensor
    """(B, K): which of them become the beams of the next step."""


class Task(NamedTuple):
    """A batch of sentences to search for."""

    state: Any
    """What the model's `step` begins with."""
    limits: Sequence[Limits]
    prefixes: Sequence[Sequence[int]] | None = None
    """What each target must begin with."""
    source_mask: Tensor | None = None
    """(B, S), True at tokens that should be covered; for the coverage penalty alone."""


@dataclass
class Beams:
    """A batch under way. Its tensors are written over in place."""

    state: Any
    numbers: list[int]
    """Which of the task's sentences these are; further rows only fill up the batch."""
    place: Tensor
    """(1,): how many tokens are written."""
    sums: Tensor
    """(B, K): log-probability of each open hypothesis; minus infinity where there is none."""
    written: Tensor
    """(B, K, T)."""
    last: Tensor
    """(B, K): what `step` reads next."""
    parents: Tensor | None
    """(B, K): whom each beam continues; None when each continues itself."""
    coverage: Tensor | None
    """(B, K, S): attention that each source token got."""
    source_mask: Tensor | None
    fewest: Tensor
    most: Tensor
    all_may_end: int
    """The largest of the fewest, and the smallest of the most: known to the host, which then need not ask."""
    first_must_end: int
    eos: int
    never: Tensor
    """(X,): what is never written."""
    prefixes: Tensor
    """(B, longest prefix), and how long each is."""
    prefix_lengths: Tensor
    scores: Tensor
    """(B, K): of the finished hypotheses, best first; minus infinity where there is none."""
    log_probs: Tensor
    finished: Tensor
    """(B, K, T): their tokens."""
    lengths: Tensor
    """(B, K): how many of them."""
    done: Tensor
    """(B,)."""

    def tensors(self) -> dict[str, Tensor]:
        """All that there is once a sentence."""
        alike = ("state", "place", "never")
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor) and name not in alike}

    def put(self, **values: Tensor) -> None:
        """Write values over those that were."""
        for name, value in values.items():
            getattr(self, name).copy_(value)


def begin(task: Task, marks: Marks, options: SearchOptions, device: torch.device, longest: int) -> Beams:
    """A batch of which nothing is written yet."""
    sentences, width, prefixes = len(task.limits), options.width, task.prefixes
    assert prefixes is not None
    table = torch.zeros(sentences, max(map(len, prefixes)), dtype=torch.long)
    for number, prefix in enumerate(prefixes):
        table[number, : len(prefix)] = torch.tensor(list(prefix), dtype=torch.long)
    sums = torch.zeros(sentences, width, device=device)
    if not options.sample:
        sums[:, 1:] = NEVER  # all beams are still the same one
    coverage = None
    if options.coverage_penalty and not options.sample:
        assert task.source_mask is not None
        coverage = torch.zeros(sentences, width, task.source_mask.shape[1], device=device)
    room = -(-(longest + 1) // ROOM) * ROOM
    tokens = torch.zeros(sentences, width, room, dtype=torch.long, device=device)
    return Beams(
        state=task.state,
        numbers=list(range(sentences)),
        place=torch.zeros(1, dtype=torch.long, device=device),
        sums=sums,
        written=tokens,
        last=torch.full((sentences, width), marks.sos, device=device),
        parents=None if options.sample else torch.zeros(sentences, width, dtype=torch.long, device=device),
        coverage=coverage,
        source_mask=None if coverage is None else task.source_mask,
        fewest=torch.tensor([limit.fewest for limit in task.limits], device=device),
        most=torch.tensor([limit.most for limit in task.limits], device=device),
        all_may_end=max(limit.fewest for limit in task.limits),
        first_must_end=min(limit.most for limit in task.limits),
        eos=marks.eos,
        never=torch.tensor(marks.never, dtype=torch.long, device=device),
        prefixes=table.to(device),
        prefix_lengths=torch.tensor([len(prefix) for prefix in prefixes], device=device),
        scores=torch.full((sentences, width), NEVER, device=device),
        log_probs=torch.full((sentences, width), NEVER, device=device),
        finished=tokens.clone(),
        lengths=torch.zeros(sentences, width, dtype=torch.long, device=device),
        done=torch.zeros(sentences, dtype=torch.bool, device=device),
    )
