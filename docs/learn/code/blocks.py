"""What the residuals and the place of the norms do to a deep stack: states going up, gradients
coming down.

    python docs/learn/code/blocks.py

Shapes: B batch, T length, D width, L layers.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from drawing import panels, save
from torch import Tensor, nn

from heedful.nn.layers import EncoderLayer
from heedful.nn.layout import Padded

DIM, HEADS, LAYERS, BATCH, LENGTH = 64, 4, 24, 8, 16
KINDS = ("post-norm", "pre-norm", "no residuals")


class Bare(nn.Module):
    """A post-norm layer whose residuals are left out."""

    def __init__(self, layer: EncoderLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, layout: Padded) -> tuple[Tensor, None]:
        """(B, T, D) -> (B, T, D)."""
        mixed, _ = self.layer.attention(x, layout)
        x = self.layer.attention_norm(mixed)
        return self.layer.feed_forward_norm(self.layer.feed_forward(x)), None


class Passage(NamedTuple):
    """What one pass up and down leaves behind."""

    states: list[float]
    """The mean length of a token's state after each layer, over √D."""
    likeness: list[float]
    """The mean cosine of two tokens of a sequence after each layer."""
    gradient: float
    """The length of the gradient at the last layer's last matrix."""


def stack(kind: str, layers: int, seed: int = 0) -> list[nn.Module]:
    """Encoder layers with matrices as Glorot and Bengio draw them, and no biases yet."""
    generator = torch.Generator().manual_seed(seed)
    made: list[nn.Module] = []
    for _ in range(layers):
        layer = EncoderLayer(DIM, HEADS, 4 * DIM, norm_eps=1e-5, pre_norm=kind == "pre-norm")
        for name, parameter in layer.named_parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter, generator=generator)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        made.append(Bare(layer) if kind == "no residuals" else layer)
    return made


def passage(kind: str, layers: int = LAYERS, seed: int = 0) -> Passage:
    """A random batch through an untrained stack, and a random pull on its output back down."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, LENGTH, DIM, generator=generator)
    made = stack(kind, layers, seed)
    states, likeness = [], []
    for layer in made:
        x, _ = layer(x, Padded(None))
        states.append(float(x.detach().norm(dim=-1).mean()) / DIM**0.5)
        likeness.append(_likeness(x.detach()))
    (nn.LayerNorm(DIM)(x) * torch.randn(x.shape, generator=generator)).sum().backward()
    last = made[-1].layer if isinstance(made[-1], Bare) else made[-1]
    assert isinstance(last, EncoderLayer)
    assert last.feed_forward.outer.weight.grad is not None
    return Passage(states, likeness, float(last.feed_forward.outer.weight.grad.norm()))


def _likeness(x: Tensor) -> float:
    """(B, T, D) -> the mean cosine of two different tokens of a sequence."""
    unit = F.normalize(x, dim=-1)
    cosines = unit @ unit.transpose(1, 2)  # (B, T, T)
    return float((cosines.sum() - len(x) * LENGTH) / (len(x) * LENGTH * (LENGTH - 1)))


def main() -> None:
    """Draw states and likeness by layer, and the last gradient by depth."""
    figure, axes = panels(1, 3, 9.6, 2.9)
    depths = (2, 4, 8, 16, 32)
    for kind in KINDS:
        states, likeness, _ = passage(kind)
        gradients = [passage(kind, depth).gradient for depth in depths]
        style = "--" if kind == "no residuals" else "-"  # where it lies on another line
        axes[0].plot(range(1, LAYERS + 1), states, style, label=kind)
        axes[1].plot(range(1, LAYERS + 1), likeness, style, label=kind)
        axes[2].loglog(depths, gradients, "o-", markersize=4, label=kind, base=2)
        print(f"{kind}: state {states[-1]:.2f}, likeness {likeness[-1]:.2f},", *(f"{size:.0f}" for size in gradients))
    for axis, title in zip(axes, ("size of the states", "likeness of tokens", "last layer's gradient"), strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("layer" if axis is not axes[2] else "layers")
        axis.grid(alpha=0.25)
    axes[1].legend(fontsize=8)
    save(figure, "blocks")


if __name__ == "__main__":
    main()
