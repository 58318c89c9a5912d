from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from heedful.errors import UserError
from heedful.predict.looking import Looks
from heedful.runs import patch_pictures
from heedful.runs.patch_pictures import COLOUR, OPAQUE, Drawn, draw

HEADS = np.array([[[0.0, 0.5], [0.25, 0.0]], [[0.1, 0.1], [0.1, 0.1]], [[0.0, 0.0], [0.0, 0.0]]])
ROLLOUT = np.array([[0.2, 0.3], [0.2, 0.25]])


def some(channels: int, name: str = "cat.png") -> Drawn:
    picture = np.random.default_rng(1).integers(0, 256, (6, 6, channels), np.uint8)
    return Drawn(name, "고양이 97.1%", picture, Looks(3, HEADS, ROLLOUT))


@pytest.mark.parametrize("channels", [1, 3])
def test_the_more_attention_the_more_orange(channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    figures: list[Figure] = []
    monkeypatch.setattr(patch_pictures, "save", lambda figure, _: (figures.append(figure), plt.close(figure)))
    draw(
        [some(channels), some(channels, "a dog with a name that is far too long to be read.png")], tmp_path / "p.png"
    )
    axes = np.array(figures[0].axes).reshape(2, 5)
    assert [axis.get_title() for axis in axes[0]] == ["", "head 1", "head 2", "head 3", "rollout"]
    assert [axis.get_title() for axis in axes[1]] == [""] * 5
    assert axes[1, 0].get_ylabel() == "a dog with a name that …"
    assert axes[0, 0].get_xlabel() == "고양이 97.1%"
    assert [axis.get_xlabel() for axis in axes[0, 1:]] == ["up to 50%", "up to 10%", "up to 0%", "20.0% to 30.0%"]
    assert "layer 3" in figures[0].get_suptitle()
    for axis, shares in zip(axes[0, 1:], ([[0, 1], [0.5, 0]], np.ones((2, 2)), np.zeros((2, 2)), None), strict=True):
        under, over = (np.asarray(one.get_array()) for one in axis.images)
        assert (under.shape, over.shape) == ((6, 6), (2, 2, 4))
        np.testing.assert_allclose(over[..., :3], np.broadcast_to(COLOUR, (2, 2, 3)))
        expected = np.array([[0, 1], [0, 0.5]]) if shares is None else np.array(shares)  # from the least to the most
        np.testing.assert_allclose(over[..., 3], OPAQUE * expected, atol=1e-12)
        assert axis.images[0].get_extent() == axis.images[1].get_extent()


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_picture_is_written(tmp_path: Path, ending: str):
    path = tmp_path / f"p.{ending}"
    draw([some(3)], path)
    assert path.stat().st_size > 1000
    if ending == "png":
        pixels = image.imread(path)
        orange = np.abs(pixels[..., :3] - COLOUR).sum(-1) < 0.6
        assert 0.01 < orange.mean() < 0.6


def test_a_kind_that_can_not_be_drawn(tmp_path: Path):
    with pytest.raises(UserError, match="can't be drawn"):
        draw([some(1)], tmp_path / "p.bmp")
