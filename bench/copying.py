"""The copy task: how far apart symbols and questions about them may be (Hochreiter & Schmidhuber 1997, section 5).

    python -m bench.recurrence copy [--distances 8 32 128] [--steps 400] [--seeds 3] [--device cuda] [--out FOLDER]

A sequence is four symbols, noise over a distance, and four marks, each of which asks for the symbol at its place.
Noise has tokens of its own: there is nothing to do but to remember and to ignore. Models of one layer with a linear
read-out at the marks are trained for each distance from scratch, with as many parameters as whole widths allow, the
same steps at most, batches of the same size, Adam and clipping. A run ends early when it has been right for some
batches on end. Every model is shown with the rate that did best for it at that distance.

An LSTM's forget gates start with a bias of 1 (Jozefowicz et al. 2015), and so do a GRU's update gates, which are the
same thing. "LSTM, told the distance" is one whose gates start so as to forget over about that many steps (Tallec &
Ollivier 2018): what recurrence can do for somebody who knows beforehand how long to remember.

Shapes: B batch, T length, A places asked for, D width, C symbols.
"""

import argparse
import json
import statistics
import time
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import matplotlib
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.nn.layers import EncoderLayer
from heedful.nn.layout import Padded
from heedful.nn.positions import sinusoidal
from heedful.runs.device import choose

matplotlib.use("Agg")

from matplotlib import pyplot as plt

SYMBOLS, NOISE, ASKED = 8, 8, 4
FIRST_MARK = SYMBOLS + NOISE
"""Tokens: symbols first, then those of the noise, then the marks that ask, one for each place."""
CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "LSTM, told the distance": nn.LSTM,
}
KINDS = ("attention", *CELLS)
HEADS = 2
WARM_UP = 30
"""Steps over which the learning rate rises."""
ENOUGH = 10
"""Batches without a mistake after which a run ends."""
TESTED = 1000
"""Sequences on which a trained model is scored."""
WEIGHTS, TRAINED_ON, TESTED_ON = 0, 500_009, 1_000_003
"""What is added to a run's seed: its first weights, its batches and its test have generators of their own."""


class Copies(NamedTuple):
    """A batch of the task."""

    ids: Tensor
    """(B, distance + 2A): symbols, noise, marks."""
    symbols: Tensor
    """(B, A): what to say at the marks."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What became of one run."""

    kind: str
    distance: int
    rate: float
    seed: int
    parameters: int
    steps: int
    """Taken, those of the last batches without a mistake included."""
    accuracy: float
    """The share of symbols said rightly, of sequences that it never saw."""
    seconds: float


def copies(count: int, distance: int, generator: torch.Generator) -> Copies:
    """Sequences with so many tokens of noise between symbols and marks."""
    symbols = torch.randint(SYMBOLS, (count, ASKED), generator=generator)
    noise = torch.randint(SYMBOLS, FIRST_MARK, (count, distance), generator=generator)
    marks = torch.arange(FIRST_MARK, FIRST_MARK + ASKED).expand(count, -1)
    return Copies(torch.cat([symbols, noise, marks], 1), symbols)


