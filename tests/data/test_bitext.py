from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.batch import PairBatch
from heedful.data.bitext import Bitext, Marks, Pairs, rounded
from heedful.data.sampler import Position
from heedful.models.rnn import Rnn, RnnConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.tasks.translation import translation_terms

PAD, SOS, EOS = 3, 4, 5
MARKS = Marks(PAD, SOS, EOS)
FIRST = 6


def pairs(count: int = 97, longest: int = 41, seed: int = 0) -> Pairs:
    """Each source begins with its own number."""
    drawn = np.random.default_rng(seed)
    sources, targets = [], []
    for number in range(count):
        one, other = drawn.integers(1, longest, 2)
        sources.append(np.concatenate([[FIRST + number], drawn.integers(FIRST, 200, one - 1)]).astype(np.int32))
        targets.append(drawn.integers(FIRST, 200, other).astype(np.int32))
    return Pairs(sources, targets)


def bitext(given: Pairs | None = None, **changes: Any) -> Bitext:
    fixed = pairs() if given is None else given
    return Bitext(**{"pairs": lambda _: fixed, "marks": MARKS, "batch_tokens": 127, "seed": 5, **changes})


def read(batch: PairBatch) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The pairs of a batch, without marks; rows that only fill it up are left out."""
    found = []
    for source, target in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
        assert target[0] == SOS
        if EOS in target:
            written = target[1 : target.index(EOS)]
            assert target[len(written) + 2 :] == [PAD] * (len(target) - len(written) - 2)
            content = source[: source.index(EOS)]
            assert source[len(content) + 1 :] == [PAD] * (len(source) - len(content) - 1)
            found.append((tuple(content), tuple(written)))
        else:
            assert source == [EOS, *[PAD] * (len(source) - 1)]
            assert target[1:] == [PAD] * (len(target) - 1)
    return found


def epoch_of(made: Bitext, number: int) -> list[PairBatch]:
    return [batch for _, batch in islice(made.stream(Position(number, 0)), made.batches(number))]


def same(one: PairBatch, other: PairBatch) -> bool:
    return np.array_equal(one.source, other.source) and np.array_equal(one.target, other.target)


def test_a_batch_by_hand():
    given = Pairs([np.array([7, 8]), np.array([9])], [np.array([11]), np.array([12, 13, 14])])
    (batch,) = epoch_of(bitext(given, seed=1), 0)
    rows = sorted(zip(batch.source.tolist(), batch.target.tolist(), strict=True))
    assert rows == [
        ([7, 8, EOS], [SOS, 11, EOS, PAD, PAD]),
        ([9, EOS, PAD], [SOS, 12, 13, 14, EOS]),
    ]
    assert batch.predictions == 2 + 4
    assert batch.tokens == 3 + 2 + 6
    (whole,) = epoch_of(bitext(given, seed=1, whole=True, batch_tokens=13), 0)
    rows = sorted(zip(whole.source.tolist(), whole.target.tolist(), strict=True))
    assert rows == [
        ([EOS, PAD, PAD, PAD], [SOS, PAD, PAD, PAD, PAD]),
        ([7, 8, EOS, PAD], [SOS, 11, EOS, PAD, PAD]),
        ([9, EOS, PAD, PAD], [SOS, 12, 13, 14, EOS]),
    ]
    assert (whole.predictions, whole.tokens) == (6, 12)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 60), st.integers(2, 90), st.integers(1, 400), st.integers(0, 9), st.booleans())
def test_every_pair_comes_once_an_epoch_within_the_budget(
    count: int, longest: int, room: int, seed: int, whole: bool
):
    given_pairs = pairs(count, longest, seed)
    made = bitext(given_pairs, batch_tokens=room, seed=seed, whole=whole)
    batches = epoch_of(made, seed)
    every = [pair for batch in batches for pair in read(batch)]
    expected = [(tuple(one.tolist()), tuple(other.tolist())) for one, other in zip(*given_pairs, strict=True)]
    assert sorted(every) == sorted(expected)
    assert sorted(pair for batch in made.once(given_pairs) for pair in read(batch)) == sorted(expected)
    for batch in batches:
        rows, length = len(batch.source), max(batch.source.shape[1], batch.target.shape[1] - 1)
        assert rows == 1 or rows * length <= room
        assert read(batch)
        assert batch.predictions == sum(len(other) + 1 for _, other in read(batch))


def test_little_is_padding():
    batches = epoch_of(bitext(pairs(997), batch_tokens=997), 0)
    positions = sum(batch.source.size + batch.target.size - len(batch.target) for batch in batches)
    assert sum(batch.tokens for batch in batches) > 0.7 * positions  # the sides of these differ at random


def test_the_order_is_a_function_of_seed_and_epoch():
    first, again = epoch_of(bitext(), 2), epoch_of(bitext(), 2)
    assert all(same(one, other) for one, other in zip(first, again, strict=True))

    def order(batches: list[PairBatch]) -> list[Any]:
        return [pair for batch in batches for pair in read(batch)]

    others = [order(epoch_of(bitext(seed=6), 2)), order(epoch_of(bitext(), 3))]
    assert all(order(first) != other for other in others)
    # Not only the batches change places: who is together with whom does, too.
    together = {frozenset(read(batch)) for batch in first}
    assert together != {frozenset(read(batch)) for batch in epoch_of(bitext(), 3)}


@pytest.mark.parametrize("whole", [False, True])
def test_from_any_position_the_stream_goes_on_as_if_it_had_not_stopped(whole: bool):
    """Also where every epoch takes the words apart in another way."""

    def apart(epoch: int) -> Pairs:
        return pairs(23, seed=epoch)

    made = bitext(pairs=apart, whole=whole)
    straight = list(islice(made.stream(), made.batches(0) + made.batches(1) + 3))
    assert straight[-1][0] == Position(2, 3)
    for number, (position, _) in enumerate(straight[:-1]):
        after, batch = next(made.stream(position))
        assert after == straight[number + 1][0]
        assert same(batch, straight[number + 1][1])


def test_whole_batches_have_few_shapes():
    made = bitext(pairs(499, 120), batch_tokens=509, whole=True)
    batches = epoch_of(made, 0)
    shapes = {(*batch.source.shape, *batch.target.shape) for batch in batches}
    assert len(shapes) <= 8 + 4 + 4 + 4
    assert len(shapes) < len(batches) / 2
    for rows, across, others, reach in shapes:
        assert rows == others == max(1, 509 // across)
        assert reach == across + 1


def test_lengths_are_rounded_up_a_little():
    lengths = np.array([1, 4, 5, 32, 33, 40, 41, 64, 65, 100, 128, 129, 1000])
    assert rounded(lengths).tolist() == [4, 4, 8, 32, 40, 40, 48, 64, 80, 112, 128, 160, 1024]


@given(st.integers(1, 4096))
def test_rounding_adds_a_quarter_at_most(length: int):
    (found,) = rounded(np.array([length])).tolist()
    assert length <= found < max(length + 4, 1.25 * length)
    assert rounded(np.array([found])).tolist() == [found]


@pytest.mark.parametrize("kind", ["transformer", "rnn"])
def test_rows_that_only_fill_up_change_neither_loss_nor_gradient(kind: str):
    """In double precision: the same pairs in batches of their own size, and filled up."""
    marks = {"vocab_size": 211, "dropout": 0.0, "pad": PAD, "sos": SOS, "eos": EOS}
    model = (
        Transformer(TransformerConfig(**marks, encoder_layers=1, decoder_layers=2, dim=14, heads=2, ffn_dim=11))
        if kind == "transformer"
        else Rnn(RnnConfig(**marks, layers=1, dim=14))
    )
    generator = torch.Generator().manual_seed(1)
    for parameter in model.double().parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3, generator=generator)
    found = []
    for whole in (False, True):
        given_pairs = pairs(13, 11)
        batches = epoch_of(bitext(given_pairs, whole=whole, batch_tokens=61), 0)
        assert any(len(read(batch)) < len(batch.source) for batch in batches) == whole
        total, count = 0.0, 0
        for batch in batches:
            term = translation_terms(model, batch, torch.device("cpu"), smoothing=0.1)["token"]
            term.loss.backward()
            total, count = total + float(term.loss.detach()), count + term.count
        gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        model.zero_grad()
        found.append((total, count, gradients))
    (plain, plain_count, ours), (filled, filled_count, theirs) = found
    assert filled == pytest.approx(plain, rel=1e-6)
    assert filled_count == plain_count
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("ranks", [3, 5])
def test_the_ranks_take_turns_across_epochs(ranks: int):
    made = bitext()
    assert made.batches() % ranks  # so that one turn has batches of two epochs
    rounds = made.batches() // ranks + 5
    alone = list(islice(made.stream(), rounds * ranks))
    assert alone[-1][0].epoch == 1
    for rank in range(ranks):
        mine = list(islice(made.stream(rank=rank, ranks=ranks), rounds))
        assert all(same(one[1], other[1]) for one, other in zip(mine, alone[rank::ranks], strict=True))
        assert [position for position, _ in mine] == [position for position, _ in alone][ranks - 1 :: ranks]
