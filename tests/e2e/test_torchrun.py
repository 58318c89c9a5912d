"""Several processes make one run: the same as one that accumulates, in parts or not, killed or not.

Processes are started here as torchrun starts them, forked from one that has loaded everything; one test is given to
torchrun itself.
"""

import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import safetensors.torch
import torch

from heedful.data.numbers import english, korean

AT = """
import json, os, pathlib, shutil, signal, sys

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def at(owner, name, *, rank=None, call=1, match="", act=die):
    "Do something on a rank in the call-th call of a function whose first argument has the text in it."
    if rank is not None and os.environ.get("RANK", "0") != str(rank):
        return
    real, seen = getattr(owner, name), []

    def wrapped(*arguments, **named):
        if match in str(arguments[:1]):
            seen.append(name)
            if len(seen) == call:
                act()
        return real(*arguments, **named)

    setattr(owner, name, wrapped)
"""
SERVER = (
    AT
    + """
import sacrebleu, scipy.stats, sklearn.metrics, torch._dynamo, tyro
import torch.distributed.checkpoint as dcp
from heedful.cli import main
from heedful.runs import checkpoints, finetune, objective, pretrain, translator, vision
from heedful.train import checkpoint, sharding

for line in sys.stdin:
    patch, commands, environment, said = json.loads(line)
    children = []
    for rank, arguments in enumerate(commands):
        child = os.fork()
        if not child:
            signal.alarm(200)  # which ends one that hangs
            os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
            for number, name in ((1, "out"), (2, "err")):
                flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
                os.dup2(os.open(f"{said}/{rank}.{name}", flags), number)
            exec(patch)
            main(arguments)
        children.append(child)
    print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)
"""
)
SMALL = ("--size", "tiny", "--vocab-size", "300", "--length", "32", "--batch-tokens", "256", "--held-out", "0.2")
SMALL += ("--max-length", "32", "--steps", "7", "--evaluations", "1", "--checkpoint-every", "2", "--device", "cpu")
NO_DROPOUT = ("--dropout", "0", "--attention-dropout", "0")
ENDED = "another process of this run has ended, and said why unless it was killed"
GONE = f"{ENDED}; what was saved before is intact, and --resume goes on from there\n"
NOTHING = f"{ENDED}; nothing was saved yet; give the command again, with --resume if {{}} is still there\n"
SECOND = f"process 1 of 2, on {platform.node()}"
ODD = f"process 1, on {platform.node()}, "

Words = list[Any]


class Ended(NamedTuple):
    """How a process ended, and what it said."""

    code: int
    out: str
    err: str


class Started:
    """Starts commands in several processes."""

    def __init__(self, server: subprocess.Popen, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def __call__(self, *commands: Words, patch: str = "", **environment: str) -> list[Ended]:
        """Give each process its command; one alone is no part of anything."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        several = {"WORLD_SIZE": str(len(commands)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        told = {**(several if len(commands) > 1 else {}), **environment}
        words = [[str(word) for word in command] for command in commands]
        self.server.stdin.write(json.dumps([patch, words, told, str(self.folder)]) + "\n")
        self.server.stdin.flush()
        codes = json.loads(self.server.stdout.readline())
        return [
            Ended(code, *((self.folder / f"{rank}.{name}").read_text(encoding="utf-8") for name in ("out", "err")))
            for rank, code in enumerate(codes)
        ]

    def well(self, *commands: Words, **environment: str) -> str:
        """The same for what must go well, and of which only the first process speaks."""
        ends = self(*commands, **environment)
        assert [(end.code, end.err) for end in ends] == [(0, "")] * len(commands), ends
        assert [end.out for end in ends[1:]] == [""] * (len(commands) - 1)
        return ends[0].out


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"},
    )
    with server:
        yield Started(server, tmp_path_factory.mktemp("said"))
        assert server.stdin is not None
        server.stdin.close()  # which ends it


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text of words that nobody knows."""
    folder = tmp_path_factory.mktemp("home")
    random = Random(0)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(400)]
    documents = [[" ".join(random.choices(words, k=random.randint(3, 9))) for _ in range(4)] for _ in range(60)]
    (folder / "text.txt").write_text("\n\n".join("\n".join(lines) for lines in documents), encoding="utf-8")
    return folder


