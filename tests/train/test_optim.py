import math

import pytest
import torch
from torch import Tensor, nn

from heedful.models.bert import BertConfig, BertForPretraining
from heedful.train.optim import OPTIMIZERS, adamw, clip, load_state_tensors, muon, set_rate, state_tensors


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 3), nn.LayerNorm(3), nn.Linear(3, 2))


def optimizer_of(model: nn.Module, lr: float = 0.1, decay: float = 0.01) -> torch.optim.AdamW:
    return adamw(model, lr=lr, betas=(0.9, 0.98), eps=1e-6, decay=decay)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: Tensor) -> None:
    model(ids).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_only_matrices_decay():
    model = small()
    matrices, others = optimizer_of(model, decay=0.07).param_groups
    assert [tuple(p.shape) for p in matrices["params"]] == [(5, 3), (2, 3)]
    assert [tuple(p.shape) for p in others["params"]] == [(3,), (3,), (2,)]
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.07, 0.0)


def test_decay_without_a_gradient_shrinks_matrices_alone():
    model = small()
    optimizer = optimizer_of(model, lr=0.5, decay=0.2)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        kept = 0.9 if parameter.dim() > 1 else 1.0  # 1 - 0.5 * 0.2
        torch.testing.assert_close(parameter.detach(), before[name] * kept)


def test_the_first_step_moves_by_the_rate():
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(2.0)
    optimizer = optimizer_of(model, lr=1.0, decay=0.0)
    set_rate(optimizer, 0.25)
    model.weight.grad = torch.tensor([[3.0]])
    optimizer.step()
    assert model.weight.item() == pytest.approx(1.75, abs=1e-5)


def test_every_group_gets_its_share_of_the_rate():
    """The shares are by name; matrices and the rest stay apart within each."""
    model = small()
    optimizer = adamw(
        model,
        lr=1.0,
        betas=(0.9, 0.98),
        eps=1e-6,
        decay=0.07,
        scale=lambda name: {"0.weight": 0.25, "1.weight": 0.5, "1.bias": 0.5}.get(name, 1.0),
    )
    names = {parameter: name for name, parameter in model.named_parameters()}
    groups = [
        ([names[p] for p in group["params"]], group["scale"], group["weight_decay"])
        for group in optimizer.param_groups
    ]
    assert groups == [
        (["0.weight"], 0.25, 0.07),
        (["1.weight", "1.bias"], 0.5, 0.0),
        (["2.weight"], 1.0, 0.07),
        (["2.bias"], 1.0, 0.0),
    ]
    set_rate(optimizer, 0.4)
    set_rate(optimizer, 0.2)  # of the rate itself, not of what was set before
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.05, 0.1, 0.2, 0.2])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for name, rate, decay in (("0.weight", 0.05, 0.07), ("1.bias", 0.1, 0.0), ("2.weight", 0.2, 0.07)):
        expected = before[name] * (1 - rate * decay) - rate  # the first step of Adam is the rate itself
        torch.testing.assert_close(model.get_parameter(name).detach(), expected, rtol=0, atol=1e-5)


def test_what_is_frozen_is_left_out():
    model = small()
    model[0].weight.requires_grad_(False)
    model[1].bias.requires_grad_(False)
    optimizer = optimizer_of(model, lr=0.5, decay=0.2)
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert [[names[p] for p in group["params"]] for group in optimizer.param_groups] == [
        ["1.weight", "2.bias"],
        ["2.weight"],
    ]
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    step(model, optimizer, torch.tensor([1, 4]))
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {"1.weight", "2.weight", "2.bias"}
    tensors = state_tensors(optimizer, model)
    assert {name.rpartition("/")[0] for name in tensors} == changed
    load_state_tensors(optimizer, model, tensors)
    step(model, optimizer, torch.tensor([2]))
    assert state_tensors(optimizer, model)["2.bias/step"].item() == 2
    assert torch.equal(model[0].weight, before["0.weight"])


def test_a_long_gradient_is_shortened_and_a_short_one_left():
    parameters = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
    for parameter, gradient in zip(parameters, (3.0, 4.0), strict=True):
        parameter.grad = torch.tensor([gradient])
    assert clip(parameters, 10.0).item() == 5.0
    assert [p.grad.item() for p in parameters] == [3.0, 4.0]
    assert clip(parameters, 1.0).item() == 5.0
    assert [p.grad.item() for p in parameters] == pytest.approx([0.6, 0.8], rel=1e-5)


def test_the_state_goes_out_and_comes_back_to_the_bit():
    first, ids = torch.tensor([0, 2, 3]), torch.tensor([1, 2, 4])
    model = small()
    optimizer = optimizer_of(model)
    step(model, optimizer, first)
    tensors = {name: tensor.clone() for name, tensor in state_tensors(optimizer, model).items()}
    names = [name for name, _ in model.named_parameters()]
    assert sorted(tensors) == sorted(f"{n}/{key}" for n in names for key in ("step", "exp_avg", "exp_avg_sq"))
    assert tensors["0.weight/step"].item() == 1

    twin = small()
    twin.load_state_dict(model.state_dict())
    other = optimizer_of(twin)
    load_state_tensors(other, twin, tensors)
    step(model, optimizer, ids)
    step(twin, other, ids)
    for one, same in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one, same)
    for name, tensor in state_tensors(other, twin).items():
        assert torch.equal(tensor, state_tensors(optimizer, model)[name]), name


