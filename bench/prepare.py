"""Preparation speed and memory: text to shards, beside bare `tokenizers`.

    python -m bench.prepare [--data FILE …] [--small 10] [--large 1000]

The text is the embedded corpus (or --data), repeated to the sizes asked for, in megabytes. The peer encodes the
small text's sentences, already in memory, with `Tokenizer.encode_batch` on the same cores, in one call and in
pieces, of which the better counts. Ours reads the file, splits it into sentences, encodes it and writes it to
disk, in a process of its own whose time and peak memory are taken. The two take turns.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from heedful.data import sources
from heedful.data import tokenizer as wordpiece
from heedful.data.tokenizer import Tokenizer
from heedful.runs import corpus
from heedful.runs.cache import default_cache
from heedful.runs.demo import builtin_corpus
from heedful.runs.options import TextPart, VocabularyPart

# The peak is the process's own: getrusage would count what its parent had when it was forked.
OURS = r"""
import json, re, sys, time
from pathlib import Path
from heedful.data import shards, sources, tokenizer
made = tokenizer.load(sys.argv[1])
begun = time.perf_counter()
found = shards.prepare([Path(sys.argv[2])], sources.TextOptions(), made, share=0.01, folder=Path(sys.argv[3]))
seconds = time.perf_counter() - begun
peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps({"seconds": seconds, "peak": peak, "tokens": len(found.train.tokens) + len(found.heldout.tokens)}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="*", default=[], help="plain text files instead of the embedded corpus")
    parser.add_argument("--small", type=int, default=10)
    parser.add_argument("--large", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    files = [Path(file) for file in arguments.data] or [builtin_corpus(default_cache(), print)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        small = repeated(files, folder / "small.txt", arguments.small)
        vocabulary = VocabularyPart(vocab_size=16000)
        wordpiece.save(corpus.train_tokenizer([small], TextPart(), vocabulary), folder / "tokenizer")
        tokenizer = wordpiece.load(folder / "tokenizer")
        sentences = [s for document in sources.documents([small], sources.TextOptions()) for s in document]
        peers, ours = [], []
        for number in range(arguments.repeat):
            peers.append(bare(tokenizer, sentences))
            ours.append(prepared(folder, small, folder / f"shards-{number}"))
        peer, best = min(peers), min(ours, key=lambda run: run["seconds"])
        large = prepared(folder, repeated(files, folder / "large.txt", arguments.large), folder / "shards-large")
        print(f"{arguments.small} MB: bare encode_batch {best['tokens'] / peer:,.0f} tokens/s")
        print(f"{arguments.small} MB: heedful           {best['tokens'] / best['seconds']:,.0f} tokens/s")
        print(f"heedful / bare encode_batch {peer / best['seconds']:.2f} x")
        print(f"{arguments.large} MB: heedful           {large['tokens'] / large['seconds']:,.0f} tokens/s")
        print(f"peak memory: {best['peak'] / 1e6:,.0f} MB for {arguments.small} MB of text, ", end="")
        print(f"{large['peak'] / 1e6:,.0f} MB for {arguments.large} MB")


def repeated(files: list[Path], path: Path, megabytes: int) -> Path:
    """The files' text over and over until it has the size."""
    text = b"\n\n".join(file.read_bytes() for file in files) + b"\n\n"
    with path.open("wb") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write(text[: megabytes * 1_000_000 - file.tell()].rpartition(b"\n")[0] + b"\n\n")
    return path


def bare(tokenizer: Tokenizer, sentences: list[str]) -> float:
    """Seconds that `tokenizers` takes by itself: all at once, or in pieces, whichever is quicker."""
    seconds = []
    for piece in (len(sentences), 10_000, 1_000):
        begun = time.perf_counter()
        for start in range(0, len(sentences), piece):
            tokenizer.backend.encode_batch(sentences[start : start + piece], add_special_tokens=False)
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def prepared(folder: Path, text: Path, out: Path) -> dict[str, float]:
    """Seconds, tokens and peak memory of our preparation in a new process."""
    command = [sys.executable, "-c", OURS, str(folder / "tokenizer"), str(text), str(out)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
