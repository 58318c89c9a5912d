import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from heedful.data.batch import PairBatch
from heedful.models.rnn import Rnn, RnnConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.tasks.translation import objective, translation_counts, translation_terms, twice

CPU = torch.device("cpu")
PAD, SOS, EOS, V = 0, 1, 2, 29
BATCH = PairBatch(
    np.array([[5, 6, 7, EOS, PAD], [8, EOS, PAD, PAD, PAD], [9, 10, 11, 12, EOS]]),
    np.array([[SOS, 13, 14, EOS], [SOS, 15, EOS, PAD], [SOS, EOS, PAD, PAD]]),
    PAD,
)
both = pytest.mark.parametrize("kind", ["transformer", "rnn"])


def model(kind: str, dropout: float = 0.0) -> Transformer | Rnn:
    made = (
        Transformer(
            TransformerConfig(
                vocab_size=V, encoder_layers=2, decoder_layers=1, dim=14, heads=2, ffn_dim=11, dropout=dropout
            )
        )
        if kind == "transformer"
        else Rnn(RnnConfig(vocab_size=V, layers=1, dim=14, dropout=dropout))
    ).double()
    generator = torch.Generator().manual_seed(3)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3, generator=generator)
    return made.train()


def scores_and_labels(rows: int, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    return scores, torch.randint(1, classes, (rows,), generator=generator)


def test_label_smoothing_by_hand():
    """Probabilities .5 .25 .125 .125 and a third of the weight on all four alike."""
    scores = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    loss, right = objective(scores, torch.tensor([1]), pad=9, smoothing=1 / 3)
    nats = math.log(2)
    assert float(loss) == pytest.approx(2 / 3 * 2 * nats + 1 / 3 * (1 + 2 + 3 + 3) / 4 * nats)
    assert int(right) == 0
    loss, right = objective(scores, torch.tensor([0]), pad=9, smoothing=0.0)
    assert float(loss) == pytest.approx(nats)
    assert int(right) == 1


def test_half_precision_is_summed_in_whole_and_double_stays():
    scores, labels = scores_and_labels(6)
    for dtype, expected in ((torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64,) * 2):
        assert objective(scores.to(dtype), labels, PAD, 0.1, 1.0)[0].dtype == expected


def test_labels_that_are_padding_count_for_nothing():
    scores, labels = scores_and_labels(12)
    padded = labels.clone()
    padded[[1, 4, 7, 10]] = PAD  # the two readings of a row are six apart
    keep = torch.tensor([0, 2, 3, 5, 6, 8, 9, 11])
    for agreement in (0.0, 1.7):
        ours = objective(scores, padded, PAD, 0.1, agreement)
        theirs = objective(scores[keep], labels[keep], PAD, 0.1, agreement)
        assert_close(ours, theirs)


@both
def test_terms_are_sums_over_the_tokens_to_write(kind: str):
    made = model(kind)
    term = translation_terms(made, BATCH, CPU, smoothing=0.1)["token"]
    assert translation_counts(BATCH) == {"token": term.count} == {"token": 3 + 2 + 1}
    total, right = 0.0, 0
    for source, target in zip(BATCH.source.tolist(), BATCH.target.tolist(), strict=True):
        content, written = [[token for token in row if token != PAD] for row in (source, target)]
        mask = torch.ones(1, len(content), dtype=torch.bool)
        log_probs = made(torch.tensor([content]), mask, torch.tensor([written[:-1]]))[0].log_softmax(-1)
        for each, token in zip(log_probs, written[1:], strict=True):
            total -= 0.9 * float(each[token].detach()) + 0.1 * float(each.mean().detach())
            right += int(each.argmax()) == token
    assert float(term.loss.detach()) == pytest.approx(total, rel=1e-6)
    assert int(term.correct) == right


@both
@pytest.mark.parametrize("agreement", [0.0, 2.0])
def test_more_padding_changes_nothing(kind: str, agreement: float):
    wider = PairBatch(
        np.pad(BATCH.source, ((0, 0), (0, 3)), constant_values=PAD),
        np.pad(BATCH.target, ((0, 0), (0, 2)), constant_values=PAD),
        PAD,
    )
    made, found = model(kind), []
    for batch in (BATCH, wider):
        term = translation_terms(made, batch, CPU, 0.1, agreement)["token"]
        term.loss.backward()
        found.append([term.loss.detach(), *(one.grad.clone() for one in made.parameters() if one.grad is not None)])
        made.zero_grad()
    for one, other in zip(*found, strict=True):
        assert_close(one, other, rtol=1e-6, atol=1e-9)


def divergence(one: Tensor, other: Tensor) -> float:
    return sum(float(p * (p / q).log()) for p, q in zip(one.softmax(-1), other.softmax(-1), strict=True))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_agreement_is_the_formula(smoothing: float):
    """Half of what Liang et al. minimise: both losses, and alpha times the mean divergence of the two."""
    alpha, rows = 3.0, 7
    scores, labels = scores_and_labels(2 * rows)
    labels[rows:] = labels[:rows]
    expected = 0.0
    for row in range(rows):
        one, other, label = scores[row], scores[rows + row], int(labels[row])
        for reading in (one, other):
            log_probs = reading.log_softmax(-1)
            expected -= (1 - smoothing) * float(log_probs[label]) + smoothing * float(log_probs.mean())
        expected += alpha * (divergence(one, other) + divergence(other, one)) / 2
    loss, right = objective(scores, labels, PAD, smoothing, alpha)
    assert float(loss) == pytest.approx(expected / 2)
    assert int(right) == int((scores.argmax(-1) == labels).sum()) // 2


@both
def test_readings_without_dropout_agree(kind: str):
    """The loss is then that of one reading, whatever the weight; with dropout it is not."""
    steady, shaky = model(kind), model(kind, dropout=0.3)
    plain = translation_terms(steady, BATCH, CPU, 0.1)["token"]
    agreed = translation_terms(steady, BATCH, CPU, 0.1, agreement=7.0)["token"]
    assert_close(agreed.loss, plain.loss)
    assert (agreed.count, int(agreed.correct)) == (plain.count, int(plain.correct))
    found = []
    for weight in (1e-9, 7.0):
        torch.manual_seed(5)
        found.append(float(translation_terms(shaky, BATCH, CPU, 0.1, agreement=weight)["token"].loss.detach()))
    assert found[1] > found[0] + 0.1


@pytest.mark.parametrize("agreement", [0.0, 2.5])
def test_gradients_are_those_of_the_loss(agreement: float):
    scores, labels = scores_and_labels(6)
    labels[3:] = labels[:3]
    labels[[1, 4]] = PAD

    def loss(given: Tensor) -> Any:
        return objective(given, labels, PAD, 0.1, agreement)[0]

    assert torch.autograd.gradcheck(loss, scores.requires_grad_())


def test_twice_is_all_pairs_and_then_all_pairs_again():
    double = twice(BATCH)
    assert np.array_equal(double.source[:3], BATCH.source)
    assert np.array_equal(double.source[3:], BATCH.source)
    assert np.array_equal(double.target[:3], double.target[3:])
    assert double.predictions == 2 * BATCH.predictions
