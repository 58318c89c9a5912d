import pytest
import torch

from heedful.models.word2vec import BLOCK, DRAWS, TOGETHER, Blocks, SkipGram, blocks, initialise, learn
from heedful.train.replay_words import RECORDED, UPDATES, WordReplay

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
VOCABULARY, DIM = 211, 23


def text(recordings: int, device: str) -> Blocks:
    generator = torch.Generator().manual_seed(0)
    count = recordings * RECORDED
    ids = torch.randint(VOCABULARY, (count * BLOCK,), generator=generator)
    ids[307:407] = 7  # a burst, in which a row is held back
    made = blocks(
        ids,
        (torch.arange(len(ids)) // 17).int(),
        torch.randint(1, 6, (len(ids),), generator=generator).short(),
        window=5,
        negatives=5,
        noise=torch.arange(1, VOCABULARY + 1) / VOCABULARY,
        uniform=torch.rand(count, DRAWS, generator=generator),
        rates=torch.linspace(0.03, 0.01, count),
    )
    return Blocks(*(tensor.to(device) for tensor in made))


def model(device: str) -> SkipGram:
    made = SkipGram(VOCABULARY, DIM)
    initialise(made, torch.Generator().manual_seed(1))
    return made.to(device)


def test_text_that_fills_no_recording_is_refused():
    with pytest.raises(ValueError, match=f"must be a multiple of {RECORDED}; got {RECORDED - 1}"):
        WordReplay(model("cpu")).learn(text(1, "cpu").part(0, RECORDED - 1))
    assert UPDATES * TOGETHER["cuda"] == RECORDED


@needs_gpu
def test_a_replay_learns_what_the_updates_do_one_by_one():
    replayed, plain, on_cpu = model("cuda"), model("cuda"), model("cpu")
    told = WordReplay(replayed).learn(text(2, "cuda"))
    expected = learn(plain, text(2, "cuda"), 2 * UPDATES)
    learn(on_cpu, text(2, "cpu"), 2 * UPDATES)
    torch.testing.assert_close(told, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(replayed.read, plain.read)
    torch.testing.assert_close(replayed.read.cpu(), on_cpu.read, rtol=1e-3, atol=1e-4)


@needs_gpu
def test_a_gpu_learns_the_same_every_time():
    one, other = model("cuda"), model("cuda")
    for each in (one, other):
        WordReplay(each).learn(text(3, "cuda"))
    assert torch.equal(one.read, other.read)
    assert torch.equal(one.predicted, other.predicted)
