"""What clients send and get, as the OpenAPI document describes it.

Routes that others have too pass over fields that they don't know, as those do; our own refuse them.
"""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictInt

from heedful.explore.requests import Bounded

T = TypeVar("T")

MOST_ITEMS = 100_000
"""Of any list: what is checked before it is refused is bounded."""


def _whole(text: str) -> str:
    """A text without halves of characters, which JSON can write but no encoding can."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("a text has half of a character (a lone surrogate), so it is not Unicode") from None
    return text


Text = Annotated[str, AfterValidator(_whole)]
Listed = Annotated[list[T], Field(max_length=MOST_ITEMS, fail_fast=True)]
"""A list that is no longer looked at after the first mistake in it: else a large body has millions of them."""
Ids = Annotated[list[StrictInt], Field(min_length=1, max_length=MOST_ITEMS, fail_fast=True)]
ModelName = Annotated[Text | None, Field(description="Which model; without it, the first that can do this.")]
Truncate = Annotated[
    bool | None, Field(description="Cut what is too long, which is else answered 413 (or as the server was told).")
]

MOST_BEAMS = 32
MOST_STEPS = 50
MOST_WRITTEN = 256
MOST_SHOWN = 100


class Shared(Bounded):
    """A request as other servers take it."""

    model_config = ConfigDict(extra="ignore")
    model: ModelName = None


class Own(Bounded):
    """A request that only we take."""

    model_config = ConfigDict(extra="forbid")
    model: ModelName = None


class EmbedRequest(Shared):
    """Texts, or ids of tokens, to embed."""

    inputs: Text | Listed[Text] | Ids | Listed[Ids]
    normalize: bool = Field(True, description="Vectors of length 1.")
    truncate: Truncate = None
    truncation_direction: Literal["Right", "right"] = Field("Right", description="The end is cut off.")
    prompt_name: None = Field(None, description="The models have no prompts.")
    dimensions: int | None = Field(None, ge=1, description="Only the first so many numbers of each vector.")
    pool: Literal["cls", "mean"] | None = Field(None, description="By default as the model's folder says.")


class EmbedAllRequest(Shared):
    """Texts, or ids of tokens, to embed token by token."""

    inputs: Text | Listed[Text] | Ids | Listed[Ids]
    truncate: Truncate = None
    truncation_direction: Literal["Right", "right"] = "Right"
    prompt_name: None = None


class Sentences(Bounded):
    """A sentence, and those to compare it with."""

    source_sentence: Text
    sentences: Listed[Text] = Field(min_length=1)


class SimilarityParameters(Bounded):
    """How to compare."""

    model_config = ConfigDict(extra="ignore")
    truncate: Truncate = None


class SimilarityRequest(Shared):
    """A sentence, and those to compare it with."""

    inputs: Sentences
    parameters: SimilarityParameters | None = None


class OpenAIEmbedRequest(Shared):
    """As OpenAI's clients ask."""

    input: Text | Listed[Text] | Ids | Listed[Ids]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)
    truncate: Truncate = None
    user: str | None = None


class OpenAIEmbedding(BaseModel):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class OpenAIEmbeddings(BaseModel):
    """The vectors, in the order of the texts."""

    object: Literal["list"]
    data: list[OpenAIEmbedding]
    model: str
    usage: Usage


class OpenAIModel(BaseModel):
    """A model that can be named."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class OpenAIModels(BaseModel):
    """All of them."""

    object: Literal["list"]
    data: list[OpenAIModel]


OneOrTwo = Annotated[list[Text], Field(min_length=1, max_length=2, fail_fast=True)]


class PredictRequest(Shared):
    """A text, a pair, or a list of lists of one or two texts."""

    inputs: Text | OneOrTwo | Annotated[Listed[OneOrTwo], Field(min_length=1)]
    raw_scores: bool = Field(False, description="What the model gives, before it becomes probabilities.")
    truncate: Truncate = None
    truncation_direction: Literal["Right", "right"] = "Right"


class Prediction(BaseModel):
    """A label and its probability; for models that give numbers, a target and its number."""

    label: str
    score: float


class RerankRequest(Shared):
    """A query, and texts to rank by it."""

    query: Text
    texts: Listed[Text] = Field(min_length=1)
    raw_scores: bool = False
    return_text: bool = False
    truncate: Truncate = None
    truncation_direction: Literal["Right", "right"] = "Right"


class Rank(BaseModel):
    """Where a text stood in the request, and how well it fits the query."""

    index: int
    score: float
    text: str | None = None


class TokenizeRequest(Shared):
    """Texts to take apart."""

    inputs: Text | Listed[Text]
    add_special_tokens: bool = True
    prompt_name: None = None


class TokenInfo(BaseModel):
    """A token, and the characters of the text that it stands for."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class DecodeRequest(Shared):
    """Ids to put together."""

    ids: Ids | Annotated[Listed[Ids], Field(min_length=1)]
    skip_special_tokens: bool = True


