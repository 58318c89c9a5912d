"""Shapes: as in the module."""

import itertools

import pytest
import torch
from torch import Tensor

from heedful.models import word2vec
from heedful.models.word2vec import (
    Blocks,
    SkipGram,
    blocks,
    initialise,
    learn,
    loss,
    subtract_by_product,
    update,
)

VOCABULARY, DIM, WINDOW, LENGTH, DRAWS, NEGATIVES = 13, 5, 2, 7, 11, 3
SENTENCES = [0] * 4 + [1] * 9 + [2] * 6  # 19 words: two blocks and five of a third


def text(rates: Tensor | None = None) -> tuple[Blocks, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    count, words = 3, len(SENTENCES)
    short = count * LENGTH - words
    given = {
        "ids": torch.randint(VOCABULARY, (words,), generator=generator),
        "sentences": torch.tensor(SENTENCES, dtype=torch.int32),
        "reach": torch.randint(1, WINDOW + 1, (words,), generator=generator).short(),
        "uniform": torch.rand(count, DRAWS, generator=generator),
    }
    noise = torch.arange(1, VOCABULARY + 1) / VOCABULARY
    padded = {name: torch.nn.functional.pad(given[name], (0, short)) for name in ("ids", "sentences", "reach")}
    made = blocks(
        **padded,
        window=WINDOW,
        negatives=NEGATIVES,
        noise=noise,
        uniform=given["uniform"],
        rates=torch.ones(count) if rates is None else rates,
    )
    return made, given


def tables(seed: int = 1) -> SkipGram:
    model = SkipGram(VOCABULARY, DIM)
    generator = torch.Generator().manual_seed(seed)
    model.read.normal_(generator=generator)
    model.predicted.normal_(generator=generator)
    return model


def plain_loss(read: Tensor, predicted: Tensor, given: dict[str, Tensor], rates: Tensor) -> tuple[Tensor, int]:
    """The same loss pair by pair: equation 4 of Mikolov et al. 2013b, its expectation over the draws of the block."""
    ids, sentences, reach = (given[name].tolist() for name in ("ids", "sentences", "reach"))
    total, pairs = torch.zeros(()), 0
    for centre in range(len(ids)):
        block = centre // LENGTH
        drawn = (given["uniform"][block] * VOCABULARY).long().clamp(max=VOCABULARY - 1)
        for context in range(len(ids)):
            near = 0 < abs(centre - context) <= reach[centre] and sentences[centre] == sentences[context]
            if not near:
                continue
            pairs += 1
            vector = read[ids[context]]
            total = total - rates[block] * torch.log(torch.sigmoid(predicted[ids[centre]] @ vector))
            strange = torch.log(torch.sigmoid(-(predicted[drawn] @ vector)))
            total = total - rates[block] * NEGATIVES * strange.mean()
    return total, pairs


def test_the_loss_is_that_of_all_pairs():
    made, given = text()
    model = tables()
    scores = torch.bmm(model.predicted[made.scored], model.read[made.read].transpose(1, 2))
    expected, pairs = plain_loss(model.read, model.predicted, given, torch.ones(3))
    assert pairs > 20
    torch.testing.assert_close(loss(scores, made), torch.stack([expected, torch.tensor(float(pairs))]))


def test_an_update_is_a_step_down_the_gradient(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(word2vec, "STEADY", 1e9)
    rates = torch.tensor([0.1, 0.07, 0.03])
    made, given = text(rates)
    model, twin = tables(), tables()
    for table in (twin.read, twin.predicted):
        table.requires_grad_()
    plain_loss(twin.read, twin.predicted, given, rates)[0].backward()
    scores = update(model, made)
    assert scores.shape == (3, LENGTH + DRAWS, LENGTH + 2 * WINDOW)
    assert twin.read.grad is not None
    assert twin.predicted.grad is not None
    torch.testing.assert_close(model.read.data, twin.read.data - twin.read.grad)
    torch.testing.assert_close(model.predicted.data, twin.predicted.data - twin.predicted.grad)
    assert not torch.equal(model.read, tables().read)


def test_a_row_that_comes_too_often_goes_a_share_of_the_way(monkeypatch: pytest.MonkeyPatch):
    rates = torch.full((3,), 0.2)
    made, given = text(rates)
    asked, seen = torch.zeros(VOCABULARY), torch.zeros(VOCABULARY)  # pairs of each row, counted one by one
    ids, sentences, reach = (given[name].tolist() for name in ("ids", "sentences", "reach"))
    for centre, context in itertools.product(range(len(ids)), repeat=2):
        if 0 < abs(centre - context) <= reach[centre] and sentences[centre] == sentences[context]:
            asked[ids[centre]] += 0.2
            for drawn in made.scored[centre // LENGTH, LENGTH:].tolist():
                asked[drawn] += 0.2 * NEGATIVES / DRAWS
            seen[ids[context]] += 0.2 * (1 + NEGATIVES)
    before, model, twin = tables(), tables(), tables()
    monkeypatch.setattr(word2vec, "STEADY", 1e9)
    update(twin, text(rates)[0])
    bound = float(seen.median())
    monkeypatch.setattr(word2vec, "STEADY", bound)
    update(model, text(rates)[0])
    for name, pairs in (("read", seen), ("predicted", asked)):
        share = (bound / pairs).clamp(max=1.0)[:, None]
        whole = getattr(twin, name) - getattr(before, name)
        torch.testing.assert_close(getattr(model, name) - getattr(before, name), whole * share)
    assert (seen > bound).any()
    assert (seen < bound).any()


def test_one_pair_over_and_over_goes_no_further_than_a_few():
    """One word alone, 7 x 3 blocks of it: of 87 pairs, all but the first few would have nothing left to teach."""
    ids = torch.zeros(21, dtype=torch.long)
    made = blocks(
        ids,
        ids.int(),
        torch.full_like(ids, 2).short(),
        window=2,
        negatives=1,
        noise=torch.tensor([0.0, 1.0]),
        uniform=torch.full((3, DRAWS), 0.5),
        rates=torch.full((3,), 0.5),
    )
    model = SkipGram(2, 1)
    model.predicted.fill_(1.0)
    update(model, made)
    # 2 for each of 21 words to either side, less 6 at the ends: 78 pairs at 0.5, each with 1 of noise: 78. Half of
    # the way for each pair, since scores were 0, and back for the noise, which is as much: so the word stays.
    assert model.read[0].item() == pytest.approx(0.0, abs=1e-6)
    model.predicted[1] = 0.0
    update(model, made)
    # 78 · 0.5 · 0.5 = 19.5 in full, of which 2 / 78 is 0.5
    assert model.read[0].item() == pytest.approx(0.5, abs=1e-5)


def test_learning_is_one_update_after_the_other():
    made, _ = text(torch.full((3,), 0.2))
    model, twin = tables(), tables()
    told = learn(model, made, 3)
    first = update(twin, made.part(0, 1))
    torch.testing.assert_close(told, loss(first, made.part(0, 1)))  # later ones are not asked
    update(twin, made.part(1, 2))
    update(twin, made.part(2, 3))
    torch.testing.assert_close(model.read, twin.read)
    at_once = tables()
    update(at_once, made)
    assert not torch.allclose(at_once.read, model.read)


def test_both_ways_to_subtract_rows_agree():
    generator = torch.Generator().manual_seed(2)
    rows = torch.tensor([3, 5, 3, 3, 11, 5])
    change = torch.randn(6, DIM, generator=generator)
    full = torch.tensor([0.25, 0.35, 0.55, 1.7, 0.15, 0.45])  # of row 3: 2.5, which is too much
    one, other = tables().read.data, tables().read.data
    word2vec._subtract(one, rows, one[rows], change, full)
    subtract_by_product(other, rows, other[rows], change, full)
    torch.testing.assert_close(one, other)
    expected = tables().read.data
    for row, by in zip(rows.tolist(), change, strict=True):
        expected[row] -= by * (0.4 if row == 3 else 1.0)
    torch.testing.assert_close(one, expected)


def test_new_tables_are_short_vectors_and_zeros():
    model = SkipGram(VOCABULARY, DIM)
    initialise(model, torch.Generator().manual_seed(0))
    assert 0.15 < float(model.read.abs().max()) <= 1 / DIM
    assert float(model.read.std()) == pytest.approx(1 / DIM / 3**0.5, rel=0.2)
    assert not model.predicted.any()


def test_words_that_keep_the_same_company_grow_alike():
    generator = torch.Generator().manual_seed(0)
    companies = torch.randint(2, (4001,), generator=generator)
    ids = (companies[:, None] * 6 + torch.randint(6, (4001, 4), generator=generator)).flatten()
    sentences = torch.arange(4001).repeat_interleave(4).int()
    count = 501
    short = (0, count * 32 - len(ids))
    made = blocks(
        torch.nn.functional.pad(ids, short),
        torch.nn.functional.pad(sentences, short),
        torch.nn.functional.pad(torch.full_like(ids, 2).short(), short),
        window=2,
        negatives=5,
        noise=torch.arange(1, 13) / 12,
        uniform=torch.rand(count, 17, generator=generator),
        rates=torch.linspace(0.03, 0.0, count),
    )
    model = SkipGram(12, DIM)
    initialise(model, generator)
    learn(model, made, count)
    unit = torch.nn.functional.normalize(model.read, dim=1)
    alike = unit @ unit.T
    assert float(alike[:6, :6].min()) > 0.7
    assert float(alike[6:, 6:].min()) > 0.7
    assert float(alike[:6, 6:].max()) < 0.3
