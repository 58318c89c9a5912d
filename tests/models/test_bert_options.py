"""What later encoders brought, each for itself and all together."""

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.models import bert
from heedful.models.bert import Bert, BertConfig, BertForPretraining, initialise
from heedful.models.heads import TASKS, BertForTask, Head
from heedful.nn.layout import Packed

LENGTHS = (5, 2, 7, 1)
LONGEST, TOKENS, VOCABULARY = 7, 15, 61
CONFIG = BertConfig(vocab_size=VOCABULARY, layers=3, dim=20, heads=2, ffn_dim=53, max_length=11)
OPTIONS = {"pre_norm": True, "positions": "rotary", "gated": True, "bias": False, "segments": 0}
MODERN = dataclasses.replace(CONFIG, **OPTIONS)
EACH = {name: dataclasses.replace(CONFIG, **{name: value}) for name, value in OPTIONS.items()} | {"all": MODERN}


def filled(model: nn.Module) -> nn.Module:
    """Every parameter counts: biases are not zero, norms not one."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0.0, 0.2, generator=generator)
            if name.endswith("norm.weight"):
                parameter.add_(1.0)
    return model.eval()


def batch() -> tuple[Tensor, Tensor, Packed]:
    generator = torch.Generator().manual_seed(2)
    ids = torch.randint(1, VOCABULARY, (TOKENS,), generator=generator)
    segments = torch.randint(0, 2, (TOKENS,), generator=generator)
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    return ids, segments, Packed.from_offsets(offsets, LONGEST, TOKENS)


@pytest.mark.parametrize("option", EACH)
@torch.no_grad()
def test_every_path_gives_the_same(option: str):
    ids, segments, layout = batch()
    model = filled(BertForPretraining(EACH[option]))
    found = model(ids, segments, packed=layout)
    padded = model(layout.unpack(ids), layout.unpack(segments), layout.mask())
    assert_close(found.mlm_logits, layout.pack(padded.mlm_logits), rtol=1e-4, atol=1e-4)
    assert_close(found.nsp_logits, padded.nsp_logits, rtol=1e-4, atol=1e-4)
    plain, explained = (model.bert(ids, segments, packed=layout, explain=explain) for explain in (False, True))
    assert_close(plain.hidden, explained.hidden, rtol=1e-4, atol=1e-4)
    assert len(explained.weights) == CONFIG.layers
    unmasked = model.bert(ids[None, 7:14], segments[None, 7:14])
    assert_close(plain.hidden[7:14], unmasked.hidden[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("option", EACH)
@torch.no_grad()
def test_every_option_makes_another_model(option: str):
    ids, segments, layout = batch()
    usual, other = (filled(Bert(config)) for config in (CONFIG, EACH[option]))
    other.load_state_dict(
        {
            name: tensor
            for name, tensor in usual.state_dict().items()
            if name in other.state_dict() and other.state_dict()[name].shape == tensor.shape
        },
        strict=False,
    )
    assert not torch.allclose(
        usual(ids, segments, packed=layout).hidden, other(ids, segments, packed=layout).hidden, atol=1e-2
    )


@torch.no_grad()
def test_norms_before_the_sublayers_and_one_at_the_end():
    ids, segments, layout = batch()
    model = filled(Bert(dataclasses.replace(CONFIG, pre_norm=True)))
    x = model.embeddings(ids, segments, layout)
    for number, layer in enumerate(model.layers):
        x = x + layer.attention(layer.attention_norm(x) if number else x, layout)[0]
        x = x + layer.feed_forward(layer.feed_forward_norm(x))
    assert_close(model(ids, segments, packed=layout).hidden, model.final_norm(x))
    assert Bert(CONFIG).final_norm is None


@torch.no_grad()
def test_rotary_positions_need_no_table_and_tell_distances_alone():
    model = filled(Bert(dataclasses.replace(CONFIG, positions="rotary", segments=0)))
    assert set(dict(model.embeddings.named_children())) == {"tokens", "norm", "dropout"}
    ids = torch.tensor([[7, 11, 13, 17, 19]])
    there, back = model(ids).hidden, model(ids.flip(1)).hidden.flip(1)
    assert not torch.allclose(there, back, atol=1e-3)
    # Tokens before the others that may not be looked at move them, and nothing changes.
    shifted = torch.cat([torch.full((1, 4), 23), ids], 1)
    hidden = model(shifted, mask=torch.arange(9)[None] >= 4).hidden
    assert_close(hidden[:, 4:], there, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_base_decides_how_fast_positions_turn():
    ids, _, layout = batch()
    slow, fast = (filled(Bert(dataclasses.replace(MODERN, rotary_base=base))) for base in (10000.0, 10.0))
    assert not torch.allclose(slow(ids, packed=layout).hidden, fast(ids, packed=layout).hidden, atol=1e-3)


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_angles_are_computed_once_a_pass(monkeypatch: pytest.MonkeyPatch, padded: bool, explain: bool):
    calls, real = [], bert.rotary
    monkeypatch.setattr(bert, "rotary", lambda *arguments: calls.append(arguments) or real(*arguments))
    ids, _, layout = batch()
    if padded:
        Bert(MODERN)(layout.unpack(ids), mask=layout.mask(), explain=explain)
    else:
        Bert(MODERN)(ids, packed=layout, explain=explain)
    assert len(calls) == 1


@torch.no_grad()
def test_without_segments_pairs_are_read_all_the_same():
    ids, segments, layout = batch()
    model = filled(Bert(dataclasses.replace(CONFIG, segments=0)))
    assert torch.equal(model(ids, packed=layout).hidden, model(ids, segments, packed=layout).hidden)


def test_without_biases_only_the_scores_have_one():
    names = [name for name, _ in BertForPretraining(dataclasses.replace(CONFIG, bias=False)).named_parameters()]
    assert [name for name in names if name.endswith("bias")] == ["bert.pooler.bias", "mlm.bias", "nsp.bias"]
    modern = [name for name, _ in BertForPretraining(MODERN).named_parameters()]
    assert [name for name in modern if name.endswith("bias")] == ["mlm.bias", "nsp.bias"]


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("task", TASKS)
@torch.no_grad()
def test_heads_of_a_modern_one_read_states_as_its_head_for_words_does(task: str, pool: str):
    head = Head(task=task, labels=("start", "end") if task == "answer" else ("x", "y", "z"))
    model = filled(BertForTask(dataclasses.replace(MODERN, pool=pool), head))
    ids, _, layout = batch()
    hidden = model.bert(ids, packed=layout).hidden
    if head.reads_sequence:
        read, transform = layout.mean(hidden) if pool == "mean" else layout.first(hidden), model.bert.pooler
    else:
        read, transform = hidden, model.transform
    inner = nn.functional.gelu(read @ transform.dense.weight.T)
    normed = nn.functional.layer_norm(inner, (20,), transform.norm.weight, eps=1e-12)
    expected = model.output(normed)
    assert_close(model(ids, packed=layout), expected)
    padded = model(layout.unpack(ids), mask=layout.mask())
    assert_close(padded if head.reads_sequence else layout.pack(padded), expected, rtol=1e-4, atol=1e-4)


def test_what_differs_from_the_published_one_is_said():
    assert CONFIG.variations == ()
    assert CONFIG.published
    assert MODERN.variations == ("pre-norm", "rotary positions", "gated", "no biases", "no segments")
    for option in OPTIONS:
        assert len(EACH[option].variations) == 1
        assert not EACH[option].published
    assert dataclasses.replace(MODERN, bias=True).modern
    for option in OPTIONS.keys() - {"bias"}:
        assert not dataclasses.replace(MODERN, **{option: getattr(CONFIG, option)}).modern


@pytest.mark.parametrize(
    ("size", "width"),
    [("tiny", 320), ("mini", 704), ("small", 1344), ("medium", 1344), ("base", 2048), ("large", 2752)],
)
def test_a_gated_size_has_about_as_many_parameters(size: str, width: int):
    with torch.device("meta"):
        usual, gated = (BertConfig.of_size(size, vocab_size=VOCABULARY, gated=gated) for gated in (False, True))
        assert (usual.ffn_dim, gated.ffn_dim) == (4 * usual.dim, width)
        counts = [sum(p.numel() for p in Bert(config).layers.parameters()) for config in (usual, gated)]
    assert counts[1] / counts[0] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "relative"}, "positions 'relative' are not known; choose from learned, rotary"),
        ({"segments": -1}, "segments -1 must not be negative"),
        ({"rotary_base": 0.5}, "rotary_base 0.5 must be at least 1"),
        ({"rotary_base": math.inf}, "rotary_base inf must be at least 1"),
        ({"rotary_base": math.nan}, "rotary_base nan must be at least 1"),
        (
            {"positions": "rotary", "dim": 34},
            r"a head is 17 wide \(dim 34, heads 2\); choose sizes that make it even",
        ),
    ],
)
def test_what_can_not_be_is_refused(changes: dict, message: str):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(CONFIG, **changes)


def test_a_length_is_refused_with_rotary_positions_too():
    with pytest.raises(UserError, match="a sequence of 12 tokens is beyond the model's 11 positions"):
        Bert(MODERN)(torch.ones(1, 12, dtype=torch.int64))


@pytest.mark.parametrize("config", [CONFIG, MODERN])
def test_scaled_first_weights_are_the_usual_ones_but_for_the_ends_of_sublayers(config: BertConfig):
    usual, scaled = BertForPretraining(config), BertForPretraining(config)
    for model, depth in ((usual, None), (scaled, config.layers)):
        initialise(model, 0.05, torch.Generator().manual_seed(3), depth)
    smaller = []
    for (name, one), (_, other) in zip(usual.named_parameters(), scaled.named_parameters(), strict=True):
        if torch.equal(one, other):
            continue
        smaller.append(name.split(".", 3)[3])
        assert_close(other.data, one.data / math.sqrt(6))
    assert smaller == ["attention.output.weight", "feed_forward.outer.weight"] * 3


def test_a_modern_one_compiles_as_one_graph():
    ids, _, layout = batch()
    model = filled(BertForPretraining(MODERN, nsp=False))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert_close(compiled(ids, packed=layout).mlm_logits, model(ids, packed=layout).mlm_logits)
