"""A recorded step is the step itself. Without a GPU, replaying is to take it again; all else is the same."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heedful.train import stepping
from heedful.train.optim import OPTIMIZERS, load_state_tensors, state_tensors
from heedful.train.stepping import RecordedStepping, Stepping

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
RATES = [0.5, 0.25, 0.125, 0.25]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=needs_gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    if request.param == "cpu":

        def taken_again(step: Callable[[], None]) -> Callable[[], None]:
            recorded = step.__self__  # pyrefly: ignore

            def replay() -> None:
                learning = [parameter for parameter in recorded.parameters if parameter.grad is not None]
                for parameter, gradient in zip(learning, recorded.gradients, strict=True):
                    parameter.grad = gradient
                step()

            return replay

        monkeypatch.setattr(stepping, "_beside", lambda step: step())
        monkeypatch.setattr(stepping, "_record", taken_again)
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
        kind(list(model.parameters()), optimizer_of(model, name), 2.0)
        for kind, model in ((Stepping, plain), (RecordedStepping, recorded))
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
    step = RecordedStepping(list(whole.parameters()), optimizer, 2.0)
    learn(whole, step, RATES[:2])
    saved = copy.deepcopy(whole.state_dict())
    memory = {key: tensor.clone() for key, tensor in state_tensors(optimizer, whole).items()}
    learn(whole, step, RATES[2:], first=2)

    resumed = model_on(device)
    resumed.load_state_dict(saved)
    optimizer = optimizer_of(resumed, name)
    load_state_tensors(optimizer, resumed, memory)
    learn(resumed, RecordedStepping(list(resumed.parameters()), optimizer, 2.0), RATES[2:], first=2)
    for key, expected in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], expected), key


def test_a_gradient_that_comes_or_goes_is_an_error(device: torch.device):
    model = model_on(device)
    step = RecordedStepping(list(model.parameters()), optimizer_of(model, "adamw"), 2.0)
    learn(model, step, RATES[:1])
    model.idle.grad = torch.ones_like(model.idle)
    with pytest.raises(ValueError, match="gradients of 7 parameters, but 6 were recorded"):
        learn(model, step, RATES[:1])
