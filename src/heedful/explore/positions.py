"""How a model tells where a token stands: as a picture, and how alike two positions are.

Shapes: P positions, D width, K width of a head.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from heedful.explore.sites import array
from heedful.models.bert import Bert
from heedful.models.transformer import Transformer
from heedful.models.vit import ViT
from heedful.nn.positions import rotary, rotate

Kind = Literal["learned", "sinusoidal", "rotary"]

MOST = 128
"""Positions that are shown."""
MOST_PATCHES = 256


@dataclass(frozen=True, kw_only=True)
class Positions:
    """What a model knows of places."""

    kind: Kind
    encoding: np.ndarray
    """(P, D): the vector that is added at each place; of rotary ones (P, K), cosines and then sines of the angles."""
    similarity: np.ndarray
    """(P, P): the cosine of two vectors; of rotary ones that of a query and a key, both constant, when turned."""
    by_distance: np.ndarray
    """The mean similarity of two places so many steps apart."""
    grid: tuple[int, int] | None = None
    """Rows and columns, where places lie in an image."""


@torch.inference_mode()
def positions(model: Bert | Transformer | ViT) -> Positions:
    """What the model knows of places, of the first ones if there are many."""
    if isinstance(model, ViT):
        return _of_patches(model)
    if isinstance(model, Bert) and model.config.positions == "rotary":
        return _rotary(model)
    if isinstance(model, Bert):
        assert model.embeddings.positions is not None
        table, kind = model.embeddings.positions.weight, "learned"
    else:
        table, kind = model.positions, "sinusoidal"
    encoding = array(table[:MOST])
    similarity = cosines(encoding)
    return Positions(
        kind=kind,
        encoding=encoding,
        similarity=similarity,
        by_distance=by_distance(similarity, _line(len(encoding))),
    )


def _rotary(model: Bert) -> Positions:
    config = model.config
    places, width = torch.arange(min(MOST, config.max_length)), config.dim // config.heads
    rotation = rotary(places, width, config.rotary_base)
    encoding = torch.cat([rotation.cos, rotation.sin], -1)[:, 0]  # (P, K)
    turned = rotate(torch.ones(len(places), 1, width), rotation)[:, 0]  # the same vector at every place
    similarity = array(turned @ turned.T) / width
    return Positions(
        kind="rotary",
        encoding=array(encoding),
        similarity=similarity,
        by_distance=by_distance(similarity, _line(len(places))),
    )


def _of_patches(model: ViT) -> Positions:
    side = model.config.side
    rows = max(1, min(side, MOST_PATCHES // side))  # whole rows of patches
    first = 0 if model.cls is None else 1
    encoding = array(model.positions[first : first + rows * side])
    similarity = cosines(encoding)
    places = np.stack(np.divmod(np.arange(rows * side), side), 1)  # (P, 2)
    steps = np.linalg.norm(places[:, None] - places, axis=-1)
    return Positions(
        kind="learned",
        encoding=encoding,
        similarity=similarity,
        by_distance=by_distance(similarity, np.round(steps).astype(int)),
        grid=(rows, side),
    )


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Of every vector with every other: (P, D) -> (P, P)."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1)
    return unit @ unit.T


def by_distance(similarity: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """The mean similarity at each distance, a whole number: (P, P) twice -> (largest + 1,)."""
    counts = np.bincount(distances.ravel())
    return np.bincount(distances.ravel(), similarity.ravel()) / np.maximum(counts, 1)


def _line(count: int) -> np.ndarray:
    """How far places in a row are from each other."""
    places = np.arange(count)
    return np.abs(places[:, None] - places)
