import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.models.transformer import ROOM, SHARES, SIZES, Transformer, TransformerConfig, initialise
from heedful.nn.positions import sinusoidal

LENGTHS = (5, 2, 7)
B, S, T, K, VOCABULARY = 3, 7, 11, 2, 61
CONFIG = TransformerConfig(
    vocab_size=VOCABULARY, encoder_layers=2, decoder_layers=3, dim=26, heads=2, ffn_dim=37, max_length=157
)
both_norms = pytest.mark.parametrize("pre_norm", [False, True])


def model(**changes: object) -> Transformer:
    """Every parameter counts: biases are not zero, norms not one."""
    made = Transformer(dataclasses.replace(CONFIG, **changes)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)
    return made


def ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def batch() -> tuple[Tensor, Tensor, Tensor]:
    mask = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
    target = ids(B, T, seed=2)
    target[:, 0] = CONFIG.sos
    return ids(B, S).masked_fill(~mask, CONFIG.pad), mask, target


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("size", "published"), [("base", 65e6), ("big", 213e6)])
@both_norms
def test_sizes_have_the_published_parameters(size: str, published: float, pre_norm: bool):
    """Of the paper's table 3, with its 37,000 tokens; to the one those of torch's module and a table."""
    config = TransformerConfig.of_size(size, vocab_size=37_000, pre_norm=pre_norm)
    layers, dim, heads, ffn_dim = SIZES[size]
    with torch.device("meta"):
        ours, theirs = Transformer(config), nn.Transformer(dim, heads, layers, layers, ffn_dim, batch_first=True)
    last_norms = 0 if pre_norm else 2 * 2 * dim  # torch's norms the states once more, as only pre-norm needs
    assert count(ours) == count(theirs) - last_norms + 37_000 * dim
    assert count(ours) == pytest.approx(published, rel=0.035)


def test_each_table_that_is_not_shared_is_a_table_more():
    with torch.device("meta"):
        counts = {share: count(Transformer(dataclasses.replace(CONFIG, share=share))) for share in SHARES}
        counts["bias"] = count(Transformer(dataclasses.replace(CONFIG, output_bias=True)))
    table = VOCABULARY * CONFIG.dim
    expected = {"all": 0, "output": table, "none": 2 * table, "bias": VOCABULARY}
    assert {kind: number - counts["all"] for kind, number in counts.items()} == expected


@pytest.mark.parametrize("share", SHARES)
@torch.no_grad()
def test_what_is_shared_reads_and_writes_with_one_table(share: str):
    """Changing a row of the source's table shows where that table is used, and nowhere else."""
    made = model(share=share)
    token, (source, mask, target) = 17, batch()
    source, target = (x.masked_fill(x == token, 18) for x in (source, target))
    before, embedded = made(source, mask, target), made.embed_target(torch.full((1, 1), token))
    made.source_embedding.weight[token] += 1.0
    after = made(source, mask, target)
    writes = (after != before).any(0).any(0)
    assert writes.nonzero().flatten().tolist() == ([token] if share == "all" else [])
    assert torch.equal(made.embed_target(torch.full((1, 1), token)), embedded) == (share != "all")
    if share == "output":
        made.target_embedding.weight[token] += 1.0
        assert (made(source, mask, target) != after).any(0).any(0).nonzero().flatten().tolist() == [token]


@torch.no_grad()
def test_a_target_may_have_a_vocabulary_of_its_own():
    source, mask, target = batch()
    for share in ("output", "none"):
        assert model(share=share, target_vocab_size=67)(source, mask, target).shape == (B, T, 67)
    with pytest.raises(UserError, match="two vocabularies can't share all tables; use share output or none"):
        model(share="all", target_vocab_size=67)


@torch.no_grad()
def test_embeddings_are_scaled_and_have_their_positions():
    made = model(share="output")
    source = torch.tensor([[4, 4, 19]])
    expected = made.source_embedding.weight[source[0]] * math.sqrt(26) + sinusoidal(3, 26)
    assert_close(made.embed_source(source)[0], expected)
    assert made.target_embedding is not None
    expected = made.target_embedding.weight[source[0]] * math.sqrt(26) + sinusoidal(3, 26)
    assert_close(made.embed_target(source)[0], expected)


@torch.no_grad()
def test_the_output_bias_is_added():
    states = torch.randn(3, 26, generator=torch.Generator().manual_seed(3))
    made = model(output_bias=True)
    assert made.output_bias is not None
    assert_close(made.output(states), states @ made.source_embedding.weight.T + made.output_bias)


@both_norms
@torch.no_grad()
def test_no_target_token_changes_what_came_before_it(pre_norm: bool):
    made = model(pre_norm=pre_norm)
    source, mask, target = batch()
    before = made(source, mask, target)
    for place in range(T):
        other = target.clone()
        other[:, place] = (other[:, place] + 1) % VOCABULARY
        after = made(source, mask, other)
        assert torch.equal(after[:, :place], before[:, :place])
        assert (after[:, place:] != before[:, place:]).any(-1).all()


@both_norms
@torch.no_grad()
def test_no_padding_changes_anything_and_every_real_token_does(pre_norm: bool):
    made = model(pre_norm=pre_norm)
    source, mask, target = batch()
    before = made(source, mask, target)
    for place in range(S):
        other = source.clone()
        other[:, place] = (other[:, place] + 1) % VOCABULARY
        changed = (made(other, mask, target) != before).any(-1)  # (B, T)
        assert changed.all(-1).tolist() == mask[:, place].tolist()
        assert changed.any(-1).tolist() == mask[:, place].tolist()


