"""`heedful serve` beside other ways to embed texts over HTTP, and what becomes of it when too many ask.

    python -m bench.serve --model FOLDER [--rounds 3] [--seconds 15] [--clients 64] [--overload 300]
        [--infinity PYTHON] [--engine onnx [--int8]]

MODEL is the folder of an encoder of sentence-transformers (MiniLM-L6). The texts are of mixed length: one to eight
sentences of Python's language reference. All servers run at once, idle ones cost nothing, and are asked in turns by
the same clients, which have a process of their own:

- in process: `heedful.load(FOLDER).embed(texts)`, without HTTP, the most that can be reached;
- heedful serve;
- plain: a FastAPI endpoint around `transformers` that embeds what it is sent, as one writes it in ten lines;
- infinity: `infinity-emb` from PyPI with each of its engines, run by the Python that --infinity names.

Then how long a lone request takes and how long one takes at half the load; and, for --overload seconds, ten times
as many clients as it takes at once, with every answer compared and the memory watched. With --engine, heedful
computes with what `heedful export` wrote into the folder, in process and served.
"""

import argparse
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from heedful.data.builtin import topics
from heedful.data.prose import sentences
from heedful.predict import load

PLAIN = """
import sys, torch, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoModel, AutoTokenizer
tokenizer, model = AutoTokenizer.from_pretrained(sys.argv[1]), AutoModel.from_pretrained(sys.argv[1]).eval()
app = FastAPI()

class Asked(BaseModel):
    inputs: list[str]

@app.post("/embed")
def embed(asked: Asked):
    read = tokenizer(asked.inputs, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        states = model(**read).last_hidden_state
    mask = read["attention_mask"][..., None]
    vectors = (states * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(vectors).tolist()

@app.get("/health")
def health():
    return "ok"

uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""
EXPORT = """
import sys
from pathlib import Path
from optimum.exporters.onnx import main_export
main_export(sys.argv[1], output=sys.argv[1] + "/onnx", task="feature-extraction", library_name="transformers")
Path(sys.argv[1], "onnx", "model.onnx").rename(Path(sys.argv[1], "model.onnx"))
"""
ENGINES = ("torch", "optimum")
PATIENCE = 180
KNOWN = 100
"""Texts whose vectors are computed alone beforehand."""


class Side(NamedTuple):
    """A server to ask."""

    name: str
    port: int
    path: str
    bodies: Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--overload", type=float, default=300.0)
    parser.add_argument("--infinity", type=Path)
    parser.add_argument("--engine", choices=("torch", "onnx"), default="torch")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--only", choices=("speed", "latency", "overload"))
    arguments = parser.parse_args()
    texts = mixed(arguments.texts)
    predictor = load(arguments.model, "cpu", engine=arguments.engine, int8=arguments.int8)
    arguments.flags = ["--device", "cpu", "--engine", arguments.engine, *(["--int8"] if arguments.int8 else [])]
    lengths = sorted(len(ids) + 2 for ids in predictor.tokenizer.encode(texts))
    print(
        f"{len(texts):,} texts, tokens: median {lengths[len(lengths) // 2]}, mean {statistics.mean(lengths):.1f}, "
        f"90% below {lengths[len(lengths) * 9 // 10]}, longest {lengths[-1]}; {torch.get_num_threads()} threads, "
        f"{os.cpu_count()} cores",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        home = Path(folder)
        _write(home / "ours.jsonl", [{"inputs": text, "truncate": True} for text in texts])
        if arguments.only in (None, "speed"):
            speed(arguments, texts, predictor, home)
        if arguments.only in (None, "latency"):
            port = stack.enter_context(ours(arguments.model, *arguments.flags))
            latency(arguments, Side("heedful serve", port, "/embed", home / "ours.jsonl"))
        stack.close()
        if arguments.only in (None, "overload"):
            known = texts[:KNOWN]
            np.save(home / "expect.npy", np.stack([predictor.embed(text, truncate=True) for text in known]))
            _write(home / "known.jsonl", [{"inputs": text, "truncate": True} for text in known])
            overload(arguments, home)


def speed(arguments: argparse.Namespace, texts: list[str], predictor: Any, home: Path) -> None:
    """Texts a second of each side, in turns."""
    _write(home / "plain.jsonl", [{"inputs": [text]} for text in texts])
    _write(home / "infinity.jsonl", [{"input": [text], "model": "it"} for text in texts])
    with ExitStack() as stack:
        sides = [
            Side(
                "heedful serve",
                stack.enter_context(ours(arguments.model, *arguments.flags)),
                "/embed",
                home / "ours.jsonl",
            )
        ]
        port = stack.enter_context(running([sys.executable, "-c", PLAIN, str(arguments.model), "PORT"]))
        sides.append(Side("FastAPI and transformers, no batching", port, "/embed", home / "plain.jsonl"))
        for engine in ENGINES if arguments.infinity else ():
            port = stack.enter_context(infinity(arguments.infinity, arguments.model, engine, home))
            sides.append(Side(f"infinity-emb, {engine}", port, "/embeddings", home / "infinity.jsonl"))
        rates: dict[str, list[float]] = {"in process": [], **{side.name: [] for side in sides}}
        predictor.embed(texts[:64], truncate=True)
        for side in sides:
            asked(side, clients=8, seconds=3)
        for _ in range(arguments.rounds):
            begun = time.perf_counter()
            predictor.embed(texts, truncate=True)
            rates["in process"].append(len(texts) / (time.perf_counter() - begun))
            for side in sides:
                found = asked(side, clients=arguments.clients, seconds=arguments.seconds)
                assert set(found["statuses"]) == {"200"}, (side.name, found["statuses"])
                assert not found["lost"], side.name
                rates[side.name].append(len(found["seconds"]) / found["took"])
                print(f"  {side.name}: {rates[side.name][-1]:.1f} texts/s", flush=True)
    best = statistics.median(rates["heedful serve"])
    print(f"\n| {arguments.clients} clients, a text a request | texts/s (median of {arguments.rounds}) | serve has |")
    print("|---|---:|---:|")
    for name, each in rates.items():
        print(f"| {name} | {statistics.median(each):,.1f} | {best / statistics.median(each):.2f}x |")


def latency(arguments: argparse.Namespace, side: Side) -> None:
    """How long a request takes alone, and at half the load that the server can bear."""
    asked(side, clients=8, seconds=3)
    most = asked(side, clients=arguments.clients, seconds=arguments.seconds)
    rate = len(most["seconds"]) / most["took"]
    alone = asked(side, clients=1, seconds=arguments.seconds)
    half = asked(side, seconds=2 * arguments.seconds, rate=rate / 2)
    print("\n| | requests/s | median ms | p99 ms |\n|---|---:|---:|---:|")
    for name, found in (("alone", alone), ("half load", half), (f"{arguments.clients} clients", most)):
        each = 1000 * np.array(found["seconds"])
        print(f"| {name} | {len(each) / found['took']:.1f} | {np.median(each):.1f} | {np.percentile(each, 99):.1f} |")
    ratio = np.percentile(half["seconds"], 99) / np.percentile(alone["seconds"], 99)
    against = np.percentile(half["seconds"], 99) / np.median(alone["seconds"])
    print(f"p99 at half load: {ratio:.2f}x the p99 of a lone request, {against:.2f}x its median", flush=True)


def overload(arguments: argparse.Namespace, home: Path) -> None:
    """Ten times as many clients as are taken at once: what they get, and what memory it takes."""
    with ExitStack() as stack:
        process, port = stack.enter_context(
            started(_command(arguments.model, "--max-requests", str(arguments.clients), *arguments.flags))
        )
        side = Side("heedful serve", port, "/embed", home / "known.jsonl")
        asked(side, clients=arguments.clients, seconds=3)
        memory = [_memory(process.pid)]
        piece = max(5.0, arguments.overload / 10)
        statuses: dict[str, int] = {}
        wrong = lost = 0
        for _ in range(round(arguments.overload / piece)):
            found = asked(side, clients=10 * arguments.clients, seconds=piece, expect=home / "expect.npy")
            memory.append(_memory(process.pid))
            wrong, lost = wrong + found["wrong"], lost + found["lost"]
            for status, count in found["statuses"].items():
                statuses[status] = statuses.get(status, 0) + count
    said = ", ".join(f"{count:,} with {status}" for status, count in sorted(statuses.items()))
    print(
        f"\n{10 * arguments.clients} clients for {arguments.overload:.0f} s, of which {arguments.clients} are taken:"
    )
    print(f"answers: {said}; wrong {wrong}, lost {lost}")
    print(f"memory, MB: {', '.join(f'{one:.0f}' for one in memory)}", flush=True)


def mixed(count: int) -> list[str]:
    """Texts of one to eight sentences, in random order."""
    chance = random.Random(0)
    found: list[str] = []
    for document in topics(Path(sysconfig.get_path("stdlib")) / "pydoc_data" / "topics.py"):
        waiting = sentences(document)
        while waiting:
            size = chance.choice((1, 1, 1, 2, 2, 3, 5, 8))
            found.append(" ".join(waiting[:size]))
            waiting = waiting[size:]
    chance.shuffle(found)
    return (found * (count // len(found) + 1))[:count]


def asked(side: Side, **options: Any) -> dict[str, Any]:
    """What clients in a process of their own see."""
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "bench.clients", f"127.0.0.1:{side.port}", side.path, str(side.bodies), *flags]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@contextmanager
def ours(model: Path, *flags: str) -> Iterator[int]:
    """Our server's port."""
    with started(_command(model, *flags)) as (_, port):
        yield port


