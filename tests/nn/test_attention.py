import importlib
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.nn.attention import MultiHeadAttention, causal_mask, explained_attention, packed_attention
from heedful.nn.layout import Packed, Padded
from heedful.nn.positions import rotary, rotate

DIM, HEADS = 21, 3
LENGTHS = (5, 2, 7)
LONGEST, TOKENS = 7, 14


def packed_layout(lengths: tuple[int, ...] = LENGTHS) -> Packed:
    offsets = torch.tensor([0, *lengths]).cumsum(0).int()
    return Packed.from_offsets(offsets, max(lengths), sum(lengths))


def attention(dropout: float = 0.0) -> MultiHeadAttention:
    torch.manual_seed(11)
    return MultiHeadAttention(DIM, HEADS, dropout).eval()


def torchs(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """torch's module with the same weights."""
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True).eval()
    with torch.no_grad():
        projections = (ours.query, ours.key, ours.value)
        assert theirs.in_proj_weight is not None
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    return theirs


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_two_tokens_by_hand():
    # K = 4, so scores are halved: token 0 scores (ln 3, 0), token 1 scores (0, 0).
    query = torch.tensor([[2 * math.log(3), 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])[None, None]
    key = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])[None, None]
    value = torch.tensor([[4.0, 0.0, 8.0, 1.0], [0.0, 4.0, 16.0, 1.0]])[None, None]
    mixed, weights = explained_attention(query, key, value)
    assert_close(weights, torch.tensor([[[[0.75, 0.25], [0.5, 0.5]]]]))
    assert_close(mixed, torch.tensor([[[[3.0, 1.0, 10.0, 1.0], [2.0, 2.0, 12.0, 1.0]]]]))


def test_two_tokens_by_hand_with_a_mask():
    query = key = torch.zeros(1, 1, 2, 4)
    value = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])[None, None]
    mask = torch.tensor([[True, False], [True, True]])
    mixed, weights = explained_attention(query, key, value, mask)
    assert_close(weights, torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]]))
    assert_close(mixed, torch.tensor([[[[1.0, 2.0, 3.0, 4.0], [3.0, 4.0, 5.0, 6.0]]]]))


def test_a_token_that_may_attend_to_nothing_gets_zeros_and_sound_gradients():
    query, key, value = (normal(1, 1, 2, 3, seed=i).requires_grad_() for i in range(3))
    mask = torch.tensor([[False, False], [True, True]])
    mixed, weights = explained_attention(query, key, value, mask)
    assert mixed[0, 0, 0].tolist() == [0.0, 0.0, 0.0]
    assert weights[0, 0, 0].tolist() == [0.0, 0.0]
    mixed.sum().backward()
    for x in (query, key, value):
        assert x.grad is not None
        assert x.grad.isfinite().all()


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 7), st.integers(1, 7), st.integers(1, 11)),
    seed=st.integers(0, 2**31),
)
def test_the_explained_path_agrees_with_torch(sizes: tuple[int, ...], seed: int):
    batch, heads, targets, sources, width = sizes
    query = normal(batch, heads, targets, width, seed=seed)
    key, value = (normal(batch, heads, sources, width, seed=seed + i) for i in (1, 2))
    mask = normal(batch, 1, targets, sources, seed=seed + 3) > 0
    mask[..., 0] = True
    for some in (None, mask):
        mixed, weights = explained_attention(query, key, value, some)
        assert_close(mixed, F.scaled_dot_product_attention(query, key, value, some))
        assert_close(weights.sum(-1), torch.ones(batch, heads, targets))


def test_the_scale_keeps_the_variance_of_the_scores_at_one():
    for width in (2, 97, 997):
        query, key = normal(1, 1, 101, width, seed=1), normal(1, 1, 103, width, seed=2)
        _, weights = explained_attention(query, key, key)
        # A row's log weights are its scores less a constant.
        assert weights.log().var(-1).mean() == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("masked", [False, True])
