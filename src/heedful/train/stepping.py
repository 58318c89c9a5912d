"""From gradients to new weights: they are clipped, the optimizer takes its step, and they are forgotten.

A small model's step takes a GPU less time than the host needs to launch its many small pieces. Recorded once (CUDA
graphs), they are launched as one.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from heedful.train.optim import clip, set_rate


class Stepping:
    """A step at a rate, which says how long the gradient was before it was clipped."""

    def __init__(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, most: float) -> None:
        self.parameters = parameters
        self.optimizer = optimizer
        self.most = most

    def __call__(self, lr: float) -> Tensor:
        """Take it."""
        set_rate(self.optimizer, lr)
        norm = clip(self.parameters, self.most)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return norm


class RecordedStepping:
    """The same, recorded in the first step and replayed in every one, so that a resumed run takes the same steps.

    The weights, what the optimizer remembers and the rate are read and written where they lie. So are the gradients;
    those that lie elsewhere than in the first step are copied there. The norm is good until the next step.
    """

    def __init__(self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, most: float) -> None:
        self.parameters = parameters
        self.optimizer = optimizer
        self.most = most
        self.lr = torch.zeros((), device=parameters[0].device)
        self.gradients: list[Tensor] = []
        self.norm = self.lr
        self.replay: Callable[[], None] | None = None

    def __call__(self, lr: float) -> Tensor:
        """Take it: the gradients are there, and nothing waits for the GPU."""
        given = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if self.replay is None:
            self.gradients = given
            self.replay = self._recorded()
        if len(given) != len(self.gradients):
            raise ValueError(f"gradients of {len(given)} parameters, but {len(self.gradients)} were recorded")
        elsewhere = [
            (here, there)
            for here, there in zip(self.gradients, given, strict=True)
            if here.data_ptr() != there.data_ptr()
        ]
        if elsewhere:
            torch._foreach_copy_([here for here, _ in elsewhere], [there for _, there in elsewhere])
        self.lr.fill_(lr)
        self.replay()
        self.optimizer.zero_grad()
        return self.norm

    def _recorded(self) -> Callable[[], None]:
        """Record the step, after one that makes what the optimizer needs and then is undone."""
        groups = self.optimizer.param_groups
        for group in groups:
            group["lr"] = torch.zeros_like(self.lr)
        before = [tensor.detach().clone() for tensor in (*self.parameters, *self.gradients)]
        remembered = {
            (parameter, name): tensor.clone()
            for parameter, memory in self.optimizer.state.items()
            for name, tensor in memory.items()
        }
        _beside(self._step)
        with torch.no_grad():
            torch._foreach_copy_([*self.parameters, *self.gradients], before)
            for parameter, memory in self.optimizer.state.items():
                for name, tensor in memory.items():
                    tensor.copy_(remembered.get((parameter, name), torch.zeros_like(tensor)))  # all begins at zero
        for group in groups:
            if "capturable" in group:
                group["capturable"] = True
        return _record(self._step)

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
