"""The objectives' sums on a packed batch of two short sequences, by hand and against the padded path."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heedful.data.batch import PretrainingBatch
from heedful.models.bert import BertConfig, BertForPretraining, PretrainingOutput
from heedful.tasks.pretraining import pretraining_counts, pretraining_terms

CPU = torch.device("cpu")
LENGTHS = (5, 3)
BATCH = PretrainingBatch(
    ids=np.array([2, 7, 4, 11, 3, 2, 4, 3]),
    segments=np.array([0, 0, 0, 1, 1, 0, 1, 1]),
    offsets=np.array([0, 5, 8], dtype=np.int32),
    longest=5,
    places=np.array([2, 3, 6]),
    labels=np.array([0, 1, 2]),
    unrelated=np.array([1, 0]),
)
SINGLE = BATCH._replace(unrelated=None)


def test_the_counts_are_known_beforehand():
    assert pretraining_counts(BATCH) == {"mlm": 3, "nsp": 2}
    assert pretraining_counts(SINGLE) == {"mlm": 3}
    assert pretraining_counts(BATCH._replace(labels=np.array([], dtype=np.int64))) == {"mlm": 0, "nsp": 2}


def test_the_sums_by_hand():
    """Shares of 3/5, 1/5, 1/5 for the words, of 1/4, 3/4 for the sentences."""
    three, none = math.log(3), 0.0
    words = torch.tensor([[three, none, none]] * 3)
    pairs = torch.tensor([[none, three]] * 2)
    asked = {}

    def model(ids, segments, *, packed, places):
        asked.update(ids=ids, segments=segments, places=places)
        return PretrainingOutput(words, pairs)

    terms = pretraining_terms(model, BATCH, CPU)
    # The labels are 0, 1 and 2: the first is right, and costs ln 5/3; the others cost ln 5.
    assert terms["mlm"].loss.item() == pytest.approx(math.log(5 / 3) + 2 * math.log(5))
    assert (terms["mlm"].correct.item(), terms["mlm"].count) == (1, 3)
    # The labels are 1 and 0: ln 4/3 and ln 4.
    assert terms["nsp"].loss.item() == pytest.approx(math.log(4 / 3) + math.log(4))
    assert (terms["nsp"].correct.item(), terms["nsp"].count) == (1, 2)
    assert asked["ids"].tolist() == BATCH.ids.tolist()
    assert asked["segments"].tolist() == BATCH.segments.tolist()
    assert asked["places"].tolist() == [2, 3, 6]


def test_half_precision_scores_are_summed_in_full():
    scores = torch.full((997, 2), 1.0, dtype=torch.bfloat16)
    batch = SINGLE._replace(labels=np.zeros(997, dtype=np.int64))
    terms = pretraining_terms(lambda *_, **__: SimpleNamespace(mlm_logits=scores), batch, CPU)
    assert terms["mlm"].loss.dtype == torch.float32
    assert terms["mlm"].loss.item() == pytest.approx(997 * math.log(2), rel=1e-5)  # bf16 would be off by parts in 256


@pytest.mark.parametrize("batch", [BATCH, SINGLE], ids=["pairs", "single"])
def test_a_packed_batch_gives_what_padding_gives(batch: PretrainingBatch):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=13, layers=2, dim=6, heads=2, ffn_dim=7, max_length=11)
    model = BertForPretraining(config, nsp=batch.unrelated is not None).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.5)  # so that nothing is nearly nothing
        terms = pretraining_terms(model, batch, CPU)
        rows = [torch.from_numpy(row) for row in np.split(batch.ids, [LENGTHS[0]])]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        rows = [torch.from_numpy(row) for row in np.split(batch.segments, [LENGTHS[0]])]
        segments = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
        # Without pairs every token is of the first segment, whatever the batch says.
        output = model(ids, segments if batch.unrelated is not None else None, mask)
    chosen = output.mlm_logits[torch.tensor([0, 0, 1]), torch.tensor([2, 3, 1])]
    labels = torch.from_numpy(batch.labels)
    assert terms["mlm"].loss.item() == pytest.approx(3 * F.cross_entropy(chosen, labels).item(), rel=1e-5)
    assert terms["mlm"].correct.item() == (chosen.argmax(-1) == labels).sum().item()
    if batch.unrelated is None:
        assert terms.keys() == {"mlm"}
        return
    unrelated = torch.from_numpy(batch.unrelated)
    assert terms["nsp"].loss.item() == pytest.approx(
        2 * F.cross_entropy(output.nsp_logits, unrelated).item(), rel=1e-5
    )
