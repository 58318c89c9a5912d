"""Work that is recorded does what the work does."""

import pytest
import torch

from heedful.decode.recorder import MOST, Recorder

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


def more(count: torch.Tensor, by: int) -> None:
    count.add_(by)


@pytest.mark.parametrize("device", DEVICES)
def test_the_work_is_done_every_time(device: str):
    recorder, count = Recorder(torch.device(device)), torch.zeros(1, device=device)
    for number in range(1, 6):
        recorder.run("one more", lambda: more(count, 1))
        assert count.item() == number


@pytest.mark.parametrize("device", DEVICES)
def test_other_keys_are_other_work(device: str):
    recorder, count = Recorder(torch.device(device)), torch.zeros(1, device=device)
    for _ in range(3):
        recorder.run("one more", lambda: more(count, 1))
        recorder.run("ten more", lambda: more(count, 10))
    assert count.item() == 33


def test_who_came_first_is_held_until_there_is_too_much():
    recorder = Recorder(torch.device("cpu"))
    first, second = torch.zeros(1), torch.ones(1)
    assert recorder.held("a shape", first) is first
    assert recorder.held("a shape", second) is first
    recorder.works = dict.fromkeys(range(MOST + 1))
    assert recorder.held("a shape", second) is second
    assert recorder.works == {}
