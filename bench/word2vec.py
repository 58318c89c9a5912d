"""Word vectors beside gensim's: how many of the ten nearest words are the same, and words a second.

    python -m bench.word2vec --data FILE… [--device cuda] [--megabytes 5] [--seeds 2]

Both sides learn from the same sentences, split into the same words, with skip-gram, 5 words of noise, a window of 5,
5 epochs, subsampling at 1e-3, words that occur 5 times or more, 100 dimensions. gensim has all cores, its compiled
loop, and its sentences in memory (`--file` gives it a file instead, which it reads without Python: often faster on
many cores). Only training counts: neither reading the text nor counting its words. Overlap is the mean share of the
ten nearest words that two sets of vectors have in common, over 2,000 words drawn at random and over the 2,000 most
frequent after the first hundred; between two seeds of gensim it is what chance leaves of the same method.
"""

import argparse
import itertools
import logging
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import gensim
import numpy as np
import torch
from gensim.models import Word2Vec

from heedful.data import sources
from heedful.data.words import Text
from heedful.formats import word2vec
from heedful.formats.word2vec import WordVectors
from heedful.runs import word_vectors
from heedful.runs.nearest import unit_rows
from heedful.runs.word_options import WordOptions, WordRecipe, WordRunPart, WordVectorsPart
from heedful.train import log

NEAREST = 10
ASKED = 2000
FREQUENT = 100
"""The most frequent words, most of them grammar and punctuation, which are left out."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True, help="text files")
    parser.add_argument("--megabytes", type=float, help="only so much of the text")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=2, help="trainings of heedful")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="threads of gensim")
    parser.add_argument("--file", action="store_true", help="gensim reads a file by itself")
    arguments = parser.parse_args()
    logging.getLogger("gensim").setLevel(logging.ERROR)
    machine = (
        torch.cuda.get_device_name() if arguments.device == "cuda" else platform.processor() or platform.machine()
    )
    print(
        f"heedful on {arguments.device} ({machine}, {torch.get_num_threads()} CPU threads), gensim "
        f"{gensim.__version__} with {arguments.workers} threads; torch {torch.__version__}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as scratch:
        compare(Path(scratch), arguments)


def compare(scratch: Path, arguments: argparse.Namespace) -> None:
    """One table."""
    file = scratch / "text.txt"
    given = sources.documents(sources.expand(arguments.data), sources.TextOptions())
    with file.open("w", encoding="utf-8") as out:
        left = arguments.megabytes * 1e6 if arguments.megabytes else float("inf")
        for sentence in itertools.chain.from_iterable(given):
            out.write(sentence + "\n")
            left -= len(sentence.encode()) + 1
            if left <= 0:
                break
    ours, speeds = [], []
    for seed in range(arguments.seeds):
        vectors, speed = heedful_vectors(file, scratch / f"out{seed}", seed, arguments)
        ours.append(vectors)
        speeds.append(speed)
    text = prepared(file, scratch, arguments)
    theirs, their_speeds = [], []
    for seed in (1, 2):
        vectors, speed = gensim_vectors(text, scratch, seed, arguments)
        theirs.append(vectors)
        their_speeds.append(speed)
    print(f"{text.words:,} words, {len(text.lexicon.words):,} different ones, {arguments.epochs} epochs\n")
    print("| | words/s | ratio | overlap, random words | overlap, frequent words |\n|---|---:|---:|---:|---:|")
    mean = np.mean(their_speeds)
    places = asked(len(text.lexicon.words))
    between = " | ".join(f"{overlap(theirs[0], theirs[1], chosen):.3f}" for chosen in places)
    print(f"| gensim, its two seeds | {mean:,.0f} | 1.00 | {between} |")
    for number, (vectors, speed) in enumerate(zip(ours, speeds, strict=True)):
        shared = " | ".join(f"{np.mean([overlap(vectors, one, chosen) for one in theirs]):.3f}" for chosen in places)
        print(f"| heedful, seed {number}, with gensim's | {speed:,.0f} | {speed / mean:.2f} | {shared} |")
    if len(ours) > 1:
        shared = " | ".join(f"{overlap(ours[0], ours[1], chosen):.3f}" for chosen in places)
        print(f"| heedful, its first two seeds | | | {shared} |")


def heedful_vectors(file: Path, out: Path, seed: int, arguments: argparse.Namespace) -> tuple[WordVectors, float]:
    """Vectors as the command makes them, and words a second: after the first report, before which a GPU warms up."""
    word_vectors.train_vectors(_options(file, out, seed, arguments))
    reports = [line for line in log.read(out) if line["kind"] == "train"]
    (first, last) = reports[0], reports[-1]
    words, seconds = (float(last[name]) - float(first[name]) for name in ("tokens", "elapsed"))
    return word2vec.load(out), words / seconds if seconds else float(last["words_per_second"])


def prepared(file: Path, scratch: Path, arguments: argparse.Namespace) -> Text:
    """The words that both sides learn from."""
    options = _options(file, scratch / "unused", 0, arguments)
    found = word_vectors.prepare(options)
    return word_vectors.words.read(found.train, found.tokenizer, options.settings.vectors.min_count)


def gensim_vectors(text: Text, scratch: Path, seed: int, arguments: argparse.Namespace) -> tuple[WordVectors, float]:
    """gensim's vectors in the order of our words, and words a second."""
    model = Word2Vec(
        vector_size=arguments.dim,
        sg=1,
        negative=5,
        window=5,
        sample=1e-3,
        min_count=5,
        seed=seed,
        workers=arguments.workers,
        epochs=arguments.epochs,
    )
    sentences = list(_sentences(text))
    model.build_vocab(sentences)
    given = {"corpus_iterable": sentences, "total_examples": model.corpus_count}
    if arguments.file:
        path = scratch / "gensim.txt"
        path.write_text("".join(" ".join(sentence) + "\n" for sentence in sentences), encoding="utf-8")
        given = {"corpus_file": str(path), "total_words": model.corpus_total_words}
    begun = time.perf_counter()
    model.train(epochs=arguments.epochs, **given)
    speed = arguments.epochs * text.words / (time.perf_counter() - begun)
    return WordVectors(text.lexicon.words, np.array([model.wv[word] for word in text.lexicon.words])), speed


