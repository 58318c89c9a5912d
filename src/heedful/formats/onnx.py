"""BERT as an ONNX file, for onnxruntime and every other engine that reads the format.

One file serves a model's head and its states. Inputs and outputs have the names that the ecosystem uses, and every
operator is one of the standard: what onnxruntime makes of them when it loads the file is as fast as its own attention
operators. Knows nothing of folders: what an engine needs to know of the model travels in the file.

Shapes: B batch, T length, D width, C outputs, V vocabulary.
"""

import copy
import importlib
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from heedful.durable import write_file
from heedful.errors import UserError
from heedful.models.bert import Bert, BertForPretraining, BertOutput
from heedful.models.heads import BertForTask, Head
from heedful.nn.layout import Padded

if TYPE_CHECKING:
    from onnx import ModelProto

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Each (B, T) int64; the mask is 1 at real tokens."""
STATES = "last_hidden_state"
"""The output that every file has: (B, T, D)."""
OPSET = 20
"""The first version of the standard with GELU as one operator."""
LARGEST = 2**31 - 2**20
"""The most bytes of weights in one file, which is one message of the format and so below 2 GB."""
MASKED = -1e4
"""What is added to the score of a token that may not be attended to: enough for a weight of zero."""
KEY = "heedful"
"""Where in the file's metadata the card lies."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a file says of its model."""

    head: Head | None
    max_length: int
    vocab_size: int
    dim: int
    segments: int
    source: str | None = None
    """The SHA-256 of the weights that the file was made from."""

    def to_json(self) -> str:
        """One flat object; the task is null without a head."""
        sizes = {name: value for name, value in asdict(self).items() if name != "head"}
        return json.dumps({**(asdict(self.head) if self.head else {"task": None}), **sizes}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Card":
        """The card that was written."""
        fields: dict[str, Any] = json.loads(text)
        sizes = {name: fields.pop(name) for name in ("max_length", "vocab_size", "dim", "segments", "source")}
        if fields["task"] is None:
            return cls(head=None, **sizes)
        return cls(head=Head(labels=tuple(fields.pop("labels")), **fields), **sizes)


def export(model: Bert | BertForPretraining | BertForTask, path: Path, source: str | None = None) -> None:
    """Write a model. Batch and length stay free; `source` is the digest of the weights, for who asks later."""
    require("onnx", "onnxscript")
    card = Card(
        head=model.head if isinstance(model, BertForTask) else None,
        max_length=model.config.max_length,
        vocab_size=model.config.vocab_size,
        dim=model.config.dim,
        segments=model.config.segments,
        source=source,
    )
    require_room(path, _bytes(model))
    graph = Graph(copy.deepcopy(model).float().cpu()).eval()
    # Of any size, since the axes are dynamic; but three tensors, for one that is given twice becomes one input.
    examples = tuple(torch.zeros(2, 3, dtype=torch.int64) for _ in INPUTS)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    names = (INPUTS, output_names(model))
    write_graph(graph, examples, axes, names, path, card.to_json())


def write_graph(
    graph: nn.Module,
    examples: tuple[Tensor, ...],
    axes: dict[int, Any],
    names: tuple[tuple[str, ...], tuple[str, ...]],
    path: Path,
    card: str,
) -> None:
    """Write a function of tensors whose `axes` are free, under the names of its inputs and outputs, with its card."""
    inputs, outputs = names
    with _quiet():
        program = torch.onnx.export(
            graph,
            examples,
            dynamo=True,
            opset_version=OPSET,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=(axes,) * len(inputs),
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    _forget(proto)
    entry = proto.metadata_props.add()
    entry.key, entry.value = KEY, card
    write_file(path, proto.SerializeToString())


def require_room(path: Path, size: int) -> None:
    """An error that says so, if weights of that many bytes are too large for a file."""
    if size > LARGEST:
        raise UserError(
            f"{path} would have {size / 1e9:.1f} GB of weights, but an ONNX file holds less than 2 GB; "
            "use the model with torch"
        )


def quantise(path: Path, out: Path) -> None:
    """Write a file again with weights of 8 bits, at about a quarter of the size.

    Each column of a matrix gets a scale of its own; without that much of the fidelity is lost. Weights are signed,
    because processors multiply signed by unsigned numbers in one instruction. An engine rounds the states to 8 bits
    too, in one scale for a whole batch: a text's numbers depend a little on what it is computed together with.
    """
    require("onnx", "onnxruntime")
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    proto = onnx.load(path)
    del proto.graph.value_info[:]  # the shapes of weights, which are about to be turned round
    # Says that the graph is simplified already, as it is; else there is a call to do so in the log.
    mark = proto.metadata_props.add()
    mark.key, mark.value = "onnx.quant.pre_process", "onnxruntime.quant"
    with tempfile.TemporaryDirectory() as folder:
        aside = Path(folder) / "int8.onnx"
        quantize_dynamic(
            proto,
            aside,
            op_types_to_quantize=["MatMul", "Gather"],
            per_channel=True,
            weight_type=QuantType.QInt8,
        )
        write_file(out, aside.read_bytes())


def read_card(path: Path) -> Card | None:
    """What a file says of its model; None if it is not one that was written here."""
    text = read_metadata(path)
    try:
        return None if text is None else Card.from_json(text)
    except (ValueError, LookupError, TypeError):
        return None


def read_metadata(path: Path) -> str | None:
    """The card of a file, as it is written; None where there is none."""
    require("onnx")
    import onnx
    from google.protobuf.message import DecodeError

    try:
        found = {entry.key: entry.value for entry in onnx.load(path, load_external_data=False).metadata_props}
    except (DecodeError, ValueError):
        return None
    return found.get(KEY)


def states_alone(path: Path) -> bytes:
    """A file without what only its scores need. onnxruntime computes every output, whichever it is asked for."""
    require("onnx")
    import onnx
    from onnx.utils import Extractor

    return Extractor(onnx.load(path)).extract_model(list(INPUTS), [STATES]).SerializeToString()


def require(*packages: str) -> None:
    """An error that says what to install, unless all are there."""
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            raise UserError(f"{package} is not installed; pip install 'heedful[onnx]'") from None


def output_names(model: nn.Module) -> tuple[str, ...]:
    """What a file of this model gives: the head's scores, where there are any, and the states."""
    if isinstance(model, BertForTask):
        return (*(("start_logits", "end_logits") if model.head.task == "answer" else ("logits",)), STATES)
    words = isinstance(model, BertForPretraining) and model.mlm is not None
    return ("logits", STATES) if words else (STATES,)


class Graph(nn.Module):
    """A model as a function of the inputs to the outputs, as they are named."""

    def __init__(self, model: Bert | BertForPretraining | BertForTask) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        """Three times (B, T) -> the outputs in the order of their names."""
        model = self.model
        encoder = model if isinstance(model, Bert) else model.bert
        # Numbers to add to the scores instead of booleans: fewer operators, up to a fifth less time.
        layout = Padded((1.0 - mask.float()) * MASKED)
        x, _ = encoder.states(encoder.embeddings(ids, segments, layout), layout)  # (B, T, D)
        if isinstance(model, BertForTask):
            scores = model.score(BertOutput(x, encoder.pool(x, Padded(mask.bool()))))  # (B, C) or (B, T, C)
            return (*scores.unbind(-1), x) if model.head.task == "answer" else (scores, x)
        if isinstance(model, BertForPretraining) and model.mlm is not None:
            return model.mlm(x, encoder.embeddings.tokens.weight), x  # (B, T, V)
        return (x,)


def _bytes(model: nn.Module) -> int:
    """The weights of a file, in which tied ones stand twice."""
    size = sum(parameter.numel() for parameter in model.parameters())
    if isinstance(model, BertForPretraining) and model.mlm is not None and model.mlm.decoder is None:
        size += model.bert.embeddings.tokens.weight.numel()
    return 4 * size


def _forget(proto: "ModelProto") -> None:
    """Take out the exporter's notes: they name the source files of the machine that it ran on."""
    graph = proto.graph
    parts: list[Any] = [graph, *graph.node, *graph.initializer, *graph.value_info, *graph.input, *graph.output]
    for part in parts:
        del part.metadata_props[:]
        part.doc_string = ""


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep to ourselves what the exporter says of its own workings: packages it can do without, names of axes."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
