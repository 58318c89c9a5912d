"""A model folder as something to ask. Knows texts and answers; nothing of HTTP or the command line."""

from heedful.predict.predictor import Predictor, load

__all__ = ["Predictor", "load"]
