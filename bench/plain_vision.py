"""The other side of `bench/vision.py`: images told apart as a plain script would, by transformers' ViT or a small
convolutional network.

    python -m bench.plain_vision transformers --data FOLDER [--size compact] [--lr 5e-4] [--augmentation none]
        [--epochs 100 | --budget 10m] [--batch 128] [--seed 0] [--device cuda]

AdamW, a linear warm-up, cosine decay, gradients clipped; with `--augmentation flip-crop`, random flips and crops of
images with an eighth of padding. The last state is scored on the test part of the data, once. Prints a line of
JSON.

Shapes: N images, B images of a batch, C channels, H height, W width, K classes.
"""

import argparse
import contextlib
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.data import image_store
from heedful.data.images import Images, measure
from heedful.models.vit import SIZES, default_patch
from heedful.train.schedule import cosine, seconds

WARMUP, DECAY, CLIP = 0.1, 0.05, 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("transformers", "convolution"))
    parser.add_argument("--data", required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="compact", help="of the ViT, and of a network as large")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--augmentation", choices=("none", "flip-crop"), default="none")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--budget")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    arguments = parser.parse_args()
    if (arguments.epochs is None) == (arguments.budget is None):
        parser.error("give either --epochs or --budget")
    torch.manual_seed(arguments.seed)
    device = torch.device(arguments.device)
    stored = image_store.prepare(arguments.data, cache=arguments.cache)
    assert stored.heldout is not None, "the data has no test part"
    train, test = (on(device, part) for part in (stored.train, stored.heldout))
    normal = [torch.tensor(numbers, device=device)[:, None, None] for numbers in moments(stored.train)]
    model = build(arguments.model, arguments.size, stored.train).to(device)
    begun = time.perf_counter()
    steps = fit(model, *train, normal, arguments, device)
    print(
        json.dumps(
            {
                "accuracy": accuracy(model, *test, normal, arguments.batch, device),
                "parameters": sum(one.numel() for one in model.parameters()),
                "epochs": steps * min(arguments.batch, len(train[1])) / len(train[1]),
                "seconds": time.perf_counter() - begun,
            }
        )
    )


def on(device: torch.device, images: Images) -> tuple[Tensor, Tensor]:
    """All images, (N, C, H, W) uint8, and their classes (N,), where they are needed."""
    pixels = torch.cat([torch.from_numpy(piece) for piece in images.pieces()]).permute(0, 3, 1, 2)
    return pixels.contiguous().to(device), torch.from_numpy(images.labels).to(device)


def moments(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of the channels, in bytes."""
    found = measure(images)
    return tuple(255 * one for one in found.mean), tuple(255 * one for one in found.std)


def build(kind: str, size: str, images: Images) -> nn.Module:
    """The model, from pixels to scores."""
    vit = Vit(size, images)
    if kind == "transformers":
        return vit
    return convolution(images.channels, len(images.classes), sum(one.numel() for one in vit.parameters()))


class Vit(nn.Module):
    """transformers' ViT of one of our sizes."""

    def __init__(self, size: str, images: Images) -> None:
        from transformers import ViTConfig, ViTForImageClassification

        super().__init__()
        layers, dim, heads = SIZES[size]
        config = ViTConfig(
            image_size=images.height,
            patch_size=default_patch(images.height),
            num_channels=images.channels,
            num_hidden_layers=layers,
            hidden_size=dim,
            num_attention_heads=heads,
            intermediate_size=4 * dim,
            num_labels=len(images.classes),  # pyrefly: ignore (of every config)
        )
        self.model = ViTForImageClassification(config)

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, K)."""
        return self.model(pixels).logits


def convolution(channels: int, classes: int, parameters: int) -> nn.Module:
    """Three stages of two 3 x 3 convolutions, each with twice the channels and half the side; the mean over places
    is what is told apart. As wide as makes about so many parameters."""
    width = round((parameters / (9 * (1 + 2 + 4 + 8 + 16))) ** 0.5)
    layers: list[nn.Module] = []
    before = channels
    for stage, after in enumerate((width, 2 * width, 4 * width)):
        layers += [nn.MaxPool2d(2)] if stage else []
        for _ in range(2):
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


def fit(
    model: nn.Module,
    pixels: Tensor,
    labels: Tensor,
    normal: list[Tensor],
    arguments: argparse.Namespace,
    device: torch.device,
) -> int:
    """Train to the end; the number of steps."""
    matrices = [one for one in model.parameters() if one.dim() > 1]
    others = [one for one in model.parameters() if one.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=arguments.lr, fused=True)
    batch = min(arguments.batch, len(labels))
    each = len(labels) // batch
    budget = None if arguments.budget is None else seconds(arguments.budget)
    begun, step = time.perf_counter(), 0
    while True:
        order = torch.randperm(len(labels), device=device)
        for number in range(each):
            if budget is None:
                done = (step + 0.5) / (arguments.epochs * each)
            else:
                done = (time.perf_counter() - begun) / budget
            if done >= 1.0:
                return step
            for group in optimizer.param_groups:
                group["lr"] = arguments.lr * cosine(done, WARMUP)
            chosen = order[number * batch : (number + 1) * batch]
            images = pixels[chosen]
            if arguments.augmentation == "flip-crop":
                images = flipped_and_cropped(images)
            model.train()
            with half(device):
                scores = model((images - normal[0]) / normal[1])
            F.cross_entropy(scores.float(), labels[chosen]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
            step += 1


def flipped_and_cropped(images: Tensor) -> Tensor:
    """(B, C, H, W): half of them mirrored, each moved by up to an eighth of its side, black coming in."""
    count, _, height, width = images.shape
    mirrored = torch.rand(count, device=images.device) < 0.5
    images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    most = height // 8
    padded = F.pad(images, (most,) * 4)
    top, left = torch.randint(0, 2 * most + 1, (2, count), device=images.device)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    places = torch.arange(count, device=images.device)
    return padded[places[:, None, None], :, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


@torch.no_grad()
def accuracy(
    model: nn.Module, pixels: Tensor, labels: Tensor, normal: list[Tensor], batch: int, device: torch.device
) -> float:
    """The share of images that are told right."""
    model.eval()
    right = torch.zeros((), dtype=torch.long, device=device)
    for images, truth in zip(pixels.split(batch), labels.split(batch), strict=True):
        with half(device):
            right += (model((images - normal[0]) / normal[1]).argmax(-1) == truth).sum()
    return int(right) / len(labels)


def half(device: torch.device) -> contextlib.AbstractContextManager:
    """Half precision where a GPU has it."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()


if __name__ == "__main__":
    main()
