"""The causal mask, and a search that greedy choices lose: "I love you", one Korean word after the other.

    python docs/learn/code/decoding.py

The words are spelled as they sound: na-neun (I), neo-reul (you), sarang-hae (love).

Shapes: B sentences, K beams, V words, T length.
"""

import math
from typing import NamedTuple

import torch
from drawing import numbered, panels, save
from matplotlib.axes import Axes
from torch import Tensor

from heedful.decode import Hypothesis, Limits, Marks, SearchOptions, Task, search
from heedful.nn.attention import causal_mask, explained_attention

WORDS = ("<sos>", "<eos>", "naneun", "neoreul", "saranghae")
SOS, EOS = 0, 1
CHANCES = torch.tensor(
    [
        [0.00, 0.00, 0.55, 0.40, 0.05],  # after <sos>
        [0.00, 1.00, 0.00, 0.00, 0.00],  # after <eos>
        [0.00, 0.10, 0.00, 0.50, 0.40],  # after naneun
        [0.00, 0.05, 0.00, 0.00, 0.95],  # after neoreul
        [0.00, 0.90, 0.05, 0.05, 0.00],  # after saranghae
    ]
)
"""What may follow each word, and how probably: a decoder that sees one word back."""


class Bigrams:
    """All that a search needs of a model."""

    def step(
        self, state: None, tokens: Tensor, _parents: Tensor | None = None, _explain: bool = False
    ) -> tuple[Tensor, None, None]:
        """The last words (B, K) -> scores of the next (B, K, V)."""
        return CHANCES.log()[tokens], state, None

    def keep(self, state: None, _sentences: Tensor) -> None:
        """There is nothing to keep."""
        return state


def found(beam: int) -> Hypothesis:
    """The best translation that a search with so many beams finds."""
    options = SearchOptions(beam=beam, penalty="none")
    task = Task(state=None, limits=[Limits(0, 5)])
    return search(Bigrams(), task, Marks(SOS, EOS, never=(SOS,)), options, torch.device("cpu"))[0][0]


class Branch(NamedTuple):
    """A beginning of a translation."""

    ids: tuple[int, ...]
    chance: float


def branches(least: float) -> list[Branch]:
    """Every beginning that is at least so probable, shorter ones first."""
    every, ends = [Branch((SOS,), 1.0)], [Branch((SOS,), 1.0)]
    while ends:
        ends = [
            Branch((*ids, token), chance * part)
            for ids, chance in ends
            if ids[-1] != EOS
            for token, part in enumerate(CHANCES[ids[-1]].tolist())
            if chance * part >= least
        ]
        every += ends
    return every


def causal_weights(length: int, seed: int = 0) -> Tensor:
    """What each token may look at, and how much it does: (T, T)."""
    generator = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, 1, 1, length, 8, generator=generator)
    return explained_attention(query, key, key, causal_mask(length))[1][0, 0]


def draw_tree(axis: Axes) -> None:
    """The tree of beginnings: what greedy search wrote in red, what two beams found in blue."""
    paths = {(SOS, *found(beam).ids, EOS): colour for beam, colour in ((1, "tab:red"), (2, "tab:blue"))}
    tree = branches(least=0.02)
    leaves = sorted(branch.ids for branch in tree if not any(other.ids[:-1] == branch.ids for other in tree))
    heights = {ids: -float(number) for number, ids in enumerate(leaves)}
    for ids, chance in reversed(tree):
        below = [heights[other.ids] for other in tree if other.ids[:-1] == ids]
        heights.setdefault(ids, sum(below) / max(1, len(below)))
        colour = next((colour for path, colour in paths.items() if path[: len(ids)] == ids and len(ids) > 1), "0.6")
        axis.text(
            len(ids), heights[ids], f"{WORDS[ids[-1]]}\n{chance:.2f}", ha="center", va="center", fontsize=7.5,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": colour},
        )  # fmt: skip
    for ids, chance in tree[1:]:
        colour = next((colour for path, colour in paths.items() if path[: len(ids)] == ids), "0.75")
        line = ([len(ids) - 1, len(ids)], [heights[ids[:-1]], heights[ids]])
        axis.plot(*line, color=colour, linewidth=1 + 3 * chance, zorder=0)
    axis.axis("off")
    axis.margins(0.08)


def main() -> None:
    """Draw the masked weights and the tree."""
    figure, axes = panels(1, 2, 10.0, 3.8)
    numbered(axes[0], causal_weights(5).numpy())
    axes[0].set(xlabel="looked at", ylabel="token", xticks=range(5), yticks=range(5))
    draw_tree(axes[1])
    figure.get_layout_engine().set(wspace=0.05)  # pyrefly: ignore
    for beam in (1, 2, 3):
        best = found(beam)
        print(beam, " ".join(WORDS[token] for token in best.ids), f"{math.exp(best.log_prob):.3f}")
    save(figure, "decoding")


if __name__ == "__main__":
    main()
