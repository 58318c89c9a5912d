"""Vectors of texts beside `transformers`: texts a second from text to vector, tokenization included.

    python -m bench.encode [--device cuda] [--count 200000]
    python -m bench.encode --model FOLDER --texts FILE [--device cuda]

Without a model, a BERT of size base with random weights is made; without texts, made-up ones whose lengths in tokens
are log-normal with median 30 and end at 128. The peer is AutoModel with scaled dot-product attention, as it is and
compiled, in fp16 and bf16 (fp32 on a CPU): texts sorted by length, padded by the fast tokenizer, the mean taken on
the device. Of its types and batch sizes the best on a part of the texts counts, for each way by itself. All sides
read the same texts in turns, after a round that does not count; loading does not count, the median round does.
"""

import argparse
import functools
import random
import statistics
import string
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from heedful.data import tokenizer as wordpiece
from heedful.data.columns import Columns
from heedful.nn.transfer import on_device
from heedful.predict import load
from heedful.runs.vectors import embed

BATCHES = (128, 256, 512, 1024, 2048)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
MEDIAN, SPREAD, LONGEST = 30, 0.6, 128
"""Tokens of made-up texts: median, standard deviation of their logarithm, and the most."""
PEERS = {"transformers, eager": False, "transformers, compiled": True}
"""Whether each is compiled."""

