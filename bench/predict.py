"""`heedful predict` beside `transformers`' pipeline on a CPU: texts a second, and memory over many lines.

    python -m bench.predict speed --model FOLDER --data FOLDER [--texts 10000]
    python -m bench.predict memory --model FOLDER [--lines 1000000]

speed: MODEL is a fine-tuned classifier. The texts are of mixed length: phrases and sentences of GLUE, paragraphs of
SQuAD, shuffled. The pipeline has the batch size that is best for it on a tenth of them. Both sides read the same
pieces in turns; loading the model does not count. The engines onnx and onnx with int8 must have been exported.

memory: the peak of a process that answers a thousand lines, and of one that answers so many more.
"""

import argparse
import json
import lzma
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from heedful.data.columns import Columns
from heedful.predict import load
from heedful.runs.prediction import Asking, predict

BATCHES = (1, 2, 4, 8, 16, 32)
SOURCES = {
    "glue/sst2/train.tsv.xz": 0.3,
    "glue/cola/train.tsv": 0.2,
    "glue/mrpc/train.tsv.xz": 0.3,
    "squad1_dev/dev.jsonl.xz": 0.2,
}
"""Where the texts come from, and which part of them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "memory"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--pieces", type=int, default=4)
    parser.add_argument("--engines", nargs="*", default=["torch", "onnx", "int8"])
    arguments = parser.parse_args()
    if arguments.what == "speed":
        speed(arguments)
    else:
        memory(arguments)


def speed(arguments: argparse.Namespace) -> None:
    """Texts a second of each side."""
    texts = mixed(arguments.data, arguments.texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
    lengths = sorted(len(ids) for ids in tokenizer(texts)["input_ids"])  # pyrefly: ignore
    print(
        f"{len(texts):,} texts, tokens: median {lengths[len(lengths) // 2]}, mean {statistics.mean(lengths):.1f}, "
        f"90% below {lengths[len(lengths) * 9 // 10]}, longest {lengths[-1]}; {torch.get_num_threads()} threads"
    )
    pipe = transformers.pipeline("text-classification", model=str(arguments.model), device="cpu")
    pipe(texts[:32], batch_size=8, truncation=True)
    sample = texts[: len(texts) // 10]
    tried = {size: _timed(lambda size=size: pipe(sample, batch_size=size, truncation=True)) for size in BATCHES}
    best = min(tried, key=tried.__getitem__)
    said = ", ".join(f"{size}: {len(sample) / seconds:.0f}" for size, seconds in tried.items())
    print(f"pipeline, texts/s by batch size on {len(sample):,} texts: {said}")
    sides: dict[str, Callable[[list[str]], object]] = {
        f"pipeline, batch size {best}": lambda part: pipe(part, batch_size=best, truncation=True)
    }
    for engine in arguments.engines:
        sides[f"heedful predict, {engine}"] = _ours(arguments.model, engine)
    times: dict[str, list[float]] = {name: [] for name in sides}
    step = -(-len(texts) // arguments.pieces)
    for run in sides.values():
        run(texts[:64])
    for start in range(0, len(texts), step):
        for name, run in sides.items():
            times[name].append(_timed(lambda run=run, start=start: run(texts[start : start + step])))
    base = sum(next(iter(times.values())))
    print("\n| | texts/s | ratio |\n|---|---:|---:|")
    for name, found in times.items():
        print(f"| {name} | {len(texts) / sum(found):,.0f} | {base / sum(found):.2f} |")


def _ours(model: Path, engine: str) -> Callable[[list[str]], object]:
    """The command, but for loading: from a file to a file."""
    predictor = load(model, "cpu", engine="torch" if engine == "torch" else "onnx", int8=engine == "int8")
    asking = Asking(columns=Columns(), truncate=True)

    def run(texts: list[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder) / "in.txt", Path(folder) / "out.jsonl"
            source.write_text("\n".join(texts) + "\n", encoding="utf-8")
            predict(predictor, source, out, "jsonl", asking)
            assert len(out.read_text(encoding="utf-8").splitlines()) == len(texts)

    return run


def mixed(data: Path, count: int) -> list[str]:
    """Texts of mixed length, in random order."""
    chosen = random.Random(0)
    texts: list[str] = []
    for name, share in SOURCES.items():
        opened = lzma.open if name.endswith(".xz") else open
        with opened(data / name, "rt", encoding="utf-8", newline="\n") as file:
            lines = file.read().splitlines()
        if ".jsonl" in name:
            found = list(dict.fromkeys(json.loads(line)["context"] for line in lines))
        else:
            header = lines[0].split("\t")
            column = header.index("sentence1" if "sentence1" in header else "sentence")
            found = [line.split("\t")[column] for line in lines[1:]]
        found = [" ".join(text.split()) for text in found if text.strip()]
        chosen.shuffle(found)
        texts += found[: round(share * count)]
    chosen.shuffle(texts)
    return texts


def _timed(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


PEAK = """
import pathlib, re, sys
from heedful.cli import main
try:
    main(["predict", *sys.argv[1:]])
finally:
    status = pathlib.Path("/proc/self/status").read_text()
    print(re.search(r"VmHWM:\\s+(\\d+)", status)[1], file=sys.stderr)
"""


def memory(arguments: argparse.Namespace) -> None:
    """The peak memory of the command over few and many lines."""
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "box"]
    for count in (1000, arguments.lines):
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder) / "in.txt", Path(folder) / "out.jsonl"
            chosen = random.Random(0)
            with source.open("w", encoding="utf-8") as file:
                for _ in range(count):
                    file.write(" ".join(chosen.choices(words, k=chosen.randint(1, 6))) + "\n")
            begun = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", PEAK, str(arguments.model), str(source), "--out", str(out)],
                capture_output=True,
                text=True,
                check=True,
            )
            seconds = time.perf_counter() - begun
            with out.open(encoding="utf-8") as file:
                lines = sum(1 for _ in file)
        peak = int(done.stderr.split()[-1]) / 1024
        print(f"{count:,} lines: {lines:,} answers, peak {peak:,.0f} MB, {seconds:,.0f} s", flush=True)


if __name__ == "__main__":
    main()
