import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.data.flaws import Flaw
from heedful.data.inputs import Input
from heedful.data.labelled import TextExample
from heedful.data.token_workers import TokenWorkers
from heedful.errors import UserError
from heedful.formats.huggingface import Model
from heedful.models.bert import Bert
from heedful.predict import Predictor
from heedful.predict import engine as engines
from heedful.predict.engine import Launched, TorchEngine, by_length, joined
from heedful.predict.reading import CHUNK, GPU_CHUNK, UNDER_WAY, Pace, answers
from heedful.predict.texts import TextReader

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
KINDS = ("classify", "mean", "multilabel", "regress", "tag", "answer")
lengths_of_inputs = st.lists(st.integers(1, 41), max_size=29)


def ragged(count: int = 19, *, pairs: bool = True) -> list[Input]:
    generator = np.random.default_rng(5)
    inputs = []
    for number in range(count):
        length = int(generator.integers(2, 38))
        second = length // 2 if pairs and number % 2 else length
        inputs.append(Input(generator.integers(0, 211, length).astype(np.int32), second))
    return inputs


@torch.inference_mode()
def alone(model: Model, one: Input) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The encoder's states (T, D) and the head's scores of an input by itself, in a rectangle of one row."""
    ids = torch.from_numpy(one.ids).long()[None]
    segments = (torch.arange(len(one.ids)) >= one.second).long()[None]
    encoder = model if isinstance(model, Bert) else model.bert
    scores = None if isinstance(model, Bert) else model(ids, segments)[0]
    return encoder(ids, segments).hidden[0], scores


def assert_alike(found: Sequence[np.ndarray], expected: Sequence[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == tuple(other.shape)
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other.numpy(), atol=1e-5)


@pytest.mark.parametrize("room", [1, 64, 4096])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_each_input_alone(
    small_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch, kind: str, room: int
):
    monkeypatch.setitem(engines.BATCH_TOKENS, "cpu", room)
    model, inputs = small_model(kind), ragged()
    expected = [alone(model, one)[1] for one in inputs]
    assert torch.cat([one.flatten() for one in expected]).std() > 0.1  # else anything would do
    assert_alike(TorchEngine(model).scores(inputs), expected)


@pytest.mark.parametrize("room", [1, 64, 4096])
@pytest.mark.parametrize("kind", ["encoder", "words", "answer"])
def test_vectors_are_the_first_state_or_the_mean(
    small_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch, kind: str, room: int
):
    monkeypatch.setitem(engines.BATCH_TOKENS, "cpu", room)
    model, inputs = small_model(kind), ragged()
    states = [alone(model, one)[0] for one in inputs]
    engine = TorchEngine(model)
    assert_alike(list(engine.vectors(inputs, "cls")), [one[0] for one in states])
    assert_alike(list(engine.vectors(inputs, "mean")), [one.mean(0) for one in states])


def test_nothing_in_nothing_out(small_model: Callable[..., Model]):
    engine = TorchEngine(small_model("classify"))
    assert engine.scores([]) == []
    assert engine.vectors([], "mean").shape == (0, 24)


def test_what_an_engine_says_of_itself(small_model: Callable[..., Model]):
    engine = TorchEngine(small_model("tag"))
    assert engine.head is not None
    assert (engine.head.task, engine.max_length, engine.vocab_size) == ("tag", 37, 211)
    assert TorchEngine(small_model("words")).head is None
    assert TorchEngine(small_model("encoder")).head is None


def test_a_model_in_training_is_put_at_rest(small_model: Callable[..., Model]):
    model, inputs = small_model("classify", dropout=0.5, attention_dropout=0.5), ragged(3)
    expected = [alone(model, one)[1] for one in inputs]
    model.train()
    assert_alike(TorchEngine(model).scores(inputs), expected)
    model.train()
    assert_alike(list(TorchEngine(model).vectors(inputs, "cls")), [alone(model.eval(), one)[0][0] for one in inputs])


def test_no_gradients_are_kept(small_model: Callable[..., Model]):
    model = small_model("classify")
    seen = []
    hook = model.register_forward_hook(lambda _, __, output: seen.append(output.requires_grad))
    TorchEngine(model).scores(ragged(2))
    hook.remove()
    assert seen == [False]


def test_a_model_with_one_segment_reads_single_texts_only(small_model: Callable[..., Model]):
    model = small_model("classify", segments=1)
    engine = TorchEngine(model)
    inputs = ragged(pairs=False)
    ids = [torch.from_numpy(one.ids).long()[None] for one in inputs]
    assert_alike(engine.scores(inputs), [model(one)[0].detach() for one in ids])
    with pytest.raises(UserError, match="one segment, so it can't read pairs of texts"):
        engine.scores(ragged())


def test_a_model_without_segments_reads_pairs(small_model: Callable[..., Model]):
    model = small_model("classify", segments=0)
    ids = [torch.from_numpy(one.ids).long()[None] for one in ragged()]
    assert_alike(TorchEngine(model).scores(ragged()), [model(one)[0].detach() for one in ids])


def test_an_input_beyond_the_positions_is_refused(small_model: Callable[..., Model]):
    with pytest.raises(UserError, match="38 tokens is beyond the model's 37 positions"):
        TorchEngine(small_model("classify")).scores([Input(np.ones(38, np.int32), 38)])


@settings(deadline=None)
@given(lengths=lengths_of_inputs, room=st.integers(1, 97), padded=st.booleans())
def test_batches_hold_every_input_once_and_keep_to_their_room(lengths: list[int], room: int, padded: bool):
    batches = list(by_length(lengths, room, padded=padded))
    order = [number for batch in batches for number in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[number] for number in order] == sorted(lengths, reverse=True)
    assert all(batches)

    def tokens(batch: list[int]) -> int:
        taken = [lengths[number] for number in batch]
        return max(taken) * len(taken) if padded else sum(taken)

    assert all(len(batch) == 1 or tokens(batch) <= room for batch in batches)
    # None could have taken one more.
    assert all(tokens([*batch, after[0]]) > room for batch, after in pairwise(batches))


def test_batches_by_hand():
    assert list(by_length([3, 5, 2, 5], 8)) == [[1], [3, 0], [2]]
    assert list(by_length([3, 5, 2, 5], 10)) == [[1, 3], [0, 2]]
    assert list(by_length([3, 5, 2, 5], 10, padded=True)) == [[1, 3], [0, 2]]
    assert list(by_length([3, 5, 2, 5], 5, padded=True)) == [[1], [3], [0], [2]]
    assert list(by_length([], 5)) == []


@pytest.mark.parametrize("kind", [*KINDS, "words", "encoder"])
def test_a_twin_with_joined_matrices_says_the_same_and_leaves_the_model_alone(
    small_model: Callable[..., Model], kind: str
):
    model, inputs = small_model(kind), ragged()
    before = list(model.state_dict())
    twin = joined(model)
    assert list(model.state_dict()) == before
    own = dict(twin.named_parameters())
    assert all(own[name] is parameter for name, parameter in model.named_parameters())
    assert len(own) > len(before)
    expected, found = TorchEngine(model), TorchEngine(twin)
    np.testing.assert_allclose(found.vectors(inputs, "mean"), expected.vectors(inputs, "mean"), atol=1e-5)
    if kind in KINDS:
        assert_alike(found.scores(inputs), [torch.from_numpy(one) for one in expected.scores(inputs)])


def test_what_fp16_can_not_express_is_refused():
    offsets = np.array([0, 3, 5])
    beyond = torch.tensor([[1.0, 2.0], [torch.inf, 3.0]])
    with pytest.raises(UserError, match="too large for fp16; use --precision bf16 or fp32"):
        Launched([1, 0], offsets, beyond, None, half=True).found()
    with pytest.raises(UserError, match="too large for fp16"):
        Launched([1, 0], offsets, beyond * 0, None, half=True).found()  # not a number
    assert np.array_equal(Launched([1, 0], offsets, beyond, None, half=False).found(), beyond.numpy())
    assert np.array_equal(Launched([1, 0], offsets, beyond[:1], None, half=True).found(), [[1.0, 2.0]])


class Squares:
    """Reads numbers, can't read negative ones, and dies of 13. Small numbers take longest."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def prepare(self, examples: Sequence[int]) -> list[str | Flaw]:
        return [Flaw(str(one), "negative") if one < 0 else f"{one}" for one in examples]

    def answer(self, prepared: Sequence[str]) -> list[int]:
        self.threads.add(threading.current_thread().name)
        if "13" in prepared:
            raise UserError("13 is unlucky; leave it out")
        return [int(one) ** 2 for one in prepared]


