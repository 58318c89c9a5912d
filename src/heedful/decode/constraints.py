"""What may be written next: pure functions from log-probabilities to log-probabilities, minus infinity for "never".

Shapes: B sentences, K beams, V vocabulary, T tokens written so far.
"""

import math

import torch
from torch import Tensor

NEVER = -math.inf


def penalise_repetition(log_probs: Tensor, written: Tensor, penalty: float) -> Tensor:
    """Tokens that were written (B, K, T) become less probable: their log-probability times the penalty."""
    seen = log_probs.gather(-1, written)
    return log_probs.scatter(-1, written, seen * penalty)


def block_ngrams(log_probs: Tensor, written: Tensor, size: int) -> Tensor:
    """No token that would repeat `size` tokens in a row of those written (B, K, T)."""
    length = written.shape[-1]
    if length < size:
        return log_probs
    runs = written.unfold(-1, size, 1)  # (B, K, T - size + 1, size)
    start = written[..., length - size + 1 :]  # (B, K, size - 1)
    repeated = (runs[..., :-1] == start[..., None, :]).all(-1)  # (B, K, T - size + 1)
    ends = runs[..., -1]
    banned = torch.zeros_like(log_probs).scatter_add(-1, ends, repeated.to(log_probs.dtype))
    return log_probs.masked_fill(banned > 0, NEVER)


def only(log_probs: Tensor, tokens: Tensor) -> Tensor:
    """Nothing but one token for each sentence (B,)."""
    chosen = tokens[:, None, None].expand(-1, log_probs.shape[1], 1)
    return torch.full_like(log_probs, NEVER).scatter(-1, chosen, log_probs.gather(-1, chosen))


def most_probable(log_probs: Tensor, top_k: int, top_p: float) -> Tensor:
    """Only the `top_k` most probable tokens, and of these only the first that have `top_p` together."""
    if top_k:
        least = log_probs.topk(min(top_k, log_probs.shape[-1]), -1).values[..., -1:]
        log_probs = log_probs.masked_fill(log_probs < least, NEVER)
    if top_p < 1.0:
        ordered, order = log_probs.softmax(-1).sort(-1, descending=True)
        beyond = ordered.cumsum(-1) - ordered >= top_p  # the one that reaches the share still counts
        log_probs = log_probs.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), NEVER)
    return log_probs
