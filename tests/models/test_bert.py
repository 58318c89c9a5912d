import dataclasses
from itertools import pairwise

import pytest
import torch
import transformers
from torch import Tensor
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.models.bert import SIZES, Bert, BertConfig, BertForPretraining, initialise
from heedful.nn.layers import ACTIVATIONS
from heedful.nn.layout import Packed

LENGTHS = (5, 2, 7, 1)
LONGEST, TOKENS, VOCABULARY = 7, 15, 61
CONFIG = BertConfig(vocab_size=VOCABULARY, layers=3, dim=34, heads=2, ffn_dim=53, max_length=11)


def model(config: BertConfig = CONFIG, **heads: bool) -> BertForPretraining:
    made = BertForPretraining(config, **heads).eval()
    initialise(made, 0.2, torch.Generator().manual_seed(1))
    return made


def batch() -> tuple[Tensor, Tensor, Packed]:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(1, VOCABULARY, (TOKENS,), generator=generator)
    segments = torch.randint(0, 2, (TOKENS,), generator=generator)
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    return ids, segments, Packed.from_offsets(offsets, LONGEST, TOKENS)


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("size", SIZES)
def test_the_published_sizes_have_as_many_parameters_as_transformers(size: str):
    config = BertConfig.of_size(size, vocab_size=30522)
    their_config = transformers.BertConfig(
        vocab_size=30522,
        num_hidden_layers=config.layers,
        hidden_size=config.dim,
        num_attention_heads=config.heads,
        intermediate_size=4 * config.dim,
    )
    with torch.device("meta"):
        assert count(BertForPretraining(config)) == count(transformers.BertForPreTraining(their_config))
        assert count(Bert(config)) == count(transformers.BertModel(their_config))
        without = transformers.BertModel(their_config, add_pooling_layer=False)
        assert count(Bert(config, pooler=False)) == count(without)


def test_base_and_large_have_the_parameters_that_the_paper_says():
    with torch.device("meta"):
        counts = {size: count(Bert(BertConfig.of_size(size, vocab_size=30522))) for size in ("base", "large")}
    assert counts == {"base": 109_482_240, "large": 335_141_888}  # "110M" and "340M"


def test_the_published_shapes():
    assert SIZES == {
        "tiny": (2, 128, 2),
        "mini": (4, 256, 4),
        "small": (4, 512, 8),
        "medium": (8, 512, 8),
        "base": (12, 768, 12),
        "large": (24, 1024, 16),
    }
    config = BertConfig.of_size("mini", vocab_size=97, max_length=31, dropout=0.3, attention_dropout=0.2)
    assert config == BertConfig(
        vocab_size=97,
        layers=4,
        dim=256,
        heads=4,
        ffn_dim=1024,
        max_length=31,
        dropout=0.3,
        attention_dropout=0.2,
    )


@torch.no_grad()
def test_packed_agrees_with_padded():
    ids, segments, layout = batch()
    encoder, mask = model().bert, layout.mask()
    packed = encoder(ids, segments, packed=layout)
    padded = encoder(layout.unpack(ids), layout.unpack(segments), mask)
    assert packed.hidden.shape == (TOKENS, CONFIG.dim)
    assert packed.pooled.shape == (len(LENGTHS), CONFIG.dim)
    assert_close(packed.hidden, layout.pack(padded.hidden))
    assert_close(packed.pooled, padded.pooled)
    assert packed.weights is None
    assert padded.weights is None


@torch.no_grad()
def test_each_sequence_alone_gives_what_the_batch_gives():
    ids, segments, layout = batch()
    encoder = model().bert
    together = encoder(ids, segments, packed=layout)
    starts = layout.offsets.tolist()
    for row, (start, end) in enumerate(pairwise(starts)):
        alone = encoder(ids[None, start:end], segments[None, start:end])
        assert_close(together.hidden[start:end], alone.hidden[0])
        assert_close(together.pooled[row], alone.pooled[0])


@torch.no_grad()
def test_what_lies_under_the_padding_does_not_matter():
    ids, segments, layout = batch()
    made, mask = model(), layout.mask()
    one = made(layout.unpack(ids), layout.unpack(segments), mask)
    other = made(layout.unpack(ids).masked_fill(~mask, 59), layout.unpack(segments).masked_fill(~mask, 1), mask)
    assert torch.equal(one.mlm_logits[mask], other.mlm_logits[mask])
    assert torch.equal(one.nsp_logits, other.nsp_logits)
    assert not torch.equal(one.mlm_logits[~mask], other.mlm_logits[~mask])