Side = Callable[[list[str]], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="the folder of a BERT")
    parser.add_argument("--texts", type=Path, help="a text a line")
    parser.add_argument("--count", type=int, default=200_000, help="how many texts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, help="of the peer")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()  # it would tell of a pooler that is left out
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model or random_bert(Path(scratch) / "bert")
        if arguments.texts:
            texts = [line for line in arguments.texts.read_text(encoding="utf-8").splitlines() if line.strip()]
            texts = texts[: arguments.count]
        else:
            texts = random_texts(wordpiece.load(model).vocabulary, arguments.count)
        compare(model, texts, Path(scratch), arguments)


def compare(model: Path, texts: list[str], scratch: Path, arguments: argparse.Namespace) -> None:
    """One table: every side with the same texts."""
    lengths = sorted(len(ids) + 2 for ids in wordpiece.load(model).encode(texts))
    print(
        f"{len(texts):,} texts, tokens: median {lengths[len(lengths) // 2]}, mean {statistics.mean(lengths):.1f}, "
        f"longest {lengths[-1]}; {_machine(arguments.device)}; torch {torch.__version__}, "
        f"transformers {transformers.__version__}",
        flush=True,
    )
    dtypes = arguments.dtypes or (["fp32"] if arguments.device == "cpu" else ["fp16", "bf16"])
    predictor = load(model, arguments.device)
    own: dict[str, Side] = {
        "heedful, a list": functools.partial(predictor.embed, normalise=False, truncate=True),
        "heedful embed, file to .npy": functools.partial(_file, predictor, scratch),
    }
    for name, run in own.items():  # said at once: what compiles the peer may take longer than there is time
        print(f"{name}, the first round: {len(texts) / _timed(run, texts)[0]:,.0f} texts/s", flush=True)
    sides: dict[str, Side] = {}
    for name in arguments.peers:
        told, sides[name] = best_peer(model, texts, arguments.device, dtypes, arguments.batches, PEERS[name])
        print(f"{name}, texts/s on a part: {told}", flush=True)
    sides |= own
    times: dict[str, list[float]] = {name: [] for name in sides}
    rows: dict[str, np.ndarray] = {}
    for number in range(arguments.rounds + 1):
        for name, run in reversed(sides.items()):
            seconds, found = _timed(run, texts)
            assert len(found) == len(texts)
            rows[name] = found[: min(1000, len(found))].copy()
            print(f"round {number}, {name}: {len(texts) / seconds:,.0f} texts/s", flush=True)
            if number:
                times[name].append(seconds)
    print("\n| | texts/s | ratio | cosine |\n|---|---:|---:|---:|")
    base = statistics.median(next(iter(times.values())))
    for name, found in times.items():
        seconds = statistics.median(found)
        alike = _cosine(rows[name], rows[next(iter(sides))])
        print(f"| {name} | {len(texts) / seconds:,.0f} | {base / seconds:.2f} | {alike:.4f} |")
    print("\nratio: to the first; cosine: the least of its vectors and the first's, over a thousand texts")
    alone = functools.partial(plain_tokens, model, batch=max(arguments.batches))
    seconds = min(_timed(alone, texts)[0] for _ in range(2))
    print(f"the peers' tokenizer by itself: {len(texts) / seconds:,.0f} texts/s")


def best_peer(
    folder: Path, texts: list[str], device: str, dtypes: Sequence[str], batches: Sequence[int], compiled: bool
) -> tuple[str, Side]:
    """What was tried, in words, and what was fastest: after a round that does not count, and that compiles."""
    part = texts[: max(max(batches), len(texts) // 10)]
    tried: dict[tuple[str, int], float] = {}
    for dtype in dtypes:
        for batch in batches:
            run = functools.partial(plain_embed, folder, device=device, dtype=dtype, batch=batch, compiled=compiled)
            _timed(run, part)
            tried[dtype, batch] = len(part) / _timed(run, part)[0]
    dtype, batch = max(tried, key=tried.__getitem__)
    told = ", ".join(f"{one} {size}: {speed:,.0f}" for (one, size), speed in tried.items())
    side = functools.partial(plain_embed, folder, device=device, dtype=dtype, batch=batch, compiled=compiled)
    return f"{told}; best {dtype}, batch {batch}", side


@torch.inference_mode()
def plain_embed(folder: Path, texts: list[str], *, device: str, dtype: str, batch: int, compiled: bool) -> np.ndarray:
    """The mean of each text's states with `transformers` alone: (texts, D)."""
    model = _plain(folder, device, dtype, compiled)
    order = _by_length(texts)
    found = []
    for tokens in _tokens(folder, texts, order, batch):
        given = {name: on_device(one.numpy(), torch.device(device)) for name, one in tokens.items()}
        hidden = model(**given).last_hidden_state
        real = given["attention_mask"][..., None].to(hidden.dtype)
        found.append(((hidden * real).sum(1) / real.sum(1)).float())
    vectors = torch.cat(found).cpu().numpy()
    sorted_back = np.empty_like(vectors)
    sorted_back[order] = vectors
    return sorted_back


def plain_tokens(folder: Path, texts: list[str], *, batch: int) -> np.ndarray:
    """The tokens of each text's batch, padded: what the peer does before its model."""
    return np.array([tokens["input_ids"].shape for tokens in _tokens(folder, texts, _by_length(texts), batch)])


def _by_length(texts: list[str]) -> list[int]:
    """Longest first."""
    return sorted(range(len(texts)), key=lambda number: -len(texts[number]))


def _tokens(folder: Path, texts: list[str], order: list[int], batch: int) -> Iterator[Any]:
    tokenizer = _plain_tokenizer(folder)
    for first in range(0, len(texts), batch):
        some = [texts[number] for number in order[first : first + batch]]
        yield tokenizer(some, padding=True, truncation=True, return_tensors="pt")


@functools.cache
def _plain_tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder, use_fast=True)


@functools.cache
def _plain(folder: Path, device: str, dtype: str, compiled: bool) -> Any:
    model = transformers.AutoModel.from_pretrained(
        folder, dtype=DTYPES[dtype], attn_implementation="sdpa", add_pooling_layer=False
    )
    model = model.eval().to(device)
    return torch.compile(model, dynamic=True) if compiled else model


def _file(predictor: Any, scratch: Path, texts: list[str]) -> np.ndarray:
    """The command, but for loading, and for writing its input."""
    source, out = scratch / "texts.txt", scratch / "vectors.npy"
    if not source.exists():
        source.write_text("\n".join(texts) + "\n", encoding="utf-8")
    embed(predictor, source, out, columns=Columns(), normalise=False, truncate=True)
    return np.load(out, mmap_mode="r")


def random_bert(folder: Path, vocab_size: int = 30_522, seed: int = 0) -> Path:
    """Write the folder of a BERT-base with random weights, whose words are random letters."""
    torch.manual_seed(seed)
    transformers.BertModel(transformers.BertConfig(vocab_size=vocab_size)).save_pretrained(folder)
    chosen = random.Random(seed)
    words: dict[str, None] = {}
    while len(words) < vocab_size - len(wordpiece.SPECIAL):
        words["".join(chosen.choices(string.ascii_lowercase, k=chosen.randint(2, 9)))] = None
    (folder / "vocab.txt").write_text("\n".join([*wordpiece.SPECIAL, *words]) + "\n", encoding="utf-8")
    wordpiece.save(wordpiece.load(folder), folder)
    return folder


def random_texts(vocabulary: Sequence[str], count: int, seed: int = 0) -> list[str]:
    """Texts of words from a vocabulary, of mixed length."""
    words = [word for word in vocabulary if word.isalpha()]
    lengths = np.exp(np.random.default_rng(seed).normal(np.log(MEDIAN), SPREAD, count)).round()
    chosen = random.Random(seed)
    return [" ".join(chosen.choices(words, k=int(length) - 2)) for length in np.clip(lengths, 3, LONGEST)]


def _cosine(some: np.ndarray, others: np.ndarray) -> float:
    """The least of the rows'."""
    return float(((some * others).sum(1) / np.linalg.norm(some, axis=1) / np.linalg.norm(others, axis=1)).min())


def _timed(run: Side, texts: list[str]) -> tuple[float, np.ndarray]:
    begun = time.perf_counter()
    found = run(texts)  # vectors on the host, hence nothing is under way any more
    return time.perf_counter() - begun, found


def _machine(device: str) -> str:
    cores = f"{torch.get_num_threads()} threads"
    return cores if device == "cpu" else f"{torch.cuda.get_device_name()}, {cores}"


if __name__ == "__main__":
    main()