def test_several_heads_agree_with_torchs_module(masked: bool):
    ours = attention()
    theirs = torchs(ours)
    x, mask = normal(len(LENGTHS), LONGEST, DIM), packed_layout().mask()
    padding = ~mask if masked else None
    with torch.no_grad():
        expected, expected_weights = theirs(x, x, x, padding, average_attn_weights=False)
        mixed, weights = ours(x, Padded(mask if masked else None), explain=True)
        fast, nothing = ours(x, Padded(mask if masked else None))
    assert nothing is None
    assert_close(weights, expected_weights)
    real = mask if masked else torch.ones_like(mask)
    assert_close(mixed[real], expected[real])
    assert_close(fast[real], expected[real])


@pytest.mark.parametrize("layout", [Padded(None), Padded(packed_layout().mask()), packed_layout()])
def test_both_paths_give_the_same_answer(layout: Padded | Packed):
    module = attention()
    x = normal(TOKENS, DIM) if isinstance(layout, Packed) else normal(len(LENGTHS), LONGEST, DIM)
    with torch.no_grad():
        fast, nothing = module(x, layout)
        explained, weights = module(x, layout, explain=True)
    assert nothing is None
    assert_close(explained, fast)
    assert weights.shape == (len(LENGTHS), HEADS, LONGEST, LONGEST)
    assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    mask = layout.mask() if isinstance(layout, Packed) else layout.mask
    if mask is not None:
        hidden = ~mask[:, None, None].expand_as(weights)
        assert hidden.any()
        assert not weights[hidden].any()


def test_packed_agrees_with_padded():
    module, layout, x = attention(), packed_layout(), normal(TOKENS, DIM)
    with torch.no_grad():
        packed, packed_weights = module(x, layout, explain=True)
        padded, padded_weights = module(layout.unpack(x), Padded(layout.mask()), explain=True)
    assert_close(packed, layout.pack(padded))
    real = layout.mask()[:, None].expand(-1, HEADS, -1)  # what padding attends to is nobody's business
    assert_close(packed_weights[real], padded_weights[real])


def test_no_padded_token_changes_a_real_output():
    module, mask = attention(), packed_layout().mask()
    x = normal(len(LENGTHS), LONGEST, DIM)
    with torch.no_grad():
        before = module(x, Padded(mask))[0]
        padding = torch.nonzero(~mask).tolist()
        assert len(padding) == 2 + 5
        for row, column in padding:
            other = x.clone()
            other[row, column] += 13.0
            assert torch.equal(module(other, Padded(mask))[0][mask], before[mask])


def test_no_token_changes_another_packed_sequence():
    module, layout, x = attention(), packed_layout(), normal(TOKENS, DIM)
    rows = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    with torch.no_grad():
        before = module(x, layout)[0]
        for token in range(TOKENS):
            other = x.clone()
            other[token] += 13.0
            after = module(other, layout)[0]
            same_sequence = rows == rows[token]
            assert torch.equal(after[~same_sequence], before[~same_sequence])
            assert (after[same_sequence] != before[same_sequence]).any(-1).all()


@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_a_look_at_itself_agrees_with_torchs_module(causal: bool):
    ours, x = attention(), normal(len(LENGTHS), LONGEST, DIM)
    later = torch.ones(LONGEST, LONGEST, dtype=torch.bool).triu(1) if causal else None
    expected, expected_weights = torchs(ours)(x, x, x, attn_mask=later, average_attn_weights=False)
    explained, weights = ours.look_up(x, ours.keys(x), causal=causal, explain=True)
    fast, nothing = ours.look_up(x, ours.keys(x), causal=causal)
    assert nothing is None
    assert_close(weights, expected_weights)
    assert_close(explained, expected)
    assert_close(fast, expected)


@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_a_look_at_a_source_agrees_with_torchs_module(masked: bool):
    """Three targets of 11 tokens that look at sources of other lengths."""
    ours = attention()
    x, source = normal(len(LENGTHS), 11, DIM), normal(len(LENGTHS), LONGEST, DIM, seed=1)
    real = packed_layout().mask()
    padding, mask = (~real, real[:, None, None]) if masked else (None, None)
    expected, expected_weights = torchs(ours)(x, source, source, padding, average_attn_weights=False)
    explained, weights = ours.look_up(x, ours.keys(source), mask, explain=True)
    assert weights is not None
    assert weights.shape == (len(LENGTHS), HEADS, 11, LONGEST)
    assert_close(weights, expected_weights)
    assert_close(explained, expected)
    assert_close(ours.look_up(x, ours.keys(source), mask)[0], expected)