@torch.no_grad()
def test_scores_at_chosen_positions_are_those_of_all_positions():
    ids, segments, layout = batch()
    made = model()
    chosen = torch.tensor([13, 1, 6, 9])
    everywhere, there = (made(ids, segments, packed=layout, places=p) for p in (None, chosen))
    assert everywhere.mlm_logits.shape == (TOKENS, VOCABULARY)
    assert there.mlm_logits.shape == (4, VOCABULARY)
    assert_close(there.mlm_logits, everywhere.mlm_logits[chosen])
    assert_close(there.nsp_logits, everywhere.nsp_logits)

    rectangle, mask = layout.unpack(ids), layout.mask()
    everywhere, there = (made(rectangle, mask=mask, places=p) for p in (None, chosen))
    assert everywhere.mlm_logits.shape == (len(LENGTHS), LONGEST, VOCABULARY)
    assert_close(there.mlm_logits, everywhere.mlm_logits.flatten(0, 1)[chosen])


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("nsp", [False, True])
@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("modern", [False, True])
def test_the_last_layer_of_some_tokens_alone_has_the_gradients_of_all(
    modern: bool, pool: str, nsp: bool, padded: bool
):
    ids, segments, layout = batch()
    newer = {"dim": 38, "heads": 19, "pre_norm": True, "positions": "rotary", "gated": True, "segments": 0}
    config = dataclasses.replace(CONFIG, pool=pool, **(newer if modern else {}))  # pyrefly: ignore
    places = torch.tensor([13, 1, 6, 4])
    given: tuple = (ids, segments)
    how: dict = {"packed": layout}
    if padded:
        given, how = (layout.unpack(ids), layout.unpack(segments)), {"mask": layout.mask()}
        places = layout.slots[places]

    def gradients(everywhere: bool) -> dict[str, Tensor]:
        made = model(config, nsp=nsp)
        found = made(*given, **how, places=None if everywhere else places)
        words = found.mlm_logits.flatten(0, -2)[places] if everywhere else found.mlm_logits
        (words.square().sum() + (found.nsp_logits.square().sum() if nsp else 0)).backward()
        return {name: one.grad for name, one in made.named_parameters() if one.grad is not None}

    some, every = gradients(False), gradients(True)
    assert some.keys() == every.keys()
    for name, one in every.items():
        assert_close(some[name], one, msg=name, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_nothing_is_computed_for_tokens_that_nobody_reads():
    ids, segments, layout = batch()
    made, seen = model(), []
    for layer in made.bert.layers:
        layer.feed_forward.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))  # pyrefly: ignore
    made(ids, segments, packed=layout, places=torch.tensor([13, 1, 6]))
    assert seen == [TOKENS, TOKENS, 3 + len(LENGTHS)]


@torch.no_grad()
def test_no_position_at_all_is_allowed():
    ids, segments, layout = batch()
    nothing = model()(ids, segments, packed=layout, places=torch.tensor([], dtype=torch.int64))
    assert nothing.mlm_logits.shape == (0, VOCABULARY)


@torch.no_grad()
def test_a_mask_of_whole_numbers_is_as_good_as_one_of_truths():
    ids, _, layout = batch()
    encoder, rectangle, mask = model().bert, layout.unpack(ids), layout.mask()
    expected = encoder(rectangle, mask=mask).hidden
    for dtype in (torch.int64, torch.int32, torch.uint8):
        assert torch.equal(encoder(rectangle, mask=mask.to(dtype)).hidden, expected)
    assert not torch.equal(encoder(rectangle).hidden, expected)


@torch.no_grad()
def test_without_segments_every_token_is_of_the_first():
    ids, segments, layout = batch()
    encoder = model().bert
    without = encoder(ids, packed=layout).hidden
    assert_close(without, encoder(ids, torch.zeros_like(segments), packed=layout).hidden)
    assert not torch.allclose(without, encoder(ids, segments, packed=layout).hidden)


@torch.no_grad()
def test_the_order_of_the_tokens_matters():
    ids, _, _ = batch()
    encoder = model().bert
    there, back = encoder(ids[None, :7]).hidden, encoder(ids[None, :7].flip(1)).hidden.flip(1)
    assert not torch.allclose(there, back, atol=1e-3)


@torch.no_grad()
def test_explaining_returns_the_weights_of_every_layer():
    ids, segments, layout = batch()
    encoder = model().bert
    plain = encoder(ids, segments, packed=layout)
    explained = encoder(ids, segments, packed=layout, explain=True)
    assert len(explained.weights) == CONFIG.layers
    for weights in explained.weights:
        assert weights.shape == (len(LENGTHS), CONFIG.heads, LONGEST, LONGEST)
        assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert not torch.equal(explained.weights[0], explained.weights[1])
    assert_close(explained.hidden, plain.hidden)
    assert_close(explained.pooled, plain.pooled)


