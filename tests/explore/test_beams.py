from collections.abc import Callable

import numpy as np
import pytest
import torch

from heedful.decode import Hypothesis, Turn
from heedful.errors import UserError
from heedful.explore.beams import Beams, Node, grown, watch
from heedful.explore.refusals import TooLong
from heedful.predict.translator import Translator

FAMILIES = ("transformer", "rnn")


@pytest.fixture(params=FAMILIES)
def any_translator(
    request: pytest.FixtureRequest, transformer: Callable[[bool], Translator], rnn: Callable[[str], Translator]
) -> Translator:
    return transformer(True) if request.param == "transformer" else rnn("concat")


def path(found: Beams, node: Node) -> list[str]:
    pieces = []
    while node.parent is not None:
        pieces.append(found.pieces[node.id])
        node = found.tree[node.parent]
    return pieces[::-1]


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("length_penalty", [1.0, 0.3])
def test_finished_leaves_are_the_translations(any_translator: Translator, beams: int, length_penalty: float):
    found = watch(any_translator, "one three", beams=beams, length_penalty=length_penalty)
    options = {"beam": beams, "n_best": beams, "length_penalty": length_penalty}
    (best,) = any_translator.n_best(["one three"], align=True, **options)  # pyrefly: ignore
    leaves = sorted((node for node in found.tree if node.state == "finished"), key=lambda node: node.rank or 0)
    assert [node.rank for node in leaves] == list(range(len(best)))
    for node, one, told in zip(leaves, best, found.translations, strict=True):
        assert path(found, node) == told.tokens == [*one.pieces, "</s>"]
        assert node.score == told.score == pytest.approx(one.score, abs=1e-6)
        assert node.log_prob == pytest.approx(one.log_prob, abs=1e-5)
        assert told.text == one.text
        assert one.alignment is not None
        np.testing.assert_allclose(told.alignment, one.alignment.weights, atol=1e-6)


def test_the_tree_holds_together(any_translator: Translator):
    found = watch(any_translator, "one three", beams=3)
    for node in found.tree[1:]:
        assert node.parent is not None
        parent = found.tree[node.parent]
        assert parent.id < node.id
        assert parent.kept
        assert node.step == parent.step + 1
        assert node.log_prob == pytest.approx(parent.log_prob + np.log(node.probability), abs=1e-4)
    steps = {node.step for node in found.tree}
    assert steps == set(range(max(steps) + 1))
    for step in steps:
        kept = [node for node in found.tree if node.step == step and node.kept]
        assert len(kept) <= 3
        others = [node for node in found.tree if node.step == step and not node.kept]
        dropped = [node for node in others if found.pieces[node.id] != "</s>"]
        assert all(one.log_prob <= min(other.log_prob for other in kept) for one in dropped)
    assert {node.state for node in found.tree} >= {"alive", "pruned"}


def test_log_probabilities_are_those_of_the_model(any_translator: Translator):
    found = watch(any_translator, "one three", beams=2)
    leaf = next(node for node in found.tree if node.rank == 0)
    nodes = [leaf]
    while nodes[-1].parent is not None:
        nodes.append(found.tree[nodes[-1].parent])
    source, target = [one.id for one in found.source[:-1]], [one.token for one in nodes[-2:0:-1]]
    (scored,) = any_translator.searcher.score([(source, target)])
    np.testing.assert_allclose([np.log(one.probability) for one in nodes[-2::-1]], scored, atol=1e-4)


def test_a_prefix_is_kept_to(any_translator: Translator):
    found = watch(any_translator, "one three", prefix="둘", beams=3)
    assert all(one.text.startswith("둘") for one in found.translations)
    forced = len(any_translator.target.encode(["둘"])[0])
    for step in range(1, forced + 1):
        assert len([node for node in found.tree if node.step == step]) == 1
    theirs = any_translator.n_best(["one three"], prefix="둘", beam=3, n_best=3)[0]
    assert [one.text for one in found.translations] == [one.text for one in theirs]


def test_the_source_is_what_alignments_are_over(any_translator: Translator):
    found = watch(any_translator, "one three", beams=2)
    assert found.source[-1].special
    for one in found.translations:
        assert one.alignment.shape == (len(one.tokens), len(found.source))
        np.testing.assert_allclose(one.alignment.sum(1), 1, atol=1e-4)


def turn(sums: list[float], parents: list[int], tokens: list[int], staying: list[int]) -> Turn:
    return Turn(torch.tensor([sums]), torch.tensor([parents]), torch.tensor([tokens]), torch.tensor([staying]))


def test_a_small_search_by_hand():
    """Two beams; 9 ends. The second step ends one, whose score is best; another end comes too late to count."""
    nothing = float("-inf")
    turns = [
        turn([-1.0, -2.0, -3.0, nothing], [0, 0, 0, 1], [5, 6, 7, 5], [0, 1]),
        turn([-1.5, -1.75, -2.5, -4.0], [0, 0, 1, 1], [9, 5, 6, 9], [1, 2]),
    ]
    tree = grown(turns, [Hypothesis((5,), -1.5, -0.75)], start=1, end=9)
    told = [(one.parent, one.step, one.token, one.state, one.kept, one.rank) for one in tree]
    assert told == [
        (None, 0, 1, "alive", True, None),
        (0, 1, 5, "alive", True, None),
        (0, 1, 6, "alive", True, None),
        (0, 1, 7, "pruned", False, None),
        (1, 2, 9, "finished", False, 0),
        (1, 2, 5, "alive", True, None),
        (2, 2, 6, "alive", True, None),
        (2, 2, 9, "pruned", False, None),
    ]
    assert tree[4].score == -0.75
    assert tree[4].log_prob == -1.5
    assert tree[5].probability == pytest.approx(np.exp(-0.75))


def test_a_branch_that_died_is_pruned_to_its_root():
    turns = [turn([-1.0, -2.0], [0, 0], [5, 6], [0, 1]), turn([-1.5, -1.75], [0, 0], [5, 7], [0, 1])]
    tree = grown(turns, [], start=1, end=9)
    assert [one.state for one in tree] == ["alive", "alive", "pruned", "alive", "alive"]


def test_what_can_not_be_translated_is_said(transformer: Callable[[bool], Translator]):
    with pytest.raises(UserError, match="there is nothing to translate; write something"):
        watch(transformer(False), " ")
    with pytest.raises(TooLong, match="of which 30 can be looked at"):
        watch(transformer(False), "one " * 60)
    with pytest.raises(UserError, match="no translation can begin with 'x日'"):
        watch(transformer(False), "one", prefix="x日")