@torch.no_grad()
def test_a_look_up_by_hand():
    # Query and key take the first number, value the second doubled, output adds 10: two heads of width 1.
    ours = MultiHeadAttention(2, 2)
    for linear in (ours.query, ours.key, ours.value, ours.output):
        linear.bias.zero_()
    ours.query.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    ours.key.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    ours.value.weight.copy_(torch.tensor([[0.0, 2.0], [0.0, 1.0]]))
    ours.output.weight.copy_(torch.eye(2))
    ours.output.bias.fill_(10.0)
    seen = ours.keys(torch.tensor([[[math.log(3), 4.0], [0.0, 8.0], [99.0, 99.0]]]))
    mask = torch.tensor([True, True, False])[None, None, None]
    found, weights = ours.look_up(torch.tensor([[[1.0, 7.0]]]), seen, mask, explain=True)
    # The first head weighs 3/4 and 1/4, the second, which scores nothing, one half each; the third is hidden.
    assert_close(weights, torch.tensor([[[[0.75, 0.25, 0.0]], [[0.5, 0.5, 0.0]]]]))
    assert_close(found, torch.tensor([[[10.0 + 0.75 * 8 + 0.25 * 16, 10.0 + 0.5 * 4 + 0.5 * 8]]]))


def test_a_causal_mask_shows_a_token_itself_and_what_came_before():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


def test_packed_and_padded_have_the_same_gradients():
    layout, weight = packed_layout(), normal(TOKENS, DIM, seed=5)
    gradients = []
    for packed in (True, False):
        module, x = attention(), normal(TOKENS, DIM).requires_grad_()
        if packed:
            out = module(x, layout)[0]
        else:
            out = layout.pack(module(layout.unpack(x), Padded(layout.mask()))[0])
        (out * weight).sum().backward()
        gradients.append([x.grad, *(p.grad for p in module.parameters())])
    for one, other in zip(*gradients, strict=True):
        assert one.abs().max() > 0 or one.shape == (DIM,)  # a key's bias shifts a whole row of scores
        assert_close(one, other)


@pytest.mark.parametrize("layout", [Padded(None), packed_layout()])
def test_dropout_is_random_in_training_and_off_in_evaluation(layout: Padded | Packed):
    module = attention(dropout=0.5)
    x = normal(TOKENS, DIM) if isinstance(layout, Packed) else normal(len(LENGTHS), LONGEST, DIM)
    with torch.no_grad():
        evaluated = module.eval()(x, layout)[0]
        assert torch.equal(evaluated, module(x, layout)[0])
        assert_close(evaluated, attention()(x, layout)[0])
        module.train()
        torch.manual_seed(3)
        first, second = module(x, layout)[0], module(x, layout)[0]
        torch.manual_seed(3)
        again = module(x, layout)[0]
    assert not torch.equal(first, second)
    assert torch.equal(first, again)


def test_dropout_keeps_the_mean():
    layout, zeros = packed_layout((997,)), torch.zeros(997, 2, 3)
    torch.manual_seed(7)
    mixed = packed_attention(zeros, zeros, torch.ones_like(zeros), layout, dropout=0.3)
    assert not torch.equal(mixed, torch.ones_like(mixed))
    assert mixed.mean() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("dim", "heads", "advice"), [(10, 8, "8 or 16"), (100, 12, "96 or 108"), (3, 7, "7")])
