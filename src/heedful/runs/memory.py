"""What a pretraining step takes of memory, reckoned by the formula of docs/scaling.md, which says how well it holds.

For whoever has not tried it: `runs/fitting.py` does.

Shapes: L layers of width D, sequences of T tokens, a vocabulary of V.
"""

from math import ceil

import torch

from heedful.models.bert import BertConfig
from heedful.runs.device import Compute

KEPT = {torch.bfloat16: 36, torch.float32: 64}
"""Bytes that a token leaves on a GPU for the backward pass, for each number of a layer's width."""
MASKS = 2
"""Those of the dropout masks."""
KEPT_BY_CPU, DROPPED_BY_CPU, WEIGHTS_OF_CPU = 98, 22, 0.18
"""The same on a CPU, where pads and copies come in; with dropout it keeps more, attention's weights among it, which
grow with T. As measured."""
SCORES = 14
"""Bytes for each word of the vocabulary that a masked token is scored by."""
AHEAD = 12
"""Bytes for each parameter when training begins: its gradient and two averages. The parameter itself is there."""
MARGIN, RESERVE = 0.1, 64 << 20
"""What is left alone of the free memory: a share, and what libraries and threads want for themselves."""


def of_a_token(config: BertConfig, length: int, mask_rate: float, compute: Compute) -> float:
    """Bytes that a token of a batch takes in a step."""
    drops = config.dropout > 0 or config.attention_dropout > 0
    if compute.device.type == "cpu":
        layer = KEPT_BY_CPU + (DROPPED_BY_CPU + WEIGHTS_OF_CPU * length if drops else 0)
    else:
        layer = KEPT[compute.dtype] + (MASKS if drops else 0)
    return layer * config.dim * config.layers + SCORES * mask_rate * config.vocab_size


def likely_tokens(free: float, parameters: int, of_a_token: float) -> int:
    """How many tokens a batch may have in the free memory of one process that has its parameters: a power of two.

    Nothing if there is not even room for the optimizer.
    """
    room = (1 - MARGIN) * free - RESERVE - AHEAD * parameters
    return 1 << (int(room / of_a_token).bit_length() - 1) if room >= of_a_token else 0


def less_memory(batch_tokens: int, length: int, accumulation: int, likely: int, *, tries: bool, smaller: str) -> str:
    """What to type after a batch has turned out too large: what is `likely` to fit, at most half or one sequence.

    A GPU `tries` what fits by itself; `smaller` says how the model would be.
    """
    tokens = min(max(batch_tokens // 2, length), likely)
    if not likely:
        return smaller
    if tokens < length or batch_tokens == length:
        return f"a --length below {length}, or {smaller}"
    found = ", or --batch-tokens auto, which finds what fits" if tries else ""
    return f"--batch-tokens {tokens} --accumulation {ceil(accumulation * batch_tokens / tokens)}{found}"
