"""What there is to see in a loaded model, and the torch modules to look into.

A model that another engine computes shows nothing: its inside is not there.
"""

from dataclasses import dataclass

from heedful.explore.refusals import NotThere
from heedful.models.bert import Bert
from heedful.models.rnn import Rnn
from heedful.models.transformer import Transformer
from heedful.predict.engine import TorchEngine
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.images import ImagePredictor
from heedful.predict.predictor import Predictor
from heedful.predict.searching import TorchSearcher
from heedful.predict.translator import Translator
from heedful.tasks.translation import Translating

Asked = Predictor | Translator | ImagePredictor
"""What `heedful.load` gives."""

EXPORTED = "an exported file does not show its inside; load the model with the engine torch"
FAMILIES = {Predictor: "bert", Translator: "transformer", ImagePredictor: "vit"}


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a model is and what of it can be seen."""

    family: str
    views: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """Which uses of attention it has."""
    layers: int = 0
    decoder_layers: int | None = None
    heads: int = 0
    dim: int = 0
    labels: tuple[str, ...] | None = None
    positions: str | None = None
    max_length: int | None = None
    image_size: int | None = None
    patch_size: int | None = None
    score: str | None = None
    """How a recurrent model compares its states."""
    why: str | None = None
    """Why there is nothing to see."""


def describe(asked: Asked) -> Card:
    """What of a model can be seen."""
    if isinstance(asked, Predictor):
        return _encoder_card(asked)
    if isinstance(asked, Translator):
        return _translator_card(asked)
    if not isinstance(asked.engine, TorchImageEngine):
        return Card(family="vit", labels=asked.labels, image_size=asked.engine.image_size, why=EXPORTED)
    config = asked.engine.config
    return Card(
        family="vit",
        views=("images", "positions"),
        layers=config.layers,
        heads=config.heads,
        dim=config.dim,
        labels=asked.labels,
        positions="learned",
        image_size=config.image_size,
        patch_size=config.patch_size,
    )


def _encoder_card(predictor: Predictor) -> Card:
    labels = None if predictor.head is None else predictor.head.labels
    if not isinstance(predictor.engine, TorchEngine):
        return Card(family="bert", labels=labels, max_length=predictor.engine.max_length, why=EXPORTED)
    config = predictor.engine.encoder.config
    blanks = ("blanks",) if predictor.words is not None else ()
    return Card(
        family="bert",
        views=(*blanks, "attention", "head", "positions", "meaning"),
        parts=("encoder",),
        layers=config.layers,
        heads=config.heads,
        dim=config.dim,
        labels=labels,
        positions=config.positions,
        max_length=config.max_length,
    )


def _translator_card(translator: Translator) -> Card:
    searcher = translator.searcher
    if not isinstance(searcher, TorchSearcher):
        return Card(family="transformer", max_length=searcher.longest, why=EXPORTED)
    model = searcher.models[0]
    if isinstance(model, Rnn):
        return Card(
            family="rnn",
            views=("attention", "head", "translation"),
            parts=("cross",),
            layers=1,
            decoder_layers=1,
            heads=1,
            dim=model.config.dim,
            max_length=searcher.longest,
            score=model.config.score,
        )
    config = model.config
    return Card(
        family="transformer",
        views=("attention", "head", "positions", "translation"),
        parts=("encoder", "decoder", "cross"),
        layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        heads=config.heads,
        dim=config.dim,
        positions="sinusoidal",
        max_length=searcher.longest,
    )


def encoder(asked: Asked, to: str) -> tuple[Predictor, Bert]:
    """The encoder of texts, `to` do what with it."""
    if not isinstance(asked, Predictor):
        raise NotThere(f"{asked.origin} can't {to}: {_ability(asked)}; choose a model that reads texts alone")
    if not isinstance(asked.engine, TorchEngine):
        raise NotThere(f"{asked.origin} can't {to}: {EXPORTED}")
    return asked, asked.engine.encoder


def translating(asked: Asked, to: str) -> tuple[Translator, TorchSearcher, Translating]:
    """The translator, its search and its model: of several that decide together, the first."""
    if not isinstance(asked, Translator):
        raise NotThere(f"{asked.origin} can't {to}: {_ability(asked)}; choose a model that translates")
    if not isinstance(asked.searcher, TorchSearcher):
        raise NotThere(f"{asked.origin} can't {to}: {EXPORTED}")
    return asked, asked.searcher, asked.searcher.models[0]


def vision(asked: Asked, to: str) -> tuple[ImagePredictor, TorchImageEngine]:
    """The classifier of images."""
    if not isinstance(asked, ImagePredictor):
        raise NotThere(f"{asked.origin} can't {to}: {_ability(asked)}; choose a model that sees images")
    if not isinstance(asked.engine, TorchImageEngine):
        raise NotThere(f"{asked.origin} can't {to}: {EXPORTED}")
    return asked, asked.engine


def placing(asked: Asked) -> "Bert | Transformer | TorchImageEngine":
    """What knows of positions."""
    to = "show positions"
    if isinstance(asked, ImagePredictor):
        return vision(asked, to)[1]
    if isinstance(asked, Predictor):
        return encoder(asked, to)[1]
    model = translating(asked, to)[2]
    if isinstance(model, Rnn):
        raise NotThere(f"{asked.origin} can't {to}: a recurrent model has none, it reads token after token")
    return model


def _ability(asked: Asked) -> str:
    if isinstance(asked, Predictor):
        return "it reads texts"
    return "it translates" if isinstance(asked, Translator) else "it sees images"
