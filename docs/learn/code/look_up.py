"""Five ways to score a key, and three kinds of question: which score can learn to answer which?

    python docs/learn/code/look_up.py

Shapes: B batch, S keys, D width.
"""

import numpy as np
import torch
import torch.nn.functional as F
from drawing import numbered, panels, save
from torch import Tensor

from heedful.nn.scores import SCORES, Score

WORDS, KEYS, DIM, BATCH = 11, 7, 16, 64
VECTORS = torch.randn(WORDS, DIM, generator=torch.Generator().manual_seed(0))
QUESTIONS = ("is like the key", "is the key, turned", "names the place")


def lookups(question: str, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (B, 1, D), keys (B, S, D), and which key each query means (B,)."""
    order = torch.rand(BATCH, WORDS, generator=generator).argsort(-1)[:, :KEYS]  # different words in any order
    keys = VECTORS[order]
    meant = torch.randint(KEYS, (BATCH,), generator=generator)
    query = keys[torch.arange(BATCH), meant]
    if question == "is the key, turned":
        query = query.roll(DIM // 2, -1) * torch.tensor([-1.0, 1.0]).repeat(DIM // 2)
    if question == "names the place":
        query = 3.0 * F.one_hot(meant, DIM).float()
    noise = 0.3 * torch.randn(BATCH, DIM, generator=generator)
    return (query + noise)[:, None], keys, meant


def found(kind: str, question: str, *, steps: int, seed: int = 0) -> float:
    """The share of queries whose largest weight is at the right key, after training the score where it can learn."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)  # of the parameters
    score = Score(kind, DIM, DIM, KEYS)
    if parameters := list(score.parameters()):
        optimizer = torch.optim.Adam(parameters, lr=0.02)
        for _ in range(steps):
            query, keys, meant = lookups(question, generator)
            optimizer.zero_grad()
            F.cross_entropy(score(query, keys)[:, 0], meant).backward()
            optimizer.step()
    with torch.inference_mode():
        drawn = [lookups(question, generator) for _ in range(16)]
        right = [(score(query, keys)[:, 0].argmax(-1) == meant).float().mean() for query, keys, meant in drawn]
    return float(torch.stack(right).mean())


def measure(steps: int) -> np.ndarray:
    """(scores, questions)."""
    return np.array([[found(kind, question, steps=steps) for question in QUESTIONS] for kind in SCORES])


def main() -> None:
    """Draw which score finds what."""
    shares = measure(steps=300)
    figure, (axis,) = panels(1, 1, 6.2, 2.7)
    numbered(axis, shares)
    axis.set_xticks(range(len(QUESTIONS)), QUESTIONS)
    axis.set_yticks(range(len(SCORES)), SCORES)
    axis.set_xlabel("the query …")
    axis.set_title("share of queries that find their key", fontsize=10)
    save(figure, "look-up")
    print(np.round(shares, 2))


if __name__ == "__main__":
    main()