def asked(size: int) -> list[np.ndarray]:
    """Places of the words whose neighbours are compared: some at random, and frequent ones."""
    drawn = np.random.default_rng(0).choice(size, min(ASKED, size), replace=False)
    return [drawn, np.arange(min(FREQUENT, size // 2), min(FREQUENT + ASKED, size))]


def overlap(one: WordVectors, other: WordVectors, places: np.ndarray | None = None) -> float:
    """The mean share of the ten nearest words that two sets of vectors of the same words have in common."""
    assert one.words == other.words
    asked_for = asked(len(one.words))[0] if places is None else places
    near = [_near(each.matrix, asked_for) for each in (one, other)]
    shared = sum(len({*a} & {*b}) for a, b in zip(near[0].tolist(), near[1].tolist(), strict=True))
    return shared / NEAREST / len(asked_for)


def _near(matrix: np.ndarray, places: np.ndarray) -> np.ndarray:
    """(places, NEAREST)"""
    unit = unit_rows(matrix)
    found = []
    for some in np.array_split(places, max(1, len(places) // 256)):
        similarities = unit[some] @ unit.T
        similarities[np.arange(len(some)), some] = -np.inf
        found.append(np.argpartition(-similarities, NEAREST, axis=1)[:, :NEAREST])
    return np.concatenate(found)


def _options(file: Path, out: Path, seed: int, arguments: argparse.Namespace) -> WordOptions:
    recipe = WordRecipe(
        corpus=(str(file),),
        vectors=WordVectorsPart(dim=arguments.dim),
        run=WordRunPart(epochs=arguments.epochs, seed=seed, device=arguments.device),
    )
    return WordOptions(settings=recipe, out=out, cache=file.parent / "cache")


def _sentences(text: Text) -> Iterator[list[str]]:
    """The words of each sentence, rare ones left out already."""
    spelled = np.array(text.lexicon.words, dtype=object)
    for piece in range(text.pieces):
        stretch = text.read(piece)
        cuts = np.flatnonzero(np.diff(stretch.sentences)) + 1
        yield from (words.tolist() for words in np.split(spelled[stretch.ids], cuts))


if __name__ == "__main__":
    main()
