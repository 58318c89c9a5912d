"""Which patches of an image the heads of a ViT look at, along the explaining path, one layer at a time.

Shapes: L layers, A heads, T tokens, N patches, K classes.
"""

import base64
import binascii
import io
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

from heedful.data.flaws import Flaw
from heedful.errors import UserError
from heedful.explore.sites import array
from heedful.nn.layers import EncoderLayer
from heedful.nn.layout import Padded
from heedful.nn.pixels import normalised
from heedful.nn.transfer import on_device
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.images import ImageExample, ImagePredictor
from heedful.predict.looking import on_patches, rollout

CLASSES = 10
"""The most probable ones, at most."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """An image as a model sees it."""

    classes: list[tuple[str, float]]
    """The most probable first."""
    grid: tuple[int, int]
    """Rows and columns of patches."""
    weights: np.ndarray
    """(L, A, N): from `[CLS]` to the patches; without one, the mean of all patches."""
    rollout: np.ndarray
    """(N,): through all layers."""
    scores: np.ndarray
    """(K,): before the softmax."""
    picture: np.ndarray
    """(H, W, C) bytes, as the model reads them."""


def look(predictor: ImagePredictor, engine: TorchImageEngine, image: bytes) -> Seen:
    """What a model sees in the bytes of an image file, and where it looks."""
    (picture,) = predictor.reader().prepare([ImageExample("the image", image)])
    if isinstance(picture, Flaw):
        raise UserError(str(picture))
    weights, means, scores = _inside(engine, picture)
    shares = np.exp(scores.astype(np.float64) - scores.max())
    shares /= shares.sum()
    side, with_cls = engine.config.side, engine.config.pool == "cls"
    best = np.argsort(-shares, kind="stable")[:CLASSES].tolist()
    return Seen(
        classes=[(engine.labels[place], float(shares[place])) for place in best],
        grid=(side, side),
        weights=weights,
        rollout=on_patches(rollout(mean[None] for mean in means), with_cls, side).ravel(),
        scores=scores,
        picture=picture,
    )


@torch.inference_mode()
def _inside(engine: TorchImageEngine, picture: np.ndarray) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """From `[CLS]` to patches (L, A, N), the means over heads L times (T, T), and the scores (K,)."""
    model = engine.model
    vit, weight = model.vit, next(model.parameters())
    pixels = normalised(on_device(picture[None].copy(), weight.device), engine.pixels).to(weight.dtype)
    x = vit.embed(pixels)
    with_cls, side = engine.config.pool == "cls", engine.config.side
    rows, means = [], []
    for layer in vit.layers:
        assert isinstance(layer, EncoderLayer)
        x, found = layer(x, Padded(None), True)
        assert found is not None
        weights = array(found[0])  # (A, T, T)
        rows.append(np.stack([on_patches(head, with_cls, side).ravel() for head in weights]))
        means.append(weights.mean(0))
    scores = model.output(vit.pool(vit.final_norm(x)))[0]
    return np.stack(rows), means, array(scores)


def decoded(data: str) -> bytes:
    """The bytes that a text in base64 stands for, with or without `data:image/…;base64,` before it."""
    if data.startswith("data:"):
        data = data.partition(",")[2]
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise UserError("the image is not base64; send the bytes of a png or jpeg in base64") from None


def data_uri(picture: np.ndarray) -> str:
    """(H, W, C) bytes as a png that a page can show."""
    held = io.BytesIO()
    Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture).save(held, "PNG")
    return "data:image/png;base64," + base64.b64encode(held.getvalue()).decode()
