"""What each ingredient of a recipe is worth: the recipe as it is, and with one thing changed at a time.

    python -m bench.ablation --data SHARDS [--recipe modern] [--size medium] [--budget 150s | --steps 4000]
        [--together N] [--variants NAME …] [--also="--lr 1e-3 --batch-tokens 8192"]… [--seeds 1] [--out FILE]

`--data` is what `heedful prepare` wrote, or text. Every line is a run of `heedful pretrain`; the loss is that of
masked words on held-out documents (15% masked, whatever the run masks). With `--budget` every run has the machine to
itself and the same time: that is the question. With `--steps --together N`, N runs share a GPU and see the same
tokens (so many steps of --batch-tokens; with other batches, other steps), which answers a part of it sooner; their
speeds are then those of a shared machine. Lines go to --out as they come.
"""

import argparse
import json
import shlex
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench.commands import heedful

VARIANTS = {
    "as it is": "",
    "norms after the residuals": "--no-pre-norm",
    "norms after the residuals, half the rate": "--no-pre-norm --lr {half}",
    "norms after the residuals, a quarter of the rate": "--no-pre-norm --lr {quarter}",
    "learned positions": "--positions learned",
    "no gate": "--no-gated",
    "no biases": "--no-bias",
    "no segments": "--segments 0",
    "initialised as published": "--init normal",
    "AdamW": "--optimizer adamw --lr {adamw}",
    "linear decay": "--schedule linear",
    "cosine decay": "--schedule cosine",
    "15% masked": "--mask-rate 0.15 --final-mask-rate 0.15",
    "30% masked": "--mask-rate 0.3 --final-mask-rate 0.3",
    "40% to 15% masked": "--mask-rate 0.4 --final-mask-rate 0.15",
    "half the rate": "--lr {half}",
    "twice the rate": "--lr {twice}",
    "half the batch": "--batch-tokens {fewer}",
    "twice the batch": "--batch-tokens {more}",
    "dropout": "--dropout 0.1",
    "next sentences": "--nsp --segments 2",
    "products in 8 bits": "--fp8",
}
"""Flags that change one thing of the recipe; numbers in braces come from --lr and --batch-tokens. AdamW has
three eighths of the rate, which is the ratio of the two defaults for medium."""

BATCH = "--batch-tokens"


class Outcome(NamedTuple):
    """What a run came to."""

    loss: float
    accuracy: float
    tokens: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--recipe", default="modern")
    parser.add_argument("--size", default="medium")
    parser.add_argument("--lr", type=float, default=2e-3, help="what the recipe has for the size")
    parser.add_argument("--batch-tokens", type=int, default=32768)
    parser.add_argument("--budget")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    parser.add_argument("--also", action="append", default=[], help="a further variant: --also=FLAGS")
    parser.add_argument("--flags", default="", help="for every run: --flags=FLAGS")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    numbers = {
        "adamw": 3 / 8 * arguments.lr,
        "half": arguments.lr / 2,
        "quarter": arguments.lr / 4,
        "twice": arguments.lr * 2,
        "fewer": arguments.batch_tokens // 2,
        "more": arguments.batch_tokens * 2,
    }
    flags = {name: VARIANTS[name].format(**numbers) for name in arguments.variants} | {
        one: one for one in arguments.also
    }
    runs = [(name, own, seed) for name, own in flags.items() for seed in range(arguments.seeds)]
    print("| variant | flags | seed | loss | words right | million tokens | seconds |")
    print("|---|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(arguments.together) as pool:
        for line in pool.map(lambda one: told(one[0], one[1], one[2], Path(scratch), arguments), runs):
            print(line, flush=True)


def told(name: str, flags: str, seed: int, scratch: Path, arguments: argparse.Namespace) -> str:
    """The line of one run."""
    try:
        found = run(flags, seed, Path(tempfile.mkdtemp(dir=scratch)) / "model", arguments)
    except SystemExit as failed:  # a variant that fails must not lose the others
        return f"| {name} | {flags} | {seed} | {str(failed).splitlines()[-1]} | | | |"
    if arguments.out:
        with arguments.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"variant": name, "flags": flags, "seed": seed, **found._asdict()}) + "\n")
    return (
        f"| {name} | `{flags}` | {seed} | {found.loss:.3f} | {found.accuracy:.1%} | {found.tokens / 1e6:.0f} | "
        f"{found.seconds:.0f} |"
    )


def run(flags: str, seed: int, out: Path, arguments: argparse.Namespace) -> Outcome:
    """Pretrain once, and read what its own evaluation said in the end."""
    own = shlex.split(f"{arguments.flags} {flags}")
    length: dict[str, Any] = {"budget": arguments.budget}
    if arguments.steps:
        batch = int(own[own.index(BATCH) + 1]) if BATCH in own else arguments.batch_tokens
        length = {"steps": arguments.steps * arguments.batch_tokens // batch}  # the same tokens
    common = {
        "recipe": arguments.recipe,
        "size": arguments.size,
        **length,
        "seed": seed,
        "evaluations": 1,
        "out": out,
    }
    chosen = {"lr": arguments.lr, "batch_tokens": arguments.batch_tokens}
    given = {name: value for name, value in chosen.items() if f"--{name.replace('_', '-')}" not in own}
    begun = time.perf_counter()
    heedful("pretrain", *arguments.data, *own, **common, **given)
    seconds = time.perf_counter() - begun
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [line for line in lines if line["kind"] == "heldout"][-1]
    return Outcome(last["mlm_loss"], last["mlm_accuracy"], last["tokens"], seconds)


if __name__ == "__main__":
    main()
