"""word2vec: skip-gram with negative sampling (Mikolov et al. 2013b, section 2.2). One vector a word, in any text.

A word's vector learns to tell the words around it from words drawn as noise. The published method draws noise for
every pair of words alone. Here a block of neighbouring words shares many draws, each of which counts for less: the
same gradient on average, with less noise in it, and one matrix product for the block instead of many short ones.
Gradients are written out, for a step touches only the rows that it reads, of tables that may be large.

Knows ids, not words: what the numbers stand for is the lexicon's business.

Shapes: V vocabulary, D width, W window, B blocks, T words of a block, C = T + 2W words that they may see, M draws of
noise, R = T + M rows to score.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCK = 32
"""T: words that share their noise."""
DRAWS = 96
"""M: draws of noise for a block."""
TOGETHER = {"cpu": 4, "cuda": 8}
"""B: blocks of one update, by device. More would be quicker on a GPU, but the last of them would miss what the first
have taught the tables."""
TELLING = 8
"""One in so many updates tells its loss, which takes time."""
STEADY = 2.0
"""Pairs of a row in one update times the rate, up to which it learns in full. Ordinary words stay far below; a rule
of a hundred dashes does not."""


class SkipGram(nn.Module):
    """Two tables: a word as it is read, which is its vector in the end, and a word as it is predicted."""

    def __init__(self, vocab_size: int, dim: int) -> None:
        super().__init__()
        self.read = nn.Parameter(torch.zeros(vocab_size, dim), requires_grad=False)
        self.predicted = nn.Parameter(torch.zeros(vocab_size, dim), requires_grad=False)


class Blocks(NamedTuple):
    """What some text asks for."""

    read: Tensor
    """(B, C) the words of a block, and those before and after it."""
    scored: Tensor
    """(B, R) the words of the block, then the noise."""
    pairs: Tensor
    """(B, T, C) the learning rate where two words are a pair, else 0."""
    noise: Tensor
    """(B, 1, C) how much each draw of noise counts with a word: by the pairs that it is in."""
    seen: Tensor
    """(B, C) pairs that change a word as it is read, those with noise too, times the rate: as shares of STEADY."""
    asked: Tensor
    """(B, R) the same for a word as it is predicted."""

    @property
    def size(self) -> int:
        """How many blocks."""
        return len(self.read)

    def part(self, first: int, last: int) -> "Blocks":
        """Some of the blocks."""
        return Blocks(*(tensor[first:last] for tensor in self))


def initialise(model: SkipGram, generator: torch.Generator) -> None:
    """Vectors at random and short, predictions at zero.

    As gensim does. In the paper's code they are half as long, and a rare word takes longer to leave its place.
    """
    dim = model.read.shape[1]
    model.read.uniform_(-1.0 / dim, 1.0 / dim, generator=generator)
    model.predicted.zero_()


def blocks(
    ids: Tensor,
    sentences: Tensor,
    reach: Tensor,
    *,
    window: int,
    negatives: int,
    noise: Tensor,
    uniform: Tensor,
    rates: Tensor,
) -> Blocks:
    """The blocks of some text: (N,) ids, sentences and reaches of words, N = B·T; a reach of 0 is no word at all.

    `noise` (V,) is the sum of the chances of all words up to each, and `uniform` (B, M) says where in it to draw.
    Each of the M draws counts for negatives / M with every pair of the block. `rates` (B,) are the learning rates.
    """
    count, draws = uniform.shape
    length = len(ids) // count
    width = length + 2 * window
    read, home, there = (
        F.pad(tensor, (window, window)).unfold(0, width, length) for tensor in (ids, sentences, reach)
    )  # (B, C)
    centres, sentences, reach = (tensor.view(count, length, 1) for tensor in (ids, sentences, reach))
    places = torch.arange(width, dtype=reach.dtype, device=ids.device)
    distance = (places[None] - places[:length, None] - window).abs()  # (T, C)
    near = (distance <= reach) & (distance > 0)  # (B, T, C)
    pairs = (near & (home[:, None] == sentences) & (there[:, None] > 0)) * rates[:, None, None]
    drawn = torch.searchsorted(noise, uniform).clamp_(max=len(noise) - 1)  # (B, M)
    scored = torch.cat([centres[..., 0], drawn], 1)
    by_word = pairs.sum(1)  # (B, C)
    strange = by_word * (negatives / draws)
    asked = torch.cat([pairs.sum(2), strange.sum(1, keepdim=True).expand(-1, draws)], 1)
    return Blocks(read, scored, pairs, strange[:, None], by_word * ((1 + negatives) / STEADY), asked / STEADY)


def update(model: SkipGram, batch: Blocks) -> Tensor:
    """Take one step down the gradient of the blocks' loss, with rows that come too often held back; the scores before
    it, (B, R, C).
    """
    dim, words = model.read.shape[1], batch.pairs.shape[1]
    x = model.read[batch.read]  # (B, C, D)
    y = model.predicted[batch.scored]  # (B, R, D)
    scores = torch.bmm(y, x.transpose(1, 2))  # (B, R, C)
    push = scores.sigmoid()  # how far scores should fall
    push[:, :words].sub_(1.0).mul_(batch.pairs)
    push[:, words:].mul_(batch.noise)
    from_predicted, from_read = torch.bmm(push, x), torch.bmm(push.transpose(1, 2), y)
    for table, rows, old, change, full in (
        (model.predicted, batch.scored, y, from_predicted, batch.asked),
        (model.read, batch.read, x, from_read, batch.seen),
    ):
        _subtract(table, rows.flatten(), old.view(-1, dim), change.view(-1, dim), full.flatten())
    return scores


def loss(scores: Tensor, batch: Blocks) -> Tensor:
    """The loss of scores (B, R, C), a sum over pairs, and the number of pairs; both times the rate: (2,)."""
    words = batch.pairs.shape[1]
    context = F.logsigmoid(scores[:, :words]) * batch.pairs
    strange = F.logsigmoid(-scores[:, words:]) * batch.noise
    return torch.stack([-context.sum() - strange.sum(), batch.pairs.sum()])


def learn(model: SkipGram, text: Blocks, updates: int) -> Tensor:
    """Update so many times, each time for the next few blocks; `loss` of some of the updates."""
    size = text.size // updates
    told = torch.zeros(2, device=text.read.device)
    for number in range(updates):
        part = text.part(number * size, (number + 1) * size)
        scores = update(model, part)
        if number % TELLING == 0:
            told += loss(scores, part)
    return told


def _subtract(table: Tensor, rows: Tensor, old: Tensor, change: Tensor, full: Tensor) -> None:
    """Take (N, D) changes from the rows (N,) of a table, in which `old` stands; a row that comes twice loses both.

    All of a row's changes add up before the next look at it. If they come of too many pairs, that leads beyond what
    they aim at, and further beyond with every update. So `full` (N,) says what each adds to a row, which goes a share
    of the way when that is more than 1 in all. Always in the same order, on either device.
    """
    if table.device.type == "cpu":
        total = table.new_empty(len(table)).index_fill_(0, rows, 0.0)  # the rest of it is never looked at
        over = total.index_add_(0, rows, full).index_select(0, rows).clamp_(min=1.0)
        table.scatter_add_(0, rows[:, None].expand_as(change), change / over.neg_()[:, None])
    else:
        subtract_by_product(table, rows, old, change, full)


def subtract_by_product(table: Tensor, rows: Tensor, old: Tensor, change: Tensor, full: Tensor) -> None:
    """The same as a GPU does it: add up what falls on the same row by a matrix product, and write the result as often
    as the row comes. Quicker than sorting, and, unlike with atomic additions, the same every time.
    """
    same = (rows[:, None] == rows).to(change.dtype)  # (N, N)
    over = (same @ full).clamp_(min=1.0)
    table.index_copy_(0, rows, torch.addmm(old, same, change / over[:, None], alpha=-1.0))
