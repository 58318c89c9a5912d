"""A beam search as a tree: every hypothesis that was followed, those that were dropped, and those that ended.

Shapes: K beams.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from heedful.decode import Hypothesis, SearchOptions, Turn
from heedful.errors import UserError
from heedful.explore.tokens import Token, source_tokens
from heedful.predict.searching import Sentence, TorchSearcher
from heedful.predict.translator import Translator

State = Literal["alive", "pruned", "finished"]


@dataclass(frozen=True, kw_only=True)
class Node:
    """A hypothesis, by its last token."""

    id: int
    parent: int | None
    step: int
    """How many tokens it has, the start not counted."""
    token: int
    log_prob: float
    """Of all its tokens."""
    probability: float
    """Of the last one, given those before it."""
    score: float
    """What it is compared by: the log-probability; of a finished one, after the penalties."""
    state: State
    """What became of it in the end: it led to a translation or was still open, it was dropped, it is one."""
    kept: bool
    """Whether it was one of the beams of its step."""
    rank: int | None = None
    """Of a finished one, from 0."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A translation, and where it looked."""

    text: str
    score: float
    tokens: list[str]
    """Its pieces and the end."""
    alignment: np.ndarray
    """(tokens, tokens of the source)."""


@dataclass(frozen=True, kw_only=True)
class Beams:
    """A search from its beginning to its end."""

    source: tuple[Token, ...]
    tree: list[Node]
    pieces: list[str]
    """What each node of the tree writes."""
    translations: list[Found]


def watch(
    translator: Translator, text: str, *, prefix: str = "", beams: int = 4, length_penalty: float = 1.0
) -> Beams:
    """Translate a text as `translate` does, and tell how it went."""
    searcher = translator.searcher
    assert isinstance(searcher, TorchSearcher)
    if not text.strip():
        raise UserError("there is nothing to translate; write something")
    options = SearchOptions(beam=beams, n_best=beams, length_penalty=length_penalty)
    source, target = translator.source, translator.target
    read = source_tokens(source, text, searcher.marks.eos, longest=searcher.longest)
    ids = [token.id for token in read[:-1]]
    found, turns = searcher.watched(Sentence(ids, translator.prefix(prefix, options)), options)
    tree = grown(turns, found, searcher.marks.sos, searcher.marks.eos)
    tables = searcher.align([(ids, one.ids) for one in found])
    return Beams(
        source=read,
        tree=tree,
        pieces=target.pieces([node.token for node in tree]),
        translations=[
            Found(
                text=target.decode(one.ids),
                score=one.score,
                tokens=target.pieces([*one.ids, target.eos]),
                alignment=table,
            )
            for one, table in zip(found, tables, strict=True)
        ],
    )


def grown(turns: Sequence[Turn], found: Sequence[Hypothesis], start: int, end: int) -> list[Node]:
    """The tree of one sentence's search: a node comes after its parent."""
    root = Node(
        id=0, parent=None, step=0, token=start, log_prob=0.0, probability=1.0, score=0.0, state="alive", kept=True
    )
    tree = [root]
    beams: list[Node | None] = [root]
    for step, turn in enumerate(turns, 1):
        sums, parents, tokens, staying = (part[0].tolist() for part in turn)
        made: list[Node | None] = []
        for place, (total, parent, token) in enumerate(zip(sums, parents, tokens, strict=True)):
            before = beams[parent] if parent < len(beams) else None
            if total == -np.inf or before is None:
                made.append(None)
                continue
            kept = place in staying and token != end
            node = Node(
                id=len(tree),
                parent=before.id,
                step=step,
                token=token,
                log_prob=total,
                probability=float(np.exp(min(0.0, total - before.log_prob))),
                score=total,
                state="pruned",
                kept=kept,
            )
            made.append(node)
            tree.append(node)
        beams = [made[place] if made[place] is not None and made[place].kept else None for place in staying]
    return _judged(tree, [node for node in beams if node is not None], found, end)


def _judged(tree: list[Node], still_open: Sequence[Node], found: Sequence[Hypothesis], end: int) -> list[Node]:
    """The tree with what became of each node."""
    ranks = {one.ids: rank for rank, one in enumerate(found)}
    fates: dict[int, Node] = {}
    alive = {node.id for node in still_open}
    for node in tree:
        written = _written(tree, node) if node.token == end and node.parent is not None else None
        rank = None if written is None else ranks.get(written)
        if rank is not None and np.isclose(node.log_prob, found[rank].log_prob, atol=1e-4):
            fates[node.id] = replace(node, state="finished", score=found[rank].score, rank=rank)
            alive.add(node.id)
    for node in reversed(tree):  # children come first
        if node.id in alive and node.parent is not None:
            alive.add(node.parent)
    return [
        fates.get(node.id) or replace(node, state="alive" if node.id in alive or node.parent is None else "pruned")
        for node in tree
    ]


def _written(tree: Sequence[Node], node: Node) -> tuple[int, ...]:
    """The tokens of a hypothesis that ends at a node, without start and end."""
    tokens = []
    while node.parent is not None:
        node = tree[node.parent]
        tokens.append(node.token)
    return tuple(reversed(tokens[:-1]))
