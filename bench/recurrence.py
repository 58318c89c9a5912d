"""Self-attention beside recurrence: what one layer costs as sequences grow longer and wider.

    python -m bench.recurrence [--device cuda] [--lengths 64 … 16384] [--dims 64 128 256] [--out FOLDER]
    python -m bench.recurrence copy --help

Four layers that turn (B, T, D) into the same: our MultiHeadAttention on its fast path and on its explaining one,
which writes the weights down; torch's LSTM and GRU. Weights are random; gradients are asked of input and parameters.
At each length and width all take turns, after a pass that does not count for time and in which memory is measured;
times are medians over the rounds, of the whole batch. The batch is the same at all lengths, so that nothing but the
length grows. What would take too long or too much memory, as smaller cells foretell, is skipped and named.

"Kept" are the bytes that the forward pass leaves for the backward pass, parameters not counted. "Peak" is the most
memory at once beyond what there was before: torch's count on a GPU, elsewhere the process's resident memory (Linux).
Operations are those of matrix products in the forward pass, multiplying and adding counted apart.

Shapes: B batch, T length (n in the formulas), D width (d), H heads.
"""

import argparse
import contextlib
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from bench import copying, growth
from bench.growth import Cell
from bench.layers import SIDES, heads, kept, operations, steps, theory_table
from heedful.errors import UserError
from heedful.runs.device import Compute, choose

LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
SHORTEST = 0.02
"""Seconds that a timing lasts at least; what is shorter is repeated."""


def kept_bytes(layer: nn.Module, run: Callable[[], Tensor]) -> tuple[int, Tensor]:
    """What a forward pass leaves for the backward pass, each piece of memory once, and its result."""
    own = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    found: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own:
            found[memory.data_ptr()] = memory.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        result = run()
    return sum(found.values()), result


