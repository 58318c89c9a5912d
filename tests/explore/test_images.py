import base64
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import heedful
from heedful.errors import UserError
from heedful.explore.images import data_uri, decoded, look
from heedful.predict import ImagePredictor
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.images import ImageExample
from heedful.predict.looking import looks

OPTIONS = [{}, {"locality": True}, {"pool": "mean"}, {"pool": "mean", "locality": True}, {"shifted_patches": True}]


def engine(predictor: ImagePredictor) -> TorchImageEngine:
    assert isinstance(predictor.engine, TorchImageEngine)
    return predictor.engine


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_what_is_seen_is_what_the_fast_path_sees(
    vit: Callable[..., ImagePredictor], image_file: Path, options: dict[str, bool | str]
):
    predictor = vit(**options)
    found = look(predictor, engine(predictor), image_file.read_bytes())
    (picture,) = predictor.reader().prepare([ImageExample("", image_file)])
    assert isinstance(picture, np.ndarray)
    np.testing.assert_array_equal(found.picture, picture)
    np.testing.assert_allclose(found.scores, predictor.engine.scores(picture[None])[0], atol=1e-5)
    seen = predictor.see(image_file)
    assert [label for label, _ in found.classes] == list(seen.best(4))
    assert dict(found.classes) == pytest.approx(seen.scores, abs=1e-6)
    for layer in (1, 2):
        theirs = looks(predictor, picture, layer)
        np.testing.assert_allclose(found.weights[layer - 1], theirs.heads.reshape(2, 9), atol=1e-6)
    np.testing.assert_allclose(found.rollout, theirs.rollout.ravel(), atol=1e-6)
    assert found.grid == (3, 3)


def test_a_trained_folder_looks_too(colours: Path):
    predictor = heedful.load(colours, "cpu")
    held = io.BytesIO()
    Image.new("RGB", (31, 31), (240, 40, 30)).save(held, "JPEG")
    found = look(predictor, engine(predictor), held.getvalue())
    assert found.classes[0][0] == "red"
    assert found.weights.shape == (2, 3, 9)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_page_can_show_what_the_model_reads(channels: int):
    picture = np.random.default_rng(1).integers(0, 256, (7, 7, channels), dtype=np.uint8)
    uri = data_uri(picture)
    assert uri.startswith("data:image/png;base64,")
    read = np.asarray(Image.open(io.BytesIO(decoded(uri))))
    np.testing.assert_array_equal(read.reshape(7, 7, channels), picture)


def test_what_is_no_image_is_said(vit: Callable[..., ImagePredictor]):
    with pytest.raises(UserError, match="the image is not base64; send the bytes"):
        decoded("not base64!")
    with pytest.raises(UserError, match="no png, jpeg"):
        look(vit(), engine(vit()), b"nothing")
    held = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (31, 31), dtype=np.uint8)).save(held, "PNG")
    with pytest.raises(UserError, match="broken or cut short"):
        look(vit(), engine(vit()), held.getvalue()[:200])


def test_bytes_with_and_without_their_kind_before_them():
    data = base64.b64encode(b"abc").decode()
    assert decoded(data) == decoded(f"data:image/png;base64,{data}") == b"abc"