def test_a_width_that_the_heads_do_not_divide_is_refused_with_advice(dim: int, heads: int, advice: str):
    with pytest.raises(UserError) as caught:
        MultiHeadAttention(dim, heads)
    assert str(caught.value) == f"dim {dim} is not divisible by heads {heads}; try dim {advice}"
    for suggestion in advice.split(" or "):
        MultiHeadAttention(int(suggestion), heads)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_half_precision_on_a_gpu_agrees_with_full_precision_padded(monkeypatch: pytest.MonkeyPatch):
    """Ragged kernels want heads as wide as a multiple of 8, and never write outside their sequence."""
    calls = []

    def counted(*arguments: object) -> Tensor:
        calls.append(1)
        return real(*arguments)

    varlen = importlib.import_module("torch.nn.attention.varlen")
    real = varlen.varlen_attn
    monkeypatch.setattr(varlen, "varlen_attn", counted)
    torch.manual_seed(11)
    module = MultiHeadAttention(3 * 32, 3).cuda()
    lengths = (53, 2, 101, 1)
    offsets = torch.tensor([0, *lengths]).cumsum(0).int().cuda()
    layout = Packed.from_offsets(offsets, max(lengths), sum(lengths))
    x, weight = normal(sum(lengths), 3 * 32).cuda(), normal(sum(lengths), 3 * 32, seed=5).cuda()
    answers = []
    for packed in (True, False):
        module.zero_grad()
        given = x.clone().requires_grad_()
        with torch.autocast("cuda", torch.bfloat16, enabled=packed):
            if packed:
                out = module(given, layout)[0]
            else:
                out = layout.pack(module(layout.unpack(given), Padded(layout.mask()))[0])
        (out.float() * weight).sum().backward()
        gradients = [given.grad, *(p.grad for p in module.parameters())]
        assert all(gradient.isfinite().all() for gradient in gradients)
        answers.append((out.detach().float(), given.grad))
    assert calls == [1]
    (half, half_gradient), (full, full_gradient) = answers
    assert_close(half, full, rtol=0, atol=2e-2)
    assert_close(half_gradient, full_gradient, rtol=0, atol=2e-2 * full_gradient.abs().max().item())


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_one_matrix_in_place_of_three_projects_the_same(bias: bool):
    torch.manual_seed(13)
    ours = MultiHeadAttention(DIM, HEADS, bias=bias).eval()
    assert [name for name, _ in ours.named_parameters() if name.endswith("bias")] == (
        [f"{part}.bias" for part in ("query", "key", "value", "output")] if bias else []
    )
    x, layout = normal(TOKENS, DIM), packed_layout()
    apart = (*ours.project(x), ours(x, layout)[0])
    ours.join()
    for one, other in zip(apart, (*ours.project(x), ours(x, layout)[0]), strict=True):
        assert_close(one, other)


@torch.no_grad()
def test_queries_and_keys_are_turned_and_values_are_not():
    torch.manual_seed(17)
    ours = MultiHeadAttention(30, 3).eval()
    x, mask = normal(2, 7, 30), torch.arange(7) < torch.tensor([7, 5])[:, None]
    rotation = rotary(torch.arange(7), 10, 50.0)
    query, key, value = ours.project(x)
    query, key, value = (part.transpose(1, 2) for part in (rotate(query, rotation), rotate(key, rotation), value))
    mixed, weights = explained_attention(query, key, value, mask[:, None, None])
    expected = ours.output(mixed.transpose(1, 2).flatten(-2))
    found, nothing = ours(x, Padded(mask), rotation=rotation)
    assert nothing is None
    assert_close(found, expected)
    explained, found_weights = ours(x, Padded(mask), explain=True, rotation=rotation)
    assert_close(explained, expected)
    assert_close(found_weights, weights)
    assert not torch.allclose(ours(x, Padded(mask))[0], expected, atol=1e-3)


@torch.no_grad()
def test_packed_agrees_with_padded_when_turned():
    torch.manual_seed(19)
    ours, layout = MultiHeadAttention(30, 3).eval(), packed_layout()
    x = normal(TOKENS, 30)
    rotation = rotary(layout.positions(x), 10, 50.0)
    padded = rotary(torch.arange(LONGEST), 10, 50.0)
    expected = layout.pack(ours(layout.unpack(x), Padded(layout.mask()), rotation=padded)[0])
    assert_close(ours(x, layout, rotation=rotation)[0], expected)
    assert_close(ours(x, layout, explain=True, rotation=rotation)[0], expected)
