"""A recorded step is the step itself. Without a GPU, replaying is to take it again; all else is the same."""

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from heedful.train.optim import OPTIMIZERS, load_state_tensors, state_tensors
from heedful.train.stepping import RecordedStep, take_step

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
RATES = [0.5, 0.25, 0.125, 0.25]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cpu":
        request.getfixturevalue("steps_taken_again")
    return torch.device(request.param)


class Model(nn.Module):
    """Matrices of two shapes inside layers, one of them standing, and what is outside."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(7, 5), nn.Linear(5, 7), nn.Linear(7, 3)])
        self.idle = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def model_on(device: torch.device) -> Model:
    model, generator = Model(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model.to(device)


def optimizer_of(model: nn.Module, name: str) -> torch.optim.Optimizer:
    scale = lambda parameter: 0.5 if "layers.0" in parameter else 1.0  # noqa: E731
    return OPTIMIZERS[name](model, lr=1.0, betas=(0.9, 0.98), eps=1e-8, decay=0.1, scale=scale)


def learn(model: nn.Module, step: Callable[[float], Tensor], rates: list[float], first: int = 0) -> list[float]:
    norms = []
    for number, lr in enumerate(rates, first):
        x = torch.randn(11, 7, generator=torch.Generator().manual_seed(number)).to(next(model.parameters()).device)
        (3.0 * model(x)).square().sum().backward()
        norms.append(float(step(lr)))
        assert all(parameter.grad is None for parameter in model.parameters())
    return norms


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_recorded_steps_are_the_steps(device: torch.device, name: str):
    plain, recorded = model_on(device), model_on(device)
    start = copy.deepcopy(plain.state_dict())
    steps = [
        partial(take_step, list(plain.parameters()), optimizer_of(plain, name), 2.0),
        RecordedStep(list(recorded.parameters()), optimizer_of(recorded, name), 2.0),
    ]
    norms = [learn(model, step, RATES) for model, step in zip((plain, recorded), steps, strict=True)]
    assert min(norms[0]) > 2.0  # they were clipped
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
    for key, found in recorded.state_dict().items():
        torch.testing.assert_close(found, plain.state_dict()[key], atol=1e-4, rtol=1e-4)
        assert torch.equal(found, start[key]) == (key == "idle")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_run_takes_the_same_steps(device: torch.device, name: str):
    whole = model_on(device)
    optimizer = optimizer_of(whole, name)
    step = RecordedStep(list(whole.parameters()), optimizer, 2.0)
    learn(whole, step, RATES[:2])
    saved = copy.deepcopy(whole.state_dict())
    memory = {key: tensor.clone() for key, tensor in state_tensors(optimizer, whole).items()}
    learn(whole, step, RATES[2:], first=2)

    resumed = model_on(device)
    resumed.load_state_dict(saved)
    optimizer = optimizer_of(resumed, name)
    load_state_tensors(optimizer, resumed, memory)
    learn(resumed, RecordedStep(list(resumed.parameters()), optimizer, 2.0), RATES[2:], first=2)
    for key, expected in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], expected), key


def test_gradients_that_stay_where_they_are(device: torch.device):
    """As those of a recording do."""
    plain, recorded = model_on(device), model_on(device)
    lying = {parameter: torch.zeros_like(parameter) for parameter in recorded.layers.parameters()}
    parts = list(plain.parameters()), list(recorded.parameters())
    step = RecordedStep(parts[1], optimizer_of(recorded, "adamw"), 2.0)
    other = optimizer_of(plain, "adamw")
    for number, lr in enumerate(RATES):
        generator = torch.Generator().manual_seed(number)
        for here, there in zip(plain.layers.parameters(), lying, strict=True):
            here.grad = torch.randn(here.shape, generator=generator).to(device)
            lying[there].copy_(here.grad)
            there.grad = lying[there]
        assert float(take_step(parts[0], other, 2.0, lr)) == pytest.approx(float(step(lr)), rel=1e-5)
    for expected, found in zip(*parts, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("first", "then", "said"), [(0, 1, "0 has no gradient"), (1, 0, "0 has a gradient")])
def test_a_gradient_of_another_parameter_is_an_error(device: torch.device, first: int, then: int, said: str):
    parameters = [nn.Parameter(torch.ones(3, device=device)) for _ in range(2)]
    model = nn.ParameterList(parameters)
    step = RecordedStep(parameters, optimizer_of(model, "adamw"), 2.0)
    parameters[first].grad = torch.ones(3, device=device)
    step(0.5)
    parameters[then].grad = torch.ones(3, device=device)
    with pytest.raises(ValueError, match=f"parameter {said}, unlike before"):
        step(0.5)
