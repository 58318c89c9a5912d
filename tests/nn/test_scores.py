import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from heedful.errors import UserError
from heedful.nn.scores import SCORES, Score, concat, dot, general, location, scaled

B, T, S, Q, D, LONGEST = 2, 3, 5, 7, 11, 13


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(kind: str, dim_query: int = Q, dim_key: int = D) -> Score:
    torch.manual_seed(3)
    return Score(kind, dim_query, dim_key if kind in ("general", "concat", "location") else dim_query, LONGEST)


def keys_for(kind: str, length: int = S) -> Tensor:
    return normal(B, length, Q if kind in ("dot", "scaled") else D, seed=1)


QUERY = torch.tensor([[[1.0, 2.0, 0.0, -1.0]]])
KEYS = torch.tensor([[[3.0, 1.0, 5.0, 1.0], [0.0, 0.5, 1.0, 3.0]]])


def test_dot_by_hand():
    assert_close(dot(QUERY, KEYS), torch.tensor([[[4.0, -2.0]]]))


def test_scaled_by_hand():
    assert_close(scaled(QUERY, KEYS), torch.tensor([[[2.0, -1.0]]]))


def test_general_by_hand():
    score = Score("general", 2, 3, LONGEST)
    with torch.no_grad():
        score.keys.weight.copy_(torch.tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]]))
    keys = torch.tensor([[[1.0, 2.0, 3.0], [4.0, 0.0, -1.0]]])
    # Wk is (7, 1) and (2, -1).
    query = torch.tensor([[[1.0, 10.0]]])
    assert_close(score(query, keys), torch.tensor([[[17.0, -8.0]]]))
    assert_close(general(query, torch.tensor([[[7.0, 1.0], [2.0, -1.0]]])), torch.tensor([[[17.0, -8.0]]]))


def test_concat_by_hand():
    # W_q q is (1, 3); with the keys (0, -2) and (-1, -3) that makes (1, 1) and (0, 0).
    query, weight = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    projected = torch.tensor([[[0.0, -2.0], [-1.0, -3.0]]])
    scores = concat(query, projected, weight, torch.tensor([2.0, 3.0]))
    assert_close(scores, torch.tensor([[[5 * math.tanh(1.0), 0.0]]]))


def test_location_by_hand():
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [9.0, 9.0]])
    assert_close(location(torch.tensor([[[2.0, 5.0]]]), weight, 3), torch.tensor([[[2.0, 5.0, 7.0]]]))


def test_the_scaled_dot_is_that_of_torch():
    query, keys = normal(B, T, Q), normal(B, S, Q, seed=1)
    values = torch.eye(S).expand(B, S, S)  # so that the output is the weights
    for kind, scale in (("dot", 1.0), ("scaled", None)):
        theirs = F.scaled_dot_product_attention(query, keys, values, scale=scale)
        assert_close(made(kind)(query, keys).softmax(-1), theirs)
    assert_close(made("dot")(query, keys), made("scaled")(query, keys) * math.sqrt(Q))


def test_general_is_torchs_bilinear_form():
    score, query, keys = made("general"), normal(B, T, Q), keys_for("general")
    pairs = query[:, :, None].expand(-1, -1, S, -1).contiguous(), keys[:, None].expand(-1, T, -1, -1).contiguous()
    assert_close(score(query, keys), F.bilinear(*pairs, score.keys.weight[None])[..., 0])


def test_concat_is_that_of_a_literal_concatenation():
    score, query, keys = made("concat"), normal(B, T, Q), keys_for("concat")
    pairs = torch.cat([query[:, :, None].expand(-1, -1, S, -1), keys[:, None].expand(-1, T, -1, -1)], -1)
    whole = torch.cat([score.query.weight, score.keys.weight], 1)  # (Q, Q + D)
    assert_close(score(query, keys), score.vector(torch.tanh(F.linear(pairs, whole)))[..., 0])


@pytest.mark.parametrize("kind", SCORES)
def test_every_pair_is_scored_alone(kind: str):
    score, query, keys = made(kind), normal(B, T, Q), keys_for(kind)
    together = score(query, keys)
    assert together.shape == (B, T, S)
    for b in range(B):
        for t in range(T):
            alone = score(query[b : b + 1, t : t + 1], keys[b : b + 1])
            assert_close(together[b : b + 1, t : t + 1], alone)
            first = score(query[b : b + 1, t : t + 1], keys[b : b + 1, :2])
            assert_close(alone[..., :2], first)


@pytest.mark.parametrize("kind", [kind for kind in SCORES if kind != "location"])
@given(order=st.permutations(range(S)))
def test_moving_the_keys_moves_the_scores(kind: str, order: list[int]):
    score, query, keys = made(kind), normal(B, T, Q), keys_for(kind)
    assert_close(score(query, keys[:, order]), score(query, keys)[..., order])


def test_location_does_not_look_at_the_keys():
    score, query = made("location"), normal(B, T, Q)
    expected = score(query, keys_for("location"))
    assert torch.equal(score(query, normal(B, S, D, seed=5)), expected)
    assert not torch.allclose(score(normal(B, T, Q, seed=5), keys_for("location")), expected)


def test_location_knows_as_many_positions_as_it_was_made_for():
    score, query = made("location"), normal(B, T, Q)
    assert score(query, keys_for("location", LONGEST)).shape == (B, T, LONGEST)
    with pytest.raises(UserError, match=r"a source of 14 tokens is beyond the 13 .* larger max_length"):
        score(query, keys_for("location", LONGEST + 1))
    for kind in set(SCORES) - {"location"}:
        assert made(kind)(query, keys_for(kind, LONGEST + 1)).shape == (B, T, LONGEST + 1)


@pytest.mark.parametrize("kind", ["dot", "scaled"])
def test_a_product_needs_equal_widths(kind: str):
    with pytest.raises(UserError, match=f"'{kind}' .* width 7 and keys of width 11; make them equal or choose"):
        Score(kind, Q, D, LONGEST)


def test_a_score_that_is_not_known():
    with pytest.raises(UserError, match="score 'cosine' is not known; choose from dot, scaled, general, concat"):
        Score("cosine", Q, Q, LONGEST)


def test_each_owns_its_parameters_and_no_others():
    counts = {kind: sum(p.numel() for p in made(kind).parameters()) for kind in SCORES}
    assert counts == {"dot": 0, "scaled": 0, "general": Q * D, "concat": Q * D + Q * Q + Q, "location": LONGEST * Q}