class FillRequest(Own):
    """Texts with [MASK] where words are missing."""

    inputs: Text | Listed[Text]
    top: int = Field(5, ge=1, le=MOST_SHOWN, description="Candidates for each blank.")


class Candidate(BaseModel):
    """A token that may stand in a blank."""

    token: str
    probability: float


class GenerateRequest(Own):
    """A text to go on from, or with [MASK] where words are to be written."""

    inputs: Text = ""
    tokens: int = Field(12, ge=1, le=MOST_WRITTEN, description="To write after a text without blanks.")
    order: Literal["mask-predict", "gibbs"] = "mask-predict"
    steps: int | None = Field(None, ge=1, le=MOST_STEPS, description="Rounds; 10 by default, fewer for few blanks.")
    temperature: float | None = Field(None, ge=0, le=100, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0, lt=2**63)
    watch: bool = Field(False, description="The text after each round too.")


class GeneratedText(BaseModel):
    """What was written."""

    text: str
    probability: float
    steps: list[str] | None = None


class TagRequest(Own):
    """Texts to tag, or lists of words; however long."""

    inputs: Text | Listed[Text] | Listed[Annotated[Listed[Text], Field(min_length=1)]]


class Span(BaseModel):
    """Neighbouring words that belong together; characters of the text, or numbers of given words."""

    label: str
    text: str
    start: int
    end: int
    probability: float


class TaggedText(BaseModel):
    """The tags of a text's words."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    entities: list[Span]


class AskedQuestion(Bounded):
    """A question, and the text that may answer it."""

    model_config = ConfigDict(extra="forbid")
    question: Text
    context: Text


class AnswerRequest(Own):
    """A question or several, each with its context, however long."""

    inputs: AskedQuestion | Listed[AskedQuestion]
    n_best: int = Field(1, ge=1, le=MOST_SHOWN)
    longest: int = Field(30, ge=1, le=512, description="Tokens of an answer.")
    may_be_empty: bool | None = Field(None, description="Whether no answer is one; by default as it was trained.")


class FoundAnswer(BaseModel):
    """A stretch of the context; empty where there is no answer."""

    text: str
    start: int
    end: int
    probability: float


class TranslateRequest(Own):
    """Texts to translate."""

    inputs: Text | Listed[Text]
    prefix: Text = Field("", description="How every translation must begin.")
    alignments: bool = Field(False, description="Which pieces of the text each piece looked at.")
    truncate: Truncate = None
    beam: int = Field(5, ge=1, le=MOST_BEAMS)
    n_best: int = Field(1, ge=1, le=MOST_BEAMS)
    penalty: Literal["average", "gnmt", "none"] = "average"
    length_penalty: float = Field(1.0, allow_inf_nan=False)
    coverage_penalty: float = Field(0.0, allow_inf_nan=False)
    min_length: int = 0
    max_length: int | None = None
    min_ratio: float = Field(0.0, allow_inf_nan=False)
    max_ratio: float = Field(3.0, allow_inf_nan=False)
    block_ngrams: int = 0
    repetition_penalty: float = Field(1.0, allow_inf_nan=False)
    early: bool = False
    sample: bool = False
    temperature: float = Field(1.0, allow_inf_nan=False)
    top_k: int = Field(0, lt=2**31)
    top_p: float = Field(1.0, allow_inf_nan=False)
    seed: int = 0


class AlignmentTable(BaseModel):
    """A row for each piece of the translation, a column for each of the text; the last of both is the end."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]
    words: list[tuple[int, int]]


class OneTranslation(BaseModel):
    """A translation, and how sure the model is of it."""

    text: str
    score: float | None
    log_prob: float | None
    alignment: AlignmentTable | None = None


class Translations(BaseModel):
    """The best translations of a text, the best first."""

    translations: list[OneTranslation]


class SeeRequest(Own):
    """Images, as base64 of their files."""

    inputs: Text | Listed[Text]
    top: int = Field(5, ge=1, le=MOST_SHOWN, description="Classes to give.")


class PipelineRequest(Bounded):
    """What `huggingface_hub`'s client sends, whatever the task."""

    model_config = ConfigDict(extra="ignore")
    inputs: str | Listed[str] | Listed[Listed[str]] | dict[str, Any]
    parameters: dict[str, Any] | None = None
    truncate: Truncate = None
    normalize: bool | None = None


class OpenAIError(BaseModel):
    """Why there is no answer, for OpenAI's clients."""

    message: str
    type: str
    param: None
    code: int


class OpenAIErrorBody(BaseModel):
    """An error as OpenAI's clients read it."""

    error: OpenAIError


class ErrorBody(BaseModel):
    """Why there is no answer."""

    error: str
    error_type: str
