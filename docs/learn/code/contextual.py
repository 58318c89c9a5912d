"""One word in seven sentences: as a table of vectors sees it, and as a trained encoder does.

    python docs/learn/code/contextual.py [FOLDER]

Shapes: N occurrences, D width.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from drawing import numbered, panels, save
from heads import bundled, read
from torch import Tensor

from heedful.data.tokenizer import Tokenizer
from heedful.models.bert import Bert

WORD = "python"
SENTENCES = (
    "He got bit by Python",
    "He was bitten by a python in the jungle",
    "The python swallowed a goat",
    "A python is a large snake",
    "Python is my favorite programming language",
    "She wrote the script in Python",
    "Python code is easy to read",
)
SNAKES = 4
"""The first so many sentences are about the animal."""


@torch.inference_mode()
def vectors(model: Bert, reader: Tokenizer, word: str, sentences: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """The word's vector in the table of embeddings and its last state, once a sentence: (N, D) both."""
    names = reader.vocabulary
    number = names.index(word)
    states = []
    for ids in reader.encode(sentences):
        whole = torch.tensor([[names.index("[CLS]"), *ids, names.index("[SEP]")]])
        states.append(model(whole).hidden[0, whole[0].tolist().index(number)])
    return model.embeddings.tokens.weight[number].detach().expand(len(sentences), -1), torch.stack(states)


def cosines(found: Tensor) -> Tensor:
    """How alike the occurrences are: (N, D) -> (N, N)."""
    unit = F.normalize(found, dim=-1)
    return unit @ unit.T


def main(folder: Path | None = None) -> None:
    """Draw who is like whom, without and with context."""
    found = vectors(*read(folder or bundled()), WORD, SENTENCES)
    figure, axes = panels(1, 2, 8.6, 3.6)
    for axis, name, each in zip(axes, ("static", "contextual"), found, strict=True):
        numbered(axis, cosines(each).numpy())
        axis.set_title(name, fontsize=10)
        labels = range(1, len(SENTENCES) + 1)
        axis.set(xticks=range(len(SENTENCES)), yticks=range(len(SENTENCES)), xticklabels=labels, yticklabels=labels)
        print(name, (100 * cosines(each)).round().int().tolist())
    save(figure, "contextual")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
