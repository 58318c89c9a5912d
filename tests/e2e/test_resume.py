"""A run that is killed at any moment and resumed equals one that was not, to the bit."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import safetensors.torch
import torch

from heedful.cli import main
from heedful.runs import objective, pretrain
from heedful.runs.info import describe
from heedful.runs.options import read_recipe

BEGIN = """
import os, pathlib, shutil, signal, sys
from heedful.cli import main
from heedful.data import tokenizer
from heedful.formats import documents
from heedful.runs import objective, pretrain
from heedful.train import checkpoint

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def at(owner, name, *, call=1, after=False, match="", act=die):
    "Do something in the call-th call of a function whose first argument has the text in it."
    real, seen = getattr(owner, name), []

    def wrapped(*arguments, **named):
        hit = not match or match in str(arguments[0])
        if hit:
            seen.append(name)
        hit = hit and len(seen) == call
        if hit and not after:
            act()
        result = real(*arguments, **named)
        if hit and after:
            act()
        return result

    setattr(owner, name, wrapped)
"""
END = "\nmain(sys.argv[1:])\n"
SMALL = ("--size", "tiny", "--vocab-size", "300", "--length", "32", "--batch-tokens", "256", "--held-out", "0.2")
SMALL += ("--max-length", "32", "--steps", "8", "--evaluations", "1", "--checkpoint-every", "2", "--device", "cpu")
NO_DROPOUT = ("--dropout", "0", "--attention-dropout", "0")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error", **more}


def heedful(*arguments: str, patch: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with something done to it first."""
    return subprocess.run(
        [sys.executable, "-c", BEGIN + patch + END, *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
        timeout=100,
    )


def two_processes(*arguments: str, patch: str = "") -> list[tuple[int, str]]:
    """Run a command as torchrun would, in two processes; their exit codes and what they said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, "-c", BEGIN + patch + END, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
            ),
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=100)[0] for process in started]
    return [(process.returncode, text) for process, text in zip(started, said, strict=True)]


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


def command(home: Path, out: str, *more: str) -> list[str]:
    return [
        "pretrain",
        str(home / "text.txt"),
        "--out",
        str(home / out),
        "--cache",
        str(home / "cache"),
        *SMALL,
        *more,
    ]


def resume(home: Path, out: str) -> list[str]:
    return ["pretrain", "--resume", "--out", str(home / out)]  # the cache is noted there


def weights(home: Path, out: str) -> bytes:
    return (home / out / "model.safetensors").read_bytes()


def told(home: Path, out: str) -> list[tuple[str, int, float]]:
    """What metrics.jsonl says, without the times."""
    lines = [json.loads(line) for line in (home / out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(line["kind"], line["step"], line["loss"]) for line in lines]


@pytest.fixture(scope="module")
def reference(home: Path) -> str:
    """The run that nothing happened to. It has dropout, as usual."""
    done = heedful(*command(home, "reference"))
    assert (done.returncode, done.stderr) == (0, "")
    return "reference"


KILLS = {
    "while the text is prepared": ('at(tokenizer, "save")', 0),
    "in the third step": ('at(objective, "pretraining_terms", call=3)', 0),
    "with one file of the checkpoint written": ('at(checkpoint, "write_file", match="00000004", after=True)', 2),
    "in the middle of a file": ('at(pathlib.Path, "replace", match=".step-00000004", call=2)', 2),
    "before the checkpoint takes its name": ('at(pathlib.Path, "rename", match=".step-00000004")', 2),
    "when it has just taken it": ('at(pathlib.Path, "rename", match=".step-00000004", after=True)', 2),
    "while an old one is removed": (
        'gone = pathlib.Path(sys.argv[-1], "checkpoints/step-00000002")\n'
        'at(shutil, "rmtree", match=str(gone), act=lambda: ((gone / "state.json").unlink(), die()))',
        4,
    ),
    "before the model is saved": ('at(pretrain, "save_model")', 6),
    "between its config and its weights": ('at(documents, "write_file", match="model.safetensors")', 8),
}
"""What is patched, and where the run that is then killed goes on from. Each goes on where the last one died."""


def test_killed_again_and_again_it_ends_with_the_same_weights(home: Path, reference: str):
    out = "killed"
    for number, (moment, (patch, step)) in enumerate(KILLS.items()):
        arguments = resume(home, out) if number else command(home, out)
        done = heedful(*arguments, patch=patch)
        assert done.returncode == -signal.SIGKILL, (moment, done.stdout, done.stderr)
        assert done.stderr == "", moment
        went_on = re.search(r"resuming at step (\d+)", done.stdout)
        assert int(went_on[1] if went_on else 0) == step, moment
    done = heedful(*resume(home, out))
    assert (done.returncode, done.stderr) == (0, "")
    assert "resuming at step 8" in done.stdout
    assert weights(home, out) == weights(home, reference)
    assert told(home, out) == told(home, reference)
    assert {path.name for path in (home / out).iterdir()} == {path.name for path in (home / reference).iterdir()}


def test_interrupted_it_saves_says_how_to_go_on_and_goes_on_exactly(home: Path, reference: str):
    out = "interrupted"
    interrupt = 'at(objective, "pretraining_terms", call=5, act=lambda: os.kill(os.getpid(), signal.SIGINT))'
    done = heedful(*command(home, out), patch=interrupt)
    assert done.returncode == 130
    go_on = f"heedful {' '.join(resume(home, out))}"
    assert re.fullmatch(rf"heedful: stopped and saved at step [56]; go on with: {re.escape(go_on)}\n", done.stderr)
    saved = sorted(path.name for path in (home / out / "checkpoints").iterdir())
    assert saved[0] == "step-00000004"
    shutil.copytree(home / out, home / "damaged")

    done = heedful(*resume(home, out))
    assert (done.returncode, done.stderr) == (0, "")
    assert weights(home, out) == weights(home, reference)
    assert told(home, out) == told(home, reference)

    broken = home / "damaged" / "checkpoints" / saved[-1]
    content = bytearray((broken / "optimizer.safetensors").read_bytes())
    content[-7] ^= 16
    (broken / "optimizer.safetensors").write_bytes(content)
    done = heedful(*resume(home, "damaged"))
    assert done.returncode == 0
    assert f"the checkpoint {broken} is damaged (optimizer.safetensors has another checksum" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "resuming at step 4" in done.stdout
    assert weights(home, "damaged") == weights(home, reference)
    assert told(home, "damaged") == told(home, reference)


def test_a_run_that_goes_on_is_not_resumed_beside_itself(home: Path):
    out = "living"
    beside = "subprocess.run([sys.executable, '-m', 'heedful', *RESUME], check=False)"
    act = (
        f'at(objective, "pretraining_terms", call=5, act=lambda: {beside.replace("RESUME", repr(resume(home, out)))})'
    )
    done = heedful(*command(home, out), patch=f"import subprocess\n{act}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"heedful: a run is going on in {home / out}; wait until it has ended, or stop it first\n"
    assert f"saved {home / out}" in done.stdout


WHO_PREPARES = """
def tell(what):
    return lambda: print("rank", os.environ["RANK"], what)

at(pretrain.corpus, "train_tokenizer", act=tell("trains the tokenizer"))
at(pretrain.corpus.shards, "prepare", act=tell("prepares the text"))
"""


def test_two_processes_killed_and_resumed_end_with_the_same_weights(home: Path):
    ends = two_processes(*command(home, "two"), patch=WHO_PREPARES)
    assert [code for code, _ in ends] == [0, 0], ends
    assert "2 processes" in ends[0][1]
    assert re.findall("rank . .*", ends[0][1]) == ["rank 0 trains the tokenizer", "rank 0 prepares the text"]
    assert ends[1][1] == ""

    one_dies = 'if os.environ["RANK"] == "1":\n    at(objective, "pretraining_terms", call=6)'
    (lead, said), (other, _) = two_processes(*command(home, "two-killed"), patch=one_dies)
    assert (lead, other) == (2, -signal.SIGKILL), said
    assert said.splitlines()[-1].startswith("heedful: another process of this run has ended")
    assert "Traceback" not in said

    shutil.copytree(home / "two-killed", home / "one-left")
    done = heedful(*resume(home, "one-left"))
    assert done.returncode == 0
    assert done.stderr.startswith("heedful: the run had 2 processes and now has 1; it goes on, but with other steps")
    assert len(done.stderr.splitlines()) == 1
    assert told(home, "one-left")[-1][1] == 8

    ends = two_processes(*resume(home, "two-killed"), patch='at(checkpoint, "write_file", match="0006", call=3)')
    assert ends[0][0] == -signal.SIGKILL, ends
    ends = two_processes(*resume(home, "two-killed"))
    assert [code for code, _ in ends] == [0, 0], ends
    assert "resuming at step 4" in ends[0][1]
    assert weights(home, "two-killed") == weights(home, "two")
    assert told(home, "two-killed") == told(home, "two")


def test_two_processes_equal_one_that_accumulates(home: Path):
    ends = two_processes(*command(home, "pair", *NO_DROPOUT))
    assert [code for code, _ in ends] == [0, 0], ends
    with pytest.raises(SystemExit) as stop:
        main(command(home, "alone", *NO_DROPOUT, "--accumulation", "2"))
    assert not stop.value.code
    pair = safetensors.torch.load(weights(home, "pair"))
    alone = safetensors.torch.load(weights(home, "alone"))
    assert pair.keys() == alone.keys()
    start = pretrain.build(read_recipe(home / "alone" / "heedful.toml"), tokenizer_of(home / "alone"))
    moved = start.nsp.weight.detach() - alone["cls.seq_relationship.weight"]
    assert moved.abs().max() > 1e-3  # the weights have gone far from where they began
    for name, tensor in alone.items():
        torch.testing.assert_close(pair[name], tensor, rtol=0, atol=1e-6, msg=name)


def tokenizer_of(folder: Path) -> pretrain.Tokenizer:
    return pretrain.wordpiece.load(folder)


def test_a_loss_that_is_no_number_ends_with_the_step_and_the_last_good_checkpoint(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    real, calls = objective.pretraining_terms, []

    def poisoned(*arguments: object) -> dict[str, objective.Term]:
        calls.append(1)
        terms = real(*arguments)
        return (
            {name: term._replace(loss=term.loss * float("nan")) for name, term in terms.items()}
            if calls[4:]
            else terms
        )

    monkeypatch.setattr(objective, "pretraining_terms", poisoned)
    with pytest.raises(SystemExit) as stop:
        main(command(home, "diverged"))
    assert stop.value.code == 2
    said = capsys.readouterr().err
    good = home / "diverged" / "checkpoints" / "step-00000004"
    assert said.startswith(
        f"heedful: the loss became nan at step 5; the last good checkpoint is {good}; try a lower --lr"
    )
    assert len(said.splitlines()) == 1
    assert good.is_dir()
    told = dict(describe(home / "diverged"))
    assert told["run"] == f"diverged, last checkpoint {good.name}"
    assert told["why"] == said.removeprefix("heedful: ").strip()
    assert "go on with" not in told


def test_a_rate_that_is_far_too_high_never_saves_what_is_no_number(home: Path, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        main(command(home, "wild", "--lr", "1e30", "--checkpoint-every", "1"))
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert re.match(r"heedful: the (loss|gradient) became (nan|inf) at step \d; ", said)
    for saved in (home / "wild" / "checkpoints").glob("step-*"):
        for tensor in safetensors.torch.load_file(saved / "model.safetensors").values():
            assert tensor.isfinite().all()