@settings(deadline=None)
@given(
    items=st.lists(st.one_of(st.integers(-5, 12), st.builds(Flaw, st.text(max_size=2), st.just("broken")))),
    chunk=st.integers(1, 7),
)
def test_going_ahead_gives_the_same_in_the_same_order(items: list[int | Flaw], chunk: int):
    assert list(answers(Squares(), items, Pace(chunk, ahead=True))) == list(answers(Squares(), items, Pace(chunk)))


def test_other_threads_do_the_work_when_going_ahead():
    reader = Squares()
    assert len(list(answers(reader, range(12), Pace(5, ahead=True)))) == 12
    assert threading.current_thread().name not in reader.threads
    assert len(list(answers(reader, range(12), Pace(5)))) == 12
    assert threading.current_thread().name in reader.threads


def test_chunks_are_answered_at_the_same_time_and_given_in_order():
    """The first chunk waits until the second has been answered: one after the other, it would wait forever."""
    second = threading.Event()

    class Waiting(Squares):
        def answer(self, prepared: Sequence[str]) -> list[int]:
            if prepared == ["0", "1"]:
                assert second.wait(10)
            if prepared == ["2", "3"]:
                second.set()
            return super().answer(prepared)

    found = list(answers(Waiting(), range(7), Pace(2, ahead=True)))
    assert found == [(number, number**2) for number in range(7)]


