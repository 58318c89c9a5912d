import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from heedful.errors import UserError
from heedful.train import checkpoint, sharding
from heedful.train.distributed import World
from heedful.train.optim import adamw, state_tensors

STATE = {"position": [1, 2], "shards": "key"}
STEPS = """
import sys
import torch
from pathlib import Path
from heedful.train import sharding
from heedful.train.distributed import world
from heedful.train.optim import adamw, clip

def made():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(7, 7) for _ in range(2)]
    return torch.nn.Sequential(torch.nn.Linear(5, 7), *layers, torch.nn.Linear(7, 3))

def steps(model, optimizer, first, last, ranks):
    "Batches of 11 for each of six, whom the ranks share; what is summed is divided by the count of all."
    for step in range(first, last):
        for part in range(ranks.rank, 6, ranks.ranks):
            x = torch.randn(11, 5, generator=torch.Generator().manual_seed(100 * step + part))
            (model(x).square().sum() / 66).backward()
        parameters = list(model.parameters())
        ranks.sum_gradients(parameters)
        norms.append(float(ranks.whole(clip(parameters, 0.1))))
        optimizer.step()
        optimizer.zero_grad()

def optimizer_of(model):
    return adamw(model, lr=1e-2, betas=(0.9, 0.98), eps=1e-6, decay=0.01)

norms = []
"""
SAVE = """
with world("cpu") as ranks:
    model = made()
    ranks = sharding.shard(model, model[1:3], torch.device("cpu"), ranks)
    assert ranks.sharded
    optimizer = optimizer_of(model)
    held = sum(parameter.to_local().numel() for parameter in model.parameters())
    assert held < 0.7 * sum(parameter.numel() for parameter in model.parameters())
    steps(model, optimizer, 0, 3, ranks)
    folder = Path(sys.argv[1])
    sharding.save(folder, step=3, state={"norms": norms}, model=model, optimizer=optimizer, keep=2, ranks=ranks)
    weights = sharding.gathered(model, ranks)
    assert bool(weights) == ranks.leads
    if ranks.leads:
        torch.save(weights, folder / "gathered")
"""
LOAD = """
with world("cpu") as ranks:
    model = made()
    ranks = sharding.shard(model, model[1:3], torch.device("cpu"), ranks)
    optimizer = optimizer_of(model)
    folder = Path(sys.argv[1])
    state = sharding.load_last(folder, model=model, optimizer=optimizer, ranks=ranks, warn=print)
    assert state["step"] == 3
    steps(model, optimizer, 3, 5, ranks)
    weights = sharding.gathered(model, ranks)
    if ranks.leads:
        torch.save(weights, folder / "after")
"""


def processes(count: int, script: str, folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", STEPS + script, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **common, "RANK": str(rank)},
        )
        for rank in range(count)
    ]
    assert [process.communicate(timeout=60)[0] for process in started] == [""] * count


def test_parts_make_the_whole_and_go_on_with_another_number_of_processes(tmp_path: Path):
    """Two processes, then three, as one that sees all: weights, norms and what the optimizer remembers."""
    processes(2, SAVE, tmp_path)
    here: dict = {}
    exec(STEPS, here)
    model = here["made"]()
    optimizer = here["optimizer_of"](model)
    here["steps"](model, optimizer, 0, 3, World())
    for name, tensor in torch.load(tmp_path / "gathered").items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=1e-6)

    again = here["made"]()
    memory = here["optimizer_of"](again)
    state = sharding.load_last(tmp_path, model=again, optimizer=memory, ranks=World(), warn=pytest.fail)
    assert state is not None
    assert state["norms"] == pytest.approx(here["norms"], abs=1e-6)
    assert min(here["norms"]) > 0.1  # all are clipped, by the norm of all parts
    expected = state_tensors(optimizer, model)
    found = state_tensors(memory, again)
    assert found.keys() == expected.keys()
    assert {name.rpartition("/")[2] for name in found} == {"step", "exp_avg", "exp_avg_sq"}
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-6)

    processes(3, LOAD, tmp_path)
    here["steps"](model, optimizer, 3, 5, World())
    for name, tensor in torch.load(tmp_path / "after").items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=1e-6)


