import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import ACTIVATIONS, DecoderLayer, EncoderLayer, FeedForward, Moment
from heedful.nn.layout import Padded

DIM, HEADS, FFN_DIM = 21, 3, 29
SIZES = (DIM, HEADS, FFN_DIM)
LENGTHS = (5, 2, 7)
B, S, T = 3, 7, 11


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def source_mask() -> Tensor:
    return torch.arange(S) < torch.tensor(LENGTHS)[:, None]


def fill_at_random(module: nn.Module) -> None:
    """Every parameter counts: biases are not zero, norms not one."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(0.0, 0.3, generator=generator)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    parts = (ours.query, ours.key, ours.value)
    theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def encoder(pre_norm: bool, activation: str = "relu") -> tuple[EncoderLayer, nn.TransformerEncoderLayer]:
    ours = EncoderLayer(*SIZES, activation=activation, norm_eps=1e-5, pre_norm=pre_norm).eval()
    fill_at_random(ours)
    theirs = nn.TransformerEncoderLayer(
        *SIZES, dropout=0.0, activation=ACTIVATIONS[activation], batch_first=True, norm_first=pre_norm
    )
    with torch.no_grad():
        copy_attention(ours.attention, theirs.self_attn)
        for one, other in (
            (ours.feed_forward.inner, theirs.linear1),
            (ours.feed_forward.outer, theirs.linear2),
            (ours.attention_norm, theirs.norm1),
            (ours.feed_forward_norm, theirs.norm2),
        ):
            other.load_state_dict(one.state_dict())
    return ours, theirs


def decoder(pre_norm: bool, activation: str = "relu") -> tuple[DecoderLayer, nn.TransformerDecoderLayer]:
    ours = DecoderLayer(*SIZES, activation=activation, pre_norm=pre_norm).eval()
    fill_at_random(ours)
    theirs = nn.TransformerDecoderLayer(
        *SIZES, dropout=0.0, activation=ACTIVATIONS[activation], batch_first=True, norm_first=pre_norm
    )
    with torch.no_grad():
        copy_attention(ours.attention, theirs.self_attn)
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        for one, other in (
            (ours.feed_forward.inner, theirs.linear1),
            (ours.feed_forward.outer, theirs.linear2),
            (ours.attention_norm, theirs.norm1),
            (ours.cross_attention_norm, theirs.norm2),
            (ours.feed_forward_norm, theirs.norm3),
        ):
            other.load_state_dict(one.state_dict())
    return ours, theirs


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize("pre_norm", [False, True])
@torch.no_grad()
def test_an_encoders_block_agrees_with_torchs(pre_norm: bool, activation: str):
    ours, theirs = encoder(pre_norm, activation)
    x, mask = normal(B, S, DIM), source_mask()
    found, nothing = ours(x, Padded(mask))
    explained, weights = ours(x, Padded(mask), explain=True)
    expected = theirs(x, src_key_padding_mask=~mask)
    assert nothing is None
    assert weights is not None
    assert weights.shape == (B, HEADS, S, S)
    assert_close(found[mask], expected[mask])
    assert_close(explained[mask], expected[mask])


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
@pytest.mark.parametrize("pre_norm", [False, True])
@torch.no_grad()
def test_a_decoders_block_agrees_with_torchs(pre_norm: bool, activation: str):
    ours, theirs = decoder(pre_norm, activation)
    x, memory, mask = normal(B, T, DIM), normal(B, S, DIM, seed=1), source_mask()
    seen = ours.cross_attention.keys(memory)
    found, nothing = ours(x, seen, mask[:, None, None])
    explained, weights = ours(x, seen, mask[:, None, None], explain=True)
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected = theirs(x, memory, tgt_mask=later, memory_key_padding_mask=~mask)
    assert nothing is None
    assert weights is not None
    assert weights.shape == (B, HEADS, T, S)
    assert_close(found, expected)
    assert_close(explained, expected)


@pytest.mark.parametrize("pre_norm", [False, True])
@torch.no_grad()
def test_a_decoders_block_step_by_step_is_the_block_at_once(pre_norm: bool):
    """Beams stand beside each other as if they were tokens; their pasts lie apart."""
    beams = 2
    ours, _ = decoder(pre_norm)
    x, mask = normal(B, beams, T, DIM), source_mask()[:, None, None]
    memory = ours.cross_attention.keys(normal(B, S, DIM, seed=1))
    past = torch.full((T + 2, B * beams, 2, HEADS, DIM // HEADS), 99.0)
    steps = []
    for place in range(T):
        moment = Moment(torch.tensor([place]), place + 1, None, None)
        found, weights = ours.step(x[:, :, place], past, moment, memory, mask, explain=True)
        assert weights is not None
        assert weights.shape == (B, HEADS, beams, S)
        steps.append(found)
    for beam in range(beams):
        assert_close(torch.stack(steps, 2)[:, beam], ours(x[:, beam], memory, mask)[0])


@torch.no_grad()
def test_a_step_may_look_beyond_what_is_written_if_a_mask_hides_it():
    """A recorded pass looks at all of its room, whatever the place."""
    ours, _ = decoder(pre_norm=False)
    x = normal(B, T, DIM)
    memory = ours.cross_attention.keys(normal(B, S, DIM, seed=1))
    past = torch.full((T, B, 2, HEADS, DIM // HEADS), 99.0)
    for place in range(T):
        moment = Moment(torch.tensor([place]), T, (torch.arange(T) <= place)[None], None)
        found, _ = ours.step(x[:, place : place + 1], past, moment, memory, None)
    assert_close(found[:, 0], ours(x, memory, None)[0][:, -1])


@torch.no_grad()
def test_beams_take_the_past_of_the_one_they_continue():
    beams = 3
    ours, _ = decoder(pre_norm=False)
    first, second = normal(B, beams, DIM), normal(B, beams, DIM, seed=1)
    memory = ours.cross_attention.keys(normal(B, S, DIM, seed=2))
    past = torch.zeros(T, B * beams, 2, HEADS, DIM // HEADS)
    parents = torch.tensor([[2, 2, 0], [0, 1, 2], [1, 0, 1]])
    ours.step(first, past, Moment(torch.tensor([0]), 1, None, None), memory, None)
    rows = torch.arange(B * beams)
    owners = torch.stack([(torch.arange(B)[:, None] * beams + parents).flatten(), rows], 1)  # of both positions
    lines = (torch.tensor([0, len(rows)]) + owners).flatten()
    found, _ = ours.step(second, past, Moment(torch.tensor([1]), 2, None, lines), memory, None)
    for beam in range(beams):
        before = first[torch.arange(B), parents[:, beam]]
        alone = ours(torch.stack([before, second[:, beam]], 1), memory, None)[0]
        assert_close(found[:, beam], alone[:, 1])


@pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
def test_dropout_comes_before_each_residual(kind: type[EncoderLayer] | type[DecoderLayer]):
    """With everything dropped a block that norms first changes nothing, one that norms last norms alone."""
    x, layout, mask = normal(B, T, DIM), Padded(None), source_mask()[:, None, None]
    for pre_norm in (True, False):
        layer = kind(*SIZES, dropout=1.0, pre_norm=pre_norm).train()
        if isinstance(layer, DecoderLayer):
            found = layer(x, layer.cross_attention.keys(normal(B, S, DIM)), mask)[0]
        else:
            found = layer(x, layout)[0]
        expected = x if pre_norm else nn.functional.layer_norm(x, (DIM,))
        assert_close(found, expected, atol=1e-4, rtol=0)


@torch.no_grad()
def test_a_gate_by_hand():
    layer = FeedForward(2, 1, "relu", gated=True, bias=False)
    layer.inner.weight.copy_(torch.tensor([[1.0, -1.0], [2.0, 3.0]]))  # what is let through, and the gate
    layer.outer.weight.copy_(torch.tensor([[1.0], [10.0]]))
    # relu(5 - 3) = 2 times a gate of 10 + 9; relu(3 - 5) = 0.
    assert layer(torch.tensor([[5.0, 3.0], [3.0, 5.0]])).tolist() == [[38.0, 380.0], [0.0, 0.0]]


@torch.no_grad()
def test_a_gate_has_biases_unless_told_otherwise():
    layer = FeedForward(DIM, FFN_DIM, "gelu", gated=True)
    fill_at_random(layer)
    x = normal(B, DIM)
    through, gate = layer.inner.weight.chunk(2), layer.inner.bias.chunk(2)
    inner = nn.functional.gelu(x @ through[0].T + gate[0]) * (x @ through[1].T + gate[1])
    assert_close(layer(x), inner @ layer.outer.weight.T + layer.outer.bias)


@torch.no_grad()
def test_normed_input_goes_to_the_attention_as_it_is():
    made = EncoderLayer(*SIZES, pre_norm=True, normed=True).eval()
    fill_at_random(made)
    x, layout = normal(B, S, DIM), Padded(source_mask())
    after = x + made.attention(x, layout)[0]
    assert_close(made(x, layout)[0], after + made.feed_forward(made.feed_forward_norm(after)))
    assert not list(made.attention_norm.parameters())
    # Norms that come after a sublayer are never left out.
    assert list(EncoderLayer(*SIZES, normed=True).attention_norm.parameters())


@pytest.mark.parametrize("gated", [False, True])
def test_without_biases_there_are_none(gated: bool):
    made = EncoderLayer(*SIZES, pre_norm=True, gated=gated, bias=False)
    names = [name for name, _ in made.named_parameters()]
    assert not [name for name in names if name.endswith("bias")]
    assert len(names) == 8
    with_biases = EncoderLayer(*SIZES, pre_norm=True, gated=gated)
    assert len([name for name, _ in with_biases.named_parameters()]) == 16
