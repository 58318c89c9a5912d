"""What a convolution knows from the start and a Transformer has to learn: that neighbours belong together.

    python docs/learn/code/patches_compared.py

Both learn scikit-learn's handwritten digits from few images. Then again from images whose patches are shuffled, all
in the same way: nothing is lost, but neighbours are no longer neighbours.

Shapes: B batch, P patches, D width, C classes.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from drawing import panels, save
from sklearn.datasets import load_digits
from torch import Tensor, nn

from heedful.nn.layers import EncoderLayer
from heedful.nn.layout import Padded
from heedful.nn.norm import Norm

SIDE, PATCH, CLASSES = 8, 2, 10
PATCHES = (SIDE // PATCH) ** 2
HELD_OUT = 597
COUNTS = (50, 200, 1200)


class Digits(NamedTuple):
    """Images (B, 1, 8, 8) with values from 0 to 1, and which digit each is (B,)."""

    images: Tensor
    labels: Tensor


class Attending(nn.Module):
    """Patches through a strided projection, learned positions, encoder layers, the mean: a small ViT."""

    def __init__(self, dim: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, dim, PATCH, stride=PATCH)
        self.positions = nn.Parameter(0.1 * torch.randn(PATCHES, dim))
        self.layers = nn.ModuleList(
            EncoderLayer(dim, 4, 2 * dim, norm_eps=1e-5, pre_norm=True) for _ in range(layers)
        )
        self.norm = Norm(dim)
        self.output = nn.Linear(dim, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 1, 8, 8) -> (B, C)."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions  # (B, P, D)
        for layer in self.layers:
            x, _ = layer(x, Padded(None))
        return self.output(self.norm(x).mean(1))


def convolving() -> nn.Module:
    """Two convolutions of about as many parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 80, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(320, CLASSES),
    )


MODELS = {"convolution": convolving, "attention": Attending}


def digits() -> tuple[Digits, Digits]:
    """Images to learn from and held-out ones."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    whole = Digits(
        torch.from_numpy(images[order]).float().view(-1, 1, SIDE, SIDE) / 16, torch.from_numpy(labels[order])
    )
    return Digits(*(part[HELD_OUT:] for part in whole)), Digits(*(part[:HELD_OUT] for part in whole))


def shuffled(images: Tensor, order: Tensor) -> Tensor:
    """The same images with their patches in another order (P,)."""
    patches = F.unfold(images, PATCH, stride=PATCH)  # (B, 4, P)
    return F.fold(patches[..., order], (SIDE, SIDE), PATCH, stride=PATCH)


def accuracy(model: nn.Module, learned: Digits, asked: Digits, *, steps: int, seed: int) -> float:
    """The share of held-out digits that are told right after so many steps of 50 images."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - step / steps)
        rows = torch.randint(len(learned.labels), (50,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(learned.images[rows]), learned.labels[rows]).backward()
        optimizer.step()
    with torch.inference_mode():
        return float((model(asked.images).argmax(-1) == asked.labels).float().mean())


def measure(name: str, count: int, *, mixed: bool, steps: int, seed: int) -> float:
    """The accuracy of a fresh model that saw so many images, shuffled or not."""
    torch.manual_seed(seed)  # of the parameters
    learned, asked = digits()
    learned = Digits(*(part[seed * 17 :][:count] for part in learned)) if count < 1000 else learned
    if mixed:
        order = torch.randperm(PATCHES, generator=torch.Generator().manual_seed(0))
        learned, asked = (part._replace(images=shuffled(part.images, order)) for part in (learned, asked))
    return accuracy(MODELS[name](), learned, asked, steps=steps, seed=seed)


def main(steps: int = 500, seeds: int = 5) -> None:
    """Draw the accuracy against the number of images, and a digit in both forms."""
    figure, axes = panels(1, 3, 9.6, 3.0)
    learned, _ = digits()
    order = torch.randperm(PATCHES, generator=torch.Generator().manual_seed(0))
    for axis, images, title in zip(
        axes, (learned.images, shuffled(learned.images, order)), ("whole", "shuffled"), strict=False
    ):
        axis.imshow(images[1, 0].numpy(), cmap="gray_r")
        axis.set(xticks=np.arange(1.5, 7, 2), yticks=np.arange(1.5, 7, 2), xticklabels=[], yticklabels=[])
        axis.grid(color="tab:blue", linewidth=0.8)
        axis.set_title(title, fontsize=10)
    print("| | " + " | ".join(map(str, COUNTS)) + " |\n|---|" + "---:|" * len(COUNTS))
    for name in MODELS:
        for mixed, style in ((False, "o-"), (True, "s--")):
            runs = [
                [measure(name, count, mixed=mixed, steps=steps, seed=seed) for seed in range(seeds)]
                for count in COUNTS
            ]
            means = [float(np.mean(run)) for run in runs]
            label = f"{name}, {'shuffled' if mixed else 'whole'}"
            axes[2].plot(COUNTS, means, style, color=f"C{list(MODELS).index(name)}", markersize=4, label=label)
            cells = (
                f"{100 * mean:.1f} ± {100 * np.std(run, ddof=1):.1f}" for mean, run in zip(means, runs, strict=True)
            )
            print(f"| {label} | {' | '.join(cells)} |", flush=True)
    axes[2].set(xscale="log", xlabel="images", xticks=COUNTS, xticklabels=COUNTS)
    axes[2].minorticks_off()
    axes[2].set_title("share right", fontsize=10)
    axes[2].grid(alpha=0.25)
    axes[2].legend(fontsize=7)
    save(figure, "patches")


if __name__ == "__main__":
    main()
