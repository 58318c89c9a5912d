"""Layers that keep the shape of a sequence, and what theory says of each (Vaswani et al. 2017, table 1).

Attention writes its weights down or not: the same arithmetic, but not the same memory. Operations are those of matrix
products, multiplying and adding counted apart; steps are those that must follow one another, however many processors
there are. Measures nothing.

Shapes: B batch, T length (n in the formulas), D width (d), H heads.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layout import Padded

HEAD_WIDTH = 64


class Side(NamedTuple):
    """A layer, and what theory needs to know of it."""

    build: Callable[[int, int], nn.Module]
    """From width and heads."""
    run: Callable[[nn.Module, Tensor], Tensor]
    """(B, T, D) -> (B, T, D)."""
    matrices: int
    """Products with a (D, D) matrix for each token."""
    pairs: int
    """Products of D numbers for each pair of tokens."""
    states: int
    """Vectors of D numbers that are kept of each token, by torch's plain code."""
    steps: str
    """How many must follow one another, "1" or "n": as many as a signal takes from the first token to the last."""


def _attend(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x, Padded(None))[0]


def _explain(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x, Padded(None), explain=True)[0]


def _recur(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(x)[0]


EXPLAINED = "attention, explained"
SIDES = {
    # Query, key, value and output; a score and a share of the mix. Kept: x, the first three, and the mix.
    "attention": Side(MultiHeadAttention, _attend, matrices=4, pairs=2, states=5, steps="1"),
    EXPLAINED: Side(MultiHeadAttention, _explain, matrices=4, pairs=2, states=5, steps="1"),
    # Four gates, each of input and state. Kept: x, gates, state, cell, and the tanh of it.
    "LSTM": Side(
        lambda dim, _: nn.LSTM(dim, dim, batch_first=True), _recur, matrices=8, pairs=0, states=8, steps="n"
    ),
    # Three gates. Kept: x, gates, states, and what is mixed into them.
    "GRU": Side(lambda dim, _: nn.GRU(dim, dim, batch_first=True), _recur, matrices=6, pairs=0, states=8, steps="n"),
}


def operations(side: str, length: int, dim: int) -> int:
    """Of one sequence's forward pass."""
    layer = SIDES[side]
    return 2 * length * dim * (layer.matrices * dim + layer.pairs * length)


def kept(side: str, length: int, dim: int, heads: int) -> int:
    """Numbers of one sequence that wait for the backward pass.

    Of the weights, the fast path keeps the logarithm of each row's sum, the explaining one all.
    """
    weights = heads * length * {"attention": 1, EXPLAINED: length}.get(side, 0)
    return SIDES[side].states * length * dim + weights


def steps(side: str, length: int) -> int:
    """That must follow one another, however many processors there are."""
    return length if SIDES[side].steps == "n" else 1


def counted(side: str, length: int, dim: int, heads: int) -> int:
    """The operations that torch counts. On no device, hence at once, and by its plainest code, which it knows."""
    with torch.device("meta"):
        layer, x = SIDES[side].build(dim, heads), torch.empty(1, length, dim)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        SIDES[side].run(layer, x)
    return counter.get_total_flops()


def chain(output: Tensor) -> int:
    """How many recorded operations follow one another on the longest way from a result back to its sources."""
    depths: dict[Node, int] = {}
    pending = [output.grad_fn] if output.grad_fn else []
    while pending:
        node = pending[-1]
        below = [one for one, _ in node.next_functions if one is not None]
        unknown = [one for one in below if one not in depths]
        if unknown:
            pending += unknown
        else:
            depths[pending.pop()] = 1 + max((depths[one] for one in below), default=0)
    return max(depths.values(), default=0)


def heads(dim: int) -> int:
    """As many as have the width that Vaswani et al. chose."""
    return max(1, dim // HEAD_WIDTH)


def recorded(side: str, length: int, dim: int) -> int:
    """The chain of a real layer; in double precision, for which a CPU has no code that hides the steps."""
    layer = SIDES[side].build(dim, heads(dim)).double()
    return chain(SIDES[side].run(layer, torch.zeros(1, length, dim, dtype=torch.float64, requires_grad=True)))


def theory_table(length: int, dim: int) -> str:
    """The formulas with their values, and what torch counts and records."""
    titles = ("", "operations", f"n = {length}, d = {dim}", "torch counts", "steps", "chain of n", "of 2n")
    lines = [f"| {' | '.join(titles)} |", "|---|---|---:|---:|---:|---:|---:|"]
    for name, side in SIDES.items():
        formula = f"{2 * side.matrices} n d²" + (f" + {2 * side.pairs} n² d" if side.pairs else "")
        numbers = (operations(name, length, dim), counted(name, length, dim, heads(dim)))
        chains = (recorded(name, length, dim), recorded(name, 2 * length, dim))
        told = [f"{number:,}" for number in numbers] + [side.steps] + [f"{number:,}" for number in chains]
        lines.append(f"| {name} | {formula} | {' | '.join(told)} |")
    return "\n".join(lines)
