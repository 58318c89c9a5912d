"""From gradients to new weights: they are clipped, the optimizer takes its step, and they are forgotten.

A small model's step takes a GPU less time than the host needs to launch its many small pieces. Recorded once (CUDA
graphs), they are launched as one.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.train.optim import clip, set_rate


def take_step(parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, most: float, lr: float) -> Tensor:
    """Take a step at a rate; how long the gradient was before it was cut down to `most`."""
    set_rate(optimizer, lr)
    norm = clip(parameters, most)
    optimizer.step()
    optimizer.zero_grad()
    return norm


class RecordedStep:
    """The same, recorded in the first step and replayed in every one, so that a resumed run takes the same steps.

    The weights, what the optimizer remembers and the rate are read and written where they lie. So are the gradients;
    those that lie elsewhere than in the first step are copied there. The norm is good until the next step.
    """

    def __init__(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, most: float) -> None:
        self.parameters = parameters
        self.optimizer = optimizer
        self.most = most
        self.lr = torch.zeros((), device=parameters[0].device)
        self.gradients: list[Tensor | None] = []
        self.norm = self.lr
        self.replay: Callable[[], None] | None = None

    def __call__(self, lr: float) -> Tensor:
        """Take it: the gradients are there, and nothing waits for the GPU."""
        given = [parameter.grad for parameter in self.parameters]
        if self.replay is None:
            self.gradients = given
            self._prepare()
            self.replay = _record(self._step)
        here: list[Tensor] = []
        there: list[Tensor] = []
        for number, (recorded, now) in enumerate(zip(self.gradients, given, strict=True)):
            if (recorded is None) != (now is None):
                raise ValueError(
                    f"parameter {number} has {'a' if recorded is None else 'no'} gradient, unlike before"
                )
            if recorded is not None and now is not None and recorded.data_ptr() != now.data_ptr():
                here.append(recorded)
                there.append(now)
        if here:
            torch._foreach_copy_(here, there)
        self.lr.fill_(lr)
        self.replay()
        self.optimizer.zero_grad()
        return self.norm

    def _prepare(self) -> None:
        """Make all that the optimizer needs, by a step that then is undone."""
        for group in self.optimizer.param_groups:
            group["lr"] = torch.zeros_like(self.lr)
        used = [*self.parameters, *(gradient for gradient in self.gradients if gradient is not None)]
        before = [tensor.detach().clone() for tensor in used]
        remembered = {
            (parameter, name): tensor.clone()
            for parameter, memory in self.optimizer.state.items()
            for name, tensor in memory.items()
        }
        _beside(self._step)
        with torch.no_grad():
            torch._foreach_copy_(used, before)
            for parameter, memory in self.optimizer.state.items():
                for name, tensor in memory.items():
                    tensor.copy_(remembered.get((parameter, name), torch.zeros_like(tensor)))  # all begins at zero
        for group in self.optimizer.param_groups:
            if "capturable" in group:
                group["capturable"] = True

    def _step(self) -> None:
        for group in self.optimizer.param_groups:
            torch.mul(self.lr, group["scale"], out=group["lr"])
        self.norm = clip(self.parameters, self.most)
        self.optimizer.step()


def _beside(step: Callable[[], None]) -> None:
    """Do it on a stream of its own, as recordings are made."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)


def _record(step: Callable[[], None]) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