@both_norms
@torch.no_grad()
def test_a_sentence_in_a_batch_is_as_if_it_were_alone(pre_norm: bool):
    made = model(pre_norm=pre_norm)
    source, mask, target = batch()
    together = made(source, mask, target)
    for row, length in enumerate(LENGTHS):
        alone = made(source[row : row + 1, :length], mask[row : row + 1, :length], target[row : row + 1])
        assert_close(together[row], alone[0], atol=1e-4, rtol=1e-4)


@both_norms
@torch.no_grad()
def test_step_by_step_is_all_at_once_however_long(pre_norm: bool):
    """Past two doublings of the room, with beams that differ."""
    length = 4 * ROOM + 3
    made = model(pre_norm=pre_norm)
    source, mask, _ = batch()
    target = ids(B, K, length, seed=5)
    memory = made.encode(source, mask)
    cache, steps = made.start(memory, K), []
    for place in range(length):
        scores, cache, nothing = made.step(cache, target[:, :, place])
        assert nothing is None
        steps.append(scores)
    assert cache.length == length
    for beam in range(K):
        assert_close(torch.stack(steps, 2)[:, beam], made(source, mask, target[:, beam]), atol=1e-4, rtol=1e-4)


@settings(deadline=None, max_examples=15)
@given(data=st.data(), beams=st.integers(1, 4), length=st.integers(1, 9))
@torch.no_grad()
def test_beams_that_change_places_write_as_if_each_were_alone(data: st.DataObject, beams: int, length: int):
    made = model()
    source, mask, _ = batch()
    draws = st.integers(0, beams - 1)
    tokens, cache = ids(length, B, beams, seed=beams), made.start(made.encode(source, mask), beams)
    written = torch.zeros(B, beams, 0, dtype=torch.long)
    scores = torch.empty(0)
    for place in range(length):
        chosen = data.draw(st.lists(st.lists(draws, min_size=beams, max_size=beams), min_size=B, max_size=B))
        parents = torch.tensor(chosen)
        written = written.gather(1, parents[..., None].expand(-1, -1, place))
        written = torch.cat([written, tokens[place][..., None]], -1)
        scores, cache, _ = made.step(cache, tokens[place], parents)
    for beam in range(beams):
        assert_close(scores[:, beam], made(source, mask, written[:, beam])[:, -1], atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_sentences_that_stay_go_on_as_before():
    made = model()
    source, mask, _ = batch()
    target = ids(B, K, T, seed=5)
    cache = made.start(made.encode(source, mask), K)
    for place in range(4):
        _, cache, _ = made.step(cache, target[:, :, place])
    staying = torch.tensor([2, 0])
    kept, steps = made.keep(cache, staying), []
    for place in range(4, T):
        scores, kept, _ = made.step(kept, target[staying, :, place])
        steps.append(scores)
    for beam in range(K):
        expected = made(source[staying], mask[staying], target[staying, beam])[:, 4:]
        assert_close(torch.stack(steps, 2)[:, beam], expected, atol=1e-4, rtol=1e-4)


@both_norms
@torch.no_grad()
def test_alignments_share_out_attention_among_real_tokens(pre_norm: bool):
    made = model(pre_norm=pre_norm)
    source, mask, target = batch()
    weights = made.align(source, mask, target)
    assert weights.shape == (B, T, S)
    assert_close(weights.sum(-1), torch.ones(B, T))
    assert not weights[~mask[:, None].expand(-1, T, -1)].any()
    assert (weights[mask[:, None].expand(-1, T, -1)] > 0).all()
    # The middle of three layers aligns, by the mean of its heads.
    _, layers = made.decode(made.embed_target(target), made.encode(source, mask), explain=True)
    assert [layer.shape for layer in layers] == [(B, 2, T, S)] * 3
    assert_close(weights, (layers[1][:, 0] + layers[1][:, 1]) / 2)
    cache = made.start(made.encode(source, mask), 1)
    for place in range(T):
        _, cache, seen = made.step(cache, target[:, place : place + 1], explain=True)
        assert seen is not None
        assert_close(seen[:, 0], weights[:, place], atol=1e-5, rtol=1e-4)


def test_gradients_reach_every_parameter():
    made = model(share="none", output_bias=True, pre_norm=True).train()
    made(*batch()).square().mean().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        # A key's bias shifts a whole row of scores, which the softmax doesn't see.
        assert name.endswith("key.bias") or parameter.grad.abs().max() > 0, name


@torch.no_grad()
def test_the_same_seed_draws_the_same_weights():
    first, second = (Transformer(dataclasses.replace(CONFIG, dim=128, vocab_size=997)) for _ in range(2))
    for made in (first, second):
        initialise(made, torch.Generator().manual_seed(7))
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, second.get_parameter(name))
        if parameter.dim() == 1:
            assert parameter.unique().tolist() == [1.0 if name.endswith("norm.weight") else 0.0]
    assert first.source_embedding.weight.std() == pytest.approx(128**-0.5, rel=0.02)
    inner = first.encoder[0].get_parameter("feed_forward.inner.weight")
    bound = math.sqrt(6 / (128 + 37))
    assert bound * 0.99 < inner.abs().max() <= bound


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "tanh"}, "activation 'tanh' is not known; choose from gelu, "),
        ({"share": "some"}, "share 'some' is not known; choose from all, output, none"),
        ({"encoder_layers": 0}, "encoder_layers 0 must be at least 1"),
        ({"heads": 3}, "dim 26 is not divisible by heads 3; try dim 24 or 27"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, object], message: str):
    with pytest.raises(UserError) as caught:
        model(**changes)
    assert str(caught.value).startswith(message)


def test_sizes_and_lengths_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="size 'huge' is not known; choose from tiny, small, base, big"):
        TransformerConfig.of_size("huge", vocab_size=7)
    with pytest.raises(UserError, match="a sequence of 158 tokens is beyond the model's 157 positions"):
        model().embed_source(ids(1, 158))