class Peak:
    """The most memory at once inside a `with` block, beyond what there was before it; None where nobody tells."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.bytes: int | None = None
        self.before = 0

    def __enter__(self) -> "Peak":
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.before = torch.cuda.memory_allocated(self.device)
        else:
            with contextlib.suppress(AttributeError, OSError):
                ctypes.CDLL(None).malloc_trim(0)  # what is free but not given back would hide what is asked for
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
                self.before = _resident("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        if self.device.type == "cuda":
            self.bytes = torch.cuda.max_memory_allocated(self.device) - self.before
        elif self.before:
            self.bytes = max(0, _resident("VmHWM") - self.before)


def _resident(what: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))


def clock(compute: Compute) -> Callable[[], float]:
    """Seconds; of this process alone where it has a single thread, so that neighbours on the machine do not count."""
    alone = compute.device.type == "cpu" and torch.get_num_threads() == 1
    return time.process_time if alone else time.perf_counter


class Bench:
    """A layer with its input at one length and width."""

    def __init__(self, cell: Cell, compute: Compute) -> None:
        torch.manual_seed(0)
        self.side, self.compute, self.clock = SIDES[cell.side], compute, clock(compute)
        self.layer = self.side.build(cell.dim, cell.heads).to(*compute)
        if isinstance(self.layer, nn.RNNBase):
            self.layer.flatten_parameters()  # else a GPU would join its weights at every call
        self.x, self.gradient = torch.randn(
            2, cell.batch, cell.length, cell.dim, device=compute.device, dtype=compute.dtype
        )
        self.x = self.x.clone().requires_grad_()

    def memory(self) -> tuple[int, int | None, float]:
        """Kept bytes, peak bytes, and the seconds of a pass; of the second, if short, as the first loads the code."""
        waiting, peak, seconds = self._noted()
        return (waiting, peak, seconds) if seconds > 1 else self._noted()

    def _noted(self) -> tuple[int, int | None, float]:
        begun = self.clock()
        with Peak(self.compute.device) as peak:
            waiting, result = kept_bytes(self.layer, lambda: self.side.run(self.layer, self.x))
            result.backward(self.gradient)
            self._wait()
        self._forget()
        return waiting, peak.bytes, self.clock() - begun

    def times(self) -> tuple[float, float]:
        """Seconds of the forward and of the backward pass, mean of as many as it takes to be sure of the clock."""
        forward = backward = 0.0
        calls = 0
        while forward + backward < SHORTEST:
            self._wait()
            begun = self.clock()
            result = self.side.run(self.layer, self.x)
            self._wait()
            between = self.clock()
            result.backward(self.gradient)
            self._wait()
            forward, backward = forward + between - begun, backward + self.clock() - between
            calls += 1
            self._forget()
        return forward / calls, backward / calls

    def _forget(self) -> None:
        for tensor in (self.x, *self.layer.parameters()):
            tensor.grad = None

    def _wait(self) -> None:
        if self.compute.device.type == "cuda":
            torch.cuda.synchronize(self.compute.device)


class Limits(NamedTuple):
    """Beyond which a cell is skipped."""

    seconds: float
    """Of one forward and backward pass."""
    bytes: float


def empty_cell(side: str, length: int, dim: int, batch: int) -> Cell:
    """What is known of a cell before it is measured."""
    return Cell(
        side=side,
        length=length,
        dim=dim,
        heads=heads(dim),
        batch=batch,
        operations=batch * operations(side, length, dim),
        steps=steps(side, length),
    )


def refusal(cell: Cell, done: Sequence[Cell], limits: Limits) -> str | None:
    """Why a cell is better not begun, if so: by the formula, and by the nearest smaller one of its side."""
    smaller = [one for one in done if one.side == cell.side and one.length <= cell.length and one.dim <= cell.dim]
    seconds, memory = 0.0, 8.0 * _kept(cell)  # as much again for gradients, in single precision
    if measured := [one for one in smaller if one.seconds]:
        near = max(measured, key=lambda one: (one.dim == cell.dim, one.length, one.dim))
        seconds = (near.seconds or 0.0) * cell.operations / near.operations
        memory = max(memory, (near.peak or 0) * _kept(cell) / _kept(near))
    if seconds > limits.seconds:
        return f"a pass would take some {seconds:.2g} s, more than {limits.seconds:g}"
    if memory > limits.bytes:
        return f"it would need some {memory / 1e9:.1f} GB, more than {limits.bytes / 1e9:.1f}"
    lost = [one for one in smaller if one.skipped]
    return f"{lost[0].length} tokens of width {lost[0].dim} were too many" if lost else None


def _kept(cell: Cell) -> int:
    return cell.batch * kept(cell.side, cell.length, cell.dim, cell.heads)


def measure(cells: Sequence[Cell], compute: Compute, rounds: int, limits: Limits) -> list[Cell]:
    """The cells of one length and width, in turns. Slow ones have fewer rounds, one at least."""
    found: dict[str, Cell] = {}
    benches: dict[str, Bench] = {}
    for cell in cells:
        found[cell.side] = cell
        if not cell.skipped:
            try:
                bench = Bench(cell, compute)
                waiting, peak, seconds = bench.memory()
            except torch.OutOfMemoryError:
                found[cell.side] = replace(cell, skipped="out of memory")
                continue
            benches[cell.side] = bench
            planned = max(1, min(rounds, int(limits.seconds / seconds)))
            found[cell.side] = replace(cell, kept=waiting, peak=peak, rounds=planned)
    timed: dict[str, list[tuple[float, float]]] = {side: [] for side in benches}
    for number in range(rounds):
        for side, bench in benches.items():
            if number < found[side].rounds:
                timed[side].append(bench.times())
    for side, times in timed.items():
        forward, backward = (statistics.median(part) for part in zip(*times, strict=True))
        found[side] = replace(found[side], forward=forward, backward=backward)
    return list(found.values())


def sweep(
    lengths: Sequence[int], dims: Sequence[int], batch: int, rounds: int, compute: Compute, limits: Limits
) -> Iterator[Cell]:
    """All cells, width by width and from short to long, as they are found."""
    done: list[Cell] = []
    for dim in sorted(set(dims)):
        for length in sorted(set(lengths)):
            cells = [empty_cell(side, length, dim, batch) for side in SIDES]
            cells = [replace(cell, skipped=refusal(cell, done, limits)) for cell in cells]
            new = measure(cells, compute, rounds, limits)
            done += new
            yield from new


def report(cells: Sequence[Cell]) -> str:
    """All tables, in Markdown."""
    parts = ["**By formula, of one sequence**", theory_table(64, cells[0].dim)]
    for dim in sorted({cell.dim for cell in cells}):
        parts += [f"**Width {dim}: forward + backward, ms**", growth.time_table(cells, dim)]
        parts += [f"**Width {dim}: kept, peak, MB**", growth.memory_table(cells, dim)]
    parts += ["**Exponents of the length (residual)**", growth.exponent_table(cells)]
    parts += ["**Exponents of the width (residual)**", growth.width_table(cells)]
    parts += [
        "**From which length attention costs more**",
        growth.crossing_table(cells, "attention", ["LSTM", "GRU"]),
    ]
    skipped = [f"- {cell.side}, {cell.length:,} x {cell.dim}: {cell.skipped}" for cell in cells if cell.skipped]
    return "\n\n".join([*parts, *(["Skipped:", "\n".join(skipped)] if skipped else [])])


def main(argv: Sequence[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    try:
        copying.main(argv[1:]) if argv[:1] == ["copy"] else layers(argv)
    except UserError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def layers(argv: Sequence[str]) -> None:
    """The measurement of layers, as a command."""
    parser = argparse.ArgumentParser(
        "python -m bench.recurrence", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--precision", default="auto", choices=["auto", "fp32", "bf16"])
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--dims", nargs="+", type=int, help="default: 64 128 256, on a GPU 128 256 512 1024")
    parser.add_argument("--batch", type=int, help="default: 2, on a GPU 16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="skip what takes longer for one pass")
    parser.add_argument("--memory", type=float, help="GB; skip what needs more (default: half of what is free)")
    parser.add_argument("--out", type=Path, help="a folder for recurrence-DEVICE.jsonl and recurrence-DEVICE.png")
    given = parser.parse_args(argv)
    compute = choose(given.device, given.precision)
    gpu = compute.device.type == "cuda"
    dims = given.dims or ([128, 256, 512, 1024] if gpu else [64, 128, 256])
    batch = (16 if gpu else 2) if given.batch is None else given.batch
    checked = {"lengths": given.lengths, "dims": dims, "batch": [batch], "rounds": [given.rounds]}
    for name, value in ((name, value) for name, values in checked.items() for value in values):
        if value < 1:
            raise UserError(f"--{name} {value} must be at least 1")
    free = torch.cuda.mem_get_info(compute.device)[0] if gpu else psutil.virtual_memory().available
    limits = Limits(given.seconds, free / 2 if given.memory is None else 1e9 * given.memory)
    where = torch.cuda.get_device_name(compute.device) if gpu else f"CPU, threads: {torch.get_num_threads()}"
    kind = str(compute.dtype).removeprefix("torch.")
    print(
        f"{where}; torch {torch.__version__}; {kind}; batch {batch}; medians of {given.rounds} or fewer", flush=True
    )
    cells = []
    for cell in sweep(given.lengths, dims, batch, given.rounds, compute, limits):
        cells.append(cell)
        print(json.dumps(asdict(cell)), flush=True)
    print(f"\n{report(cells)}")
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        name = f"recurrence-{compute.device.type}"
        lines = [json.dumps(asdict(cell)) + "\n" for cell in cells]
        (given.out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        growth.draw(cells, given.out / f"{name}.png")


if __name__ == "__main__":
    main()
