"""Translators trained with one recipe, in one table: BLEU, parameters, training time, decoding speed.

    python -m bench.translators attention --data FOLDER [--device cuda] [--steps 5000] [--together]
    python -m bench.translators seeds --data FOLDER [--languages de fr] [--seeds 3] [--device cuda] [--together]
    python -m bench.translators korean --data FOLDER [--device cuda] [--together]

`attention` trains the Transformer and a recurrent network with each of the five scores on Multi30k, en-de.
`seeds` trains `--recipe multi30k` with several seeds and languages. `korean` trains on the Bible and Tatoeba, both
ways. The data folder holds multi30k, bible_en_ko and tatoeba_en_ko. With `--together` all runs share the machine at
once: quicker for the table, but its times are then those of a shared machine. Decoding (beam 5) is timed alone.
Every run is `heedful train-translator`, every figure comes from `heedful evaluate --json --tokenised`.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench.commands import heedful
from heedful import load, load_model
from heedful.nn.scores import SCORES

SENTENCES = ("I love you.", "In the beginning God created the heavens and the earth.", "What is your name?")
"""What the Korean translators are asked besides, in the language that they read."""
KOREAN = ("나는 너를 사랑해.", "태초에 하나님이 천지를 창조하시니라", "이름이 뭐예요?")


class Run(NamedTuple):
    """One line of the table."""

    name: str
    train: dict[str, Any]
    """What `train-translator` is told; `TRAIN` are its tables."""
    tests: dict[str, tuple[list[Path], dict[str, Any]]]
    """What `evaluate` is told: files, and flags."""
    asked: tuple[str, ...] = ()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["attention", "seeds", "korean"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="keep the models here")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--budget")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--languages", nargs="+", default=["de", "fr"])
    parser.add_argument("--together", action="store_true")
    arguments = parser.parse_args()
    runs = {"attention": attention, "seeds": seeds, "korean": korean}[arguments.what](arguments)
    common = {"device": arguments.device, "steps": arguments.steps, "budget": arguments.budget}
    with tempfile.TemporaryDirectory() as scratch:
        out = arguments.out or Path(scratch)
        with ThreadPoolExecutor(len(runs) if arguments.together else 1) as pool:
            times = list(pool.map(lambda run: train(run, out, common), runs))
        report(runs, times, out, arguments.device)


def train(run: Run, out: Path, common: dict[str, Any]) -> float:
    """Seconds of a run, from reading its files to the folder."""
    told = {**run.train, **{name: value for name, value in common.items() if value is not None}}
    begun = time.perf_counter()
    heedful("train-translator", *told.pop("TRAIN", ()), *told.pop("EXTRA", ()), **told, out=out / run.name)
    return time.perf_counter() - begun


def report(runs: Sequence[Run], times: Sequence[float], out: Path, device: str) -> None:
    """The table, and what was asked besides."""
    said = []
    print(
        "| model | parameters | seconds | test | BLEU, lower-cased, tokenised | BLEU | chrF | sentences/s, beam 5 |"
    )
    print("|---|---:|---:|---|---:|---:|---:|---:|")
    for run, seconds in zip(runs, times, strict=True):
        parameters = sum(one.numel() for one in load_model(out / run.name).parameters())
        speed = decoding(out / run.name, run, device)
        for test, (files, flags) in run.tests.items():
            found = json.loads(
                heedful("evaluate", out / run.name, *files, **flags, device=device, tokenised=True, json=True)
            )
            old, bleu, chrf = (found["scores"][name] for name in ("tokenised_bleu", "bleu", "chrf"))
            print(
                f"| {run.name} | {parameters / 1e6:.2f} M | {seconds:.0f} | {test} | {old:.2f} | {bleu:.2f} | "
                f"{chrf:.2f} | {speed} |",
                flush=True,
            )
        if run.asked:
            text = out / f"{run.name}.txt"
            text.write_text("\n".join(run.asked) + "\n", encoding="utf-8")
            answers = heedful("translate", out / run.name, text, device=device).splitlines()
            said += [f"{run.name}: {one} → {two}" for one, two in zip(run.asked, answers, strict=True)]
    print("\n" + "\n".join(said) if said else "")


def decoding(model: Path, run: Run, device: str) -> str:
    """Sentences a second with beam 5, the best of three times; of aligned files alone."""
    files, _ = next(iter(run.tests.values()))
    if len(files) != 2:
        return "-"
    translator = load(model, device)
    texts = files[0].read_text(encoding="utf-8").splitlines()
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        translator.translate(texts, beam=5)
        seconds.append(time.perf_counter() - begun)
    return f"{len(texts) / min(seconds):.0f}"


def multi30k(data: Path, language: str) -> tuple[dict[str, Any], dict[str, tuple[list[Path], dict[str, Any]]]]:
    """What to train on, and the two tests."""
    folder = data / "multi30k"
    files = {"source": folder / "train.en.txt.xz", "target": folder / f"train.{language}.txt.xz"}
    dev = {"EXTRA": ("--dev", folder / "val.en.txt", folder / f"val.{language}.txt")}
    tests = {
        f"test {year}": ([folder / f"test_{year}_flickr.{end}.txt" for end in ("en", language)], {})
        for year in (2016, 2017)
    }
    return {**files, **dev}, tests


def attention(arguments: argparse.Namespace) -> list[Run]:
    """The Transformer, and each score: one recipe but for the rate, which suits the kind of model."""
    files, tests = multi30k(arguments.data, "de")
    common = {**files, "recipe": "multi30k", "samples": 0, "agreement": 0}
    recurrent = {"model": "rnn", "size": "small", "lr": 1e-3}
    return [
        Run("transformer", common, tests),
        *(Run(f"rnn-{score}", {**common, **recurrent, "score": score}, tests) for score in SCORES),
    ]


def seeds(arguments: argparse.Namespace) -> list[Run]:
    """The recipe, several times."""
    return [
        Run(f"{language}-{seed}", {**files, "recipe": "multi30k", "samples": 0, "seed": seed}, tests)
        for language in arguments.languages
        for files, tests in [multi30k(arguments.data, language)]
        for seed in range(arguments.seeds)
    ]


def korean(arguments: argparse.Namespace) -> list[Run]:
    """Both ways, on two collections at once."""
    folders = [arguments.data / name for name in ("bible_en_ko", "tatoeba_en_ko")]
    runs = []
    for source, target, asked in (("en", "ko", SENTENCES), ("ko", "en", KOREAN)):
        sides = {"source": source, "target": target}
        told = {
            **sides,
            "TRAIN": tuple(folder / "train.tsv.xz" for folder in folders),
            "dev": folders[1] / "val.tsv",
            "recipe": "multi30k",
            "samples": 0,
        }
        language = {"language": "ko"} if target == "ko" else {}
        tests = {folder.name: ([folder / "test.tsv"], {**sides, **language}) for folder in folders}
        runs.append(Run(f"{source}-{target}", {**told, **language}, tests, asked))
    return runs


if __name__ == "__main__":
    main()