def pretrain(home: Path, out: str, *more: Any) -> Words:
    return ["pretrain", home / "text.txt", "--out", home / out, "--cache", home / "cache", *SMALL, *more]


def resume(home: Path, out: str) -> Words:
    return ["pretrain", "--resume", "--out", home / out]  # the cache is noted there


def told(folder: Path) -> list[tuple[str, int, float]]:
    """What metrics.jsonl says, without the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    names = ("loss", "accuracy", "bleu")
    return [(line["kind"], line["step"], next(line[name] for name in names if name in line)) for line in lines]


def assert_close(one: Path, other: Path, within: float) -> None:
    left, right = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (one, other))
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        if name.endswith("key.bias"):
            continue  # attention does not depend on it: its gradient is rounding and nothing else
        torch.testing.assert_close(right[name], tensor, rtol=0, atol=within, msg=name)
    for (*said, loss), (*also, same) in zip(told(one), told(other), strict=True):
        assert said == also
        assert abs(loss - same) < within * 10


def assert_alike(one: Path, other: Path) -> None:
    """The same to the bit, and nothing left over."""
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    assert told(one) == told(other)
    assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}


@pytest.fixture(scope="module")
def pair(home: Path, start: Started) -> Path:
    """The run of two processes in parts that nothing happened to. It has dropout, as usual."""
    said = start.well(*[pretrain(home, "pair", "--shard")] * 2)
    assert "on 2 processes (cpu)" in said
    assert said.endswith(f"saved {home / 'pair'}\n")
    return home / "pair"


def test_in_parts_or_whole_the_losses_are_the_same(home: Path, start: Started):
    start.well(*[pretrain(home, "whole", *NO_DROPOUT)] * 2)
    start.well(*[pretrain(home, "parts", *NO_DROPOUT, "--shard")] * 2)
    assert_close(home / "whole", home / "parts", 1e-5)
    start.well(pretrain(home, "alone", *NO_DROPOUT, "--accumulation", "2", "--shard"))
    assert_close(home / "whole", home / "alone", 1e-6)


def test_in_parts_muon_makes_the_same_steps_and_goes_on_with_its_memory(home: Path, start: Started):
    muon = (*NO_DROPOUT, "--optimizer", "muon")
    start.well(*[pretrain(home, "muon", *muon)] * 2)
    command = pretrain(home, "muon-parts", *muon, "--shard")
    ends = start(command, command, patch='at(objective, "pretraining_terms", rank=0, call=6)')
    assert ends[0].code == -signal.SIGKILL
    assert "resuming at step 4" in start.well(*[resume(home, "muon-parts")] * 2)
    left, right = (safetensors.torch.load_file(home / out / "model.safetensors") for out in ("muon", "muon-parts"))
    for name, tensor in left.items():
        if not name.endswith("key.bias"):
            torch.testing.assert_close(right[name], tensor, rtol=0, atol=1e-5, msg=name)


KILLS = {
    "in the fourth step": ('at(objective, "pretraining_terms", rank=1, call=4)', 0),
    "when one has written its part": ('at(sharding, "file_digest", rank=1, match="00000004")', 2),
    "while the other writes": ('at(pathlib.Path, "open", rank=0, match="00000004")', 2),
    "before the checkpoint takes its name": ('at(pathlib.Path, "rename", rank=0, match=".step-00000004")', 2),
    "while the weights are gathered": ('at(sharding, "gathered", rank=1)', 2),
}
"""What is patched, and where the run that is then killed goes on from. Each goes on where the last one died."""


def test_in_parts_and_killed_again_and_again_it_ends_with_the_same_weights(home: Path, start: Started, pair: Path):
    for number, (moment, (patch, step)) in enumerate(KILLS.items()):
        command = resume(home, "killed") if number else pretrain(home, "killed", "--shard")
        ends = start(command, command, patch=patch)
        dead = int("rank=1" in patch)
        assert ends[dead].code == -signal.SIGKILL, (moment, ends)
        assert ends[1 - dead].code == 2, (moment, ends)
        assert ends[1 - dead].err == (f"heedful: {GONE}" if dead else f"heedful: {SECOND}: {GONE}"), moment
        went_on = re.search(r"resuming at step (\d+)", ends[0].out)
        assert int(went_on[1] if went_on else 0) == step, moment

    # All steps are done, and what was in two parts is put together by as many processes as there are.
    for processes in (1, 3):
        out = f"by-{processes}"
        shutil.copytree(home / "killed", home / out)
        ends = start(*[resume(home, out)] * processes)
        assert [end.code for end in ends] == [0] * processes, ends
        assert ends[0].err.startswith(f"heedful: the run had 2 processes and now has {processes}; it goes on")
        assert "resuming at step 7" in ends[0].out
        assert (home / out / "model.safetensors").read_bytes() == (pair / "model.safetensors").read_bytes()

    assert "resuming at step 7" in start.well(*[resume(home, "killed")] * 2)
    assert_alike(home / "killed", pair)


def test_in_parts_it_goes_on_with_more_and_with_fewer_processes(home: Path, start: Started):
    """Two, then three, then one: the steps differ, but every one of them is made with the optimizer's memory."""
    kill = 'at(objective, "pretraining_terms", rank=0, call={})'
    start(*[pretrain(home, "many", "--shard")] * 2, patch=kill.format(3))
    ends = start(*[resume(home, "many")] * 3, patch=kill.format(3))
    assert "resuming at step 2" in ends[0].out
    (end,) = start(resume(home, "many"))
    assert end.code == 0
    assert "resuming at step 4" in end.out
    assert end.err.startswith("heedful: the run had 3 processes and now has 1; ")
    assert [step for kind, step, _ in told(home / "many") if kind == "train"] == [1, 2, 3, 4, 5, 6, 7]


