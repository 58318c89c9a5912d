"""ctranslate2 against our Transformer: what it scores, what it writes, where it looks."""

from collections.abc import Callable
from pathlib import Path

import ctranslate2
import pytest
import torch
from torch import Tensor

from heedful.decode import Hypothesis, Limits, Marks, SearchOptions, Task, search
from heedful.formats.ctranslate2 import export_ctranslate2
from heedful.models.transformer import Transformer

MARKS = ["<pad>", "<s>", "</s>", "<unk>"]
KINDS = [
    pytest.param({}, id="all"),
    pytest.param({"share": "output", "target_vocab_size": 29, "activation": "gelu"}, id="output, gelu"),
    pytest.param({"share": "none", "output_bias": True}, id="none, bias"),
    pytest.param({"pre_norm": True, "share": "none", "activation": "silu"}, id="pre-norm, none, silu"),
    pytest.param({"pre_norm": True, "norm_eps": 1e-2, "activation": "gelu_new"}, id="pre-norm, epsilon, gelu_new"),
]
every_kind = pytest.mark.parametrize("changes", KINDS)

Sources = tuple[Tensor, Tensor, Tensor]


def tokens(model: Transformer) -> tuple[list[str], list[str]]:
    """The pieces of both sides, which differ where there are two vocabularies."""
    config = model.config
    source = [*MARKS, *(f"s{number}" for number in range(4, config.vocab_size))]
    if config.share == "all":
        return source, source
    return source, [*MARKS, *(f"t{number}" for number in range(4, config.target_size))]


def exported(model: Transformer, folder: Path, *, int8: bool = False) -> ctranslate2.Translator:
    export_ctranslate2(model, *tokens(model), folder, int8=int8)
    return ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)


def pieces(rows: Tensor, names: list[str]) -> list[list[str]]:
    """Rows without start, end and padding."""
    return [[names[number] for number in row if number > 2] for row in rows.tolist()]


def searched(model: Transformer, sources: Sources, beam: int, n_best: int) -> list[list[Hypothesis]]:
    source, mask, _ = sources
    state = model.start(model.encode(source, mask), beam)
    task = Task(state, [Limits(0, model.config.max_length - 1)] * len(source))
    return search(model, task, Marks(1, 2), SearchOptions(beam=beam, n_best=n_best), torch.device("cpu"))


@every_kind
@torch.no_grad()
def test_given_translations_have_the_same_probability(
    tmp_path: Path, reverser: Callable[..., Transformer], sources: Sources, changes: dict[str, object]
):
    model, (source, mask, target) = reverser(**changes), sources
    ours, theirs = tokens(model)
    found = exported(model, tmp_path / "new").score_batch(pieces(source, ours), pieces(target, theirs))
    log_probs = model(source, mask, target[:, :-1]).log_softmax(-1).gather(-1, target[:, 1:, None])[..., 0]
    for row, one in enumerate(found):
        expected = log_probs[row, : len(one.tokens)]
        assert len(one.tokens) == int((target[row] > 1).sum())
        assert one.log_probs == pytest.approx(expected.tolist(), abs=1e-4)


@every_kind
@pytest.mark.parametrize(("beam", "n_best"), [(1, 1), (4, 1), (4, 4)])
def test_both_write_the_same(
    tmp_path: Path,
    reverser: Callable[..., Transformer],
    sources: Sources,
    changes: dict[str, object],
    beam: int,
    n_best: int,
):
    model = reverser(**changes)
    ours, theirs = tokens(model)
    found = exported(model, tmp_path / "new").translate_batch(
        pieces(sources[0], ours),
        beam_size=beam,
        num_hypotheses=n_best,
        patience=beam,
        min_decoding_length=0,
        max_decoding_length=model.config.max_length,
        return_scores=True,
    )
    expected = searched(model, sources, beam, n_best)
    for one, best in zip(found, expected, strict=True):
        assert one.hypotheses == [[theirs[number] for number in each.ids] for each in best]
        assert one.scores == pytest.approx([each.score for each in best], abs=1e-4)


def test_the_marks_are_never_written_if_they_are_suppressed(
    tmp_path: Path, reverser: Callable[..., Transformer], sources: Sources
):
    model = reverser()
    changed = Transformer(model.config).eval()
    changed.load_state_dict(model.state_dict())
    with torch.no_grad():  # the start becomes as probable as the end
        changed.source_embedding.weight[1] = 1.01 * changed.source_embedding.weight[2]
    translator, given = exported(changed, tmp_path / "new"), pieces(sources[0], tokens(changed)[0])
    free = translator.translate_batch(given, beam_size=1, max_decoding_length=19)
    never = [["<pad>"], ["<s>"]]
    bound = translator.translate_batch(given, beam_size=1, max_decoding_length=19, suppress_sequences=never)
    assert any("<s>" in one.hypotheses[0] for one in free)
    assert not any("<s>" in one.hypotheses[0] for one in bound)


@every_kind
@torch.no_grad()
def test_both_look_at_the_same(
    tmp_path: Path, reverser: Callable[..., Transformer], sources: Sources, changes: dict[str, object]
):
    model, (source, mask, _) = reverser(**changes), sources
    given = pieces(source, tokens(model)[0])
    found = exported(model, tmp_path / "new").translate_batch(given, beam_size=1, return_attention=True)
    for row, one in enumerate(found):
        written = [1, *(tokens(model)[1].index(piece) for piece in one.hypotheses[0])]
        table = model.align(source[row : row + 1], mask[row : row + 1], torch.tensor([written]))[0]
        weights = torch.tensor(one.attention[0])  # the end that ctranslate2 added is left out
        assert weights.shape == (len(written) - 1, len(given[row]))
        torch.testing.assert_close(weights, table[: len(weights), : weights.shape[1]], atol=1e-5, rtol=0)


def test_eight_bits_write_nearly_the_same(tmp_path: Path, reverser: Callable[..., Transformer], sources: Sources):
    model = reverser()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    given = pieces(sources[0], tokens(model)[0])
    full, small = exported(model, tmp_path / "full"), exported(model, tmp_path / "small", int8=True)
    expected = [one.hypotheses[0] for one in full.translate_batch(given)]
    found = [one.hypotheses[0] for one in small.translate_batch(given)]
    assert sum(one == other for one, other in zip(found, expected, strict=True)) >= len(given) - 1
    assert small.compute_type.startswith("int8")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("small", "full")]
    assert sizes[0] < 0.5 * sizes[1]
    for name, tensor in before.items():
        assert torch.equal(model.state_dict()[name], tensor), name