def test_heads_that_are_not_there_score_nothing():
    ids, segments, layout = batch()
    words, sentences = model(nsp=False), model(mlm=False)
    assert words.bert.pooler is None
    assert sentences.bert.pooler is not None
    assert words(ids, segments, packed=layout).nsp_logits is None
    assert sentences(ids, segments, packed=layout).mlm_logits is None
    assert sentences(ids, segments, packed=layout).nsp_logits.shape == (len(LENGTHS), 2)
    assert Bert(CONFIG, pooler=False)(ids, packed=layout).pooled is None


def test_the_tied_head_teaches_the_embedding():
    ids, _, layout = batch()
    unused = next(i for i in range(VOCABULARY) if i not in ids)
    for tied in (True, False):
        made = model(dataclasses.replace(CONFIG, tied=tied))
        assert ("mlm.decoder" in dict(made.named_parameters())) != tied
        made(ids, packed=layout).mlm_logits.square().sum().backward()
        assert bool(made.bert.embeddings.tokens.weight.grad[unused].any()) == tied


def test_dropout_acts_in_training_only():
    ids, _, layout = batch()
    made = model(dataclasses.replace(CONFIG, dropout=0.5, attention_dropout=0.0))
    with torch.no_grad():
        assert torch.equal(made.bert(ids, packed=layout).hidden, made.bert(ids, packed=layout).hidden)
        made.train()
        assert not torch.equal(made.bert(ids, packed=layout).hidden, made.bert(ids, packed=layout).hidden)


@pytest.mark.parametrize("length", [12, 13])
def test_a_sequence_beyond_the_positions_is_refused(length: int):
    ids = torch.ones(length, dtype=torch.int64)
    layout = Packed.from_offsets(torch.tensor([0, length], dtype=torch.int32), length, length)
    message = f"a sequence of {length} tokens is beyond the model's 11 positions"
    with pytest.raises(UserError, match=message):
        model().bert(ids[None])
    with pytest.raises(UserError, match=message):
        model().bert(ids, packed=layout)


def test_a_sequence_of_all_positions_is_read():
    assert model().bert(torch.ones(1, 11, dtype=torch.int64)).hidden.shape == (1, 11, CONFIG.dim)


def test_an_unknown_size_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match="'huge' is not known; choose from tiny, mini, small, medium, base, large"):
        BertConfig.of_size("huge", vocab_size=97)


def test_an_unknown_activation_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"activation 'tanh' is not known; choose from gelu, .*relu"):
        dataclasses.replace(CONFIG, activation="tanh")


@pytest.mark.parametrize("name", ["vocab_size", "layers", "dim", "heads", "ffn_dim", "max_length"])
def test_nothing_may_be_smaller_than_one(name: str):
    with pytest.raises(UserError, match=f"{name} 0 must be at least 1"):
        dataclasses.replace(CONFIG, **{name: 0})


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_transformers_of_the_same_name(activation: str):
    x = torch.linspace(-5, 5, 101)
    assert_close(ACTIVATIONS[activation](x), transformers.activations.ACT2FN[activation](x))


def test_initial_weights():
    config = BertConfig(vocab_size=997, layers=2, dim=128, heads=2, ffn_dim=257, tied=False)
    made = BertForPretraining(config)
    initialise(made, 0.05, torch.Generator().manual_seed(3))
    for name, parameter in made.named_parameters():
        if parameter.dim() == 1:
            expected = torch.ones if name.endswith("norm.weight") else torch.zeros
            assert torch.equal(parameter.data, expected(parameter.shape)), name
        else:
            spread = 5 * 0.05 / parameter.numel() ** 0.5
            assert abs(parameter.mean()) < spread, name
            assert abs(parameter.std() - 0.05) < spread, name
    norms = [name for name, p in made.named_parameters() if p.dim() == 1 and p.data.all()]
    assert len(norms) == 1 + 2 * config.layers + 1


def test_initial_weights_follow_from_the_generator_alone():
    states = []
    for seed in (5, 5, 7):
        made = BertForPretraining(CONFIG)
        initialise(made, 0.02, torch.Generator().manual_seed(seed))
        states.append(made.state_dict())
    first, same, other = states
    for name, tensor in first.items():
        assert torch.equal(tensor, same[name])
        assert torch.equal(tensor, other[name]) == (tensor.dim() == 1)
