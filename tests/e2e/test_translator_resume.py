"""Training a translator that is killed at any moment and resumed equals one that was not, to the bit."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heedful.data.numbers import english, korean

Run = Callable[[str, list[str | Path]], Any]
Words = list[str | Path]

SMALL = ("--batch-tokens", "768", "--evaluations", "10", "--checkpoint-every", "3")
SMALL += ("--bpe-dropout", "0.2", "--average", "2", "--lr", "3e-3", "--device", "cpu", "--samples", "1")
KINDS = {
    # At such a rate nothing is learnt: from the second evaluation on BLEU is no better.
    "transformer": ("--steps", "40", "--patience", "2", "--vocab-size", "67", "--lr", "1e-5"),
    "rnn": ("--steps", "11", "--model", "rnn", "--no-joint", "--average-of", "last", "--evaluations", "3"),
}


def told(folder: Path) -> list[tuple[str, int, float]]:
    """What metrics.jsonl says, without the times."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(line["kind"], line["step"], line["bleu" if "bleu" in line else "loss"]) for line in lines]


def write(path: Path, numbers: range) -> Path:
    lines = [f"{english(number)}\t{korean(number)}" for number in numbers]
    path.write_text("\n".join(["en\tko", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=KINDS)
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Words:
    home = tmp_path_factory.mktemp("pairs")
    files = write(home / "train.tsv", range(1103, 9000, 113)), "--dev", write(home / "dev.tsv", range(7, 9000, 1277))
    return ["train-translator", *files, *SMALL, *KINDS[request.param]]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, command: Words, heedful: Run) -> Path:
    """The run that nothing happened to: with dropout of activations and of merges, and averaged."""
    out = tmp_path_factory.mktemp("reference") / "out"
    done = heedful("", [*command, "--out", out])
    assert (done.code, done.err) == (0, "")
    batches = re.search(r"(\d+) batches an epoch", done.out)
    assert batches is not None
    assert int(batches[1]) < 9  # so that a run that goes on at step 9 is in another epoch than it began with
    early = "--patience" in command
    assert ("stopping early: no better BLEU in 2 evaluations" in done.out) == early
    assert told(out)[-1][1] == (12 if early else 11)
    return out


def assert_alike(out: Path, reference: Path) -> None:
    for name in ("model.safetensors", "evaluation.json", "tokenizer.json"):
        assert (out / name).read_bytes() == (reference / name).read_bytes()
    assert told(out) == told(reference)
    assert {path.name for path in out.iterdir()} == {path.name for path in reference.iterdir()}


KILLS = {
    "when a vocabulary is written": ('at(translator.subwords, "save", after=True)', 0),
    "in the second step": ('at(translator, "translation_terms", call=2)', 0),
    "in the middle of a checkpoint": ('at(checkpoint, "write_file", match="00000006", call=2)', 0),
    "after an evaluation that is in no checkpoint": ('at(translator.TranslatorJudge, "look", after=True)', 3),
    "when a checkpoint has just taken its name": (
        'at(pathlib.Path, "rename", match=".step-00000006", after=True)',
        3,
    ),
    "while an old checkpoint is removed": ('at(checkpoint.shutil, "rmtree", match="step-00000003")', 6),
    "before the states are averaged": ('at(translator.TranslatorJudge, "settle")', 9),
    "before the model is saved": ('at(translator, "save_translator")', None),
    "between its config and its weights": ('at(pathlib.Path, "replace", match=".model.safetensors")', None),
}
"""What is patched, and where the run that is then killed goes on from. Each goes on where the last one died."""


def test_killed_again_and_again_it_ends_with_the_same_weights(
    tmp_path: Path, command: Words, reference: Path, heedful: Run
):
    out = tmp_path / "out"
    again: Words = ["train-translator", "--resume", "--out", out]
    for moment, (patch, step) in KILLS.items():
        one = heedful(patch, again if out.exists() else [*command, "--out", out])
        assert (one.code, one.err) == (-signal.SIGKILL, ""), (moment, one)
        went_on = re.search(r"resuming at step (\d+)", one.out)
        assert step is None or int(went_on[1] if went_on else 0) == step, moment
    done = heedful("", again)
    assert (done.code, done.err) == (0, "")
    assert_alike(out, reference)


def test_interrupted_it_says_how_to_go_on_and_goes_on_with_the_same_run_only(
    tmp_path: Path, command: Words, reference: Path, heedful: Run
):
    out = tmp_path / "out"
    again: Words = ["train-translator", "--resume", "--out", out]
    interrupt = 'at(translator, "translation_terms", call=5, act=lambda: os.kill(os.getpid(), signal.SIGINT))'
    stopped = heedful(interrupt, [*command, "--out", out])
    assert stopped.code == 130
    go_on = re.escape(f"heedful train-translator --resume --out {out}")
    assert re.fullmatch(rf"heedful: stopped and saved at step [56]; go on with: {go_on}\n", stopped.err)

    other = heedful("", [*again, "--lr", "0.5", "--seed", "3"])
    assert (other.code, other.out) == (2, "")
    assert "was started with another --lr, --seed; leave them out to resume" in other.err

    train = Path(command[1])
    content = train.read_bytes()
    train.write_bytes(content.replace(b"five", b"four", 1))
    changed = heedful("", again)
    train.write_bytes(content)
    assert changed.code == 2
    assert changed.err.startswith("heedful: the data has changed since the run began, so it can't be resumed; ")

    done = heedful("", [*again, "--keep", "1"])
    assert (done.code, done.err) == (0, "")
    assert re.search(r"resuming at step [56]", done.out)
    assert_alike(out, reference)
