import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.batch import PretrainingBatch
from heedful.errors import UserError
from heedful.models.bert import BertConfig, BertForPretraining, initialise
from heedful.runs.fitting import (
    all_but_the_margin,
    find_tokens,
    made_up,
    most_tokens,
    take_step,
    unchanged,
)
from heedful.tasks.pretraining import pretraining_terms
from heedful.tasks.term import Term
from heedful.train.optim import adamw


def test_a_lack_of_the_hosts_memory_is_none_of_the_gpus():
    def step(_: int) -> None:
        raise RuntimeError("[x.cpp:3] DefaultCPUAllocator: can't allocate memory")

    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        most_tokens(step, 128)


class Memory:
    """A GPU that bears so many tokens, and a note of what was tried."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.tried: list[int] = []

    def step(self, tokens: int) -> None:
        self.tried.append(tokens)
        if tokens > self.room:
            if tokens % 3 == 1:
                raise torch.OutOfMemoryError("no room")
            raise RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")  # of a library, which asks for memory of its own


@pytest.mark.parametrize(
    ("room", "found", "tried"),
    [
        (40_000, 32768, [128, 8192, 16384, 32768, 65536]),
        (8192, 8192, [128, 8192, 16384]),
        (1100, 1024, [128, 8192, 4096, 2048, 1024]),
        (128, 128, [128, 8192, 4096, 2048, 1024, 512, 256]),
        (10**9, 2**20, [128, *(2**power for power in range(13, 21))]),
    ],
)
def test_doubled_while_it_fits_or_halved_until_it_does(room: int, found: int, tried: list[int]):
    memory = Memory(room)
    assert most_tokens(memory.step, 128) == found
    assert memory.tried == tried


@given(st.integers(1, 2**21), st.integers(8, 2048))
def test_the_largest_power_of_two_that_fits_and_holds_a_sequence(room: int, length: int):
    least = next(2**power for power in range(12) if 2**power >= length)
    memory = Memory(room)
    if room < least:
        with pytest.raises(UserError, match=f"too small for one sequence of {length} tokens; try a smaller --size"):
            most_tokens(memory.step, length)
        return
    found = most_tokens(memory.step, length)
    assert found in memory.tried
    assert length <= found <= room
    assert found.bit_count() == 1
    assert 2 * found > min(room, 2**20)
    assert len(memory.tried) <= 14


def test_other_mistakes_are_not_about_memory():
    def step(_: int) -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        most_tokens(step, 128)


def test_a_made_up_batch_is_full():
    batch = made_up(256, length=31, vocab_size=97, mask_rate=0.15, nsp=True)
    assert batch.offsets.tolist() == [0, 31, 62, 93, 124, 155, 186, 217, 248]
    assert (len(batch.ids), len(batch.segments), batch.longest) == (248, 248, 31)
    assert len(batch.places) == len(batch.labels) == len(set(batch.places.tolist())) == 37  # 15% of 248
    assert batch.unrelated is not None
    assert len(batch.unrelated) == 8
    assert max(batch.ids.max(), batch.labels.max()) < 97
    assert np.all(np.diff(batch.places) > 0)
    assert made_up(256, length=31, vocab_size=97, mask_rate=0.15, nsp=False).unrelated is None


def model() -> BertForPretraining:
    config = BertConfig(vocab_size=97, layers=1, dim=8, heads=2, ffn_dim=13, max_length=31, dropout=0.0)
    made = BertForPretraining(config)
    initialise(made, 0.02, torch.Generator().manual_seed(3))
    return made


@pytest.mark.parametrize(("accumulation", "passes"), [(1, 1), (2, 2), (5, 2)])
def test_a_step_is_a_real_one(accumulation: int, passes: int):
    """Gradients of all parameters, at their place while the second batch is read, and a step of the optimizer."""
    made = model()
    optimizer = adamw(made, lr=0.01, betas=(0.9, 0.98), eps=1e-6, decay=0.0)
    before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    held = []

    def terms(batch: PretrainingBatch) -> dict[str, Term]:
        held.append(made.bert.embeddings.tokens.weight.grad is not None)
        return pretraining_terms(made, batch, torch.device("cpu"))

    batch = made_up(64, length=31, vocab_size=97, mask_rate=0.15, nsp=True)
    take_step(made, optimizer, terms, batch, accumulation)
    assert held == [False, True][:passes]
    assert all(p.grad is None for p in made.parameters())
    assert set(optimizer.state) == set(made.parameters())
    assert {name for name, t in made.state_dict().items() if torch.equal(t, before[name])} <= {
        "bert.layers.0.attention.key.bias"  # which no softmax notices
    }


def test_what_was_tried_leaves_no_trace():
    made, twin = model(), model()
    optimizer = adamw(made, lr=0.1, betas=(0.9, 0.98), eps=1e-6, decay=0.0)
    cpu = torch.device("cpu")
    tried = []

    def terms(batch: PretrainingBatch) -> dict[str, Term]:
        tried.append(len(batch.ids))
        if len(batch.ids) > 500:
            raise torch.OutOfMemoryError("no room")
        return pretraining_terms(made, batch, cpu)

    def step(tokens: int) -> None:
        take_step(made, optimizer, terms, made_up(tokens, length=31, vocab_size=97, mask_rate=0.15, nsp=True), 1)

    with unchanged(made, optimizer):
        assert most_tokens(step, 31) == 512  # 16 sequences of 31 are 496
        assert not torch.equal(made.nsp.weight, twin.nsp.weight)
    assert tried == [31, 264 * 31, 132 * 31, 66 * 31, 33 * 31, 16 * 31]
    assert all(torch.equal(one, other) for one, other in zip(made.parameters(), twin.parameters(), strict=True))
    assert not optimizer.state
    assert all(p.grad is None for p in made.parameters())


def test_a_tenth_of_what_is_free_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    """Of 80 units others hold 30, and we 10."""
    given, device = [], torch.device("cuda", 3)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (40, 80))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 10)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda *told: given.append(told))
    with all_but_the_margin(device):
        assert given == [(pytest.approx(0.9 * 50 / 80), device)]
    assert given[1:] == [(1.0, device)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_filled_and_left_as_it_was():
    made, twin = model().cuda(), model().cuda()
    optimizer = adamw(made, lr=0.1, betas=(0.9, 0.98), eps=1e-6, decay=0.0)
    whole: list[torch.Tensor] = []

    def terms(batch: PretrainingBatch) -> dict[str, Term]:
        if len(batch.ids) > 20_000:
            whole.append(torch.empty(2**60, dtype=torch.uint8, device="cuda"))  # more than any has
        return pretraining_terms(made, batch, torch.device("cuda"))

    def batch(tokens: int) -> PretrainingBatch:
        return made_up(tokens, length=31, vocab_size=97, mask_rate=0.15, nsp=True)

    assert find_tokens(made, optimizer, terms, batch, length=31, accumulation=1) == 16384
    assert all(torch.equal(one, other) for one, other in zip(made.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize(("length", "expected"), [(31, 8192), (8192, 8192), (8193, 16384)])
def test_a_cpu_takes_the_usual_number_and_tries_nothing(length: int, expected: int):
    made = model()
    optimizer = adamw(made, lr=0.01, betas=(0.9, 0.98), eps=1e-6, decay=0.0)

    def never(_: object) -> dict[str, Term]:
        raise AssertionError("nothing is tried")

    batch = made_up(64, length=31, vocab_size=97, mask_rate=0.15, nsp=True)
    assert find_tokens(made, optimizer, never, lambda _: batch, length=length, accumulation=1) == expected
    assert not optimizer.state


@pytest.mark.parametrize(("length", "rate"), [(8, 0.9), (128, 0.995)])
def test_of_a_made_up_batch_all_may_be_masked_but_the_first_of_each(length: int, rate: float):
    batch = made_up(256, length=length, vocab_size=61, mask_rate=rate, nsp=True)
    assert len(batch.places) == len(batch.labels) == 256 - 256 // length
    assert (batch.places % length).all()
