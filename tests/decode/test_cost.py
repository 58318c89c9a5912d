"""What a step costs does not grow with what was written before, but for the attention itself: counted, not timed."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from heedful.decode import Limits, Marks, SearchOptions, Task, search
from heedful.models.rnn import Rnn, RnnConfig
from heedful.models.transformer import ROOM, Transformer, TransformerConfig

B, K, S, V, LONGEST = 3, 2, 5, 31, 2 * ROOM + 7
CPU = torch.device("cpu")
OPTIONS = SearchOptions(beam=K)


class Work(TorchFunctionMode):
    """Notes the shapes that reach linear layers and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.linear: list[tuple[int, ...]] = []
        self.attention: list[tuple[int, ...]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            self.linear.append(tuple(args[0].shape))
        if func is F.scaled_dot_product_attention:
            self.attention.append(tuple(args[1].shape))
        return func(*args, **(kwargs or {}))


class Watched:
    """A model whose every step is noted, with the state that it returned."""

    def __init__(self, model: Transformer | Rnn) -> None:
        self.model = model
        self.work: list[Work] = []
        self.states: list[Any] = []

    def step(self, *given: Any) -> Any:
        self.work.append(Work())
        with self.work[-1]:
            found = self.model.step(*given)
        self.states.append(found[1])
        return found

    def keep(self, state: Any, sentences: torch.Tensor) -> Any:
        return self.model.keep(state, sentences)


@torch.inference_mode()
def watch(model: Transformer | Rnn) -> Watched:
    torch.manual_seed(1)
    for parameter in model.parameters():
        parameter.normal_(0.0, 0.2)
    source = torch.randint(3, V, (B, S))
    memory: Any = model.eval().encode(source, torch.ones_like(source, dtype=torch.bool))
    watched = Watched(model)
    task = Task(model.start(memory, K), [Limits(LONGEST, LONGEST)] * B)
    search(watched, task, Marks(1, 2, (0, 1)), OPTIONS, CPU)
    assert len(watched.work) == LONGEST + 1
    return watched


def test_a_transformer_reads_one_token_a_step_and_looks_at_those_before():
    layers, heads = 2, 2
    config = TransformerConfig(vocab_size=V, encoder_layers=1, decoder_layers=layers, dim=14, heads=heads, ffn_dim=11)
    watched = watch(Transformer(config))
    first = watched.work[0].linear
    assert {math.prod(shape[:-1]) for shape in first} == {B * K}
    for length, work in enumerate(watched.work):
        assert work.linear == first
        assert work.attention == [(B * K, heads, length + 1, 7), (B, heads, S, 7)] * layers
    rooms = [len(cache.past[0]) for cache in watched.states]
    assert rooms == [ROOM] * ROOM + [2 * ROOM] * ROOM + [4 * ROOM] * (LONGEST + 1 - 2 * ROOM)
    places = [cache.past[-1].data_ptr() for cache in watched.states]
    assert len(set(places[:ROOM])) == len(set(places[ROOM : 2 * ROOM])) == 1  # the past is not made anew each step


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_recurrent_model_does_the_same_work_every_step(cell: str):
    config = RnnConfig(vocab_size=V, layers=2, dim=14, cell=cell)
    watched = watch(Rnn(config))
    first = watched.work[0].linear
    assert {math.prod(shape[:-1]) for shape in first} == {B * K}

    def sizes(state: Any) -> list[Any]:
        return [state.keys.shape, state.joined.shape, *(part.shape for part in state.hidden)]

    for work, state in zip(watched.work, watched.states, strict=True):
        assert work.linear == first
        assert work.attention == []
        assert sizes(state) == sizes(watched.states[0])
