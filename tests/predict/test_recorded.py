"""Steps over fixed buffers find what the model's own steps find; on a CPU they run without being recorded."""

import importlib

import pytest
import torch
from torch.testing import assert_close

from heedful.decode import Limits, Marks, Recorder, SearchOptions, Task, search
from heedful.models.transformer import Transformer, TransformerConfig, initialise
from heedful.predict.recorded import RecordedSteps, _bytes

V, B, S = 31, 13, 41
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]
looking = importlib.import_module("heedful.decode.search")


@pytest.fixture(scope="module")
def model() -> Transformer:
    config = TransformerConfig(vocab_size=V, encoder_layers=2, decoder_layers=2, dim=24, heads=3, ffn_dim=37)
    made = Transformer(config)
    initialise(made, torch.Generator().manual_seed(1))
    for parameter in made.parameters():
        if parameter.dim() > 1:
            parameter.data *= 2.5  # or it would say the same whatever it reads
    return made.eval()


def sentences() -> tuple[torch.Tensor, torch.Tensor, list[Limits]]:
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, S + 1, (B,), generator=draw)
    source = torch.randint(4, V, (B, S), generator=draw)
    return source, torch.arange(S) < lengths[:, None], [Limits(0, int(one) + 40) for one in lengths]


@torch.inference_mode()
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(beam=4, n_best=3),
        SearchOptions(beam=1),
        SearchOptions(beam=3, coverage_penalty=0.3, penalty="gnmt"),
        SearchOptions(beam=2, block_ngrams=2, early=True),
        SearchOptions(beam=3, min_length=5, length_penalty=-0.5),
    ],
)
def test_a_search_finds_the_same(
    model: Transformer,
    options: SearchOptions,
    whole: bool,
    every: int,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
):
    """Past several doublings of the room, with sentences that leave, and later batches in buffers of the first.

    `whole` has the search's own work recorded too.
    """
    monkeypatch.setitem(looking.LOOK_EVERY, device, every)
    source, mask, limits = sentences()
    source, mask, model = source.to(device), mask.to(device), model.to(device)
    memory, marks = model.encode(source, mask), Marks(1, 2, (0, 1))
    expected = search(
        model, Task(model.start(memory, options.width), limits, None, mask), marks, options, mask.device
    )
    steps = RecordedSteps(model)
    recorder = Recorder(mask.device) if whole else None
    for _ in range(3):
        task = Task(steps.start(memory, options.width), limits, None, mask)
        found = search(steps, task, marks, options, mask.device, recorder)
        assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in expected]
        for past in (past for recording in steps.recordings.values() for past in recording.cache.past):
            past.fill_(torch.nan)  # as a batch may leave it whose numbers are beyond fp16
    if not options.block_ngrams:  # which ends them early
        assert max(shape.room for shape in steps.recordings) >= 64


@torch.inference_mode()
def test_recordings_are_few_and_do_not_pile_up(model: Transformer):
    model = model.cpu()
    steps = RecordedSteps(model)
    for length in range(1, S):
        source = torch.full((3, length), 5)
        steps.start(model.encode(source, torch.ones(3, length, dtype=torch.bool)), 2)
    assert len(steps.recordings) == 3  # sources of up to 16, 32 and 48 tokens
    steps.most = 3 * max(_bytes(model, shape) for shape in steps.recordings)
    for beams in range(2, 40):
        memory = model.encode(torch.full((1, 3), 5), torch.ones(1, 3, dtype=torch.bool))
        under = steps.start(memory, beams)
        assert next(reversed(steps.recordings)) == under.shape
        assert len(steps.recordings) == 2 or sum(_bytes(model, one) for one in steps.recordings) <= steps.most


@torch.inference_mode()
def test_scores_and_weights_are_those_of_the_model(model: Transformer):
    model = model.cpu()
    source, mask, _ = sentences()
    memory = model.encode(source, mask)
    steps = RecordedSteps(model)
    state, cache = steps.start(memory, 3), model.start(memory, 3)
    draw = torch.Generator().manual_seed(3)
    for _ in range(5):
        tokens, parents = (torch.randint(low, high, (B, 3), generator=draw) for low, high in ((3, V), (0, 3)))
        expected, cache, looked = model.step(cache, tokens, parents, explain=True)
        found, state, weights = steps.step(state, tokens, parents, explain=True)
        assert_close(found, expected)
        assert_close(weights, looked)
