"""What the explorer may be asked, as JSON: names, types and bounds; and how it refuses. What it means is said in
`explorer.py`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Whole = Annotated[int, Field(strict=True, ge=0, le=100_000)]
Part = Literal["encoder", "decoder", "cross"]

MOST_KEYS = 100
"""Of an object: each that is unknown would be a mistake of its own."""


class Bounded(BaseModel):
    """Something with so many keys at most."""

    @model_validator(mode="before")
    @classmethod
    def _few_keys(cls, given: Any) -> Any:
        """The same, unless each of its keys would have to be told."""
        if isinstance(given, dict) and len(given) > MOST_KEYS:
            raise ValueError(f"{len(given):,} keys are more than the {MOST_KEYS} that an object may have")
        return given


class Question(Bounded):
    """To one model."""

    model_config = ConfigDict(extra="forbid")
    model: str = Field(description="The name of a loaded model.")


class Text(Question):
    """A text, or a pair of texts; of a translator, a text and its translation."""

    text: str = Field(examples=["The animal didn't cross the street because it was too tired."])
    pair: str | None = None


class Attention(Text):
    """One use of attention."""

    part: Part | None = Field(None, description="Of a translator; by default the first that it has.")


class Matrix(Attention):
    """A head of a layer, the mean of its heads, or rollout up to it; layers and heads are counted from 0."""

    layer: Whole | None = Field(None, description="The last if it isn't said.")
    head: Whole | Literal["mean"] = "mean"
    rollout: bool = False


class Head(Attention):
    """A token in a head, all counted from 0."""

    layer: Whole
    head: Whole
    token: Whole
    padding: Annotated[int, Field(strict=True, ge=0, le=8)] = Field(0, description="Padding behind the text.")


class Blanks(Question):
    """A text with [MASK] in it."""

    text: str = Field(examples=["The [MASK] was too tired."])
    count: Annotated[int, Field(strict=True, ge=1, le=100)] = 8


class Generate(Question):
    """What to go on from."""

    text: str = ""
    words: Annotated[int, Field(strict=True, ge=1, le=64)] = 8
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = 0
    order: Literal["mask-predict", "gibbs"] = "mask-predict"


class Translate(Question):
    """A text to translate."""

    text: str
    prefix: str | None = Field(None, description="How every translation must begin.")
    beams: Annotated[int, Field(strict=True, ge=1, le=16)] = 4
    length_penalty: Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)] = 1.0


class Meaning(Question):
    """A word, and sentences that it stands in."""

    word: str
    sentences: Annotated[list[str], Field(min_length=1, max_length=16, fail_fast=True)]
    layer: Whole | None = Field(None, description="0 is what goes into the first layer; by default the last.")


class Look(Question):
    """An image."""

    image: str = Field(description="The bytes of a png or jpeg, in base64.")


class Refused(BaseModel):
    """What is answered to a question that can't be."""

    error: str = Field(description="One line: the value, the rule and the way out.")
    error_type: str
