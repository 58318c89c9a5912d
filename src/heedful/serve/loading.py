"""Model folders become models that can be asked over HTTP: loaded, given a queue, and warmed up."""

import asyncio
import io
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from heedful.decode import SearchOptions
from heedful.predict import ImagePredictor, Predictor, Translator, load
from heedful.predict.engine import TorchEngine
from heedful.predict.image_engine import TorchImageEngine
from heedful.predict.loading import EngineName, Precision
from heedful.predict.searching import TorchSearcher
from heedful.serve.batching import Lane, Work
from heedful.serve.image_work import MOST_PIXELS, Picture, see_work
from heedful.serve.limits import Limits
from heedful.serve.logs import Log
from heedful.serve.metrics import Meters
from heedful.serve.models import Loaded, Wanted, abilities
from heedful.serve.text_work import TextAsked, score_work, vector_work
from heedful.serve.translate_work import Source, TranslateWork

CPU_TOKENS, GPU_TOKENS = 768, 32768
"""Tokens of a batch: on a CPU more do not make it faster, and others would wait longer."""
WARM = ("a", "word " * 20, "word " * 100)
"""Texts of several lengths, so that the first client does not pay for what is done once."""


class Computing(NamedTuple):
    """With what to compute, and where."""

    engine: EngineName = "torch"
    device: str = "auto"
    precision: Precision = "auto"
    int8: bool = False


def open_model(
    wanted: Wanted, computing: Computing, limits: Limits, meters: Meters, log: Log, loop: asyncio.AbstractEventLoop
) -> Loaded:
    """A model, warm and with its queue; its messages call it by its name, never by its folder."""
    predictor = load(
        wanted.folder,
        computing.device,
        precision=computing.precision,
        engine=computing.engine,
        int8=computing.int8,
    )
    predictor.origin = wanted.name
    if isinstance(predictor, ImagePredictor):
        predictor.most_pixels = MOST_PIXELS
    for work, examples in _trials(predictor):
        work.answer([one for one in work.prepare(examples) if not isinstance(one, Exception)], lambda: True)
    tokens = limits.batch_tokens or (GPU_TOKENS if on_gpu(predictor) else CPU_TOKENS)
    lane = Lane(wanted.name, tokens, limits, meters, log)
    lane.start(loop)
    return Loaded(name=wanted.name, predictor=predictor, lane=lane, can=abilities(predictor))


def on_gpu(predictor: Any) -> bool:
    """Whether a GPU computes."""
    engine = predictor.searcher if isinstance(predictor, Translator) else predictor.engine
    if isinstance(engine, TorchSearcher):
        return engine.device.type == "cuda"
    return isinstance(engine, TorchEngine | TorchImageEngine) and engine.on_gpu


def _trials(predictor: Any) -> list[tuple[Work, list[Any]]]:
    """Something to ask of each kind."""
    if isinstance(predictor, ImagePredictor):
        content = io.BytesIO()
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(content, "PNG")
        return [(see_work(predictor), [Picture(content.getvalue())])]
    if isinstance(predictor, Translator):
        letters = [piece for piece in predictor.source.vocabulary if piece.strip("▁").isalnum()][:5]
        options = SearchOptions(max_length=min(8, predictor.searcher.longest))
        return [(TranslateWork(predictor, options, False), [Source(" ".join(letters), "", True)])]
    assert isinstance(predictor, Predictor)
    texts = [TextAsked(text, None, True) for text in WARM]
    trials: list[tuple[Work, list[Any]]] = [(vector_work(predictor), texts)]
    head = predictor.head
    if head is not None and head.reads_sequence:
        paired = [TextAsked("a", "b" if head.pairs else None, True)]
        trials.append((score_work(predictor, raw=True), paired))
    return trials
