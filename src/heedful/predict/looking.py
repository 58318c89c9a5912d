"""Which patches of an image a model looks at: by each head of a layer, and through all layers (attention rollout,
Abnar and Zuidema 2020, section 3).

Shapes: L layers, A heads, T tokens: N patches row by row, before them `[CLS]` where there is one; G patches a side.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from heedful.errors import UserError
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.images import ImagePredictor


class Looks(NamedTuple):
    """Where a model looked in an image."""

    layer: int
    """Which layer's heads, counted from 1."""
    heads: np.ndarray
    """(A, G, G): the share of its attention that each head gives each patch. What is missing from one is what
    `[CLS]` keeps for itself."""
    rollout: np.ndarray
    """(G, G): how much each patch has a part in the answer, through all layers."""


def looks(predictor: ImagePredictor, picture: np.ndarray, layer: int | None = None) -> Looks:
    """Where a model looks in an image, (H, W, C) bytes as it reads them: heads of the last layer, or of another."""
    engine, number = looking(predictor, layer)
    weights = engine.attention(picture)  # (L, A, T, T)
    with_cls, side = engine.config.pool == "cls", engine.config.side
    return Looks(
        number,
        np.stack([on_patches(head, with_cls, side) for head in weights[number - 1]]),
        on_patches(rollout(weights), with_cls, side),
    )


def looking(predictor: ImagePredictor, layer: int | None = None) -> tuple[TorchImageEngine, int]:
    """What can be asked where it looks, and the number of one of its layers: the last, unless another is meant."""
    engine = predictor.engine
    if not isinstance(engine, TorchImageEngine):
        raise UserError("an exported file does not say where the model looks; use the engine torch")
    most = engine.config.layers
    if layer is not None and not 1 <= layer <= most:
        raise UserError(f"layer {layer} is not one of {predictor.origin}; choose from 1 to {most}")
    return engine, layer or most


def rollout(weights: Iterable[np.ndarray]) -> np.ndarray:
    """How much of every token of the input is in every token of the output: L times (A, T, T) -> (T, T), rows of one.

    A layer's mean over its heads, and as much of every token itself, which the residual connection keeps; the
    layers one after the other, so that they need not be there at once.
    """
    mixed = None
    for layer in weights:
        mean = layer.astype(np.float64).mean(0)
        kept = (mean + np.eye(len(mean))) / 2
        mixed = kept if mixed is None else kept @ mixed
    assert mixed is not None, "a model has layers"
    return mixed


def on_patches(table: np.ndarray, with_cls: bool, side: int) -> np.ndarray:
    """What of a table (T, T) falls on the patches, (G, G): from `[CLS]`, or the mean of all tokens without one."""
    row = table[0, 1:] if with_cls else table.mean(0)
    return row.reshape(side, side)
