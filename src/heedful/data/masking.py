"""Masked language modelling (Devlin et al. 2018, section 3.1): which tokens to hide, and behind what.

Pure: ids and a generator in, corrupted ids and labels out.

Shapes: N packed tokens, M masked tokens, W maskable units (tokens, or whole words).
"""

import numpy as np

KEPT, RANDOM = 0.1, 0.1
"""Shares of the chosen tokens that stay as they are, and that become any token; the rest become [MASK]."""


def mask_tokens(
    ids: np.ndarray,
    sequences: np.ndarray,
    *,
    special: np.ndarray,
    mask_id: int,
    rng: np.random.Generator,
    rate: float = 0.15,
    continues: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The corrupted ids (N,), the chosen places (M,) in ascending order, and what stood there (M,).

    In each sequence the rate is met as closely as whole tokens allow, and at least one token is chosen.
    `sequences` (N,) numbers each token's sequence, ascending; `special` (V,) marks ids that are never chosen
    nor drawn. With `continues` (V,), which marks the pieces that continue a word, words are chosen whole.
    """
    maskable = np.flatnonzero(~special[ids])
    places = maskable[_chosen(ids, maskable, sequences, rng, rate, continues)]
    labels = ids[places]
    fate = rng.random(len(places))
    ordinary = np.flatnonzero(~special)
    drawn = ordinary[rng.integers(len(ordinary), size=len(places))]
    corrupted = ids.copy()
    corrupted[places] = np.where(fate < KEPT, labels, np.where(fate < KEPT + RANDOM, drawn, mask_id))
    return corrupted, places, labels


def wanted(rate: float, tokens: np.ndarray) -> np.ndarray:
    """How many are to be predicted in sequences that have so many maskable tokens."""
    return np.maximum(1, np.rint(rate * tokens)).astype(np.int64)


def _chosen(
    ids: np.ndarray,
    maskable: np.ndarray,
    sequences: np.ndarray,
    rng: np.random.Generator,
    rate: float,
    continues: np.ndarray | None,
) -> np.ndarray:
    """Which of the maskable tokens are to be predicted: (maskable,) bool."""
    of_token = sequences[maskable]
    starts = np.ones(len(maskable), bool)
    if continues is not None:
        together = (np.diff(maskable) == 1) & (np.diff(of_token) == 0)
        starts[1:] = ~(continues[ids[maskable[1:]]] & together)
    unit = np.cumsum(starts) - 1  # the unit of each maskable token
    size = np.bincount(unit)
    of_unit = of_token[starts]
    order = np.lexsort((rng.random(len(size)), of_unit))  # units shuffled inside their sequence
    tokens = np.bincount(of_token, minlength=of_token[-1] + 1 if len(of_token) else 0)
    before = np.cumsum(size[order]) - size[order]  # tokens of earlier units, in the shuffled order
    first = np.cumsum(tokens) - tokens
    spent = before - first[of_unit[order]]
    room = wanted(rate, tokens)[of_unit[order]]
    taken = np.zeros(len(size), bool)
    taken[order] = (spent + (size[order] + 1) // 2 <= room) | (spent == 0)  # a word's middle decides
    return taken[unit]