class Reader(nn.Module):
    """Embeddings, one layer of a kind, and scores of the symbols at the marks."""

    def __init__(self, kind: str, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(FIRST_MARK + ASKED, dim)
        cell = CELLS.get(kind)
        self.body = _encoder(dim) if cell is None else cell(dim, dim, batch_first=True)
        self.output = nn.Linear(dim, SYMBOLS)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, T) -> (B, A, C)."""
        x = self.embedding(ids)  # (B, T, D)
        if isinstance(self.body, EncoderLayer):
            x = x + sinusoidal(ids.shape[1], x.shape[2]).to(x)
        states = self.body(x, Padded(None))[0] if isinstance(self.body, EncoderLayer) else self.body(x)[0]
        return self.output(states[:, -ASKED:])


def _encoder(dim: int) -> EncoderLayer:
    """With norms before the sublayers: with those after them a run now and then never tells two symbols apart."""
    return EncoderLayer(dim, HEADS, 2 * dim, pre_norm=True)


@torch.no_grad()
def initialise(model: Reader, kind: str, distance: int, generator: torch.Generator) -> None:
    """Glorot's uniform and no biases, but orthogonal products of states, and gates that are open to the past."""
    for name, parameter in model.named_parameters():
        if name.startswith("embedding"):
            parameter.normal_(generator=generator)
        elif "weight_hh" in name:
            for gate in parameter.split(parameter.shape[1]):
                nn.init.orthogonal_(gate, generator=generator)
        elif parameter.ndim == 2:
            nn.init.xavier_uniform_(parameter, generator=generator)
        elif "norm" not in name:
            parameter.zero_()
    if isinstance(model.body, nn.LSTM | nn.GRU):
        # An LSTM's gates lie in the order in, forget, cell, out; a GRU's are reset, update, new.
        gates = model.body.get_parameter("bias_ih_l0").view(-1, model.body.hidden_size)
        gates[1] = 1.0
        if kind == "LSTM, told the distance":
            spans = 1 + (distance - 1) * torch.rand(model.body.hidden_size, generator=generator)
            gates[1], gates[0] = spans.log(), -spans.log()


