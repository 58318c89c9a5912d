"""How to search for a translation. Plain data, without torch, so that `--help` is instant."""

import math
from dataclasses import dataclass
from typing import Literal

from heedful.errors import UserError

SLACK = 10
"""Tokens that a target may have beyond its share of the source's, so that short ones have room."""
MOST_PENALTY = 10
"""The largest exponent of a length: a thousand tokens to a higher power are beyond a float."""
MOST_RATIO = 1000
LEAST_TEMPERATURE = 0.001
"""Log-probabilities divided by less are beyond a float, too."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What to look for, and for how long."""

    beam: int = 5
    """Hypotheses that are followed at once; 1 always takes the most probable token."""
    n_best: int = 1
    """Translations to give, at most as many as beams."""
    penalty: Literal["average", "gnmt", "none"] = "average"
    """What the log-probability of L tokens is divided by: L^a, or ((5 + L) / 6)^a as in Wu et al. 2016."""
    length_penalty: float = 1.0
    """The exponent a: higher favours longer translations, 0 is as good as none."""
    coverage_penalty: float = 0.0
    """Weight of the penalty on source tokens that nothing looked at (Wu et al. 2016, equation 14)."""
    min_length: int = 0
    """Fewest tokens; fewer only where blocking leaves nothing to write."""
    max_length: int | None = None
    """Most tokens (by default as many as the model has positions)."""
    min_ratio: float = 0.0
    """Fewest tokens for each of the source."""
    max_ratio: float = 3.0
    """Most tokens for each of the source, and ten more."""
    block_ngrams: int = 0
    """Never write the same so many tokens in a row twice; 0 allows everything."""
    repetition_penalty: float = 1.0
    """What the log-probability of a token that was written before is multiplied by."""
    early: bool = False
    """Stop as soon as there are as many finished translations as beams, though a better one might still come."""
    sample: bool = False
    """Draw tokens instead of searching; n_best draws."""
    temperature: float = 1.0
    """Below 1 the draws are more careful, above 1 bolder."""
    top_k: int = 0
    """Draw among so many of the most probable tokens; 0 is all."""
    top_p: float = 1.0
    """Draw among the most probable tokens that have this probability together."""
    seed: int = 0
    """Of the draws."""

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise UserError(f"beam {self.beam} must be at least 1; 1 is greedy search")
        if self.n_best < 1:
            raise UserError(f"n_best {self.n_best} must be at least 1")
        if not self.sample and self.n_best > self.beam:
            raise UserError(f"n_best {self.n_best} is more than the {self.beam} beams; use a beam of {self.n_best}")
        if self.penalty not in ("average", "gnmt", "none"):
            raise UserError(f"penalty {self.penalty!r} is not known; choose from average, gnmt, none")
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"{name} {value} must be a finite number")
        if abs(self.length_penalty) > MOST_PENALTY:
            given = f"length_penalty {self.length_penalty}"
            raise UserError(f"{given} must be between -{MOST_PENALTY} and {MOST_PENALTY}; 1 is usual")
        for name in ("coverage_penalty", "min_length", "min_ratio", "block_ngrams", "top_k"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} {getattr(self, name)} must not be negative")
        for name, most in (("min_ratio", MOST_RATIO), ("max_ratio", MOST_RATIO), ("coverage_penalty", MOST_PENALTY)):
            if getattr(self, name) > most:
                raise UserError(f"{name} {getattr(self, name)} must be at most {most}")
        if not self.max_ratio > 0:
            raise UserError(f"max_ratio {self.max_ratio} must be above 0")
        if self.max_length is not None and self.max_length < 1:
            raise UserError(f"max_length {self.max_length} must be at least 1")
        if self.max_length is not None and self.min_length > self.max_length:
            raise UserError(f"min_length {self.min_length} is more than max_length {self.max_length}")
        if self.min_ratio > self.max_ratio:
            raise UserError(f"min_ratio {self.min_ratio} is more than max_ratio {self.max_ratio}")
        if not self.repetition_penalty >= 1:
            raise UserError(f"repetition_penalty {self.repetition_penalty} must be at least 1, which is none")
        if self.temperature < LEAST_TEMPERATURE:
            least = f"temperature {self.temperature} must be at least {LEAST_TEMPERATURE}"
            raise UserError(f"{least}; top_k 1 always takes the most probable")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p {self.top_p} must be above 0 and at most 1")
        for name, value in (("temperature", 1.0), ("top_k", 0), ("top_p", 1.0)):
            if not self.sample and getattr(self, name) != value:
                raise UserError(f"{name} is for draws; ask for those too (--sample), or leave it out")
        for name in ("beam", "coverage_penalty", "early"):
            if self.sample and getattr(self, name) != getattr(type(self), name):
                raise UserError(f"{name} is for beam search, which draws do without; leave it out, or --sample")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed {self.seed} must lie between 0 and 2^63")

    @property
    def width(self) -> int:
        """Hypotheses of a sentence that are followed at once."""
        return self.n_best if self.sample else self.beam

    def limits(self, source: int, most: int) -> tuple[int, int]:
        """Fewest and most tokens of a target, its end included in neither, for a source of so many tokens."""
        longest = min(most, self.max_length or most, round(self.max_ratio * source) + SLACK)
        return min(longest, max(self.min_length, round(self.min_ratio * source))), longest
