"""How many tokens a batch may have: found by trying steps on the GPU that it is for.

They are steps of the run's own model as it is written; compiled, as most runs are, they need less.

Shapes: B sequences, N tokens, M masked tokens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from heedful.data.batch import PretrainingBatch
from heedful.errors import UserError
from heedful.nn.shortage import GPUS, short_of_memory
from heedful.tasks.term import Term
from heedful.train.optim import clip

FIRST, MOST = 2**13, 2**20
"""Tokens to try first, which are also those of a CPU, and at most."""
MARGIN = 0.1
"""Share of the free memory that is left alone: real batches differ a little, and an evaluation lies between."""


def most_tokens(step: Callable[[int], None], length: int) -> int:
    """The largest power of two with which a step does not run out of memory, and which holds a sequence."""
    least = 1 << (length - 1).bit_length()
    if not _fits(step, least):  # the first step also makes what the optimizer keeps, which the others then meet
        raise UserError(
            f"the GPU's memory is too small for one sequence of {length} tokens; "
            "try a smaller --size or a shorter --length"
        )
    tokens = max(FIRST, least)
    if _fits(step, tokens):
        while tokens < MOST and _fits(step, 2 * tokens):
            tokens *= 2
        return tokens
    tokens //= 2
    while tokens > least and not _fits(step, tokens):
        tokens //= 2
    return max(tokens, least)


def _fits(step: Callable[[int], None], tokens: int) -> bool:
    try:
        step(tokens)
    except RuntimeError as error:
        if short_of_memory(error) != GPUS:
            raise
        return False
    return True


def find_tokens(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    terms: Callable[[PretrainingBatch], dict[str, Term]],
    batch: Callable[[int], PretrainingBatch],
    *,
    length: int,
    accumulation: int,
) -> int:
    """The most tokens for this model on its GPU, by real steps; on a CPU, where time is scarcer, the usual number."""
    device = next(model.parameters()).device
    if device.type == "cpu":
        return max(FIRST, 1 << (length - 1).bit_length())

    def step(tokens: int) -> None:
        torch.cuda.empty_cache()
        take_step(model, optimizer, terms, batch(tokens), accumulation)

    with unchanged(model, optimizer), all_but_the_margin(device):
        return most_tokens(step, length)


@contextmanager
def unchanged(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Steps in between leave no trace: neither in the weights nor in what the optimizer remembers."""
    before = {name: tensor.to("cpu", copy=True) for name, tensor in model.state_dict().items()}
    yield
    optimizer.state.clear()
    model.load_state_dict(before)


def take_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    terms: Callable[[PretrainingBatch], dict[str, Term]],
    batch: PretrainingBatch,
    accumulation: int,
) -> None:
    """A step as the loop takes it. A third batch of gradients that are added needs no more memory than a second."""
    model.train()
    try:
        for _ in range(min(2, accumulation)):
            torch.stack([term.loss / max(1, term.count) for term in terms(batch).values()]).sum().backward()
        clip(list(model.parameters()), 1.0)
        optimizer.step()
    finally:
        optimizer.zero_grad()


@contextmanager
def all_but_the_margin(device: torch.device) -> Iterator[None]:
    """Memory ends a little earlier than it really does."""
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device)  # which this process may still use
    torch.cuda.set_per_process_memory_fraction((1 - MARGIN) * free / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()


def made_up(tokens: int, *, length: int, vocab_size: int, mask_rate: float, nsp: bool) -> PretrainingBatch:
    """A batch as full as it can be, of sequences as long as they can be."""
    rng = np.random.default_rng(0)
    sequences = tokens // length
    size = sequences * length
    maskable = np.flatnonzero(np.arange(size) % length)  # all but the first of each
    masked = min(len(maskable), max(sequences, round(mask_rate * size)))
    return PretrainingBatch(
        ids=rng.integers(vocab_size, size=size),
        segments=np.zeros(size, np.int64),
        offsets=np.arange(0, size + 1, length, dtype=np.int32),
        longest=length,
        places=np.sort(rng.permutation(maskable)[:masked]),
        labels=rng.integers(vocab_size, size=masked),
        unrelated=rng.integers(2, size=sequences) if nsp else None,
    )
