import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from heedful.errors import Interrupted, UserError
from heedful.train import distributed
from heedful.train.distributed import World, may_restart, restarts, world

THREE = """
import sys
import torch
from pathlib import Path
from torch import nn
from heedful.errors import UserError
from heedful.train.distributed import world

with world("cpu") as ranks:
    mine = 2.0 ** ranks.rank
    assert ranks.ranks == 3
    assert ranks.sum_numbers([mine, 1.0]) == [7.0, 3.0]
    assert ranks.share(["first", mine]) == ["first", 1.0]
    assert ranks.gather(mine) == [1.0, 2.0, 4.0]

    # A parameter that only one rank has used is summed like the others, in their order.
    parameters = [nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(5))]
    parameters[0].grad = torch.full((2, 3), mine)
    if ranks.rank == 1:
        parameters[1].grad = torch.arange(5.0)
    ranks.sum_gradients(parameters)
    assert torch.equal(parameters[0].grad, torch.full((2, 3), 7.0))
    assert torch.equal(parameters[1].grad, torch.arange(5.0))

    file = Path(sys.argv[1]) / "made"
    found = ranks.in_turn(lambda: file.write_text("by the first") if ranks.leads else file.read_text())
    assert found == (12 if ranks.leads else "by the first")

    def only_the_first():
        if ranks.rank:
            raise UserError("there is no file here")
        return "made"

    try:
        assert ranks.in_turn(only_the_first) == "made"
        said = ""
    except UserError as error:
        said = str(error)
    assert (said == "") == ranks.leads
    assert ranks.leads or said.startswith("this fails where the first process did not (")
    assert ranks.leads or "(there is no file here); every node must see the same files" in said
    ranks.barrier()
print("well")
"""


def test_three_processes_sum_share_and_take_turns(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", THREE, tmp_path],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **common, "RANK": str(rank)},
        )
        for rank in range(3)
    ]
    said = [process.communicate(timeout=60) for process in started]
    assert said == [("well\n", "")] * 3


def test_alone_everything_is_its_own():
    with world("cpu") as alone:
        assert alone == World(0, 1)
    assert alone.leads
    assert alone.sum_numbers([3.0, 5.0]) == [3.0, 5.0]
    assert alone.share("mine") == "mine"
    assert alone.gather("mine") == ["mine"]
    assert alone.in_turn(lambda: 7) == 7
    parameter = nn.Parameter(torch.zeros(3))
    alone.sum_gradients([parameter])
    assert parameter.grad is None
    assert alone.whole(parameter) is parameter


def test_it_is_told_how_to_start_as_many_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert World().launcher() == "heedful"
    assert World(0, 3).launcher() == "torchrun --nproc-per-node 3 -m heedful"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert World(5, 6).launcher() == "torchrun --nnodes 2 --rdzv-backend … --nproc-per-node 3 -m heedful"


def test_who_ends_alike_is_told_once():
    wrong, stop = UserError("wrong"), Interrupted("stopped")
    assert World(0, 3).ending(wrong) is wrong
    for error, code in ((wrong, 2), (stop, 130)):
        silent = World(2, 3).ending(error)
        assert isinstance(silent, SystemExit)
        assert silent.code == code


@pytest.mark.parametrize("stale", [False, True])
def test_only_who_is_alive_meets(stale: bool):
    """A name that an earlier leading rank offered is not taken, nor one that was confirmed to others."""
    store = dist.HashStore()
    if stale:
        store.set("offer", "old")
        for rank in (1, 2):
            store.set(f"old/{rank}", "dead")
            store.set(f"old/{rank}/dead", "confirmed")
    with ThreadPoolExecutor(3) as three:
        coming = [three.submit(distributed._meeting, store, rank, 3) for rank in (2, 1)]
        name = three.submit(distributed._meeting, store, 0, 3).result(timeout=10)
        assert [one.result(timeout=10) for one in coming] == [name, name]
    assert name != "old"


def test_processes_without_a_gpu_of_their_own_are_refused_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(
        UserError, match=r"3 processes were started on .*, which has 2 GPUs; use --nproc-per-node 2, "
    ):
        world("cuda").__enter__()
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(SystemExit, match="2"):
        world("cuda").__enter__()


def test_without_torchrun_nobody_finds_the_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        UserError,
        match=r"the 2 processes of this run can't find each other \(.*RANK.*\); start them by torchrun",
    ):
        world("cpu").__enter__()


def test_torchrun_says_whether_it_starts_a_run_again(monkeypatch: pytest.MonkeyPatch):
    for name in ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"):
        monkeypatch.delenv(name, raising=False)
    assert (restarts(), may_restart()) == (0, False)
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "0")
    assert not may_restart()
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    assert (restarts(), may_restart()) == (0, True)
    monkeypatch.delenv("TORCHELASTIC_MAX_RESTARTS")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert (restarts(), may_restart()) == (2, True)