Made = tuple[nn.Module, torch.optim.Optimizer]


@pytest.fixture
def made() -> Callable[[int], Made]:
    """A model that has taken a step, and its optimizer."""

    def make(seed: int) -> Made:
        torch.manual_seed(seed)
        model = nn.Linear(5, 3)
        optimizer = adamw(model, lr=0.1, betas=(0.9, 0.98), eps=1e-6, decay=0.01)
        model(torch.ones(2, 5)).sum().backward()
        optimizer.step()
        return model, optimizer

    return make


def save(folder: Path, step: int, one: Made) -> None:
    sharding.save(folder, step=step, state=STATE, model=one[0], optimizer=one[1], keep=2, ranks=World())


def load(folder: Path, one: Made, warn: Callable[[str], None] = pytest.fail) -> dict | None:
    return sharding.load_last(folder, model=one[0], optimizer=one[1], ranks=World(), warn=warn)


def same(one: Made, other: Made) -> bool:
    tables = [{**model.state_dict(), **state_tensors(optimizer, model)} for model, optimizer in (one, other)]
    assert tables[0].keys() == tables[1].keys()
    return all(torch.equal(tensor, tables[1][name]) for name, tensor in tables[0].items())


def test_alone_nothing_is_spread(made: Callable[[int], Made]):
    model, _ = made(0)
    assert sharding.shard(model, [], torch.device("cpu"), World()) == World()
    assert type(model.weight) is nn.Parameter
    assert sharding.gathered(model, World()).keys() == {"weight", "bias"}


def test_old_checkpoints_go_and_the_newest_comes_back(tmp_path: Path, made: Callable[[int], Made]):
    assert load(tmp_path, made(0)) is None
    for step in (2, 3, 5):
        save(tmp_path, step, made(step))
    assert [path.name for path in checkpoint.steps(tmp_path)] == ["step-00000003", "step-00000005"]
    back = made(0)
    assert not same(back, made(5))
    assert load(tmp_path, back) == {"step": 5, **STATE}
    assert same(back, made(5))


@pytest.mark.parametrize("name", ["__0_0.distcp", ".metadata", "state.json"])
def test_a_damaged_file_is_noticed_and_the_one_before_is_used(tmp_path: Path, name: str, made: Callable[[int], Made]):
    for step in (2, 3):
        save(tmp_path, step, made(step))
    path = tmp_path / "step-00000003" / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    said: list[str] = []
    back = made(0)
    assert load(tmp_path, back, said.append) == {"step": 2, **STATE}
    assert same(back, made(2))
    assert len(said) == 1
    assert f"{name} has another checksum" in said[0]
    (tmp_path / "step-00000002" / name).unlink()
    with pytest.raises(UserError, match=r"every checkpoint in .* is damaged"):
        load(tmp_path, back, said.append)


@pytest.mark.parametrize(
    "said", [OSError(28, "No space left on device"), RuntimeError("[enforce fail at inline_container.cc:672] .")]
)
def test_what_can_not_be_written_is_told_as_it_is_and_does_not_count(
    said: Exception, tmp_path: Path, made: Callable[[int], Made], monkeypatch: pytest.MonkeyPatch
):
    save(tmp_path, 2, made(2))

    def full(*_: object, **__: object) -> None:
        raise said

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left on device"):
        save(tmp_path, 3, made(3))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_a_part_that_lies_on_another_machine_is_an_error_and_does_not_count(
    tmp_path: Path, made: Callable[[int], Made], monkeypatch: pytest.MonkeyPatch
):
    save(tmp_path, 2, made(2))
    monkeypatch.setattr(World, "gather", lambda _, value: [value, {"__1_0.distcp": "digest"}])
    with pytest.raises(
        UserError, match=r"another process has written __1_0.distcp, but not into the .* that is here"
    ):
        save(tmp_path, 3, made(3))
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]
