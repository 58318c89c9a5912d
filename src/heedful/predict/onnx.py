"""The engine for the ONNX files that `heedful export` writes: on the CPU, by onnxruntime, without torch's help.

Inputs are padded to a rectangle, because the files know no other layout; neighbours in length go together, so that
little of it is padding.

Shapes: B batch, T longest length, C outputs, D width.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heedful.cores import cores
from heedful.data.inputs import Input
from heedful.durable import file_digest
from heedful.errors import UserError
from heedful.formats.onnx import INPUTS, KEY, STATES, Card, require, states_alone
from heedful.nn.shortage import short_of_memory
from heedful.predict.engine import Pool, by_length

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

BATCH_TOKENS = 1024
"""The most tokens of a batch. More do not make it faster: the states of a layer no longer fit the cores' caches."""
SLOWER = ["SkipLayerNormFusion"]
"""What onnxruntime joins to its loss: its joint operator takes many times as long as a sum and a norm do."""


class OnnxEngine:
    """A folder's exported model, in full precision or with weights of 8 bits."""

    def __init__(self, folder: Path, *, int8: bool) -> None:
        path = folder / "onnx" / ("model_int8.onnx" if int8 else "model.onnx")
        again = f"`heedful export {shlex.quote(str(folder))} --to onnx{' --int8' if int8 else ''}`"
        if not path.is_file():
            raise UserError(f"{folder} has no ONNX file; write it with {again}")
        self.session = open_session(path)
        text = self.session.get_modelmeta().custom_metadata_map.get(KEY)
        if text is None:
            raise UserError(f"{path} was not written by heedful; move it away and write it with {again}")
        self.card = Card.from_json(text)
        weights = folder / "model.safetensors"
        if self.card.source is not None and weights.is_file() and file_digest(weights) != self.card.source:
            raise UserError(f"{path} was made from other weights than {weights}; write it again with {again}")
        self.head = self.card.head
        self.max_length = self.card.max_length
        self.vocab_size = self.card.vocab_size
        if self.head is None and len(self.session.get_outputs()) > 1:
            self.session = open_session(states_alone(path))

    def scores(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        """What the head says of each input: (C,), or (T, C) where it reads every token."""
        assert self.head is not None
        names = ["start_logits", "end_logits"] if self.head.task == "answer" else ["logits"]
        whole = self.head.reads_sequence

        def read(outputs: list[np.ndarray], lengths: list[int]) -> list[np.ndarray]:
            scores = np.stack(outputs, -1) if len(outputs) > 1 else outputs[0]
            return [row if whole else row[:length] for row, length in zip(scores, lengths, strict=True)]

        return self._each(inputs, names, read)

    def vectors(self, inputs: Sequence[Input], pool: Pool) -> np.ndarray:
        """One vector an input, (inputs, D): the state of `[CLS]`, or the mean of all states."""

        def read(outputs: list[np.ndarray], lengths: list[int]) -> list[np.ndarray]:
            rows = zip(outputs[0], lengths, strict=True)
            return [states[:length].mean(0) if pool == "mean" else states[0] for states, length in rows]

        found = self._each(inputs, [STATES], read)
        return np.array(found, np.float32).reshape(len(inputs), self.card.dim)

    def states(self, inputs: Sequence[Input]) -> list[np.ndarray]:
        """The last state of every token, (T, D) an input."""

        def read(outputs: list[np.ndarray], lengths: list[int]) -> list[np.ndarray]:
            return [states[:length] for states, length in zip(outputs[0], lengths, strict=True)]

        return self._each(inputs, [STATES], read)

    def _each(
        self,
        inputs: Sequence[Input],
        names: list[str],
        read: Callable[[list[np.ndarray], list[int]], list[np.ndarray]],
    ) -> list[np.ndarray]:
        found: list[np.ndarray] = [np.empty(0)] * len(inputs)
        for chosen in by_length([len(one.ids) for one in inputs], BATCH_TOKENS, padded=True):
            batch = [inputs[number] for number in chosen]
            lengths = [len(one.ids) for one in batch]
            if max(lengths) > self.max_length:
                raise UserError(
                    f"a sequence of {max(lengths)} tokens is beyond the model's {self.max_length} positions"
                )
            arrays = rectangle(batch)
            if self.card.segments == 1 and arrays["token_type_ids"].any():
                raise UserError("the model has one segment, so it can't read pairs of texts; give single texts")
            outputs = computed(self.session, names, arrays)
            for number, answer in zip(chosen, read(outputs, lengths), strict=True):
                found[number] = answer
        return found


def rectangle(inputs: Sequence[Input]) -> dict[str, np.ndarray]:
    """Inputs side by side, (B, T) each: ids and segments filled up with 0, and a mask that is 1 at real tokens."""
    ids, mask, segments = np.zeros((3, len(inputs), max(len(one.ids) for one in inputs)), np.int64)
    for row, one in enumerate(inputs):
        length = len(one.ids)
        ids[row, :length] = one.ids
        mask[row, :length] = 1
        segments[row, one.second : length] = 1
    return dict(zip(INPUTS, (ids, mask, segments), strict=True))


def open_session(model: Path | bytes) -> "InferenceSession":
    """A file, or the content of one, ready to run on all cores."""
    require("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    options.log_severity_level = 4  # what goes wrong is raised, and told once
    content = model if isinstance(model, bytes) else str(model)
    try:
        return onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER
        )
    except Exception as error:  # its errors have nothing in common but this
        if short_of_memory(error) is not None:
            raise MemoryError(str(error)) from None
        name = "the file" if isinstance(model, bytes) else model
        raise UserError(
            f"{name} can't be read by onnxruntime ({type(error).__name__}); move it away and export the model again"
        ) from None


def computed(session: "InferenceSession", names: Sequence[str], arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of these names; a lack of memory is Python's own error, since onnxruntime has one for all."""
    try:
        return [np.asarray(output) for output in session.run(names, arrays)]
    except Exception as error:
        if short_of_memory(error) is None:
            raise
        raise MemoryError(str(error)) from None
