"""Several models that write together: their probabilities are averaged at every step."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from heedful.decode.steps import Steps


class Ensemble:
    """One model made of several with the same target vocabulary; its state is theirs, in order."""

    def __init__(self, members: Sequence[Steps]) -> None:
        self.members = members

    def step(
        self, state: Sequence[Any], tokens: Tensor, parents: Tensor | None = None, explain: bool = False
    ) -> tuple[Tensor, tuple[Any, ...], Tensor | None]:
        """The logarithm of the mean probability, and the mean of the weights."""
        found = [member.step(own, tokens, parents, explain) for member, own in zip(self.members, state, strict=True)]
        together = torch.stack([scores.float().log_softmax(-1) for scores, _, _ in found])
        weights = [one for _, _, one in found if one is not None]
        return (
            together.logsumexp(0) - math.log(len(found)),
            tuple(own for _, own, _ in found),
            torch.stack(weights).mean(0) if weights else None,
        )

    def keep(self, state: Sequence[Any], sentences: Tensor) -> tuple[Any, ...]:
        """The state of some of the sentences."""
        return tuple(member.keep(own, sentences) for member, own in zip(self.members, state, strict=True))
