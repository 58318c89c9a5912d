"""What a search needs of a model."""

from typing import Any, Protocol

from torch import Tensor


class Steps(Protocol):
    """A model that writes token by token; the state is its own business. B sentences, K beams, V vocabulary."""

    def step(
        self, state: Any, tokens: Tensor, parents: Tensor | None = None, explain: bool = False, /
    ) -> tuple[Tensor, Any, Tensor | None]:
        """Beams' last tokens (B, K) and the old beams they continue -> scores (B, K, V), state, weights (B, K, S)."""
        ...

    def keep(self, state: Any, sentences: Tensor, /) -> Any:
        """The state of some of the sentences."""
        ...