def torchrun(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Two processes, and what they and torchrun say."""
    options = ["--nproc-per-node", "2", "--monitor-interval", "0.1"]
    options += ["--master-addr", "127.0.0.1", "--master-port", free_port()]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"},
        check=False,
        timeout=100,
    )


def test_under_torchrun_a_mistake_is_told_once(home: Path):
    """By the process that made it: the others need not guess why it has gone."""
    done = torchrun("-m", "heedful", "pretrain", home / "nowhere.txt", "--out", home / "mistaken", *SMALL)
    said = [line for line in done.stderr.splitlines() if "heedful: " in line]
    assert said == [f"heedful: {home / 'nowhere.txt'} does not exist; name a file, a folder or a glob"], done.stderr


def test_torchrun_restarts_a_run_by_itself(home: Path, pair: Path, tmp_path: Path):
    script = tmp_path / "killed_once.py"
    script.write_text(
        f"{AT}\nfrom heedful.cli import main\nfrom heedful.runs import objective\n"
        'if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":\n'
        '    at(objective, "pretraining_terms", rank=1, call=6)\n'
        "main()\n",
        encoding="utf-8",
    )
    done = torchrun("--max-restarts", "3", script, *pretrain(home, "restarted", "--shard"))
    assert done.returncode == 0, done.stderr
    assert "resuming at step 4" in done.stdout
    assert_alike(home / "restarted", pair)


@pytest.fixture(scope="module")
def others(encoder: Path, labelled_files: Callable[..., Path], home: Path) -> dict[str, Words]:
    """Commands of the other kinds of run, but for their batches; a step is 16 examples, images, or 2 × 384 tokens."""
    finetune = [encoder, labelled_files("classify", 60), "--dev", labelled_files("classify", 40, 1), "--epochs", "3"]
    for name, numbers in (("train", range(1103, 9000, 113)), ("dev", range(7, 9000, 1277))):
        lines = ["en\tko", *(f"{english(number)}\t{korean(number)}" for number in numbers)]
        (home / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    translator = [home / "train.tsv", "--dev", home / "dev.tsv", "--steps", "7", "--evaluations", "2", "--lr", "3e-3"]
    small = ["--device", "cpu", "--checkpoint-every", "3", *NO_DROPOUT]
    return {
        # At such a rate rounding stays small: where a gradient is hardly more than that, Adam makes it large.
        "finetune": ["finetune", *finetune, "--task", "classify", "--lr", "2e-5", *small],
        "translator": ["train-translator", *translator, "--batch-tokens", "384", "--average", "2", *small],
        "vision": ["train-vision", "--recipe", "plain", "--steps", "7", "--evaluations", "2", "--lr", "2e-5", *small],
    }


ONE_STEP = {
    "finetune": (["--batch", "8"], ["--batch", "16"]),
    "translator": ([], ["--accumulation", "2"]),
    "vision": (["--batch", "8"], ["--batch", "16"]),
}
"""What makes the same steps of two processes and of one."""
TERMS = {
    "finetune": 'finetune, "finetuning_terms"',
    "translator": 'translator, "translation_terms"',
    "vision": 'vision, "vision_terms"',
}


@pytest.mark.parametrize("kind", ONE_STEP)
def test_two_processes_equal_one_with_steps_as_large_and_go_on_after_a_kill(
    kind: str, home: Path, start: Started, others: dict[str, Words], encoder: Path
):
    two, one = (others[kind] + more for more in ONE_STEP[kind])
    whole, alone, killed = (home / f"{kind}-{name}" for name in ("whole", "alone", "killed"))
    said = start.well(*[[*two, "--out", whole]] * 2)
    assert "on 2 processes (cpu)" in said
    start.well([*one, "--out", alone])
    assert_close(whole, alone, 1e-6)
    if kind == "finetune":  # which has gone far from where it began
        (after, before) = (safetensors.torch.load_file(folder / "model.safetensors") for folder in (whole, encoder))
        name = "encoder.layer.0.output.dense.weight"
        assert (after[f"bert.{name}"] - before[name]).abs().max() > 1e-4
    assert json.loads((whole / "evaluation.json").read_text()) == json.loads((alone / "evaluation.json").read_text())

    command = [*two, "--out", killed]
    terms = TERMS[kind]
    ends = start(command, command, patch=f"at({terms}, rank=1, call=5)")
    assert [(end.code, end.err) for end in ends] == [(2, f"heedful: {GONE}"), (-signal.SIGKILL, "")]
    ends = start(command, command)
    assert ends[0].code == 2
    assert ends[0].err == f"heedful: {killed} already holds a run; go on with --resume, or choose another --out\n"
    said = start.well(command, command, TORCHELASTIC_RESTART_COUNT="1")
    assert "resuming at step 3" in said
    assert_alike(killed, whole)
    for again in (command, [two[0], "--resume", "--out", killed]):  # a process died when all was done
        said = start.well(again, again, TORCHELASTIC_RESTART_COUNT="1")
        assert said == f"the run in {killed} is complete\n"
    assert_alike(killed, whole)
    ends = start(*2 * [[*command, "--seed", "5"]], TORCHELASTIC_RESTART_COUNT="1")  # the model of another run
    assert ends[0].code == 2
    assert ends[0].err == f"heedful: {killed} already holds a model; choose another --out\n"


def test_all_processes_stop_early_together(home: Path, start: Started, others: dict[str, Words]):
    stubborn = ["--patience", "1", "--lr", "1e-9", "--epochs", "9", "--batch", "8"]
    said = start.well(*[[*others["finetune"], *stubborn, "--out", home / "early"]] * 2)
    assert "stopping early: no better accuracy in 1 evaluations" in said
    assert "best, after epoch 2:" in said  # of equals the last


def test_fine_tuning_goes_on_with_as_many_processes(home: Path, start: Started, others: dict[str, Words]):
    command = [*others["finetune"], "--batch", "8", "--out", home / "fewer"]
    start(command, command, patch='at(finetune, "finetuning_terms", rank=0, call=5)')
    (end,) = start(["finetune", "--resume", "--out", home / "fewer"])
    assert end.code == 2
    said = (
        "heedful: the run had 2 processes, and counts its epochs in their steps; go on with as many, or start again"
    )
    assert end.err.startswith(said)


def test_processes_that_see_different_checkpoints_are_refused(home: Path, start: Started):
    start(*[pretrain(home, "apart")] * 2, patch='at(objective, "pretraining_terms", rank=0, call=4)')
    unseen = 'if os.environ["RANK"] == "1":\n    checkpoint.load_last = lambda *_: None'
    ends = start(*[resume(home, "apart")] * 2, patch=unseen)
    said = "goes on from step 0, and process 0 from step 2; every node must see the same --out\n"
    assert [(end.code, end.err) for end in ends] == [(2, f"heedful: {ODD}{said}"), (2, "")]


def test_an_interrupted_run_says_once_how_to_go_on(home: Path, start: Started):
    interrupt = 'at(objective, "pretraining_terms", rank=1, call=3, act=lambda: os.kill(os.getpid(), signal.SIGTERM))'
    ends = start(*[pretrain(home, "stopped")] * 2, patch=interrupt)
    assert [end.code for end in ends] == [130, 130]
    go_on = f"torchrun --nproc-per-node 2 -m heedful {' '.join(map(str, resume(home, 'stopped')))}"
    assert re.fullmatch(rf"heedful: stopped and saved at step [34]; go on with: {re.escape(go_on)}\n", ends[0].err)
    assert ends[1].err == ""


def test_processes_that_were_told_different_things_are_refused(home: Path, start: Started, others: dict[str, Words]):
    different = pretrain(home, "odd", "--lr", "0.1", "--seed", "3")
    ends = start(pretrain(home, "odd"), different)
    said = f"heedful: {ODD}was given another --lr, --seed than process 0; "
    said += "give all the same command, and let all see the same --out\n"
    assert [(end.code, end.err) for end in ends] == [(2, said), (2, "")]
    assert not (home / "odd").exists()

    # Who multiplies in 8 bits asks all whether they can; the others would not answer.
    ends = start(pretrain(home, "odd"), pretrain(home, "odd", "--fp8"))
    said = f"heedful: {ODD}was given another --fp8 than process 0; "
    said += "give all the same command, and let all see the same --out\n"
    assert [(end.code, end.err) for end in ends] == [(2, said), (2, "")]

    command = [*others["finetune"], "--out", home / "odd"]
    ends = start(command, command, patch=OTHER_DATA)
    said = f"heedful: {ODD}has read other data than process 0; give every node the same files\n"
    assert [(end.code, end.err) for end in ends] == [(2, said), (2, "")]
    assert not (home / "odd").exists()

    ends = start(*2 * [pretrain(home, "odd")], patch=OTHER_TEXT)
    assert [(end.code, end.err) for end in ends] == [(2, said), (2, "")]
    assert not (home / "odd").exists()

    ends = start(command, pretrain(home, "odd"))
    said = f"heedful: {ODD}was given another command than process 0; "
    said += "give all the same command, and let all see the same --out\n"
    assert [(end.code, end.err) for end in ends] == [(2, said), (2, "")]
    assert not (home / "odd").exists()


@pytest.mark.parametrize("kind", ["pretrain", "finetune"])
def test_all_processes_begin_with_the_weights_of_the_first(
    home: Path, start: Started, others: dict[str, Words], write_bert: Callable[..., Path], kind: str
):
    """CPUs of two kinds draw others, and nothing would notice."""
    model = write_bert(home / "begun", ["the", "a"], outputs="both")
    given = ["pretrain", home / "text.txt", "--from", model, "--length", "16"]
    command = [*given, "--cache", home / "cache", "--steps", "2"] if kind == "pretrain" else others[kind]
    for out, patch in (("alike", ""), ("unlike", OTHER_WEIGHTS)):
        ends = start(*[[*command, "--out", home / f"{kind}-{out}"]] * 2, patch=patch)
        assert [(end.code, end.err) for end in ends] == [(0, "")] * 2
    assert_alike(home / f"{kind}-alike", home / f"{kind}-unlike")


def test_processes_that_begin_with_another_model_are_refused(
    home: Path, start: Started, write_bert: Callable[..., Path]
):
    model = write_bert(home / "larger", ["the", "a"], outputs="both")
    command = ["pretrain", home / "text.txt", "--from", model, "--length", "16", "--cache", home / "cache"]
    ends = start(*[[*command, "--steps", "1", "--out", home / "odd"]] * 2, patch=OTHER_MODEL)
    said = f"heedful: {ODD}begins with another model than process 0; give every node the same one\n"
    assert [(end.code, end.err) for end in ends] == [(2, said), (2, "")]
    assert not (home / "odd").exists()


def test_processes_that_compute_in_different_places_are_refused(home: Path, start: Started):
    """As where one node has no GPU that can be used: it would wait for gradients that the others add up elsewhere."""
    ends = start(*[pretrain(home, "odd")] * 2, patch=OTHER_PLACE)
    said = "computes on cpu in bfloat16, and process 0 on cpu in float32 (no GPU can be used there: it is too old); "
    said += "`heedful doctor` tells what each node has; --device and --precision name what all can do\n"
    assert [(end.code, end.err) for end in ends] == [(2, f"heedful: {ODD}{said}"), (2, "")]
    assert not (home / "odd").exists()


ALL_WRONG = {"patch": "from heedful import cli\ncli.PATIENCE = 0.1", "TORCHELASTIC_RUN_ID": "7"}
"""For what torchrun's processes are all told wrongly, where nobody ends one when the other has gone."""


def test_what_one_process_does_is_not_given_to_several(home: Path, start: Started):
    command = ["tokenizer", home / "text.txt", "--out", home / "twice"]
    ends = start(command, command, **ALL_WRONG)
    said = "tokenizer is for one process; start it without torchrun: heedful tokenizer …\n"
    assert [(end.code, end.err) for end in ends] == [(2, f"heedful: {said}"), (2, f"heedful: {SECOND}: {said}")]
    assert not (home / "twice").exists()


def test_one_that_waits_for_the_others_says_so_and_not_for_ever(home: Path, start: Started):
    at_once = "from datetime import timedelta\nfrom heedful.train import distributed\n"
    at_once += "distributed.PATIENCE, distributed.MEETING = 0.1, timedelta(seconds=3)"
    several = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    (end,) = start(pretrain(home, "lonely"), patch=at_once, **several)
    first, *_, last = end.err.splitlines()
    assert first == "heedful: waiting for the others of this run's 2 processes to begin"
    assert last.startswith("heedful: the 2 processes of this run can't find each other (")
    assert (end.code, (home / "lonely").exists()) == (2, False)


@pytest.mark.parametrize(
    ("patch", "end"),
    [
        ('at(pretrain, "_shards", act=end)', (130, "heedful: ended by SIGTERM\n")),
        ('at(pretrain, "_shards", act=fail)\nat(training, "give_back", act=end)', (2, "heedful: what is wrong\n")),
    ],
)
def test_one_that_is_ended_before_it_trains_says_so_and_gives_its_folder_back(
    home: Path, patch: str, end: tuple[int, str]
):
    """As torchrun ends it where another process has gone, also while this one is at its end already."""
    script = home / "ended.py"
    script.write_text(f"{AT}{ENDING}{patch}\nmain()\n", encoding="utf-8")
    command = [sys.executable, script, *pretrain(home, "ended")]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == end
    assert not (home / "ended").exists()


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_one_that_waits_for_the_others_can_be_ended(home: Path, start: Started, sent: signal.Signals):
    """Though it waits outside of Python, where nothing is heeded."""
    patch = "import threading\nfrom heedful.train import distributed\nimport torch.distributed as dist\n"
    patch += f"end = threading.Timer(0.5, os.kill, (os.getpid(), {sent.value}))\n"
    patch += 'at(dist, "rendezvous", act=end.start)'
    several = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    (end,) = start(pretrain(home, "lonely"), patch=patch, **several)
    assert end.code == -sent


def test_what_no_process_can_do_is_said_once_and_what_one_can_not_of_that_one(home: Path, start: Started):
    command = pretrain(home, "eight", "--fp8")
    said = "--fp8 is for GPUs, and a CPU is used here; go on with --no-fp8\n"
    ends = start(command, command)
    assert [(end.code, end.err) for end in ends] == [(2, f"heedful: {said}"), (2, "")]
    one_can = 'from heedful.runs.device import Compute\nif os.environ["RANK"] == "0":\n    '
    one_can += "Compute.require_fp8 = lambda _: None"
    ends = start(command, command, patch=one_can)
    assert [(end.code, end.err) for end in ends] == [(2, f"heedful: process 1 can't go on: {said}"), (2, "")]
    assert not (home / "eight").exists()


def test_what_all_were_told_wrongly_is_said_once(home: Path, start: Started):
    for wrong, line in ((["--lenght", "32"], "did you mean --length?"), (["--steps", "0"], "must be at least 1")):
        command = pretrain(home, "wrong", *wrong)
        ends = start(command, command, **ALL_WRONG)
        assert [end.code for end in ends] == [2, 2]
        assert line in ends[0].err
        assert ends[1].err == ends[0].err.replace("heedful: ", f"heedful: {SECOND}: ")
        assert all(line in end.err for end in start(command, command))  # who knows what the other was told?


def test_one_that_waits_for_another_to_say_what_is_wrong_is_ended_without_a_word(start: Started):
    """By Ctrl-C, which goes to all."""
    patch = "import threading\nend = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))\n"
    patch += "end.start() if rank == 1 else None"
    ends = start(["pretrain"], ["pretrain"], patch=patch, TORCHELASTIC_RUN_ID="7")
    assert [(end.code, bool(end.err)) for end in ends] == [(2, True), (2, False)]


SLOW = """
import os, time
from heedful.cli import main
if os.environ["LOCAL_RANK"] == "0":
    time.sleep(2)
main(["pretrain"])
"""


def test_under_torchrun_it_is_said_however_slow_the_first_process_is(tmp_path: Path):
    """Torchrun ends it as soon as another has gone."""
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", tmp_path / "slow.py"]
    done = subprocess.run([*map(str, torchrun)], capture_output=True, text=True, check=False, timeout=100)
    told = [line for line in done.stderr.splitlines() if line.startswith("heedful:")]
    assert told == ["heedful: --out is missing (heedful pretrain --help says more)"]


def test_what_is_wrong_with_a_model_or_a_checkpoint_is_said_once(home: Path, start: Started):
    """Although every process reads them."""
    start.well(pretrain(home, "torn", "--steps", "1"))
    (home / "torn" / "model.safetensors").write_bytes(b"torn")
    given = ["--from", home / "torn", "--nsp", "--length", "32", "--steps", "3", "--device", "cpu"]
    command = ["pretrain", home / "text.txt", *given, "--out", home / "wrong", "--cache", home / "cache"]
    ends = start(command, command)
    assert ends[0].err.startswith(f"heedful: {home / 'torn' / 'model.safetensors'} is truncated, corrupted or not")
    # The other does not know why the first has gone; under torchrun it would say nothing.
    assert ends[1].err == f"heedful: {SECOND}: {NOTHING.format(home / 'wrong')}"

    start(*[pretrain(home, "damaged")] * 2, patch='at(objective, "pretraining_terms", rank=0, call=4)')
    for file in (home / "damaged" / "checkpoints").glob("*/state.json"):
        file.write_bytes(b"{}")
    ends = start(*[resume(home, "damaged")] * 2)
    assert ends[0].err.endswith(" is damaged; start the run again in another folder\n")
    assert ends[1].err == f"heedful: {SECOND}: {NOTHING.format(home / 'damaged')}"


ENDING = """
from heedful.__main__ import main
from heedful.errors import UserError
from heedful.runs import pretrain, training

def end():
    os.kill(os.getpid(), signal.SIGTERM)

def fail():
    raise UserError("what is wrong")

"""
OTHER_WEIGHTS = """
if os.environ["RANK"] == "1":
    def other(real):
        def loaded(*arguments, **named):
            model = real(*arguments, **named)
            if not named.get("outline"):
                for parameter in model.parameters():
                    parameter.data *= 1.5
            return model
        return loaded
    from heedful.runs import start
    pretrain.load_model, start.load_model = map(other, (pretrain.load_model, start.load_model))
"""
OTHER_MODEL = """
if os.environ["RANK"] == "1":
    made = pretrain.build

    def build(*arguments):
        model = made(*arguments)
        del model.bert.layers[-1]
        return model

    pretrain.build = build
"""
OTHER_PLACE = """
from heedful.nn import gpus
from heedful.runs import training
if os.environ["RANK"] == "1":
    training.choose = lambda *_: training.Compute(training.torch.device("cpu"), training.torch.bfloat16)
    gpus.why_not = lambda: "it is too old"
"""
OTHER_TEXT = """
from dataclasses import replace
if os.environ["RANK"] == "1":
    read = pretrain.load_shards
    pretrain.load_shards = lambda folder, **options: replace(read(folder, **options), key="other")
"""
OTHER_DATA = """
from heedful.runs import material
if os.environ["RANK"] == "1":
    material.file_digest = lambda path: "other"
"""
ELSEWHERE = """
if os.environ["RANK"] == "1":
    real = pretrain.load_shards
    pretrain.load_shards = lambda folder, **options: real(folder / "elsewhere", **options)
"""


def test_text_that_one_node_does_not_see_is_named(home: Path, start: Started):
    ends = start(*[pretrain(home, "unseen")] * 2, patch=ELSEWHERE)
    assert [end.code for end in ends] == [2, 2]
    assert ends[0].err == f"heedful: {NOTHING.format(home / 'unseen')}"
    assert re.fullmatch(
        rf"heedful: {SECOND}: this fails where the first process did not \({home}/cache/shards/\w+/elsewhere holds "
        r"no shards: it has no meta.json\); every node must see the same files under the same names\n",
        ends[1].err,
    )
    assert not (home / "unseen").exists()
