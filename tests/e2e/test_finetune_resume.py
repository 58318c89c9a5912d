"""Fine-tuning that is killed at any moment and resumed equals one that was not, to the bit."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[[str, list[str | Path]], Any]
SMALL = ("--epochs", "12", "--batch", "16", "--lr", "5e-3", "--patience", "2", "--device", "cpu")
SMALL += ("--checkpoint-every", "3")


def told(folder: Path) -> list[tuple[str, int, float]]:
    """What metrics.jsonl says, without the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(line["kind"], line["step"], line.get("loss", line.get("pearson", 0.0))) for line in lines]


@pytest.fixture(scope="module")
def command(encoder: Path, labelled_files: Callable[..., Path]) -> list[str | Path]:
    files = labelled_files("regress", 60), "--dev", labelled_files("regress", 40, 1)
    return ["finetune", encoder, *files, "--task", "regress", "--label", "height", *SMALL]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, command: list[str | Path], heedful: Run) -> Path:
    """The run that nothing happened to: with dropout, stopped early, and best before its end."""
    out = tmp_path_factory.mktemp("reference") / "out"
    done = heedful("", [*command, "--out", out])
    assert (done.code, done.err) == (0, "")
    assert "stopping early" in done.out
    best = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))["step"]
    assert 4 <= best < told(out)[-1][1]  # 4 batches an epoch
    return out


KILLS = {
    "in the second step": ('at(finetune, "finetuning_terms", call=2)', 0),
    "in the middle of a checkpoint": ('at(checkpoint, "write_file", match="00000006", call=2)', 0),
    "when a checkpoint has just taken its name": (
        'at(pathlib.Path, "rename", match=".step-00000006", after=True)',
        3,
    ),
    "after an evaluation that is in no checkpoint": ('at(finetune.Judge, "look", after=True)', 6),
    "while an old checkpoint is removed": ('at(checkpoint.shutil, "rmtree", match="step-")', 6),
    "before the best model is saved": ('at(finetune, "save_model")', None),
    "between its config and its weights": ('at(pathlib.Path, "replace", match=".model.safetensors")', None),
}
"""What is patched, and where the run that is then killed goes on from. Each goes on where the last one died."""


def test_killed_again_and_again_it_ends_with_the_same_best_weights(
    tmp_path: Path, command: list[str | Path], reference: Path, heedful: Run
):
    out = tmp_path / "out"
    again: list[str | Path] = ["finetune", "--resume", "--out", out]
    for moment, (patch, step) in KILLS.items():
        one = heedful(patch, again if out.exists() else [*command, "--out", out])
        assert (one.code, one.err) == (-signal.SIGKILL, ""), (moment, one)
        went_on = re.search(r"resuming at step (\d+)", one.out)
        assert step is None or int(went_on[1] if went_on else 0) == step, moment
    done = heedful("", again)
    assert (done.code, done.err) == (0, "")
    assert "stopping early" in done.out
    assert (out / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()
    assert (out / "evaluation.json").read_bytes() == (reference / "evaluation.json").read_bytes()
    assert told(out) == told(reference)
    assert {path.name for path in out.iterdir()} == {path.name for path in reference.iterdir()}


def test_interrupted_it_says_how_to_go_on_and_goes_on_exactly(
    tmp_path: Path, command: list[str | Path], reference: Path, heedful: Run
):
    out = tmp_path / "out"
    interrupt = 'at(finetune, "finetuning_terms", call=5, act=lambda: os.kill(os.getpid(), signal.SIGINT))'
    stopped = heedful(interrupt, [*command, "--out", out])
    assert stopped.code == 130
    go_on = re.escape(f"heedful finetune --resume --out {out}")
    assert re.fullmatch(rf"heedful: stopped and saved at step [56]; go on with: {go_on}\n", stopped.err)
    done = heedful("", ["finetune", "--resume", "--out", out])
    assert (done.code, done.err) == (0, "")
    assert re.search(r"resuming at step [56]", done.out)
    assert (out / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()
    assert told(out) == told(reference)


def test_interrupted_twice_it_says_from_where_to_go_on(
    tmp_path: Path, command: list[str | Path], reference: Path, heedful: Run
):
    out = tmp_path / "out"
    twice = "[os.kill(os.getpid(), signal.SIGINT) for _ in range(2)]"
    broken = heedful(f'at(finetune, "finetuning_terms", call=5, act=lambda: {twice})', [*command, "--out", out])
    assert broken.code == 130
    go_on = re.escape(f"heedful finetune --resume --out {out}")
    assert re.fullmatch(rf"heedful: interrupted; go on from checkpoint step-0+\d with: {go_on}\n", broken.err)
    done = heedful("", ["finetune", "--resume", "--out", out])
    assert (done.code, done.err) == (0, "")
    assert (out / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()


def test_killed_between_and_within_seeds_it_ends_with_the_same_model(
    tmp_path: Path, command: list[str | Path], heedful: Run
):
    whole, out = tmp_path / "whole", tmp_path / "out"
    asked = [*command, "--seeds", "2", "--epochs", "2"]
    again: list[str | Path] = ["finetune", "--resume", "--out", out]
    untouched = heedful("", [*asked, "--out", whole])
    assert (untouched.code, untouched.err) == (0, "")
    for patch, arguments in (
        ('at(seeds, "finetune", call=2)', [*asked, "--out", out]),
        ('at(finetune, "finetuning_terms", call=5)', again),
        ('at(seeds, "_adopt")', again),
    ):
        killed = heedful(patch, arguments)
        assert (killed.code, killed.err) == (-signal.SIGKILL, ""), (patch, killed)
    assert "resuming at step 3" in killed.out
    done = heedful("", again)
    assert (done.code, done.err) == (0, "")
    assert "seed 1, in" not in done.out  # both were complete
    for name in ("model.safetensors", "seeds.json", "evaluation.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()
