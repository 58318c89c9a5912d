"""A ViT that classifies as an ONNX file: normalised pixels in, scores out, under the names that the ecosystem uses.

The number of images is free, their size is the model's: positions for others would be computed again for every batch.

Shapes: B batch, C channels, H height, W width, K classes.
"""

import copy
import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from heedful.formats.onnx import read_metadata, require, require_room, write_graph
from heedful.models.vit import ViTClassifier
from heedful.nn.pixels import Pixels

INPUT, OUTPUT = "pixel_values", "logits"
"""(B, C, H, W) float32, and (B, K)."""
TASK = "see"
"""What tells the card of such a file from those of encoders of texts."""


@dataclass(frozen=True, kw_only=True)
class ImageCard:
    """What a file says of its model."""

    labels: tuple[str, ...]
    image_size: int
    channels: int
    pixels: Pixels
    source: str | None = None
    """The SHA-256 of the weights that the file was made from."""

    def to_json(self) -> str:
        """One object, with the task."""
        return json.dumps({"task": TASK, **dataclasses.asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "ImageCard":
        """The card that was written; a ValueError if it is another's."""
        fields = json.loads(text)
        if fields.pop("task") != TASK:
            raise ValueError("the card of another task")
        known = fields.pop("pixels")
        pixels = Pixels(**known | {name: tuple(known[name]) for name in ("mean", "std")})
        return cls(labels=tuple(fields.pop("labels")), pixels=pixels, **fields)


def export_vit(model: ViTClassifier, path: Path, source: str | None = None) -> None:
    """Write a model; `source` is the digest of its weights, for who asks later."""
    require("onnx", "onnxscript")
    config = model.config
    card = ImageCard(
        labels=model.labels,
        image_size=config.image_size,
        channels=config.channels,
        pixels=config.pixels,
        source=source,
    )
    require_room(path, sum(4 * parameter.numel() for parameter in model.parameters()))
    graph = copy.deepcopy(model).float().cpu().eval()
    examples = (torch.zeros(2, config.channels, config.image_size, config.image_size),)
    axes = {0: torch.export.Dim("batch")}
    write_graph(graph, examples, axes, ((INPUT,), (OUTPUT,)), path, card.to_json())


def read_image_card(path: Path) -> ImageCard | None:
    """What a file says of its model; None if it is not one of a ViT that was written here."""
    text = read_metadata(path)
    try:
        return None if text is None else ImageCard.from_json(text)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
