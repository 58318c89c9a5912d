import weakref
from collections.abc import Callable

import numpy as np
import pytest

from heedful.explore.attention import matrix, rolled, thumbnail, thumbnails
from heedful.explore.refusals import NotThere
from heedful.explore.sites import DotProduct
from heedful.explore.texts import traced
from heedful.predict import Predictor
from heedful.predict.translator import Translator

TEXT = "the animal was tired."


def test_small_texts_are_shown_as_they_are():
    weights = np.array([[[0.5, 0.25], [0.0, 0.5]], [[0.1, 0.2], [0.0, 0.05]]], np.float32)
    assert thumbnail(weights).tolist() == [[[255, 128], [0, 255]], [[128, 255], [0, 64]]]


def test_of_long_texts_single_strands_stay():
    weights = np.zeros((1, 131, 67), np.float32)
    weights[0, 130, 0] = 0.7
    small = thumbnail(weights)
    assert small.shape == (1, 32, 32)
    assert small[0, 31, 0] == 255
    assert small.sum() == 255


def test_a_head_that_looks_nowhere_is_black():
    assert not thumbnail(np.zeros((2, 3, 5), np.float32)).any()


def test_the_grid_holds_every_head(bert: Callable[[str], Predictor], transformer: Callable[[bool], Translator]):
    trace = traced(bert("published"), TEXT)
    small = thumbnails(trace, "encoder")
    assert small.shape == (3, 2, 7, 7)
    weights = trace.parts["encoder"][2].weights()[1]
    np.testing.assert_array_equal(small[2, 1], np.round(255 * weights / weights.max()))
    cross = thumbnails(traced(transformer(False), "one three", "하나 둘 셋"), "cross")
    assert cross.shape[:2] == (3, 2)


def test_a_matrix_is_a_head_or_the_mean(bert: Callable[[str], Predictor]):
    trace = traced(bert("published"), TEXT)
    both = [matrix(trace, "encoder", 1, head) for head in (0, 1)]
    np.testing.assert_allclose(matrix(trace, "encoder", 1, None), (both[0] + both[1]) / 2, atol=1e-7)
    np.testing.assert_allclose(both[1].sum(1), 1, atol=1e-5)


def test_rollout_up_to_a_layer_is_a_plain_product(bert: Callable[[str], Predictor]):
    trace = traced(bert("published"), TEXT)
    kept = [(site.weights().mean(0).astype(np.float64) + np.eye(7)) / 2 for site in trace.parts["encoder"]]
    np.testing.assert_allclose(rolled(trace, "encoder", 0), kept[0], atol=1e-6)
    np.testing.assert_allclose(rolled(trace, "encoder", 2), kept[2] @ kept[1] @ kept[0], atol=1e-6)


def test_rollout_through_a_decoder_never_looks_ahead(transformer: Callable[[bool], Translator]):
    trace = traced(transformer(False), "one three", "하나 둘 셋")
    assert not np.triu(rolled(trace, "decoder", 2), 1).any()


@pytest.mark.parametrize(
    ("part", "layer", "head", "said"),
    [
        ("cross", 0, 0, "this model has no part 'cross'; choose from encoder"),
        ("encoder", 3, 0, "layer 3 is not there; the encoder has 3, counted from 0"),
        ("encoder", 0, 2, "head 2 is not there; a layer has 2, counted from 0"),
    ],
)
def test_what_is_not_there_is_said(bert: Callable[[str], Predictor], part: str, layer: int, head: int, said: str):
    with pytest.raises(NotThere, match=said):
        matrix(traced(bert("published"), TEXT), part, layer, head)


def test_cross_attention_can_not_be_rolled_out(transformer: Callable[[bool], Translator]):
    with pytest.raises(NotThere, match="choose the part encoder or decoder"):
        rolled(traced(transformer(False), "one", "둘"), "cross", 0)


def test_the_weights_of_all_layers_are_never_there_at_once(
    bert: Callable[[str], Predictor], monkeypatch: pytest.MonkeyPatch
):
    trace = traced(bert("published"), TEXT)
    made: list[weakref.ref] = []
    most: list[int] = []
    weights = DotProduct.weights

    def counted(site: DotProduct) -> np.ndarray:
        most.append(sum(one() is not None for one in made))
        found = weights(site).copy()
        made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(DotProduct, "weights", counted)
    thumbnails(trace, "encoder")
    assert most == [0, 0, 0]
    rolled(trace, "encoder", 2)
    assert max(most) <= 1
    assert len(made) == 6
