"""Where tokens look: thumbnails of all heads, one head as a matrix, and rollout through the layers.

Shapes: L layers, H heads, T rows that look, S columns that are looked at, h and w of a thumbnail.
"""

import numpy as np
import torch
import torch.nn.functional as F

from heedful.explore.refusals import NotThere
from heedful.explore.sites import Site
from heedful.explore.trace import Trace
from heedful.predict.looking import rollout

SIDE = 32
"""Of a thumbnail, at most."""


def sites(trace: Trace, part: str) -> tuple[Site, ...]:
    """The layers of one use of attention."""
    if part not in trace.parts:
        raise NotThere(f"this model has no part {part!r}; choose from {', '.join(trace.parts)}")
    return trace.parts[part]


def site(trace: Trace, part: str, layer: int, head: int | None = None) -> Site:
    """One of the layers; an error if it isn't there, or has no such head."""
    found = sites(trace, part)
    if not 0 <= layer < len(found):
        raise NotThere(f"layer {layer} is not there; the {part} has {len(found)}, counted from 0")
    if head is not None and not 0 <= head < found[layer].heads:
        raise NotThere(f"head {head} is not there; a layer has {found[layer].heads}, counted from 0")
    return found[layer]


def thumbnails(trace: Trace, part: str) -> np.ndarray:
    """All heads in small, one layer's weights at a time: (L, H, h, w) bytes, the most of each head is 255."""
    return np.stack([thumbnail(one.weights()) for one in sites(trace, part)])


def thumbnail(weights: np.ndarray) -> np.ndarray:
    """(H, T, S) -> (H, h, w): of what falls on one pixel the largest counts, or single strands would be lost."""
    sides = tuple(min(SIDE, side) for side in weights.shape[1:])
    small = F.adaptive_max_pool2d(torch.from_numpy(weights)[None], sides)[0].numpy()
    most = small.max((1, 2), keepdims=True)
    return np.round(255 * small / np.where(most > 0, most, 1)).astype(np.uint8)


def matrix(trace: Trace, part: str, layer: int, head: int | None) -> np.ndarray:
    """The weights of one head, or the mean of a layer's: (T, S)."""
    weights = site(trace, part, layer, head).weights()
    return weights.mean(0) if head is None else weights[head]


def rolled(trace: Trace, part: str, layer: int) -> np.ndarray:
    """How much of every input token is in every token after some layers (Abnar and Zuidema 2020): (T, T)."""
    if part == "cross":
        raise NotThere("rollout follows tokens through layers of self-attention; choose the part encoder or decoder")
    site(trace, part, layer)
    return rollout(one.weights() for one in sites(trace, part)[: layer + 1])
