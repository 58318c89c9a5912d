"""What BERT reads, and what is done to it before it is asked.

    python docs/learn/code/bert_input.py

Shapes: N tokens, M chosen tokens.
"""

from typing import NamedTuple

import numpy as np
from drawing import panels, save

from heedful.data.examples import plan_pairs
from heedful.data.masking import mask_tokens

TOKENS = ["[CLS]", "paris", "is", "a", "beautiful", "city", "[SEP]", "i", "love", "paris", "[SEP]"]
SEGMENTS = [0] * 7 + [1] * 4
VOCAB_SIZE, MASK = 1000, 3
SPECIAL = np.arange(VOCAB_SIZE) < 4
"""[PAD], [CLS], [SEP] and [MASK]."""


class Shares(NamedTuple):
    """What became of the tokens."""

    chosen: float
    """Of all that are words."""
    masked: float
    """Of the chosen ones, like the next two."""
    other: float
    kept: float


def masking(sequences: int, length: int, seed: int = 0) -> Shares:
    """The shares over so many random sequences."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(4, VOCAB_SIZE, size=sequences * length)
    owner = np.repeat(np.arange(sequences), length)
    corrupted, places, words = mask_tokens(ids, owner, special=SPECIAL, mask_id=MASK, rng=rng)
    masked, kept = corrupted[places] == MASK, corrupted[places] == words
    return Shares(len(places) / len(ids), masked.mean(), (~masked & ~kept).mean(), kept.mean())


def unrelated(documents: int, seed: int = 0) -> float:
    """How many pairs have a second half from elsewhere, in documents of two to nineteen sentences of ten tokens."""
    rng = np.random.default_rng(seed)
    sentences = rng.integers(2, 20, size=documents)
    starts = np.concatenate([[0], np.cumsum(sentences)])
    return float(plan_pairs(10 * np.arange(starts[-1] + 1), starts, 64, rng).unrelated.mean())


def main() -> None:
    """Draw the three numbers of each token, and the measured shares."""
    figure, axes = panels(1, 2, 11.0, 2.4)
    most = {"token": 9, "segment": 8, "position": 24}  # where each scale of colours ends
    rows = (
        ("token", [TOKENS.index(token) for token in TOKENS], "Pastel1"),
        ("segment", SEGMENTS, "Set2"),
        ("position", range(11), "Blues"),
    )
    for row, (name, numbers, colours) in enumerate(rows):
        values = np.full((3, len(TOKENS)), np.nan)
        values[row] = list(numbers)
        axes[0].imshow(values, cmap=colours, aspect="auto", vmin=0, vmax=most[name])
        for column, number in enumerate(TOKENS if name == "token" else numbers):
            text = {"segment": "AB"[SEGMENTS[column]]}.get(name, str(number))
            axes[0].text(column, row, text, ha="center", va="center", fontsize=6.5)
    axes[0].set_yticks(range(3), ["token", "+ segment", "+ position"])
    axes[0].set_xticks([])
    shares = masking(2000, 100)
    names = ("chosen", "→ [MASK]", "→ another", "→ itself", "B from\nelsewhere")
    values = (*shares, unrelated(2000))
    bars = axes[1].bar(names, values, color=["tab:gray", "tab:blue", "tab:blue", "tab:blue", "tab:orange"])
    axes[1].bar_label(bars, [f"{value:.3f}" for value in values], fontsize=8)
    axes[1].tick_params("x", labelsize=8)
    axes[1].set_ylim(0, 1)
    save(figure, "bert-input")
    print(*(f"{name}: {value:.4f}" for name, value in zip(names, values, strict=True)))


if __name__ == "__main__":
    main()
