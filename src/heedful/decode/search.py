"""Beam search, greedy search and sampling over anything that has a `step`. Knows only ids.

Everything is a tensor of B sentences and K beams, so that a GPU is never asked before it has finished: only every
few steps the host looks which sentences are done. Those leave the batch. The tensors of a batch keep their shapes and
places from step to step, so that a GPU can replay a step that was recorded.

A sentence is done when no hypothesis that is still open can become better than the finished ones: log-probabilities
only fall, so an open one with sum s ends at best with s divided by the largest penalty that is still within reach.

Shapes: B sentences, K beams, V vocabulary, S source length, T most tokens of any target.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from heedful.decode.beams import Beams, Hypothesis, Limits, Marks, Task, Turn, begin
from heedful.decode.best import best
from heedful.decode.constraints import NEVER, block_ngrams, most_probable, only, penalise_repetition
from heedful.decode.options import SearchOptions
from heedful.decode.recorder import Recorder
from heedful.decode.steps import Steps

LOOK_EVERY = {"cpu": 1, "cuda": 8}
"""Steps between two looks at which sentences are done."""
LEAVE_FROM = 8
"""Done sentences leave when they are at least one in so many."""


@torch.inference_mode()
def search(
    steps: Steps,
    task: Task,
    marks: Marks,
    options: SearchOptions,
    device: torch.device,
    recorder: Recorder | None = None,
    watch: Callable[[Turn], None] | None = None,
    look: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    """For each sentence its best hypotheses, the best first. With a recorder, the work of a step is replayed.

    Whoever watches a beam search is told of each step; sentences that are done may have left the batch by then. Every
    few steps whoever waits is given a look, and may end the search by raising.
    """
    found: list[list[Hypothesis]] = [[] for _ in task.limits]
    if not found:
        return found
    prefixes = task.prefixes or [()] * len(found)
    # A prefix is written whole, even where it is longer than the source would allow.
    limits = [Limits(few, max(most, len(own))) for (few, most), own in zip(task.limits, prefixes, strict=True)]
    task = task._replace(limits=limits, prefixes=prefixes)
    if watch is not None or not _repeats(task, options):
        recorder = None
    longest = max(limit.most for limit in limits)
    beams = _held(begin(task, marks, options, device, longest), recorder, options)
    generator = torch.Generator(device).manual_seed(options.seed) if options.sample else None
    look_every = LOOK_EVERY.get(device.type, 1)
    for length in range(longest + 1):
        scores, state, weights = steps.step(beams.state, beams.last, beams.parents, beams.coverage is not None)
        beams.state = state
        _turn(beams, scores, weights, length, options, generator, recorder, watch)
        if length == longest:
            break
        if (length + 1) % look_every == 0:
            if look is not None:
                look()
            beams = _leave(steps, beams, options, found, recorder)
            if not beams.numbers:
                return found
    _collect(beams, range(len(beams.numbers)), options, found)
    return found


def _repeats(task: Task, options: SearchOptions) -> bool:
    """Whether one step's work is like another's: nothing is drawn, forced, or compared with what was written."""
    plain = options.repetition_penalty == 1.0 and not options.block_ngrams and not options.coverage_penalty
    return plain and not options.sample and not any(task.prefixes or ())


def _held(beams: Beams, recorder: Recorder | None, options: SearchOptions) -> Beams:
    """The batch, in the place of an earlier one of the same shape if steps are recorded."""
    if recorder is None:
        return beams
    held = recorder.held((tuple(beams.written.shape), options, beams.eos, tuple(beams.never.shape)), beams)
    held.put(place=beams.place, never=beams.never, **beams.tensors())
    return replace(
        held,
        state=beams.state,
        numbers=beams.numbers,
        all_may_end=beams.all_may_end,
        first_must_end=beams.first_must_end,
    )


def _turn(
    beams: Beams,
    scores: Tensor,
    weights: Tensor | None,
    length: int,
    options: SearchOptions,
    generator: torch.Generator | None,
    recorder: Recorder | None,
    watch: Callable[[Turn], None] | None,
) -> None:
    """One step: what may be written, and what is."""

    def work() -> None:
        log_probs = _allowed(scores.float().log_softmax(-1), beams, length, options)
        if generator is None:
            _choose(beams, log_probs, weights, options, watch)
        else:
            _draw(beams, log_probs, options, generator)

    if recorder is None:
        work()
    else:  # what the host decides makes another recording
        decided = (length < beams.all_may_end, length >= beams.first_must_end)
        recorder.run((beams.sums.data_ptr(), scores.data_ptr(), scores.shape, options, decided), work)


def _allowed(log_probs: Tensor, beams: Beams, length: int, options: SearchOptions) -> Tensor:
    """The log-probabilities of the next token, where it may be written at all. Uses up those given."""
    end = log_probs[..., beams.eos].clone()  # (B, K)
    forced = None
    if length < beams.prefixes.shape[1]:
        forced = only(log_probs, beams.prefixes[:, length])
    if options.repetition_penalty != 1.0 and length:
        log_probs = penalise_repetition(log_probs, beams.written[..., :length], options.repetition_penalty)
    log_probs.index_fill_(-1, beams.never, NEVER)
    if length < beams.all_may_end:
        log_probs[..., beams.eos].masked_fill_((beams.fewest > beams.place)[:, None], NEVER)
    if options.block_ngrams:
        log_probs = block_ngrams(log_probs, beams.written[..., :length], options.block_ngrams)
        # Where nothing else is left to write the end comes, even too early.
        stuck = (log_probs == NEVER).all(-1)  # (B, K)
        log_probs[..., beams.eos] = torch.where(stuck, end, log_probs[..., beams.eos])
    if forced is not None:  # what is forced is written whatever was said above
        log_probs = torch.where((beams.prefix_lengths > length)[:, None, None], forced, log_probs)
    if length >= beams.first_must_end:
        over = beams.most <= beams.place  # (B,)
        log_probs.masked_fill_(over[:, None, None], NEVER)
        log_probs[..., beams.eos] = torch.where(over[:, None], end, log_probs[..., beams.eos])
    return log_probs


def _choose(
    beams: Beams,
    log_probs: Tensor,
    weights: Tensor | None,
    options: SearchOptions,
    watch: Callable[[Turn], None] | None,
) -> None:
    """One step of beam search: the best continuations go on, those that end are kept beside them."""
    width = options.width
    if beams.coverage is not None:
        assert weights is not None
        beams.coverage += weights
    # Each beam has at most one continuation that ends, so twice as many always leave enough to go on with.
    each, candidates = best(log_probs, 2 * width)  # (B, K, 2K)
    sums, places = best((beams.sums[..., None] + each).flatten(1), 2 * width)  # (B, 2K)
    parents, tokens = places // each.shape[-1], candidates.flatten(1).gather(1, places)
    ends = tokens == beams.eos

    ending = (ends & (sums > NEVER) & ~beams.done[:, None])[:, :width]
    scores = sums[:, :width] / _penalty(beams.place + 1, options)
    if beams.coverage is not None:
        scores = scores + options.coverage_penalty * _covered(beams).gather(1, parents[:, :width])
    _finish(beams, scores.masked_fill(~ending, NEVER), sums[:, :width], _of_beams(beams.written, parents[:, :width]))

    order = torch.argsort(ends.to(torch.int8), dim=-1, stable=True)[:, :width]  # those that go on, best first
    if watch is not None:
        watch(Turn(sums, parents, tokens, order))
    parents = parents.gather(1, order)
    if beams.coverage is not None:
        beams.put(coverage=_of_beams(beams.coverage, parents))
    beams.put(
        sums=sums.masked_fill(ends, NEVER).gather(1, order),
        parents=parents,
        last=tokens.gather(1, order),
        written=_of_beams(beams.written, parents),
    )
    _write(beams)
    beams.done |= _settled(beams, options)


def _draw(beams: Beams, log_probs: Tensor, options: SearchOptions, generator: torch.Generator) -> None:
    """One step of sampling: every beam draws for itself, until it draws the end."""
    chances = most_probable(log_probs / options.temperature, options.top_k, options.top_p).softmax(-1)
    # The first of so many clocks to ring, each as fast as its token is probable; no GPU waits for the host here.
    tokens = (chances / torch.empty_like(chances).exponential_(generator=generator)).argmax(-1)
    open_beams = beams.sums > NEVER
    sums = beams.sums + log_probs.gather(-1, tokens[..., None])[..., 0]
    ending = (tokens == beams.eos) & open_beams
    scores = (sums / _penalty(beams.place + 1, options)).masked_fill(~ending, NEVER)
    _finish(beams, scores, sums, beams.written)
    beams.put(sums=sums.masked_fill(ending | ~open_beams, NEVER), last=tokens)
    _write(beams)
    beams.done |= (beams.sums == NEVER).all(-1)


def _write(beams: Beams) -> None:
    beams.written.index_copy_(2, beams.place, beams.last[..., None])
    beams.place += 1


def _finish(beams: Beams, scores: Tensor, sums: Tensor, written: Tensor) -> None:
    """Put newly finished hypotheses (those with a score) among the best finished ones."""
    highest, order = torch.cat([beams.scores, scores], 1).topk(scores.shape[1], -1)
    lengths = torch.cat([beams.lengths, beams.place.expand_as(beams.lengths)], 1)
    beams.put(
        scores=highest,
        log_probs=torch.cat([beams.log_probs, sums], 1).gather(1, order),
        finished=_of_beams(torch.cat([beams.finished, written], 1), order),
        lengths=lengths.gather(1, order),
    )


def _settled(beams: Beams, options: SearchOptions) -> Tensor:
    """(B,): whether nothing that is still open can become one of the n best."""
    if options.early or options.beam == 1:
        enough = (beams.scores > NEVER).all(-1)
        return enough | (beams.sums == NEVER).all(-1)
    # The exponent's sign says whether a sum is best ended now or as late as may be.
    last = beams.most + 1 if options.length_penalty > 0 else beams.place + 1
    reach = beams.sums.amax(-1) / _penalty(last, options)
    return reach <= beams.scores[:, options.n_best - 1]


def _penalty(length: Any, options: SearchOptions) -> Any:
    """What a log-probability is divided by; the length counts the end."""
    if options.penalty == "none" or options.length_penalty == 0.0:
        return length * 0 + 1.0
    base = length if options.penalty == "average" else (5.0 + length) / 6.0
    return base**options.length_penalty


def _covered(beams: Beams) -> Tensor:
    """(B, K): the sum over the source of log(min(attention it got, 1))."""
    assert beams.coverage is not None
    assert beams.source_mask is not None
    logs = beams.coverage.clamp(1e-9, 1.0).log()
    return logs.masked_fill(~beams.source_mask[:, None], 0.0).sum(-1)


def _of_beams(table: Tensor, chosen: Tensor) -> Tensor:
    """The rows of some beams: (B, K, X), (B, M) -> (B, M, X)."""
    return table.gather(1, chosen[..., None].expand(-1, -1, table.shape[-1]))


def _leave(
    steps: Steps, beams: Beams, options: SearchOptions, found: list[list[Hypothesis]], recorder: Recorder | None
) -> Beams:
    """Collect the sentences that are done, and go on with the others."""
    done = beams.done.tolist()[: len(beams.numbers)]
    staying = [row for row, over in enumerate(done) if not over]
    fewer = len(staying) if recorder is None else rounded(len(staying))
    worth = len(done) - len(staying) if recorder is None else len(beams.sums) - fewer
    if staying and worth * LEAVE_FROM < len(beams.sums):
        return beams
    _collect(beams, [row for row, over in enumerate(done) if over], options, found)
    if not staying:
        return replace(beams, numbers=[])
    # Rows that fill up the batch are done from the start.
    rows = torch.tensor(staying + staying[:1] * (fewer - len(staying)), device=beams.sums.device)
    tensors: dict[str, Any] = {name: value.index_select(0, rows) for name, value in beams.tensors().items()}
    tensors["done"][len(staying) :] = True
    numbers = [beams.numbers[row] for row in staying]
    left = replace(beams, state=steps.keep(beams.state, rows), numbers=numbers, place=beams.place.clone(), **tensors)
    return _held(left, recorder, options)


def rounded(sentences: int) -> int:
    """At least so many, as a power of two: batches that are recorded have one of a few sizes."""
    return 1 << max(0, sentences - 1).bit_length()


def _collect(beams: Beams, rows: Sequence[int], options: SearchOptions, found: list[list[Hypothesis]]) -> None:
    if not rows:
        return
    scores, log_probs, lengths = (table.tolist() for table in (beams.scores, beams.log_probs, beams.lengths))
    finished = beams.finished.cpu().numpy()
    for row in rows:
        for place in range(options.n_best):
            if scores[row][place] > NEVER:
                ids = tuple(finished[row, place, : lengths[row][place]].tolist())
                found[beams.numbers[row]].append(Hypothesis(ids, log_probs[row][place], scores[row][place]))
