from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from heedful.errors import UserError
from heedful.explore.meaning import meaning, plane
from heedful.explore.refusals import NotThere, TooLong
from heedful.predict import Predictor
from heedful.predict.engine import TorchEngine
from heedful.runs.contrast import contrast

SENTENCES = ("it sat by the bank", "the bank was tired.", "the river by the bank")


def encoder(predictor: Predictor) -> torch.nn.Module:
    assert isinstance(predictor.engine, TorchEngine)
    return predictor.engine.encoder


@pytest.mark.parametrize("kind", ["published", "modern"])
@pytest.mark.parametrize("layer", [None, 0, 1])
def test_similarities_are_those_of_contrast(bert: Callable[[str], Predictor], kind: str, layer: int | None):
    predictor = bert(kind)
    found = meaning(predictor, encoder(predictor), "Bank", SENTENCES, layer)
    assert (found.layer, found.layers) == (3 if layer is None else layer, 3)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        theirs = contrast(predictor, (SENTENCES[one], SENTENCES[other]), "bank", layer=layer)
        assert found.similarity[one, other] == pytest.approx(theirs.similarity, abs=1e-5)
    np.testing.assert_allclose(found.similarity.diagonal(), 1, atol=1e-5)


def test_neighbours_are_what_fits_there_ranked_by_their_states(bert: Callable[[str], Predictor]):
    predictor = bert("published")
    found = meaning(predictor, encoder(predictor), "bank", SENTENCES)
    theirs = contrast(predictor, SENTENCES[:2], "bank", top=8)
    for near, sense in zip(found.neighbours, theirs.senses, strict=False):
        assert {one.word: one.probability for one in near} == pytest.approx(
            {one.token: one.probability for one in sense.instead}, abs=1e-6
        )
        alike = [one.similarity for one in near]
        assert alike == sorted(alike, reverse=True)
    assert found.context_free == theirs.nearest
    states = []
    assert predictor.words is not None
    best = found.neighbours[0][0]
    for text in (SENTENCES[0], SENTENCES[0].replace("bank", best.word)):
        (ids,) = predictor.tokenizer.encode([text])
        whole = torch.tensor([[predictor.tokenizer.cls, *ids, predictor.tokenizer.sep]])
        with torch.no_grad():
            states.append(predictor.words.bert(whole).hidden[0, 5])
    assert best.similarity == pytest.approx(float(F.cosine_similarity(*states, dim=0)), abs=1e-5)


def test_an_encoder_without_words_tries_what_is_near_without_context(bert: Callable[[str], Predictor]):
    whole = bert("published")
    assert whole.words is not None
    predictor = Predictor(TorchEngine(whole.words.bert), whole.tokenizer)
    found = meaning(predictor, encoder(predictor), "bank", SENTENCES)
    assert all(one.probability is None for near in found.neighbours for one in near)
    assert [len(near) for near in found.neighbours] == [8, 8, 8]
    assert found.neighbours[0] != found.neighbours[1]


def test_a_map_has_the_word_and_its_neighbours(bert: Callable[[str], Predictor]):
    predictor = bert("published")
    found = meaning(predictor, encoder(predictor), "ferry", ("the ferry", "it was the ferry"))
    assert [(one.label, one.sentence, one.kind) for one in found.points[:2]] == [
        ("ferry", 0, "word"),
        ("ferry", 1, "word"),
    ]
    assert [one.label for one in found.points[2:]] == [one.word for near in found.neighbours for one in near]
    assert len({(one.x, one.y) for one in found.points}) == len(found.points)


def test_the_plane_keeps_what_lies_in_one():
    """Vectors of length 1 that lie in a plane keep their distances on the map."""
    angles = np.array([0.0, 0.5, 1.1, 2.0, 3.0])
    directions = np.linalg.qr(np.random.default_rng(0).normal(size=(7, 2)))[0].T
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1) @ directions
    flat = plane(5 * vectors)
    distances = np.linalg.norm(vectors[:, None] - vectors, axis=-1)
    np.testing.assert_allclose(np.linalg.norm(flat[:, None] - flat, axis=-1), distances, atol=1e-6)


def test_one_point_and_equal_points_lie_in_the_middle():
    assert plane(np.ones((1, 5))).tolist() == [[0.0, 0.0]]
    np.testing.assert_allclose(plane(np.ones((3, 5))), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("word", "sentences", "layer", "error", "said"),
    [
        ("bank", ("the river",), None, UserError, "'bank' is not in 'the river'; its words are: the, river"),
        ("the river", ("the river",), None, UserError, "'the river' is 2 words to the model; give one"),
        ("xyz", ("xyz",), None, UserError, "can't spell 'xyz'"),
        ("bank", (), None, UserError, "there is no sentence"),
        ("bank", ("the bank",), 4, NotThere, "layer 4 is not there; the model has 3"),
        ("bank", ("the bank " * 30,), None, UserError, "62 tokens, of which the model reads 41 at most"),
        ("bank", ("the bank " * 18,) * 11, None, TooLong, "the sentences have 418 tokens, of which 384 can be"),
    ],
)
def test_what_can_not_be_told_is_said(
    bert: Callable[[str], Predictor],
    word: str,
    sentences: tuple[str, ...],
    layer: int | None,
    error: type[UserError],
    said: str,
):
    with pytest.raises(error, match=said):
        meaning(bert("published"), encoder(bert("published")), word, sentences, layer)
