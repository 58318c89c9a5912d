"""Shapes: as in the module."""

import pytest
import torch
from torch import Tensor

from heedful.models import word2vec
from heedful.models.word2vec import (
    Blocks,
    Calm,
    SkipGram,
    blocks,
    calm,
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


def test_an_update_is_a_step_down_the_gradient():
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


def test_rows_that_come_too_often_learn_less():
    shares, noise = torch.tensor([0.5, 0.02, 0.0]), torch.tensor([0.25, 0.7, 0.05])
    # pairs times the rate: 64 words · (3 + 1) · 0.125 = 32; for each, of reading 1 + 5 times as many
    found = calm(shares, noise, words=64, window=3, negatives=5, rate=0.125)
    assert found is not None
    assert found.read.tolist() == pytest.approx([4 / (32 * 6 * 0.5), 1.0, 1.0])
    assert found.predicted.tolist() == pytest.approx([4 / (32 * 1.75), 4 / (32 * 3.52), 4 / (32 * 0.25)])
    assert calm(shares / 50, noise / 50, words=64, window=3, negatives=5, rate=0.125) is None


def test_a_calm_update_goes_a_share_of_the_way():
    made, _ = text(torch.full((3,), 0.2))
    model, twin, before = tables(), tables(), tables()
    share = Calm(torch.linspace(0.1, 1.0, VOCABULARY), torch.linspace(1.0, 0.1, VOCABULARY))
    update(model, made, share)
    update(twin, made)
    whole = twin.read - before.read, twin.predicted - before.predicted
    torch.testing.assert_close(model.read - before.read, whole[0] * share.read[:, None])
    torch.testing.assert_close(model.predicted - before.predicted, whole[1] * share.predicted[:, None])


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
    one, other = tables().read.data, tables().read.data
    word2vec._subtract(one, rows, one[rows], change)
    subtract_by_product(other, rows, other[rows], change)
    torch.testing.assert_close(one, other)
    expected = tables().read.data
    for row, by in zip(rows.tolist(), change, strict=True):
        expected[row] -= by
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
        rates=torch.linspace(0.05, 0.0, count),
    )
    model = SkipGram(12, DIM)
    initialise(model, generator)
    learn(model, made, count)
    unit = torch.nn.functional.normalize(model.read, dim=1)
    alike = unit @ unit.T
    assert float(alike[:6, :6].min()) > 0.7
    assert float(alike[6:, 6:].min()) > 0.7
    assert float(alike[:6, 6:].max()) < 0.3
