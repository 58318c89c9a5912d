"""Matrices laid out for steps give the same scores."""

import pytest
import torch
from torch.testing import assert_close

from heedful.models.transformer import SHARES, Transformer, TransformerConfig, initialise
from heedful.predict.packed import PackedLinear, packed

V, B, S, K = 31, 5, 7, 3


def model(share: str = "all", pre_norm: bool = False) -> Transformer:
    config = TransformerConfig(
        vocab_size=V, encoder_layers=1, decoder_layers=2, dim=24, heads=3, ffn_dim=37,
        share=share, pre_norm=pre_norm, output_bias=share != "all",
    )  # fmt: skip
    made = Transformer(config)
    initialise(made, torch.Generator().manual_seed(1))
    if made.output_bias is not None:
        torch.nn.init.normal_(made.output_bias, generator=torch.Generator().manual_seed(2))
    return made.eval()


@torch.inference_mode()
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("pre_norm", [False, True])
def test_steps_are_those_of_the_model(share: str, pre_norm: bool):
    ours = model(share, pre_norm)
    twin = packed(ours)
    assert sum(isinstance(one, PackedLinear) for one in twin.modules()) == 2 * 8 + 1
    assert_same_steps(ours, twin)


def assert_same_steps(ours: Transformer, twin: Transformer):
    draw = torch.Generator().manual_seed(0)
    source, mask = torch.randint(3, V, (B, S), generator=draw), torch.ones(B, S, dtype=torch.bool)
    memory = ours.encode(source, mask)
    one, other = ours.start(memory, K), twin.start(twin.encode(source, mask), K)
    for _ in range(4):
        tokens, parents = (torch.randint(low, high, (B, K), generator=draw) for low, high in ((3, V), (0, K)))
        expected, one, _ = ours.step(one, tokens, parents)
        found, other, _ = twin.step(other, tokens, parents)
        assert_close(found, expected)


def test_the_model_itself_is_left_alone_and_shares_its_tables():
    ours = model()
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    twin = packed(ours)
    assert twin.source_embedding.weight is ours.source_embedding.weight
    assert ours.projection is None
    assert not any(isinstance(one, PackedLinear) for one in ours.modules())
    assert_close(dict(ours.state_dict()), before)


@torch.inference_mode()
def test_where_torch_lacks_the_operations_matrices_are_joined_alone(monkeypatch: pytest.MonkeyPatch):
    ours = model()
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    twin = packed(ours)
    assert not any(isinstance(one, PackedLinear) for one in twin.modules())
    assert_same_steps(ours, twin)


@torch.inference_mode()
def test_in_double_precision_matrices_are_joined_alone():
    ours = model().double()
    twin = packed(ours)
    assert not any(isinstance(one, PackedLinear) for one in twin.modules())
    assert_same_steps(ours, twin)
