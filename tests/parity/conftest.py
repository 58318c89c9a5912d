"""A translator small enough to train on the spot: searches of a random one would end in ties."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.models.transformer import Transformer, TransformerConfig, initialise

VOCABULARY, LONGEST, STEPS, RATE = 23, 6, 150, 5e-3


def reversals(count: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources that end with 2, where they are real, and targets: the same backwards, from 1 to 2."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, VOCABULARY - 4, (count, LONGEST), generator=generator)
    lengths = torch.randint(2, LONGEST + 1, (count, 1), generator=generator)
    places = torch.arange(LONGEST + 1)
    source = F.pad(tokens, (0, 1)).masked_fill(places >= lengths, 0).masked_fill(places == lengths, 2)
    back = source.gather(1, (lengths - 1 - places).clamp(min=0)).masked_fill(places >= lengths, 0)
    target = F.pad(back.masked_fill(places == lengths, 2), (1, 0), value=1)
    return source, places <= lengths, target


@pytest.fixture(scope="session")
def reverser() -> Callable[..., Transformer]:
    """Makes a Transformer that learnt for a second to write its source backwards, and is unsure of it."""
    made: dict[tuple[tuple[str, object], ...], Transformer] = {}

    def make(**changes: object) -> Transformer:
        key = tuple(sorted(changes.items()))
        if key not in made:
            made[key] = _train(TransformerConfig(**_SETTINGS | changes))  # pyrefly: ignore
        return made[key]

    return make


_SETTINGS: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "dim": 30,
    "heads": 2,
    "ffn_dim": 47,
    "dropout": 0.0,
    "max_length": 19,
}


@torch.enable_grad()
def _train(config: TransformerConfig) -> Transformer:
    model = Transformer(config)
    initialise(model, torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(model.parameters(), RATE, betas=(0.9, 0.98))
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 30)
        source, mask, target = reversals(61, step)
        scores = model(source, mask, target[:, :-1]).flatten(0, 1)
        loss = F.cross_entropy(scores, target[:, 1:].flatten(), ignore_index=0, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="session")
def sources() -> tuple[Tensor, Tensor, Tensor]:
    """Thirteen sources of several lengths that no training saw, their masks and what they are backwards."""
    return reversals(13, 10_007)