def test_what_was_given_stays_with_the_giver():
    model = small()
    optimizer = optimizer_of(model)
    step(model, optimizer, torch.tensor([1]))
    tensors = {name: tensor.clone() for name, tensor in state_tensors(optimizer, model).items()}
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    load_state_tensors(optimizer, model, tensors)
    step(model, optimizer, torch.tensor([2]))
    assert all(torch.equal(tensors[name], kept[name]) for name in kept)
    assert not math.isclose(state_tensors(optimizer, model)["0.weight/step"].item(), kept["0.weight/step"].item())


def test_before_the_first_step_there_is_nothing_to_remember():
    model = small()
    optimizer = optimizer_of(model)
    assert state_tensors(optimizer, model) == {}
    load_state_tensors(optimizer, model, {})
    step(model, optimizer, torch.tensor([1]))
    assert state_tensors(optimizer, model)["0.weight/step"].item() == 1


def bert() -> BertForPretraining:
    torch.manual_seed(0)
    sizes = {"vocab_size": 23, "layers": 2, "dim": 8, "heads": 2, "ffn_dim": 13, "max_length": 7}
    return BertForPretraining(BertConfig(**sizes, dropout=0.0, attention_dropout=0.0))  # pyrefly: ignore


def learn(model: BertForPretraining, optimizer: torch.optim.Optimizer, step: int, lr: float = 0.02) -> None:
    """A step on ids that follow from its number."""
    set_rate(optimizer, lr / (step + 1))
    ids = torch.randint(23, (3, 5), generator=torch.Generator().manual_seed(step))
    scores = model(ids)
    (scores.mlm_logits.logsumexp(-1).mean() + scores.nsp_logits.square().mean()).backward()
    optimizer.step()
    optimizer.zero_grad()


def test_muon_is_for_the_matrices_of_the_layers():
    """Tables, heads, pooler, norms and biases are not hidden matrices."""
    model = bert()
    remembers = {}
    optimizer = muon(model, lr=0.1, betas=(0.9, 0.98), eps=1e-6, decay=0.07)
    learn(model, optimizer, 0)
    for full in state_tensors(optimizer, model):
        name, _, key = full.rpartition("/")
        remembers.setdefault(name, set()).add(key)
    assert set(remembers) == {name for name, _ in model.named_parameters()}
    hidden = {name for name, keys in remembers.items() if keys == {"momentum"}}
    parts = ("attention.query", "attention.key", "attention.value", "attention.output")
    assert hidden == {
        f"bert.layers.{layer}.{part}.weight"
        for layer in range(2)
        for part in (*parts, "feed_forward.inner", "feed_forward.outer")
    }
    assert all(remembers[name] == {"step", "exp_avg", "exp_avg_sq"} for name in remembers if name not in hidden)
    decays = {p: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert all(decays[p] == (0.07 if p.dim() > 1 else 0.0) for p in model.parameters())


def test_every_group_of_both_gets_its_share_of_the_rate():
    model = bert()
    optimizer = muon(
        model,
        lr=1.0,
        betas=(0.9, 0.98),
        eps=1e-6,
        decay=0.0,
        scale=lambda name: 0.25 if name.startswith("bert.layers.0.") else 1.0,
    )
    set_rate(optimizer, 0.4)
    rates = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        assert rates[parameter] == pytest.approx(0.1 if name.startswith("bert.layers.0.") else 0.4)
    set_rate(optimizer, 0.0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    learn(model, optimizer, 0, lr=0.0)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())  # both obey


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("by_torch", [False, True])
def test_a_run_that_is_taken_up_again_ends_as_one_that_was_not(name: str, by_torch: bool):
    options = {"lr": 0.02, "betas": (0.9, 0.98), "eps": 1e-6, "decay": 0.01}
    whole, early, late = bert(), bert(), bert()
    optimizer = OPTIMIZERS[name](whole, **options)
    for step in range(6):
        learn(whole, optimizer, step)
    first = OPTIMIZERS[name](early, **options)
    for step in range(3):
        learn(early, first, step)
    late.load_state_dict(early.state_dict())
    second = OPTIMIZERS[name](late, **options)
    if by_torch:
        second.load_state_dict(first.state_dict())
    else:
        load_state_tensors(second, late, state_tensors(first, early))
    for step in range(3, 6):
        learn(late, second, step)
    assert all(torch.equal(one, same) for one, same in zip(whole.parameters(), late.parameters(), strict=True))
    assert not torch.equal(whole.bert.layers[0].attention.query.weight, early.bert.layers[0].attention.query.weight)
    for key, tensor in state_tensors(optimizer, whole).items():
        assert torch.equal(tensor, state_tensors(second, late)[key]), key


def test_both_take_a_step_after_one_look():
    model = bert()
    optimizer = muon(model, lr=0.01, betas=(0.9, 0.98), eps=1e-6, decay=0.0)
    looks = []

    def closure() -> float:
        looks.append(1)
        return 17.0

    assert optimizer.step(closure) == 17.0
    assert len(looks) == 1