def size(model: nn.Module) -> int:
    """How many parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def width(kind: str, parameters: int) -> int:
    """The width with which a kind of model comes nearest to a number of parameters."""
    choices = range(HEADS, 1025, HEADS if kind == "attention" else 1)
    with torch.device("meta"):
        above = bisect(choices, parameters, hi=len(choices) - 1, key=lambda dim: size(Reader(kind, dim)))
        return min(choices[max(0, above - 1) : above + 1], key=lambda dim: abs(size(Reader(kind, dim)) - parameters))


def learn(
    kind: str, dim: int, distance: int, *, rate: float, seed: int, steps: int, batch: int, device: torch.device
) -> Learned:
    """Train a model and score it."""
    begun = time.perf_counter()
    # From one generator, models of other sizes, which draw more or fewer weights, would see other sequences.
    weights, sequences = (torch.Generator().manual_seed(first + seed) for first in (WEIGHTS, TRAINED_ON))
    model = Reader(kind, dim)
    initialise(model, kind, distance, weights)
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    step = right = 0
    while step < steps and right < ENOUGH:
        step += 1
        optimizer.param_groups[0]["lr"] = rate * min(1.0, step / WARM_UP)
        given = Copies(*(part.to(device) for part in copies(batch, distance, sequences)))
        scores = model(given.ids)
        optimizer.zero_grad()
        F.cross_entropy(scores.flatten(0, 1), given.symbols.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        right = right + 1 if torch.equal(scores.argmax(-1), given.symbols) else 0  # the host waits here
    accuracy = score(model, distance, batch, torch.Generator().manual_seed(TESTED_ON + seed), device)
    return Learned(
        kind=kind,
        distance=distance,
        rate=rate,
        seed=seed,
        parameters=size(model),
        steps=step,
        accuracy=accuracy,
        seconds=time.perf_counter() - begun,
    )


@torch.inference_mode()
def score(model: Reader, distance: int, batch: int, generator: torch.Generator, device: torch.device) -> float:
    """The share of symbols that are said rightly, of new sequences."""
    right = 0
    for first in range(0, TESTED, batch):
        given = copies(min(batch, TESTED - first), distance, generator)
        right += int((model(given.ids.to(device)).argmax(-1).cpu() == given.symbols).sum())
    return right / (TESTED * ASKED)


def best(runs: Iterable[Learned]) -> list[Learned]:
    """Of a model at a distance, the runs of the rate with the best mean accuracy; of equals, with fewest steps."""
    rates: dict[float, list[Learned]] = {}
    for run in runs:
        rates.setdefault(run.rate, []).append(run)
    return max(
        rates.values(),
        key=lambda same: (
            statistics.mean(run.accuracy for run in same),
            -statistics.mean(run.steps for run in same),
        ),
    )


def table(runs: Sequence[Learned]) -> str:
    """Accuracy in per cent, least to most over the seeds, and the mean of the steps, by distance and kind."""
    distances = sorted({run.distance for run in runs})
    lines = ["| model | parameters |" + "".join(f" {distance} |" for distance in distances)]
    lines.append("|---|---:|" + "---:|" * len(distances))
    for kind in dict.fromkeys(run.kind for run in runs):
        mine = [run for run in runs if run.kind == kind]
        cells = [_cell(best(run for run in mine if run.distance == distance)) for distance in distances]
        lines.append(f"| {kind} | {mine[0].parameters:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(runs: Sequence[Learned]) -> str:
    found = [100 * run.accuracy for run in runs]
    steps = statistics.mean(run.steps for run in runs)
    spread = (
        f"{min(found):.0f}" if round(min(found)) == round(max(found)) else f"{min(found):.0f} to {max(found):.0f}"
    )
    return f"{spread} ({steps:.0f})"


def draw(runs: Sequence[Learned], path: Path) -> None:
    """Accuracy and steps against distance: means over the seeds as lines, each seed as a dot."""
    distances = sorted({run.distance for run in runs})
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    # lines that lie upon each other are told apart by their widths
    for kind, marker, thick in zip(dict.fromkeys(run.kind for run in runs), "osD^", (7, 5, 3, 1), strict=False):
        chosen = [best(run for run in runs if (run.kind, run.distance) == (kind, one)) for one in distances]
        dots = [run for same in chosen for run in same]
        for axis, what, scale in zip(axes, ("accuracy", "steps"), (100, 1), strict=True):
            means = [scale * statistics.mean(getattr(run, what) for run in same) for same in chosen]
            (line,) = axis.plot(distances, means, label=kind if axis is axes[0] else None, linewidth=thick, alpha=0.7)
            values = [scale * getattr(run, what) for run in dots]
            axis.plot([run.distance for run in dots], values, marker, color=line.get_color(), markersize=5)
    axes[0].axhline(100 / SYMBOLS, color="0.6", linestyle=":", label="by chance")
    axes[0].set(ylabel="symbols said rightly, per cent", ylim=(0, 105))
    axes[1].set(ylabel="steps until learned, or all", ylim=(0, 1.05 * max(run.steps for run in runs)))
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xticks(distances, [str(distance) for distance in distances])
        axis.set_xlabel("distance in tokens")
    figure.legend(loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m bench.recurrence copy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--distances", nargs="+", type=int, default=[8, 32, 128])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-3, 1e-2, 3e-2])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400, help="at most")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--dim", type=int, default=32, help="width of the attention model; the others follow")
    parser.add_argument("--out", type=Path, help="a folder for recurrence-copy.jsonl and recurrence-copy.png")
    arguments = parser.parse_args(argv)
    for name in ("distances", "rates", "seeds", "steps", "batch", "dim"):
        values = getattr(arguments, name)
        for value in values if isinstance(values, list) else [values]:
            if not value > 0:
                raise UserError(f"--{name} {value} must be above 0")
    parameters = size(Reader("attention", arguments.dim))
    device = choose(arguments.device, "fp32").device
    runs = []
    for distance in arguments.distances:
        for kind in arguments.kinds:
            dim = width(kind, parameters)
            for rate in arguments.rates:
                for seed in range(arguments.seeds):
                    run = learn(
                        kind,
                        dim,
                        distance,
                        rate=rate,
                        seed=seed,
                        steps=arguments.steps,
                        batch=arguments.batch,
                        device=device,
                    )
                    print(json.dumps(asdict(run)), flush=True)
                    runs.append(run)
    print(f"\nper cent right, least to most of {arguments.seeds} seeds (mean steps); by chance {100 / SYMBOLS:.1f}\n")
    print(table(runs))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(asdict(run)) + "\n" for run in runs]
        (arguments.out / "recurrence-copy.jsonl").write_text("".join(lines), encoding="utf-8")
        draw(runs, arguments.out / "recurrence-copy.png")
