"""How much the last state still knows of each token before it: a recurrent layer against attention, untrained.

    python docs/learn/code/influence.py

Shapes: T length, D width.
"""

import numpy as np
import torch
from drawing import panels, save
from torch import Tensor, nn

from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layout import Padded

LENGTH, DIM = 128, 64


class Recurrent(nn.Module):
    """An LSTM or a GRU as a layer that takes and gives one sequence."""

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], dim: int) -> None:
        super().__init__()
        self.cell = cell(dim, dim, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """(1, T, D) -> (1, T, D)."""
        return self.cell(x)[0]


class Attention(nn.Module):
    """Self-attention in the same clothes."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(dim, heads=4)

    def forward(self, x: Tensor) -> Tensor:
        """(1, T, D) -> (1, T, D)."""
        return self.attention(x, Padded(None))[0]


def influence(layer: nn.Module, length: int, dim: int, *, draws: int = 8, seed: int = 0) -> np.ndarray:
    """The size of the last state's gradient at each token, by distance from the end: (T,), the last token first."""
    generator = torch.Generator().manual_seed(seed)
    sizes = []
    for _ in range(draws):
        x = torch.randn(1, length, dim, generator=generator, requires_grad=True)
        pull = torch.randn(dim, generator=generator)
        (gradient,) = torch.autograd.grad(layer(x)[0, -1] @ pull, x)
        sizes.append(gradient[0].norm(dim=-1).flip(0))
    return torch.stack(sizes).mean(0).numpy()


def main() -> None:
    """Draw the influence of each distance."""
    torch.manual_seed(0)
    layers = {"LSTM": Recurrent(nn.LSTM, DIM), "GRU": Recurrent(nn.GRU, DIM), "attention": Attention(DIM)}
    figure, (axis,) = panels(1, 1, 6.2, 3.0)
    for name, layer in layers.items():
        sizes = influence(layer, LENGTH, DIM)
        axis.semilogy(range(LENGTH), sizes / sizes.max(), label=name)
        print(f"{name}: at distance 10 {sizes[10] / sizes.max():.1e}, at distance 100 {sizes[100] / sizes.max():.1e}")
    axis.set(xlabel="distance", ylabel="influence")
    axis.grid(alpha=0.25)
    axis.legend()
    save(figure, "influence")


if __name__ == "__main__":
    main()
