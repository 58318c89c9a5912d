"""What computes the scores of images: bytes in, arrays out. Knows nothing of files.

A torch model computes where its weights are; the ONNX file that `heedful export` writes runs on the CPU, by
onnxruntime, and gives the same arrays.

Shapes: N images, H height, W width, C channels, K classes, L layers, T tokens.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from heedful.durable import file_digest
from heedful.errors import UserError
from heedful.formats.onnx import KEY
from heedful.formats.vit_onnx import INPUT, OUTPUT, ImageCard
from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.gpus import current
from heedful.nn.kernels import HALF
from heedful.nn.pixels import Pixels, normalised
from heedful.nn.transfer import on_device
from heedful.predict.engine import BATCH_TOKENS, check_range
from heedful.predict.onnx import computed, open_session
from heedful.predict.packed import twin_of

ONNX_IMAGES = 16
"""Of a batch for onnxruntime."""


class ImageEngine(Protocol):
    """A classifier of images that computes."""

    labels: tuple[str, ...]
    image_size: int
    channels: int
    pixels: Pixels

    @property
    def on_gpu(self) -> bool:
        """Whether it computes by itself, while the host does something else."""
        ...

    def scores(self, pictures: np.ndarray) -> np.ndarray:
        """Before the softmax: (N, H, W, C) uint8 -> (N, K)."""
        ...


class TorchImageEngine:
    """A torch module, put at rest (no dropout), where its weights are.

    With weights in half precision on a GPU, a twin with joined matrices computes in its place.
    """

    def __init__(self, model: ViTClassifier) -> None:
        config = model.config
        self.model = model.eval()
        self.labels = model.labels
        self.image_size = config.image_size
        self.channels = config.channels
        self.pixels = config.pixels
        weight = next(model.parameters())
        self._reads = _joined(model) if weight.is_cuda and weight.dtype in HALF else model
        self._turn = Lock()

    @property
    def config(self) -> ViTConfig:
        """The model's shape."""
        return self.model.config

    @property
    def on_gpu(self) -> bool:
        """Whether it computes by itself, while the host does something else."""
        return next(self._reads.parameters()).is_cuda

    @torch.inference_mode()
    def scores(self, pictures: np.ndarray) -> np.ndarray:
        """Before the softmax: (N, H, W, C) uint8 -> (N, K)."""
        with self._launching():
            made = [self._reads(pixels).float() for pixels in self._each(pictures)]
            found = torch.cat(made).cpu().numpy() if made else np.empty((0, len(self.labels)), np.float32)
        if next(self._reads.parameters()).dtype is torch.float16:
            check_range(bool(np.isfinite(found).all()))
        return found

    @torch.inference_mode()
    def attention(self, picture: np.ndarray) -> np.ndarray:
        """Where every token of an image looks: (H, W, C) uint8 -> (L, heads, T, T); rows sum to one."""
        with self._launching():
            (pixels,) = self._each(picture[None])
            weights = self.model.vit(pixels, explain=True).weights
        return torch.stack(weights)[:, 0].float().cpu().numpy()

    @contextmanager
    def _launching(self) -> Iterator[None]:
        """Threads take turns, or each would need memory for a batch."""
        with self._turn, current(next(self._reads.parameters()).device):
            yield

    def _each(self, pictures: np.ndarray) -> Iterator[Tensor]:
        """Batches as the model reads them: (B, C, H, W)."""
        weight = next(self._reads.parameters())
        room = BATCH_TOKENS.get(weight.device.type, BATCH_TOKENS["cpu"])
        batch = max(1, room // self.config.tokens)
        for start in range(0, len(pictures), batch):
            there = on_device(np.array(pictures[start : start + batch]), weight.device)
            yield normalised(there, self.pixels).to(weight.dtype)


class OnnxImageEngine:
    """A folder's exported model, in full precision or with weights of 8 bits."""

    on_gpu = False

    def __init__(self, folder: Path, *, int8: bool) -> None:
        path = folder / "onnx" / ("model_int8.onnx" if int8 else "model.onnx")
        again = f"`heedful export {shlex.quote(str(folder))} --to onnx{' --int8' if int8 else ''}`"
        if not path.is_file():
            raise UserError(f"{folder} has no ONNX file; write it with {again}")
        self.session = open_session(path)
        try:
            card = ImageCard.from_json(self.session.get_modelmeta().custom_metadata_map[KEY])
        except (ValueError, LookupError, TypeError, AttributeError):
            raise UserError(
                f"{path} is no image classifier that heedful wrote; move it away and write it with {again}"
            ) from None
        weights = folder / "model.safetensors"
        if card.source is not None and weights.is_file() and file_digest(weights) != card.source:
            raise UserError(f"{path} was made from other weights than {weights}; write it again with {again}")
        self.labels = card.labels
        self.image_size = card.image_size
        self.channels = card.channels
        self.pixels = card.pixels

    def scores(self, pictures: np.ndarray) -> np.ndarray:
        """Before the softmax: (N, H, W, C) uint8 -> (N, K)."""
        found = [np.empty((0, len(self.labels)), np.float32)]
        for start in range(0, len(pictures), ONNX_IMAGES):
            batch = torch.from_numpy(np.array(pictures[start : start + ONNX_IMAGES]))
            read = normalised(batch, self.pixels).contiguous().numpy()
            found += computed(self.session, [OUTPUT], {INPUT: read})
        return np.concatenate(found)


def _joined(model: ViTClassifier) -> ViTClassifier:
    twin = twin_of(model)
    for module in twin.modules():
        if isinstance(module, MultiHeadAttention):
            module.join()
    return twin
