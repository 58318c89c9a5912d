import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.decode.best import BLOCK, best


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5 * BLOCK), st.integers(1, 7), st.integers(0, 99), st.booleans())
def test_the_best_are_those_of_topk(size: int, count: int, seed: int, close: bool):
    """Whether in one block or in several, or in what is left over at the end."""
    values = torch.randn(2, 3, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if close:
        values = values.sort(descending=seed % 2 == 0).values  # all of the best are neighbours
    ours, places = best(values, count)
    theirs = values.topk(min(count, size), -1)
    assert torch.equal(ours, theirs.values)
    assert torch.equal(places, theirs.indices)


@pytest.mark.parametrize("place", [0, BLOCK - 1, BLOCK, 7 * BLOCK - 1, 7 * BLOCK, 7 * BLOCK + 3])
def test_what_is_not_minus_infinity_is_found_wherever_it_is(place: int):
    values = torch.full((1, 7 * BLOCK + 4), -math.inf)
    values[0, place] = -3.0
    found, places = best(values, 2)
    assert found.tolist() == [[-3.0, -math.inf]]
    assert int(places[0, 0]) == place
    assert int(places[0, 1]) < 7 * BLOCK + 4
