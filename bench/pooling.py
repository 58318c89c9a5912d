"""[CLS] against the mean: how much of the order of words each of them knows.

    python -m bench.pooling --model FOLDER

First, how similar a model finds two sentences of the same words, as its input embeddings without positions (where
their order is lost by construction), the mean of its last states, and the state of `[CLS]` see them. Then a task
that only the order decides, who does what to whom, learned from either: sentences like "The cat chased the dog",
of which half swap the two, and the question who is chased. Names of the test part never occur in training.
"""

import argparse
import itertools
import json
import random
import tempfile
from pathlib import Path

import numpy as np
import torch

from bench.commands import heedful
from heedful.data.inputs import text_inputs
from heedful.predict import load
from heedful.predict.engine import TorchEngine

PAIRS = (
    ("I ate pizza", "pizza ate I"),
    ("the dog bit the man", "the man bit the dog"),
    ("she is not rich but happy", "she is not happy but rich"),
    ("I ate pizza", "I had pizza"),
)
ANIMALS = (
    "cat",
    "dog",
    "fox",
    "hen",
    "owl",
    "pig",
    "rat",
    "cow",
    "bee",
    "bat",
    "wolf",
    "bear",
    "frog",
    "goat",
    "lion",
)
VERBS = ("chased", "saw", "bit", "followed", "found", "heard", "left", "met", "pushed", "helped")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    similarities(arguments.model)
    print("\n| head reads | who is chased: accuracy on new animals |\n|---|---:|")
    for pool in ("cls", "mean"):
        found = [learned(arguments.model, pool, seed, arguments.epochs) for seed in range(arguments.seeds)]
        print(f"| {pool} | {100 * np.mean(found):.1f} ± {100 * np.std(found, ddof=1):.1f} |", flush=True)


def similarities(model: Path) -> None:
    """Cosines of pairs of sentences."""
    predictor = load(model, "cpu")
    engine = predictor.engine
    assert isinstance(engine, TorchEngine)
    words = engine.encoder.embeddings.tokens.weight.detach()
    print("| | | words alone, mean | states, mean | [CLS] |\n|---|---|---:|---:|---:|")
    for one, two in PAIRS:
        ids = [
            torch.from_numpy(text_inputs(predictor.tokenizer, [text], None, 512).inputs.ids) for text in (one, two)
        ]
        alone = [words[sequence.long()].mean(0) for sequence in ids]
        cosines = [float(torch.cosine_similarity(*alone, dim=0))]
        for pool in ("mean", "cls"):
            a, b = predictor.embed([one, two], pool=pool, normalise=True)
            cosines.append(float(a @ b))
        print(f"| {one} | {two} | {' | '.join(f'{cosine:.4f}' for cosine in cosines)} |")


def learned(model: Path, pool: str, seed: int, epochs: int) -> float:
    """How well a model tells the one who is chased, after fine-tuning with a head that reads `pool`."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write(folder)
        heedful(
            "finetune",
            model,
            folder / "train.tsv",
            dev=folder / "dev.tsv",
            task="classify",
            pool=pool,
            out=folder / "model",
            epochs=epochs,
            batch=32,
            lr="1e-4",
            seed=seed,
        )
        said = heedful("evaluate", folder / "model", folder / "test.tsv", json=True)
    return json.loads(said)["scores"]["accuracy"]


def write(folder: Path) -> None:
    """Sentences with two animals; the label says whether the one asked about is chased."""
    chosen = random.Random(0)
    for name, animals in (("train", ANIMALS[:9]), ("dev", ANIMALS[9:12]), ("test", ANIMALS[12:])):
        rows = []
        for (one, two), verb in itertools.product(itertools.permutations(animals, 2), VERBS):
            asked = chosen.choice((one, two))
            rows.append(f"{'yes' if asked == two else 'no'}\tthe {one} {verb} the {two}\t{asked}")
        chosen.shuffle(rows)
        (folder / f"{name}.tsv").write_text(
            "label\tsentence1\tsentence2\n" + "\n".join(rows) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
