"""A recurrent translator that learns numbers, and where it looks while it writes them.

    python docs/learn/code/translator.py

English words in, Korean syllables out, spelled as they sound. Each of the five scores gets the same data and steps.

Shapes: B batch, S source length, T target length.
"""

import random

import numpy as np
import torch
import torch.nn.functional as F
from drawing import panels, save
from torch import Tensor

from heedful.data.numbers import english, korean
from heedful.models.rnn import Rnn, RnnConfig, initialise
from heedful.nn.scores import SCORES
from heedful.runs.demo_translation import ROMAN

SHOWN = 340_070
DIGITS = 6
PAD, SOS, EOS = 0, 1, 2
MARKS = ("", "<sos>", "<eos>")
ENGLISH_WORDS = [
    *(english(number) for number in range(20)),
    *(english(number) for number in range(20, 100, 10)),
    *("hundred", "thousand", "and"),
]
VOCABULARY = (*MARKS, *ENGLISH_WORDS, *ROMAN.values())
IDS = {word: number for number, word in enumerate(VOCABULARY)}


def words(number: int) -> tuple[list[str], list[str]]:
    """A number as English words and as the syllables of the Korean ones."""
    syllables = [ROMAN[letter] for letter in korean(number).replace(" ", "")]
    return english(number).replace("-", " ").split(), syllables


def batch(numbers: list[int]) -> tuple[Tensor, Tensor]:
    """Sources (B, S) that end with <eos>, targets (B, T + 1) from <sos> to <eos>; padded."""
    pairs = [words(number) for number in numbers]
    sources = [[*source, "<eos>"] for source, _ in pairs]
    targets = [["<sos>", *target, "<eos>"] for _, target in pairs]
    return _ids(sources), _ids(targets)


def drawn(count: int, generator: random.Random) -> list[int]:
    """Numbers to learn from: short and long ones alike, none of the held-out ones."""
    found = (int(10 ** (DIGITS * generator.random())) for _ in range(4 * count))
    return [number for number in found if not held_out(number)][:count]


def train(score: str, *, steps: int, dim: int = 64, lr: float = 5e-3, seed: int = 0) -> Rnn:
    """A translator with one of the scores, after so many steps of 64 pairs."""
    config = RnnConfig(
        vocab_size=len(VOCABULARY),
        layers=1,
        dim=dim,
        cell="gru",
        score=score,
        dropout=0.0,
        input_feeding=False,  # all steps of a target at once: faster
        max_length=31,
    )
    model = Rnn(config)
    initialise(model, config, torch.Generator().manual_seed(seed))
    generator = random.Random(seed)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = lr * (1 - step / steps)
        source, target = batch(drawn(64, generator))
        scores = model(source, source != PAD, target[:, :-1])
        optimizer.zero_grad()
        F.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


@torch.inference_mode()
def share_right(model: Rnn, numbers: list[int]) -> float:
    """How many numbers the model writes without a mistake, always taking the most probable syllable."""
    source, target = batch(numbers)
    state = model.start(model.encode(source, source != PAD), beams=1)
    last = torch.full((len(numbers), 1), SOS)
    right = torch.ones(len(numbers), dtype=torch.bool)
    for wanted in target[:, 1:].T:
        scores, state, _ = model.step(state, last)
        last = scores.argmax(-1)
        right &= (last[:, 0] == wanted) | (wanted == PAD)
    return float(right.float().mean())


@torch.inference_mode()
def alignment(model: Rnn, number: int) -> np.ndarray:
    """Where the model looks when it writes each syllable of a number, and its end: (T, S)."""
    source, target = batch([number])
    return model.align(source, source != PAD, target[:, :-1])[0].numpy()


def unseen(count: int) -> list[int]:
    """Held-out numbers."""
    generator = random.Random(1)
    found = (int(10 ** (DIGITS * generator.random())) for _ in range(20 * count))
    return [number for number in found if held_out(number)][:count]


def held_out(number: int) -> bool:
    """One number in eleven is never learned; the one in the picture is among them."""
    return number % 11 == SHOWN % 11


def _ids(sides: list[list[str]]) -> Tensor:
    longest = max(map(len, sides))
    return torch.tensor([[IDS[word] for word in side] + [PAD] * (longest - len(side)) for side in sides])


def draw(weights: np.ndarray) -> None:
    """Where the translator looked, in one picture."""
    source, target = words(SHOWN)
    figure, (axis,) = panels(1, 1, 4.6, 4.4)
    axis.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    axis.set_xticks(range(len(source) + 1), [*source, "<eos>"], rotation=90)
    axis.set_yticks(range(len(target) + 1), [*target, "<eos>"])
    axis.xaxis.tick_top()
    axis.set(xlabel="read", ylabel="written")
    axis.xaxis.set_label_position("top")
    save(figure, "translator")


def main() -> None:
    """Train one translator a score; draw where the one with score general looks."""
    asked = unseen(500)
    print(f"| score | right of {len(asked)} |\n|---|---:|")
    for score in SCORES:
        model = train(score, steps=2000)
        print(f"| {score} | {round(share_right(model, asked) * len(asked))} |", flush=True)
        if score == "general":
            draw(alignment(model, SHOWN))


if __name__ == "__main__":
    main()