def test_what_goes_wrong_is_raised_in_its_turn_when_going_ahead():
    def broken() -> Iterator[int]:
        yield from range(5)
        raise UserError("row 6 is where the disk ended")

    for items, match, before in ((range(40), "unlucky", 12), (broken(), "disk ended", 4)):
        found: list[object] = []
        with pytest.raises(UserError, match=match):
            found.extend(answers(Squares(), items, Pace(2, ahead=True)))
        assert found == [(number, number**2) for number in range(before)]


def test_no_more_is_taken_than_some_chunks_ahead():
    taken = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(len(taken))
            yield 5

    found = answers(Squares(), endless(), Pace(3, ahead=True))
    assert not taken
    for _ in range(4):  # of the second chunk
        assert next(found) == (5, 25)
    deadline = time.monotonic() + 10
    while len(taken) < 3 * (2 + UNDER_WAY) and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    assert len(taken) == 3 * (2 + UNDER_WAY)
    before = threading.active_count()
    found.close()  # type: ignore[attr-defined]
    assert threading.active_count() < before
    assert len(taken) == 3 * (2 + UNDER_WAY)


@pytest.fixture
def hasty(small_predictor: Callable[[str], Predictor], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Predictor]:
    """Predictors that go ahead as on a GPU, with small chunks."""
    monkeypatch.setattr(Predictor, "pace", lambda *_: Pace(3, ahead=True))
    return small_predictor


def test_long_lists_are_answered_ahead_as_at_once(hasty: Callable[[str], Predictor], monkeypatch: pytest.MonkeyPatch):
    texts = [" ".join(["mill"] * (1 + number * 7 % 11)) for number in range(17)]
    pairs = [(one, "the river") for one in texts]
    words, questions = [one.split() for one in texts], [("mill?", one) for one in texts]
    found = [
        hasty("encoder").embed(texts),
        hasty("classify").classify(texts),
        hasty("classify").classify(pairs),
        hasty("tag").tag(words),
        hasty("answer").answer(questions),
    ]
    monkeypatch.setattr(Predictor, "pace", lambda *_: Pace())
    expected = [
        hasty("encoder").embed(texts),
        hasty("classify").classify(texts),
        hasty("classify").classify(pairs),
        hasty("tag").tag(words),
        hasty("answer").answer(questions),
    ]
    assert found[0].shape == (17, 24)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-6)
    for one, other in zip(found[1:3], expected[1:3], strict=True):
        assert [answer.label for answer in one] == [answer.label for answer in other]
        assert [answer.probability for answer in one] == pytest.approx([answer.probability for answer in other])
    assert [one.tags for one in found[3]] == [one.tags for one in expected[3]]
    assert [one[0].text for one in found[4]] == [one[0].text for one in expected[4]]


