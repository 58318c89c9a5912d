"""What goes into BERT's first layer: token + segment + position (Devlin et al. 2018, figure 2).

Shapes: B batch, T length, D width, N packed tokens.
"""

from torch import Tensor, nn

from heedful.nn.layout import Layout
from heedful.nn.norm import Norm


class InputEmbedding(nn.Module):
    """The sum of three learned vectors a token, normalised: (B, T) -> (B, T, D), or (N,) -> (N, D).

    There is no table of positions for a `max_length` of 0, none of segments for 0 of those.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        max_length: int,
        segments: int,
        dropout: float,
        norm_eps: float,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, dim)
        self.positions = nn.Embedding(max_length, dim) if max_length else None
        self.segments = nn.Embedding(segments, dim) if segments else None
        self.norm = Norm(dim, norm_eps, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, segments: Tensor | None, layout: Layout) -> Tensor:
        """Without segments every token is of the first; without a table of them they make no difference."""
        x = self.tokens(ids)
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))
        if self.positions is not None:
            x = x + self.positions(layout.positions(ids))
        return self.dropout(self.norm(x))
