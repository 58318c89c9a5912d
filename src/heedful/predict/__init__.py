"""A model folder as something to ask. Knows texts, images and answers; nothing of HTTP or the command line."""

from heedful.predict.images import ImagePredictor
from heedful.predict.loading import load, load_images, load_predictor, load_translator
from heedful.predict.predictor import Predictor
from heedful.predict.translator import Translator

__all__ = [
    "ImagePredictor",
    "Predictor",
    "Translator",
    "load",
    "load_images",
    "load_predictor",
    "load_translator",
]
