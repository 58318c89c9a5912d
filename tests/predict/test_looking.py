from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.errors import UserError
from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.predict import ImagePredictor
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.looking import looks, on_patches, rollout


def test_rollout_by_hand():
    """Two layers of two heads, two tokens: each layer is half of its mean and half of nothing changed."""
    first = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])  # their mean is one half everywhere
    second = np.array([[[0.2, 0.8], [1.0, 0.0]]] * 2)
    one = np.array([[0.75, 0.25], [0.25, 0.75]])
    two = np.array([[0.6, 0.4], [0.5, 0.5]])
    np.testing.assert_allclose(rollout(np.stack([first, second])), two @ one)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(2, 11), st.integers(0, 99))
def test_rows_of_a_rollout_sum_to_one(layers: int, heads: int, tokens: int, seed: int):
    weights = np.random.default_rng(seed).dirichlet(np.ones(tokens), (layers, heads, tokens))
    found = rollout(weights.astype(np.float32))
    np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-5)
    assert (found.diagonal() >= 0.5**layers - 1e-6).all()  # what residual connections keep


def test_a_table_falls_on_the_patches():
    table = np.arange(25.0).reshape(5, 5)
    assert on_patches(table, True, 2).tolist() == [[1.0, 2.0], [3.0, 4.0]]  # the row of [CLS], without itself
    table = np.arange(16.0).reshape(4, 4)
    assert on_patches(table, False, 2).tolist() == [[6.0, 7.0], [8.0, 9.0]]  # the means of the columns


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("layer", [1, 2, None])
def test_looks_are_the_models_own(pool: str, layer: int | None):
    config = ViTConfig(image_size=15, patch_size=5, layers=2, dim=21, heads=3, ffn_dim=11, pool=pool, locality=True)
    predictor = ImagePredictor(TorchImageEngine(ViTClassifier(config, ("a", "b"))))
    picture = np.random.default_rng(5).integers(0, 256, (15, 15, 3), np.uint8)
    found = looks(predictor, picture, layer)
    assert (found.layer, found.heads.shape, found.rollout.shape) == (layer or 2, (3, 3, 3), (3, 3))
    assert isinstance(predictor.engine, TorchImageEngine)
    weights = predictor.engine.attention(picture)
    assert weights.shape == (2, 3, config.tokens, config.tokens)
    rows = weights[found.layer - 1, :, 0, 1:] if pool == "cls" else weights[found.layer - 1].mean(1)
    np.testing.assert_allclose(found.heads.reshape(3, 9), rows, rtol=1e-6)
    np.testing.assert_allclose(found.heads.sum((1, 2)), 1.0, atol=1e-5)  # nobody looks at itself here


def test_what_there_is_to_look_at(colours: Path):
    predictor = heedful.load(colours, "cpu")
    picture = np.zeros((12, 12, 3), np.uint8)
    for layer in (0, 3, -1):
        with pytest.raises(UserError, match=f"layer {layer} is not one of .*; choose from 1 to 2"):
            looks(predictor, picture, layer)
    found = looks(predictor, picture)
    assert (found.heads.sum((1, 2)) < 1.0).all()  # the rest stays with [CLS]


def test_an_exported_file_does_not_tell():
    class Silent:
        labels, image_size, channels, on_gpu = ("a",), 4, 3, False

    with pytest.raises(UserError, match="an exported file does not say where the model looks; use the engine torch"):
        looks(ImagePredictor(Silent()), np.zeros((4, 4, 3), np.uint8))  # pyrefly: ignore