def test_the_first_text_that_can_not_be_read_is_named_when_going_ahead(hasty: Callable[[str], Predictor]):
    texts = ["mill"] * 11
    texts[5], texts[7], texts[10] = "mill " * 60, "", "  "
    with pytest.raises(UserError, match=r"^'mill mill .*62 tokens, of which 37 can be read"):
        hasty("encoder").embed(texts)


def test_texts_that_were_cut_are_counted_by_all_threads(small_predictor: Callable[[str], Predictor]):
    reader = small_predictor("encoder").vectors(None, None, True)
    texts = [TextExample(str(number), "mill " * (60 if number % 3 else 2), None) for number in range(101)]
    assert len(list(answers(reader, texts, Pace(2, ahead=True)))) == 101
    assert reader.cuts.count == 67


def test_a_cpu_is_given_what_it_always_was(small_predictor: Callable[[str], Predictor]):
    predictor = small_predictor("classify")
    reader = predictor.reader("classify")
    assert predictor.pace(reader) == Pace(CHUNK, ahead=False)
    assert isinstance(reader, TextReader)
    assert reader.workers is predictor.vectors(None, None, None).workers is None


@needs_gpu
@pytest.mark.parametrize("kind", [*KINDS, "encoder"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gpu_with_batches_in_flight_says_what_a_cpu_says(
    small_model: Callable[..., Model], monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype
):
    monkeypatch.setitem(engines.BATCH_TOKENS, "cuda", 64)
    inputs = ragged(331)
    slow, engine = TorchEngine(small_model(kind)), TorchEngine(small_model(kind).to("cuda", dtype))
    tolerance = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    with ThreadPoolExecutor(3) as pool:
        if kind in KINDS:
            expected = np.concatenate([one.ravel() for one in slow.scores(inputs)])
            runs = list(pool.map(engine.scores, [inputs] * 3))
            found = [np.concatenate([one.ravel() for one in run]) for run in runs]
        else:
            expected = slow.vectors(inputs, "mean")
            found = list(pool.map(lambda one: engine.vectors(one, "mean"), [inputs] * 3))
    for one in found:
        assert np.linalg.norm(one - expected) < tolerance * np.linalg.norm(expected)


@needs_gpu
def test_a_gpu_goes_ahead(small_model: Callable[..., Model], small_predictor: Callable[[str], Predictor]):
    model = small_model("classify").half().cuda()
    before = list(model.state_dict())
    predictor = Predictor(TorchEngine(model), small_predictor("classify").tokenizer)
    assert list(model.state_dict()) == before
    reader = predictor.reader("classify")
    assert predictor.pace(reader) == Pace(GPU_CHUNK, ahead=True)
    assert isinstance(reader, TextReader)
    assert reader.workers is predictor.vectors(None, None, None).workers is not None


@needs_gpu
def test_a_gpu_reads_what_workers_prepare(
    small_model: Callable[..., Model],
    small_predictor: Callable[[str], Predictor],
    started: Callable[..., TokenWorkers],
):
    texts = [" ".join(["mill"] * (1 + number * 7 % 11)) for number in range(2 * GPU_CHUNK + 1)]
    slow = small_predictor("encoder")
    predictor = Predictor(TorchEngine(small_model("encoder").half().cuda()), slow.tokenizer)
    predictor.workers = started(slow.tokenizer, count=2)
    found = predictor.embed(texts)
    assert predictor.workers.ready
    np.testing.assert_allclose(found[::997], slow.embed(texts[::997]), atol=2e-2)
