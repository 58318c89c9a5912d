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
from heedful.models.bert import Bert, BertForPretraining
from heedful.models.heads import BertForTask
from heedful.predict.loading import translates
from heedful.predict.onnx import open_session, rectangle
from heedful.runs.export_translator import export_translator

FORMATS = ("onnx", "ctranslate2")
TOLERANCE = 1e-4
"""How much the outputs of two engines in full precision may differ, where they are larger than 1 in relation."""
LENGTHS = (2, 3, 7, 19, 61)
"""Of the inputs that are compared."""


def export(model: Path, *, to: str | None, int8: bool, out: Path | None) -> str:
    """Write a folder's model for the engine that runs such models, or refuse another; what to say of it."""
    if to not in (None, *FORMATS):
        raise UserError(f"format {to!r} is not known; choose from {', '.join(FORMATS)}")
    kind, fits = ("a translator", "ctranslate2") if translates(model) else ("an encoder", "onnx")
    if to not in (None, fits):
        raise UserError(f"{model} is {kind}, which goes to {fits}; export it with --to {fits}")
    return (export_translator if fits == "ctranslate2" else export_encoder)(model, int8=int8, out=out)


def export_encoder(model: Path, *, int8: bool, out: Path | None) -> str:
    """Write a folder's model as MODEL/onnx/model.onnx or as `out`, with 8 bits also beside it; what to say of it."""
    onnx.require("onnx", "onnxscript", "onnxruntime")
    inner, _ = read_pooling(model)
    path = out or inner / "onnx" / "model.onnx"
    small = path.with_stem(f"{path.stem}_int8")
    for target in (path, small) if int8 else (path,):
        _require_own(target)
    net = load_model(inner)
    weights = inner / "model.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    onnx.export(net, path, file_digest(weights) if weights.is_file() else None)
    arrays = rectangle(_samples(net))
    expected = _torch_outputs(net, arrays)
    difference = _difference(expected, _outputs(path, arrays))
    if not difference <= TOLERANCE:
        path.unlink()
        raise UserError(
            f"{path} is taken back: it differs from torch by {difference:.0e}, more than {TOLERANCE:.0e}; "
            "another version of onnxruntime or torch may do better"
        )
    said = f"wrote {path} ({_size(path)}; differs from torch by at most {difference:.0e})"
    if not int8:
        return said
    onnx.quantise(path, small)
    cosine = _cosine(arrays, expected[onnx.STATES], _outputs(small, arrays)[onnx.STATES])
    return f"{said}\nwrote {small} ({_size(small)}; its states have a cosine of {cosine:.3f} with torch's)"


def _require_own(path: Path) -> None:
    """Refuse to write over what was not written here."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file")
    if path.exists() and onnx.read_card(path) is None:
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
