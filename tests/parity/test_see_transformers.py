"""A folder says the same of an image here and in transformers, from the file to the probabilities."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import heedful
from heedful.formats.vit import save_vit
from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.nn.pixels import Pixels, normalised
from heedful.predict.images import ImageExample

transformers = pytest.importorskip("transformers")

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


@pytest.mark.parametrize(
    ("pixels", "bytes_apart"),
    [
        (Pixels(), 0.1),
        (Pixels(mean=MEAN, std=STD, resample="bicubic"), 0.1),
        (Pixels(mean=MEAN, std=STD, edge=20), 14),  # cut out before it is resized here, and after it there
    ],
    ids=["stretched", "bicubic", "middle"],
)
def test_an_image_is_seen_alike(tmp_path: Path, pixels: Pixels, bytes_apart: float):
    config = ViTConfig(image_size=20, patch_size=5, layers=2, dim=24, heads=3, ffn_dim=31, pixels=pixels)
    model = ViTClassifier(config, ("ant", "bee", "cat", "dog", "elk"))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(number))
    save_vit(model.eval(), tmp_path)
    image = Image.fromarray(np.random.default_rng(7).integers(0, 256, (7, 11, 3), np.uint8)).resize((67, 41))
    image.save(tmp_path / "one.png")

    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, use_fast=False)
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path).eval()
    read = processor(images=image, return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        scores = theirs(read).logits.softmax(-1)[0]
    expected = {theirs.config.id2label[number]: float(score) for number, score in enumerate(scores)}

    predictor = heedful.load(tmp_path, "cpu")
    (ours,) = predictor.reader().prepare([ImageExample("one", tmp_path / "one.png")])
    assert isinstance(ours, np.ndarray)
    apart = (normalised(torch.from_numpy(ours.copy())[None], pixels) - read).abs() * 255 * min(pixels.std)
    assert float(apart.max()) < bytes_apart
    assert predictor.see(tmp_path / "one.png").scores == pytest.approx(expected, abs=bytes_apart * 1e-3)
