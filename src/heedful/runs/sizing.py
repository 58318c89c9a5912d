"""Which size is worth training for a given time: the largest that this machine can feed well enough.

A model that is too large for its time has seen too little; one that is too small has nothing left to learn. How fast
each size would train follows from how fast the machine multiplies matrices, which takes a second to measure.
"""

import time
from collections.abc import Iterable

import torch

from heedful.models.bert import SIZES, BertConfig

ENOUGH = 4.0
"""Tokens that a model should see for each parameter of its layers; few, for they are seen many times over. Ten
minutes of the GPU of docs/results.md are estimated to give base 4.7 and gave 4.4; three quarters of that were enough
for medium's lowest loss."""
REACHED = {
    "cuda": {"tiny": 0.03, "mini": 0.1, "small": 0.25, "medium": 0.38, "base": 0.47, "large": 0.5},
    "cpu": dict.fromkeys(SIZES, 0.4),
}
"""The share of the machine's speed at large products that training a size reaches; small ones leave a GPU idle. Of a
GPU medium and base are measured (docs/results.md), the others are guessed from them."""
STEPS = 5000
"""Of a run, at least: with fewer, an optimizer does not get far enough, however good they are."""
LEAST_BATCH, LARGEST_BATCH = 2**12, 2**15
"""Smaller batches are noise, larger ones teach a small model little more than these."""
PRODUCT = {"cuda": 8192, "cpu": 1024}
"""How large the measured product is."""


def flops_a_token(config: BertConfig, looked_at: float, scored: float, read: float = 1.0) -> float:
    """Multiplications and additions of a training step for one token.

    It looks at so many tokens, itself among them; the share `scored` of the tokens has its words scored, and the
    share `read` goes through the last layer to its end. The backward pass takes twice as much as the forward pass.
    """
    dim = config.dim
    feed_forward = (3 if config.gated else 2) * dim * config.ffn_dim
    looking, rest = 2 * 3 * dim * dim + 4 * looked_at * dim, 2 * (dim * dim + feed_forward)
    words = scored * 2 * dim * (dim + config.vocab_size)
    return 3 * (config.layers * (looking + rest) - (1 - read) * rest + words)


def layer_parameters(config: BertConfig) -> int:
    """The numbers in the matrices of all layers."""
    feed_forward = (3 if config.gated else 2) * config.dim * config.ffn_dim
    return config.layers * (4 * config.dim**2 + feed_forward)


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a large product: the best of several tries."""
    size = PRODUCT[device.type]
    one, other = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(6):
        _wait(device)
        begun = time.perf_counter()
        for _ in range(10):
            one @ other
        _wait(device)
        best = min(best, (time.perf_counter() - begun) / 10)
    return 2 * size**3 / best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def worthwhile(
    seconds: float,
    rate: float,
    device: str,
    *,
    sizes: Iterable[str] = SIZES,
    vocab_size: int,
    length: int,
    mask_rate: float,
    gated: bool,
) -> tuple[str, float]:
    """The largest of the sizes that sees enough in the time, if not the smallest, and the tokens that it will see."""
    chosen = None
    for size in sizes:
        config = BertConfig.of_size(size, vocab_size=vocab_size, gated=gated)
        tokens = seconds * REACHED[device][size] * rate / flops_a_token(config, length, mask_rate)
        if chosen is not None and tokens < ENOUGH * layer_parameters(config):
            break
        chosen = size, tokens
    assert chosen is not None
    return chosen


def suited(tokens: float, length: int) -> int:
    """How many of a run's tokens a batch should have: a power of two that leaves enough steps, and holds a
    sequence."""
    batch = LEAST_BATCH
    while batch < LARGEST_BATCH and tokens / (2 * batch) >= STEPS:
        batch *= 2
    return max(batch, 1 << (length - 1).bit_length())
