"""A model folder as something to ask. Knows texts and answers; nothing of HTTP or the command line."""

from heedful.predict.loading import load, load_predictor, load_translator
from heedful.predict.predictor import Predictor
from heedful.predict.translator import Translator

__all__ = ["Predictor", "Translator", "load", "load_predictor", "load_translator"]
