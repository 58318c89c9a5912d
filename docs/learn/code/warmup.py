"""Warm-up with and without: six encoder layers learn to write seven symbols backwards.

    python docs/learn/code/warmup.py

Shapes: B batch, T length, D width, V symbols.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from drawing import panels, save
from torch import Tensor, nn

from heedful.models.transformer import POST_NORM_GAINS
from heedful.nn.layers import EncoderLayer
from heedful.nn.layout import Padded
from heedful.nn.norm import Norm
from heedful.nn.positions import sinusoidal
from heedful.train.schedule import trapezoid

SYMBOLS, LENGTH, BATCH, DIM, HEADS, LAYERS = 11, 7, 32, 64, 4, 6
STEPS = 600


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What differs between the runs."""

    name: str
    warmup: float = 0.0
    """The share of the steps in which the rate rises in a straight line; then it stays."""
    lr: float = 3e-3
    pre_norm: bool = False
    small_start: bool = False
    """Whether the sublayers' matrices start smaller, as `models/transformer.py` has it."""
    longer: int = 1
    """So many times the steps."""


SETTINGS = (
    Setting(name="post-norm, warm-up", warmup=0.5),
    Setting(name="post-norm, none"),
    Setting(name="post-norm, none, a third of the rate", lr=1e-3),
    Setting(name="post-norm, none, smaller start", small_start=True),
    Setting(name="pre-norm, none", pre_norm=True),
    Setting(name="post-norm, none, three times as long", longer=3),
)


class Reverser(nn.Module):
    """Encoder layers between two tables."""

    def __init__(self, layers: int, *, pre_norm: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, DIM)
        self.layers = nn.ModuleList(
            EncoderLayer(DIM, HEADS, 4 * DIM, activation="relu", norm_eps=1e-5, pre_norm=pre_norm)
            for _ in range(layers)
        )
        self.norm = Norm(DIM) if pre_norm else nn.Identity()
        self.output = nn.Linear(DIM, SYMBOLS)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, T, V)."""
        x = self.embedding(ids) * DIM**0.5 + sinusoidal(ids.shape[1], DIM)
        for layer in self.layers:
            x, _ = layer(x, Padded(None))
        return self.output(self.norm(x))


def initialise(model: Reverser, generator: torch.Generator, *, small_start: bool) -> None:
    """Matrices as Glorot and Bengio draw them, those of the sublayers smaller on request; biases at zero."""
    for name, parameter in model.named_parameters():
        with torch.no_grad():
            if name.startswith("embedding"):
                parameter.normal_(0.0, DIM**-0.5, generator=generator)
            elif parameter.dim() > 1:
                gain = POST_NORM_GAINS.get(name.split(".")[-2], 1.0) if small_start and "layers" in name else 1.0
                nn.init.xavier_uniform_(parameter, gain, generator=generator)
            elif name.endswith("bias"):
                parameter.zero_()


def losses(setting: Setting, *, seed: int, steps: int = STEPS, layers: int = LAYERS) -> list[float]:
    """The loss of every step."""
    steps *= setting.longer
    generator = torch.Generator().manual_seed(seed)
    model = Reverser(layers, pre_norm=setting.pre_norm)
    initialise(model, generator, small_start=setting.small_start)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    found = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = setting.lr * trapezoid((step + 1) / steps, setting.warmup, 0.0)
        ids = torch.randint(SYMBOLS, (BATCH, LENGTH), generator=generator)
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def bag(draws: int = 20_000) -> float:
    """The loss of who knows which symbols are there, and nothing of their order."""
    ids = torch.randint(SYMBOLS, (draws, LENGTH), generator=torch.Generator().manual_seed(0))
    shares = F.one_hot(ids, SYMBOLS).float().mean(1)  # (draws, V)
    return float(-torch.special.xlogy(shares, shares).sum(-1).mean())


def main(seeds: int = 5) -> None:
    """Train every setting with several seeds; draw the losses, each seed a line."""
    figure, (axis,) = panels(1, 1, 7.0, 3.4)
    print("| | final loss of each seed |\n|---|---|")
    for number, setting in enumerate(SETTINGS):
        runs = [losses(setting, seed=seed) for seed in range(seeds)]
        print(f"| {setting.name} | {', '.join(f'{np.mean(run[-20:]):.2f}' for run in runs)} |", flush=True)
        for seed, run in enumerate(runs if setting.longer == 1 else ()):
            smooth = np.convolve(run, np.full(20, 1 / 20), "valid")
            axis.plot(smooth, color=f"C{number}", linewidth=1, label=setting.name if not seed else None)
    for level in (np.log(SYMBOLS), bag()):
        axis.axhline(level, color="0.6", linestyle=":", zorder=0)
    print(f"guessing {np.log(SYMBOLS):.2f}, the bag {bag():.2f}")
    axis.set(xlabel="step", ylabel="loss")
    axis.legend(fontsize=8, loc="center right", bbox_to_anchor=(1.0, 0.4))
    save(figure, "warmup")


if __name__ == "__main__":
    main()