def _command(model: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "heedful", "serve", f"it={model}", "--port", "PORT", *flags]


@contextmanager
def infinity(python: Path, model: Path, engine: str, home: Path) -> Iterator[int]:
    """infinity's port. Its engine for ONNX wants the file beside the rest, and the folder to be where it runs."""
    folder = home / f"infinity-{engine}"
    shutil.copytree(model, folder)
    if engine == "optimum":
        subprocess.run([str(python), "-c", EXPORT, str(folder)], capture_output=True, check=True, env=_offline())
    command = [str(python.parent / "infinity_emb"), "v2", "--model-id", ".", "--served-model-name", "it"]
    with started([*command, "--engine", engine, "--device", "cpu", "--port", "PORT"], folder) as (_, port):
        yield port


def _offline() -> dict[str, str]:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    return {**os.environ, **quiet, "INFINITY_ANONYMOUS_USAGE_STATS": "0", "PYTHONPATH": ""}


@contextmanager
def running(command: list[str]) -> Iterator[int]:
    """The port of a server."""
    with started(command) as (_, port):
        yield port


@contextmanager
def started(command: list[str], folder: Path | None = None) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server and its port, when it is healthy; ended at the end. Others' run in a folder, and offline."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [str(port) if part == "PORT" else part for part in command],
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=None if folder is None else _offline(),
        )
        try:
            for _ in range(PATIENCE * 4):
                if process.poll() is not None:
                    said.seek(0)
                    raise SystemExit(f"{' '.join(command[:4])} ended:\n{said.read().decode()[-3000:]}")
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                        break
                except OSError:
                    time.sleep(0.25)
            else:
                raise SystemExit(f"{' '.join(command[:4])} was not ready after {PATIENCE} s")
            yield process, port
        finally:
            process.terminate()
            process.wait(60)


def _memory(pid: int) -> float:
    """What a process holds, in MB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+(\d+)", status)
    assert found is not None
    return int(found[1]) / 1024


def _write(path: Path, bodies: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), encoding="utf-8")


if __name__ == "__main__":
    main()
