"""Which states of a model are kept while it trains, and that a checkpoint brings them back."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from heedful.runs.watching import Judging, Looked, States, keeper, watcher
from heedful.train import checkpoint
from heedful.train.distributed import World
from heedful.train.log import Log, Sample
from heedful.train.loop import Plan, Progress

CPU = torch.device("cpu")


def offered(states: States, *scores: float) -> None:
    """Offer states after steps 1, 2, 3 …, whose weights are the step."""
    for step, score in enumerate(scores, 1):
        with torch.no_grad():
            states.model.get_parameter("bias").fill_(step)
        states.offer(step, {"loss": 7.0, "score": score})


def kept(states: States) -> list[int]:
    for one in states.kept:
        assert one.weights["bias"].tolist() == [one.step] * 3
    return [one.step for one in states.kept]


@pytest.mark.parametrize(
    ("options", "scores", "steps", "best", "stale"),
    [
        ({}, [2, 1], [1], 1, 1),
        ({}, [2, 1, 2], [3], 3, 2),  # of equals the last, which is no better
        ({}, [2, 1, 2, 5, 3], [4], 4, 1),
        ({}, [-3, -2], [2], 2, 0),
        ({"lower_is_better": True}, [2, 1, 3, 1], [4], 4, 2),
        ({"count": 2}, [1], [1], 1, 0),
        ({"count": 2}, [1, 5, 4, 3, 2], [2, 3], 2, 3),
        ({"count": 2}, [3, 3, 3, 3, 3], [4, 5], 5, 4),
        ({"count": 2}, [5, 3, 4], [1, 3], 1, 2),
        ({"count": 3, "newest": True}, [9, 5, 4, 3, 6], [3, 4, 5], 5, 4),
        ({"newest": True}, [9, 5], [2], 2, 1),
        ({}, [2, float("nan"), 1], [1], 1, 2),
    ],
)
def test_the_best_are_kept_or_the_newest(
    options: dict[str, bool], scores: list[float], steps: list[int], best: int, stale: int
):
    states = States(nn.Linear(2, 3), "score", **options)  # pyrefly: ignore
    offered(states, *scores)
    assert kept(states) == steps
    assert (states.best.step, states.stale) == (best, stale)
    assert states.best.scores == {"loss": 7.0, "score": scores[best - 1]}


def plan() -> Plan:
    return Plan(
        steps=11,
        budget=None,
        lr=0.1,
        warmup=0.0,
        accumulation=1,
        clip=1.0,
        seed=0,
        evaluations=5,
        checkpoint_steps=None,
        checkpoint_seconds=None,
    )


@pytest.mark.parametrize("seen", [[], [2.0], [3.0, 5.0, 4.0]])
def test_a_checkpoint_brings_them_back(tmp_path: Path, seen: list[float]):
    states = States(nn.Linear(2, 3), "score", count=2)
    offered(states, *seen)
    optimizer = torch.optim.AdamW(states.model.parameters())
    keeper(states, optimizer, digest="abc", folder=tmp_path, keep=1, ranks=World())(Progress(step=5))
    found = checkpoint.load_last(tmp_path, pytest.fail)
    assert found is not None
    assert (found.state["data"], found.state["ranks"]) == ("abc", 1)
    again = States(nn.Linear(2, 3), "score", count=2)
    again.recall(found, CPU)
    assert kept(again) == kept(states)
    for one in (states, again):  # and they go on alike
        one.offer(5, {"loss": 7.0, "score": 4.5})
    assert [state[:-1] for state in again.kept] == [state[:-1] for state in states.kept]
    assert again.stale == states.stale == (len(seen) == 3) * 2


class Told:
    """Stands in for a judge: says what it is told."""

    def __init__(self, scores: list[float]) -> None:
        self.states = States(nn.Linear(2, 3), "score")
        self.scores = iter(scores)

    def look(self) -> Looked:
        return Looked({"score": next(self.scores)}, [Sample("asked", "a sample", "right")], aloud=True)


def test_a_watcher_says_what_it_sees_and_when_it_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture):
    judge: Judging = Told([1.0, 2.0, 2.0, 1.5])
    log = Log(tmp_path, leads=True)
    watch = watcher(judge, "Score", 2, plan(), lambda step: f"step {step}", World(), log)
    with log.opened(step=0, tensorboard=False):
        assert [watch(Progress(step=step)) for step in (1, 2, 3, 4)] == [False, False, False, True]
    said = capsys.readouterr().out
    assert said.count("a sample") == 4
    assert "step 3, held out: " in said
    assert said.count("stopping early: no better Score in 2 evaluations") == 1
    told = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["kind"], line["step"], line["score"]) for line in told] == [
        ("heldout", 1, 1.0),
        ("heldout", 2, 2.0),
        ("heldout", 3, 2.0),
        ("heldout", 4, 1.5),
    ]
    assert judge.states.best.step == 3
    samples = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    assert samples == [
        {"step": step, "input": "asked", "output": "a sample", "reference": "right"} for step in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(("patience", "step"), [(0, 7), (1, 11)])
def test_a_watcher_has_patience_and_lets_a_run_end(tmp_path: Path, patience: int, step: int):
    judge = Told([2.0, 1.0])
    log = Log(tmp_path, leads=True)
    watch = watcher(judge, "score", patience, plan(), str, World(), log)
    with log.opened(step=0, tensorboard=False):
        assert [watch(Progress(step=one)) for one in (3, step)] == [False, False]
