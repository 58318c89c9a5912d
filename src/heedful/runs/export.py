"""A model folder's weights for another engine, and the proof that it computes the same.

Shapes: B batch, T length.
"""

from pathlib import Path

import numpy as np
import torch

from heedful.data.inputs import Input
from heedful.durable import file_digest, sweep
from heedful.errors import UserError
from heedful.formats import onnx
from heedful.formats.huggingface import Model, load_model
from heedful.formats.sentence_transformers import read_pooling
from heedful.formats.vit import load_vit
from heedful.formats.vit_onnx import INPUT, OUTPUT, export_vit, read_image_card
from heedful.models.bert import Bert, BertForPretraining
from heedful.models.heads import BertForTask
from heedful.models.vit import ViTClassifier
from heedful.predict.loading import sees, translates
from heedful.predict.onnx import open_session, rectangle
from heedful.runs.export_translator import export_translator

FORMATS = ("onnx", "ctranslate2")
TOLERANCE = 1e-4
"""How much the outputs of two engines in full precision may differ, where they are larger than 1 in relation."""
LENGTHS = (2, 3, 7, 19, 61)
"""Of the inputs that are compared."""
IMAGES = 3
"""That are compared."""


def export(model: Path, *, to: str | None, int8: bool, out: Path | None) -> str:
    """Write a folder's model for the engine that runs such models, or refuse another; what to say of it."""
    if to not in (None, *FORMATS):
        raise UserError(f"format {to!r} is not known; choose from {', '.join(FORMATS)}")
    if translates(model):
        kind, fits, run = "a translator", "ctranslate2", export_translator
    elif sees(model):
        kind, fits, run = "an image classifier", "onnx", export_classifier
    else:
        kind, fits, run = "an encoder", "onnx", export_encoder
    if to not in (None, fits):
        raise UserError(f"{model} is {kind}, which goes to {fits}; export it with --to {fits}")
    return run(model, int8=int8, out=out)


def export_encoder(model: Path, *, int8: bool, out: Path | None) -> str:
    """Write a folder's model as MODEL/onnx/model.onnx or as `out`, with 8 bits also beside it; what to say of it."""
    onnx.require("onnx", "onnxscript", "onnxruntime")
    inner, _ = read_pooling(model)
    path = _free(inner, out, int8)
    net = load_model(inner)
    _make_room(path)
    onnx.export(net, path, _digest(inner))
    arrays = rectangle(_samples(net))
    expected = _torch_outputs(net, arrays)
    said = _proven(path, expected, arrays)
    if not int8:
        return said
    small = _small(path)
    onnx.quantise(path, small)
    cosine = _cosine(arrays, expected[onnx.STATES], _outputs(small, arrays)[onnx.STATES])
    return f"{said}\nwrote {small} ({_size(small)}; its states have a cosine of {cosine:.3f} with torch's)"


def export_classifier(model: Path, *, int8: bool, out: Path | None) -> str:
    """The same for a classifier of images."""
    onnx.require("onnx", "onnxscript", "onnxruntime")
    path = _free(model, out, int8)
    net = load_vit(model)
    if not isinstance(net, ViTClassifier):
        raise UserError(f"{model} is an encoder of images without a head; only classifiers can be exported")
    _make_room(path)
    export_vit(net, path, _digest(model))
    config = net.config
    shape = (IMAGES, config.channels, config.image_size, config.image_size)
    pixels = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = {OUTPUT: net(pixels).numpy()}
    said = _proven(path, expected, {INPUT: pixels.numpy()})
    if not int8:
        return said
    small = _small(path)
    onnx.quantise(path, small)
    ours, theirs = (_outputs(small, {INPUT: pixels.numpy()})[OUTPUT].ravel(), expected[OUTPUT].ravel())
    cosine = float(ours @ theirs / (np.linalg.norm(ours) * np.linalg.norm(theirs)))
    return f"{said}\nwrote {small} ({_size(small)}; its scores have a cosine of {cosine:.3f} with torch's)"


def _free(model: Path, out: Path | None, int8: bool) -> Path:
    """Where a file may be written: as `out`, or where the engine looks for it."""
    path = out or model / "onnx" / "model.onnx"
    for target in (path, _small(path)) if int8 else (path,):
        _require_own(target)
    return path


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)


def _small(path: Path) -> Path:
    return path.with_stem(f"{path.stem}_int8")


def _digest(folder: Path) -> str | None:
    weights = folder / "model.safetensors"
    return file_digest(weights) if weights.is_file() else None


def _proven(path: Path, expected: dict[str, np.ndarray], arrays: dict[str, np.ndarray]) -> str:
    """What to say of a file that computes as torch does; another is taken back."""
    difference = _difference(expected, _outputs(path, arrays))
    if not difference <= TOLERANCE:
        path.unlink()
        raise UserError(
            f"{path} is taken back: it differs from torch by {difference:.0e}, more than {TOLERANCE:.0e}; "
            "another version of onnxruntime or torch may do better"
        )
    return f"wrote {path} ({_size(path)}; differs from torch by at most {difference:.0e})"


def _require_own(path: Path) -> None:
    """Refuse to write over what was not written here."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file")
    if path.exists() and onnx.read_card(path) is None and read_image_card(path) is None:
        raise UserError(f"{path} exists and was not written by heedful; move it away, or choose another --out")


def _samples(model: Model) -> list[Input]:
    """Inputs of every kind that the model reads, made up."""
    config = model.config
    generator = np.random.default_rng(0)
    lengths = [*(min(length, config.max_length) for length in LENGTHS), config.max_length]
    ids = [generator.integers(0, config.vocab_size, length).astype(np.int32) for length in lengths]
    return [Input(one, (len(one) + 1) // 2 if config.segments > 1 else len(one)) for one in ids]


@torch.inference_mode()
def _torch_outputs(model: Model, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    ids, mask, segments = (torch.from_numpy(arrays[name]) for name in onnx.INPUTS)
    encoder = model if isinstance(model, Bert) else model.bert
    outputs = [encoder(ids, segments, mask).hidden]
    if isinstance(model, BertForTask):
        scores = model(ids, segments, mask)
        outputs = [*(scores.unbind(-1) if model.head.task == "answer" else (scores,)), *outputs]
    elif isinstance(model, BertForPretraining) and model.mlm is not None:
        outputs = [model(ids, segments, mask).mlm_logits, *outputs]
    return {name: output.numpy() for name, output in zip(onnx.output_names(model), outputs, strict=True)}


def _outputs(path: Path, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = open_session(path)
    names = [output.name for output in session.get_outputs()]
    return {name: np.asarray(output) for name, output in zip(names, session.run(names, arrays), strict=True)}


def _difference(expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> float:
    """The largest difference of two engines' outputs; not a number where one of them has none."""
    largest = [
        np.abs(found[name] - theirs).max() / max(1.0, np.abs(theirs).max()) for name, theirs in expected.items()
    ]
    return float(np.max(largest))


def _cosine(arrays: dict[str, np.ndarray], expected: np.ndarray, found: np.ndarray) -> float:
    """The mean cosine of two engines' states, at real tokens."""
    real = arrays["attention_mask"] == 1
    ours, theirs = found[real], expected[real]
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(((ours * theirs).sum(1) / lengths).mean())


def _size(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:,.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
