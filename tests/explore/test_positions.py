import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from heedful.explore.positions import by_distance, cosines, positions
from heedful.models.bert import Bert, BertConfig
from heedful.models.transformer import Transformer, TransformerConfig
from heedful.models.vit import ViT, ViTConfig
from heedful.nn.positions import rotary, rotate
from heedful.predict import Predictor


def test_learned_ones_are_the_table(bert: Callable[[str], Predictor]):
    predictor = bert("published")
    assert predictor.words is not None
    found = positions(predictor.words.bert)
    table = predictor.words.bert.embeddings.positions
    assert table is not None
    assert found.kind == "learned"
    np.testing.assert_array_equal(found.encoding, table.weight.detach().numpy())
    rows = table.weight.detach()
    expected = torch.nn.functional.cosine_similarity(rows[3], rows[17], dim=0)
    assert found.similarity[3, 17] == pytest.approx(float(expected), abs=1e-6)
    assert len(found.by_distance) == 41
    assert found.by_distance[0] == pytest.approx(1.0, abs=1e-6)
    assert found.by_distance[40] == pytest.approx(found.similarity[0, 40], abs=1e-6)


def test_sinusoidal_ones_are_alike_by_distance_alone():
    found = positions(Transformer(TransformerConfig(vocab_size=7, dim=26, heads=2, ffn_dim=5, encoder_layers=1)))
    assert found.kind == "sinusoidal"
    assert found.encoding.shape == (128, 26)
    frequencies = 10000.0 ** (-np.arange(0, 26, 2) / 26)
    assert found.encoding[5, 4] == pytest.approx(math.sin(5 * frequencies[2]), abs=1e-6)
    for distance in (0, 1, 7, 31):
        assert found.by_distance[distance] == pytest.approx(np.cos(distance * frequencies).mean(), abs=1e-5)
        np.testing.assert_allclose(found.similarity.diagonal(distance), found.by_distance[distance], atol=1e-5)


def test_rotary_ones_turn_a_constant_query_and_key():
    config = BertConfig(
        vocab_size=7, layers=1, dim=26, heads=1, ffn_dim=5, positions="rotary", max_length=59, rotary_base=100.0
    )
    found = positions(Bert(config))
    assert found.kind == "rotary"
    assert found.encoding.shape == (59, 26)
    frequencies = 100.0 ** (-np.arange(0, 26, 2) / 26)
    np.testing.assert_allclose(found.encoding[11], [*np.cos(11 * frequencies), *np.sin(11 * frequencies)], atol=1e-5)
    constant = torch.ones(1, 1, 26)
    query, key = (rotate(constant, rotary(torch.tensor([place]), 26, 100.0)).flatten() for place in (9, 40))
    assert found.similarity[9, 40] == pytest.approx(float(query @ key) / 26, abs=1e-5)
    assert found.by_distance[31] == pytest.approx(np.cos(31 * frequencies).mean(), abs=1e-5)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_those_of_patches_lie_on_a_grid(pool: str):
    vit = ViT(ViTConfig(image_size=15, patch_size=5, layers=1, dim=22, heads=1, ffn_dim=3, pool=pool))
    torch.nn.init.normal_(vit.positions, generator=torch.Generator().manual_seed(5))
    found = positions(vit)
    assert found.grid == (3, 3)
    assert found.encoding.shape == (9, 22)
    np.testing.assert_array_equal(found.encoding[8], vit.positions[-1].detach().numpy())
    neighbours = [(a, b) for a in range(9) for b in range(9) if abs(a // 3 - b // 3) + abs(a % 3 - b % 3) == 1]
    diagonal = [(a, b) for a in range(9) for b in range(9) if abs(a // 3 - b // 3) == abs(a % 3 - b % 3) == 1]
    expected = np.mean([found.similarity[pair] for pair in neighbours + diagonal])
    assert found.by_distance[1] == pytest.approx(expected, abs=1e-6)


def test_of_many_patches_whole_rows_are_shown():
    vit = ViT(ViTConfig(image_size=95, patch_size=5, layers=1, dim=2, heads=1, ffn_dim=3))
    assert positions(vit).grid == (13, 19)


def test_means_by_distance_by_hand():
    table = np.array([[1.0, 0.5, 0.2], [0.3, 1.0, 0.5], [0.0, 0.1, 1.0]])
    distances = np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    np.testing.assert_allclose(by_distance(table, distances), [1.0, (0.5 + 0.3 + 0.5 + 0.1) / 4, 0.1])


def test_nothing_is_like_nothing():
    assert cosines(np.array([[0.0, 0.0], [3.0, 4.0]])).tolist() == [[0.0, 0.0], [0.0, pytest.approx(1.0)]]
