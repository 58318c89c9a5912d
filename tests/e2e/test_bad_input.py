"""Whatever a user gets wrong ends as one line that says what to do, and breaks nothing that was there."""

import errno
import io
import json
import os
import pickle
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import safetensors.torch
import torch

from heedful.cli import main
from heedful.data import lines
from heedful.nn.layers import EncoderLayer

SMALL = ("--size", "tiny", "--length", "32", "--max-length", "64", "--batch-tokens", "256", "--device", "cpu")
SMALL += ("--steps", "4", "--evaluations", "1", "--checkpoint-every", "2")


class Command:
    """Runs commands in this process and looks at how they end."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture) -> None:
        self.home = home
        self.capsys = capsys

    def run(self, *arguments: str | Path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        said = self.capsys.readouterr()
        return stop.value.code or 0, said.out, said.err

    def fails(self, *arguments: str | Path) -> str:
        """The one line on standard error of a command that must fail."""
        code, _, said = self.run(*arguments)
        assert code == 2
        assert said.startswith("heedful: ")
        assert said.endswith("\n")
        assert said.count("\n") == 1
        assert "Traceback" not in said
        assert "---" not in said
        assert "──" not in said
        return said

    def pretrain(self, *more: str | Path, out: Path | None = None) -> list[str | Path]:
        given = ["--out", out or self.home / "out", "--cache", self.home / "cache"]
        return ["pretrain", *given, *SMALL, *more]

    def text(self, content: str | bytes, name: str = "text.txt") -> Path:
        path = self.home / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture) -> Command:
    return Command(tmp_path, capsys)


def made_up(seed: int = 0, documents: int = 60) -> str:
    """Documents of sentences of words that nobody knows."""
    random = Random(seed)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(400)]
    sentences = [
        [" ".join(random.choices(words, k=random.randint(3, 9))) for _ in range(4)] for _ in range(documents)
    ]
    return "\n\n".join("\n".join(lines) for lines in sentences)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, and a model and shards made of it."""
    folder = tmp_path_factory.mktemp("good")
    (folder / "text.txt").write_text(made_up(), encoding="utf-8")
    for arguments in (
        ["tokenizer", "text.txt", "--out", "tokenizer", "--vocab-size", "300"],
        ["prepare", "text.txt", "--tokenizer", "tokenizer", "--out", "shards", "--held-out", "0.2"],
        ["pretrain", "shards", "--out", "model", *SMALL],
    ):
        paths = {name: str(folder / name) for name in ("text.txt", "tokenizer", "shards", "model")}
        with pytest.raises(SystemExit) as stop:
            main([arguments[0], *(paths.get(argument, argument) for argument in arguments[1:])])
        assert not stop.value.code
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_empty_file(command: Command):
    text = command.text("")
    said = command.fails(*command.pretrain(text))
    assert f"{text} holds no text; give a file that does" in said
    assert not (command.home / "out").exists()


def test_a_folder_without_text(command: Command):
    (command.home / "pictures").mkdir()
    command.text(b"\x89PNG", "pictures/cat.png")
    said = command.fails(*command.pretrain(command.home / "pictures"))
    assert "holds no text; the files read end in .txt" in said


def test_a_file_that_is_not_there(command: Command):
    command.text("a", "corpus.txt")
    said = command.fails(*command.pretrain(command.home / "corpsu.txt"))
    assert f"does not exist; did you mean {command.home / 'corpus.txt'}?" in said


def test_a_link_to_a_file_that_is_not_there(command: Command):
    (command.home / "link.txt").symlink_to(command.home / "gone.txt")
    said = command.fails(*command.pretrain(command.home / "link.txt"))
    assert "link.txt is a link to a file that is not there; mend the link, or name the file" in said


def test_binary_data(command: Command):
    said = command.fails(*command.pretrain(command.text(b"\x7fELF\0\0\0\1" * 99)))
    assert "looks like binary data, not text; give UTF-8 text" in said


def test_text_that_is_not_utf8(command: Command):
    broken = made_up().encode() + b"\n\nkaf\xe9 lo\n"
    text = command.text(broken)
    line = broken.count(b"\n")
    said = command.fails(*command.pretrain(text, "--vocab-size", "300"))
    assert f"{text}:{line}: byte 0xe9 is not UTF-8" in said
    assert "--errors replace" in said
    code, _, said = command.run(*command.pretrain(text, "--vocab-size", "300", "--errors", "replace"))
    assert (code, said) == (0, "")
    assert (command.home / "out" / "model.safetensors").is_file()


def test_a_column_that_is_missing(command: Command):
    table = command.text("id,words\n1,ka lo mi\n", "table.csv")
    said = command.fails(*command.pretrain(table, "--text", "wrods"))
    assert f"{table}:2: there is no column wrods; name one with --text COLUMN, of: id, words" in said
    said = command.fails(*command.pretrain(table))
    assert "no column is known to hold the text; name one with --text COLUMN" in said


def test_a_gigantic_line(command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lines, "MAX_LINE", 1 << 20)
    text = command.text("short\n" + "ka " * (1 << 19))
    said = command.fails(*command.pretrain(text))
    assert f"{text}:2: a line of over 1 MiB; put line breaks between sentences" in said


def test_a_vocabulary_that_the_text_does_not_support(command: Command):
    said = command.fails(*command.pretrain(command.text(made_up()), "--vocab-size", "30000"))
    assert "a vocabulary of 30000 is larger than this text supports" in said
    way_out = said.partition("use --vocab-size ")[2].split()[0]
    code, _, said = command.run(*command.pretrain(command.home / "text.txt", "--vocab-size", way_out))
    assert (code, said) == (0, "")


def test_a_length_beyond_the_positions(command: Command, good: Path):
    said = command.fails(*command.pretrain(good / "text.txt", "--length", "65"))
    assert "--length 65 is beyond the model's 64 positions; use --length 64 or less, or --max-length 65" in said
    arguments = ["--out", command.home / "out", "--steps", "1", "--length", "65", "--from", good / "model"]
    said = command.fails("pretrain", good / "text.txt", *arguments)
    assert "--length 65 is beyond the model's 64 positions; use --length 64 or less" in said
    assert not (command.home / "out").exists()


def test_a_text_longer_than_the_model_reads(command: Command, good: Path):
    said = command.fails("fill", good / "model", "[MASK] " + "ka " * 200)
    assert "203 tokens, of which the model reads 64 at most; shorten it" in said


def test_a_tokenizer_that_does_not_belong_to_the_shards(command: Command, good: Path):
    other = command.home / "other"
    assert command.run("tokenizer", good / "text.txt", "--out", other, "--vocab-size", "200")[0] == 0
    said = command.fails(*command.pretrain(good / "shards", "--tokenizer", other))
    assert "the tokenizer does not belong to the shards" in said
    assert "give the text instead of the shards" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--held-out", "0.2"), "is prepared already; leave --held-out out"),
        (("--text", "review"), "is prepared already; leave --text out"),
        (("--vocab-size", "299"), "is prepared already, with its own vocabulary; leave --vocab-size out"),
        (("--cased",), "is prepared already, with upper case or without; leave --cased out"),
        (("text.txt",), "is prepared already and can't be mixed with other text; give it alone"),
    ],
)
def test_prepared_text_that_is_told_anew(command: Command, good: Path, more: tuple[str, ...], message: str):
    assert message in command.fails(*command.pretrain(good / "shards", *more))
    assert not (command.home / "out").exists()


def test_standard_input_that_is_not_utf8(command: Command, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("나무\n".encode("cp949"))))
    said = command.fails(*command.pretrain("-"))
    assert said.startswith("heedful: standard input:1: byte 0xb3 is not UTF-8; convert the text (iconv -f CP949 ")
    assert not (command.home / "out").exists()


def test_standard_input_that_is_closed(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", None)
    assert "standard input is closed" in command.fails(*command.pretrain("-"))
    assert "standard input is closed" in command.fails("fill", good / "model")
    assert not (command.home / "out").exists()


@pytest.mark.parametrize("name", ["missing", "empty", "text"])
def test_a_folder_that_is_no_model(command: Command, name: str):
    folder = command.home / name
    if name != "missing":
        folder.mkdir()
    if name == "text":
        command.text("ka lo mi", "text/a.txt")
    for arguments in (["fill", folder, "a [MASK]"], ["info", folder]):
        assert f"{folder} is not a model folder" in command.fails(*arguments)
    text = command.text(made_up())
    arguments = ["--out", command.home / "out", "--cache", command.home / "cache", "--length", "32"]
    said = command.fails("pretrain", text, *arguments, "--from", folder)
    assert f"{folder} is not a model folder" in said
    assert not (command.home / "out").exists()


def test_plotting_what_is_no_run(command: Command):
    assert "holds no run" in command.fails("plot", command.home)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1000])


def corrupted(path: Path) -> None:
    path.write_bytes(b"\xff" * 64 + path.read_bytes()[64:])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": [1, 2, 3]}))


@pytest.mark.parametrize("damage", [truncated, corrupted, emptied, pickled])
def test_damaged_weights(command: Command, good: Path, damage: Callable[[Path], None]):
    model = command.home / "model"
    model.mkdir()
    for name, content in contents(good / "model").items():
        (model / name).write_bytes(content)
    damage(model / "model.safetensors")
    for arguments in (
        ["fill", model, "a [MASK]"],
        ["info", model],
        ["pretrain", good / "text.txt", "--out", command.home / "out", "--length", "32", "--from", model],
    ):
        said = command.fails(*arguments)
        assert f"{model / 'model.safetensors'} is truncated, corrupted or not a safetensors file" in said
        assert "copy or save it again" in said
    assert not (command.home / "out").exists()


def test_weights_that_may_not_be_read_are_not_missing(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object, **__: object) -> None:
        raise FileNotFoundError("No such file or directory")  # as safetensors says then

    monkeypatch.setattr(safetensors.torch, "load_file", refused)
    said = command.fails("fill", good / "model", "a [MASK]")
    weights = good / "model" / "model.safetensors"
    assert said == (
        f"heedful: this may not be written or read ({weights}); choose another folder, or mend its permissions\n"
    )


class Trap:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return (open, (str(self.mark), "w"))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_pickle_never_runs(command: Command, good: Path):
    model = command.home / "model"
    model.mkdir()
    for name, content in contents(good / "model").items():
        (model / name).write_bytes(content)
    (model / "model.safetensors").unlink()
    torch.save({"weights": Trap(command.home / "sprung")}, model / "pytorch_model.bin")
    said = command.fails("fill", model, "a [MASK]")
    assert "save it again as model.safetensors" in said
    assert not (command.home / "sprung").exists()


def test_a_folder_that_holds_another_run(command: Command, good: Path):
    before = contents(good / "model")
    said = command.fails(*command.pretrain(good / "text.txt", "--vocab-size", "300", out=good / "model"))
    assert "already holds a model; choose another --out" in said
    said = command.fails("pretrain", "--resume", "--out", good / "model", "--seed", "7")
    assert "is complete; to go on training its model, use --from" in said
    command.text(before["heedful.toml"], "heedful.toml")
    said = command.fails("pretrain", "--resume", "--out", command.home, "--seed", "7")
    assert "was started with another --seed; leave it out to resume" in said
    said = command.fails("tokenizer", good / "text.txt", "--out", good / "tokenizer", "--vocab-size", "300")
    assert f"{good / 'tokenizer'} exists and is not empty; choose another --out" in said
    said = command.fails("prepare", good / "text.txt", "--tokenizer", good / "tokenizer", "--out", good / "shards")
    assert "exists already; choose another --out" in said
    assert contents(good / "model") == before


def test_a_folder_that_is_moved_while_its_run_goes_on(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    """Nothing is saved where it was, and it can go on where it is."""
    from heedful.runs import objective

    out, moved, steps, real = command.home / "out", command.home / "moved", count(1), objective.pretraining_terms

    def terms(*given: Any) -> Any:
        if next(steps) == 4:
            out.rename(moved)
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(objective, "pretraining_terms", terms)
        said = command.fails(*command.pretrain(good / "shards"))
    assert f"{out} was moved or emptied while the run went on: it has no heedful.toml" in said
    assert not out.exists()
    code, out_said, said = command.run("pretrain", "--resume", "--out", moved)
    assert (code, said) == (0, "")
    assert "resuming at step 2" in out_said
    assert (moved / "model.safetensors").read_bytes() == (good / "model" / "model.safetensors").read_bytes()


def test_a_run_that_is_not_there_can_not_be_resumed_whatever_else_is_said(command: Command):
    for more in ([], ["--recipe", "modern"], ["--recipe", "classic"], ["--batch-tokens", "auto"]):
        said = command.fails("pretrain", "--resume", "--out", command.home / "nowhere", *more)
        assert "nowhere holds no run to resume: there is no such folder; name the --out that the run had" in said


def test_text_from_standard_input_is_read_once(command: Command, monkeypatch: pytest.MonkeyPatch):
    """A run that goes on has its text, and says that nothing else is read."""
    from heedful.runs import objective

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    pieces = [io.TextIOWrapper(io.BytesIO(made_up(seed).encode())) for seed in (0, 1)]
    monkeypatch.setattr("sys.stdin", pieces[0])
    with monkeypatch.context() as patch:
        patch.setattr(objective, "pretraining_terms", ended)
        assert command.run(*command.pretrain("-", "--vocab-size", "300"))[0] == 130
    monkeypatch.setattr("sys.stdin", pieces[1])
    code, out, _ = command.run("pretrain", "-", "--resume", "--out", command.home / "out")
    assert code == 0
    assert out.startswith("the text is what came on standard input when the run began\n")
    assert pieces[1].read() == made_up(1)


def test_an_environment_that_makes_no_sense(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "foo")
    monkeypatch.setattr(os, "_exit", sys.exit)  # which ends one of several processes
    said = command.fails(*command.pretrain(good / "shards"))
    assert "WORLD_SIZE is 'foo' but must be a whole number; unset it, or start processes by torchrun" in said
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "5")
    said = command.fails(*command.pretrain(good / "shards"))
    assert "RANK is 5, but of 2 processes the last is 1; torchrun sets it" in said
    assert not (command.home / "out").exists()


def test_libraries_that_no_memory_is_left_for(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object, **__: object) -> None:
        raise ImportError("libtorch_cpu.so: failed to map segment from shared object")

    monkeypatch.setattr("heedful.predict.load_predictor", refused)
    said = command.fails("fill", good / "model", "a [MASK]")
    why = "libtorch_cpu.so: failed to map segment from shared object"
    assert said == f"heedful: this machine's free memory is too small for this ({why}); end what else uses it\n"


def test_memory_that_is_too_small_to_say_so(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("heedful.predict.load_predictor", refused)
    monkeypatch.setattr("heedful.cli.too_small", refused)
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(os, "write", lambda _, said: sys.stderr.write(said.decode()))
    said = command.fails("fill", good / "model", "a [MASK]")
    assert said == "heedful: there is too little free memory even to say for what; end what else uses it\n"


def test_a_run_whose_text_is_elsewhere_when_it_goes_on(command: Command, good: Path):
    text = command.text(made_up(), "here.txt")
    assert command.run(*command.pretrain(text))[0] == 0
    (command.home / "out" / "model.safetensors").unlink()
    renamed = text.rename(text.with_name("there.txt"))
    said = command.fails("pretrain", "--resume", "--out", command.home / "out")
    assert said.startswith(f"heedful: {text} does not exist; ")
    assert "to go on, a run needs it under the name that it began with" in said
    text.symlink_to(renamed)
    assert command.run("pretrain", "--resume", "--out", command.home / "out")[0] == 0
    (command.home / "out" / "model.safetensors").unlink()
    (command.home / "out" / "heedful.toml").write_text("")
    assert "heedful.toml was changed after the run began" in command.fails(
        "pretrain", "--resume", "--out", command.home / "out"
    )


def test_of_several_recipes_the_last_one_counts(command: Command, good: Path):
    for name, steps in (("one", 2), ("two", 3)):
        command.text(f"[run]\nsteps = {steps}\n", f"{name}.toml")
    both = ["--recipe", command.home / "one.toml", "--recipe", command.home / "two.toml"]
    small = ["--size", "tiny", "--length", "32", "--batch-tokens", "256", "--device", "cpu"]
    where = ["--out", command.home / "out", "--cache", command.home / "cache"]
    code, out, _ = command.run("pretrain", good / "shards", *small, *both, *where)
    assert code == 0
    assert "step 3 (100%)" in out


def test_a_full_disk_while_a_checkpoint_is_saved(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    """The second checkpoint does not fit: the first is intact, and with room again the run goes on."""
    from heedful.train import checkpoint

    real = checkpoint.write_file

    def full(path: Path, content: bytes) -> str:
        if "step-00000004" in str(path) and path.name.startswith("optimizer"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return real(path, content)

    arguments = command.pretrain(good / "shards")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_file", full)
        said = command.fails(*arguments)
    assert "the disk is full" in said
    assert "free some space, or choose another folder: what was saved before is intact" in said
    assert [path.name for path in (command.home / "out" / "checkpoints").iterdir()] == ["step-00000002"]
    code, out, said = command.run("pretrain", "--resume", "--out", command.home / "out")
    assert (code, said) == (0, "")
    assert "resuming at step 2" in out
    same = (good / "model" / "model.safetensors").read_bytes()
    assert (command.home / "out" / "model.safetensors").read_bytes() == same


def test_a_full_disk_while_text_is_prepared(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    from heedful.data import shards

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    arguments = command.pretrain(good / "text.txt", "--tokenizer", good / "tokenizer")
    with monkeypatch.context() as patch:
        patch.setattr(shards._Writer, "add", full)
        said = command.fails(*arguments)
    assert f"the disk is full where the cache is ({command.home / 'cache'}); free some space, or name" in said
    assert not (command.home / "out").exists()
    assert contents(command.home / "cache") == {}
    assert command.run(*arguments)[0] == 0


def test_a_folder_that_may_not_be_written(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(command.home / "out"))

    monkeypatch.setattr(Path, "mkdir", refused)
    said = command.fails(*command.pretrain(good / "shards"))
    assert f"this may not be written or read ({command.home / 'out'}); choose another folder" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrain", "a.txt", "--out", "x", "--lenght", "32"], "did you mean --length?"),
        (["fill", "model", "text", "--jsno"], "did you mean --json?"),
        (["pretrain", "a.txt", "--out", "x", "--epochs", "3"], "did you mean --steps or --budget?"),
        (["pretrain", "a.txt", "--out", "x", "--batch_size=3"], "did you mean --batch-tokens?"),
        (["pretrain", "a.txt", "--out", "x", "--lerning-rate=3"], "did you mean --lr?"),
        (["pretrain", "a.txt", "--out", "x", "--batch-tokens", "many"], "must be a whole number, auto or budget"),
        (["pretrain", "a.txt", "--out", "x", "--checkpoint-every", "soon"], "--checkpoint-every 'soon' is not a dur"),
        (["pretrain", "a.txt", "--output-dir", "x"], "--out is missing; --output-dir is not an option, did you mean"),
        (["pretrain", "a.txt", "--fp16", "--out"], "--out needs a value (heedful"),
        (
            ["pretrain", "a.txt", "--nsp=false", "--out", "x"],
            "--nsp takes no value; its opposite is --no-nsp (heedful",
        ),
        (["pretrain", "a.txt", "--shard=yes", "--out", "x"], "--shard takes no value (heedful"),
        (["pretrain", "a.txt", "--out", "x", "--sise", "3", "--epochs", "1"], "; for --sise did you mean --size?"),
        (
            ["pretrain", "a.txt", "--out", "x", "--schedule", "trapezoid", "--warmup", "1"],
            "--warmup 1 leaves no time for a trapezoid's rate to fall; use less",
        ),
        (["train-vision", "images", "--out", "x", "--batch-size", "3"], "did you mean --batch?"),  # not --patch-size
        (["finetune", "model", "a.csv", "--out", "x", "--budget", "5m"], "did you mean --epochs?"),
        (["finetune", "model", "a.csv", "--out", "x", "--learning-rate", "1"], "did you mean --lr?"),
        (["pretrain", "a.txt", "--out", "x", "--step", "3"], "did you mean --steps?"),
        (["predict", "model", "a.txt", "--tpo", "3"], "did you mean --top?"),
        (["pretrain", "a.txt", "--otu", "x"], "--out is missing; --otu is not an option, did you mean --out?"),
        (["pretrain", "a.txt", "--out", "x", "--data", "b.txt"], "--data, b.txt (heedful"),  # not --gated
        (["evaluate", "model", "a.csv", "--output", "x"], "--output, x (heedful"),  # it has no --out
        (["pretrian", "a.txt"], "there is no command 'pretrian'; did you mean 'pretrain'?"),
        (["quux"], "there is no command 'quux'; see heedful --help"),
        (["pretrain", "a.txt"], "--out is missing (heedful pretrain --help says more)"),
        (["pretrain", "a.txt", "--out"], "--out needs a value"),
        (["pretrain", "--out", "x"], "no text was given; name files, folders or - for standard input"),
        (["pretrain", "a.txt", "--out", "x", "--steps", "many"], "'many' but must be a whole number (heedful"),
        (["pretrain", "a.txt", "--out", "x", "--lr", "fast"], "--lr is 'fast' but must be a number (heedful"),
        (["pretrain", "a.txt", "--out", "x", "--length", "long"], "--length is 'long' but must be a whole number"),
        (
            ["pretrain", "a.txt", "--out", "x", "--size", "huge"],
            "--size is 'huge'; choose from auto, base, large, medium, mini, small, tiny",
        ),
        (["pretrain", "a.txt", "--out", "x", "--steps", "0"], "steps 0 must be at least 1"),
        (
            ["pretrain", "a.txt", "--out", "x", "--steps", "3", "--budget", "3s"],
            "exclude each other; give one of them",
        ),
        (["pretrain", "a.txt", "--out", "x", "--budget", "soon"], "'soon' is not a duration; write it like 90s"),
        (["pretrain", "a.txt", "--out", "x", "--checkpoint-every", "0"], "write steps like 500 or a time like 5m"),
        (
            ["pretrain", "a.txt", "--out", "x", "--recipe", "classik"],
            "there is no recipe 'classik'; did you mean classic?",
        ),
        (
            ["pretrain", "a.txt", "--out", "x", "--recipe", "quux"],
            "there is no recipe 'quux'; choose from classic, demo, modern, or name a .toml file",
        ),
        (["pretrain", "a.txt", "--out", "x", "--recipe", "no.toml"], "no.toml does not exist"),
        (["pretrain", "a.txt", "--out", "x", "--dropout", "1.5"], "dropout 1.5 must be at least 0 and less than 1"),
        (["pretrain", "a.txt", "--out", "x", "--precision", "bf16", "--device", "cpu"], "leave --precision out"),
        (["pretrain", "a.txt", "--out", "x", "--from", "m", "--size", "tiny"], "leave --size out"),
        (
            ["pretrain", "--out", "x", "--resume"],
            "x holds no run to resume: there is no such folder",
        ),
        (["fill", "model", "--top", "few"], "--top is 'few' but must be a whole number"),
        (
            ["pretrain", "a.txt", "--out", "x", "--errors", "ignore"],
            "--errors is 'ignore'; choose from replace, strict",
        ),
        (["info"], "MODEL is missing (heedful info --help says more)"),
        (["pretrain", "a.txt", "--out", "x", "--cased", "--from", "m"], "leave --cased out"),
        (["pretrain", "a.txt", "--out", "x", "--cased", "--tokenizer", "m"], "leave --cased out"),
        (["pretrain", "a.txt", "--out", "x", "--beta2", "1"], "beta2 1.0 must be at least 0 and less than 1"),
        (["pretrain", "a.txt", "--out", "x", "--weight-decay=-1"], "--weight-decay -1.0 must not be negative"),
        (["pretrain", "a.txt", "--out", "x", "--seed=-1"], "seed -1 must lie between 0 and 2^63"),
        (["prepare", "a.txt", "--out", "x", "--tokenizer", "y"], "y has no tokenizer"),
    ],
)
def test_a_command_that_is_not_understood(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
):
    monkeypatch.chdir(command.home)
    assert message in command.fails(*arguments)
    assert list(command.home.iterdir()) == []


def test_a_batch_smaller_than_a_sequence(command: Command, good: Path):
    said = command.fails(*command.pretrain(good / "shards", "--batch-tokens", "31"))
    assert "--batch-tokens 31 is less than one sequence of 32; try 1024, or a shorter --length" in said
    assert not (command.home / "out").exists()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("[optimizer]\nwarmupp = 0.1", "unknown key 'warmupp'; did you mean 'warmup'?"),
        ("[optimiser]\nwarmup = 0.1", "unknown key 'optimiser'; did you mean 'optimizer'?"),
        ('[optimizer]\noptimizer = "muon"', "unknown key 'optimizer'; did you mean 'name'?"),
        ('from = "m"', "unknown key 'from'; did you mean 'start_from'?"),
        (
            'train = ["a.csv"]\n[made]',
            "mine.toml is of another kind of run: it has 'train'; name the folder of one of",
        ),
        ("[optimiser]\nwarmup = 0.1\n[made]", "unknown key 'optimiser'; did you mean 'optimizer'?"),
        ("[run]\nsteps = 'many'", "steps is 'many' but must be a whole number"),
        ("[model]\nsize = 'huge'", "size is 'huge'; choose from auto, tiny, mini, small, medium, base, large"),
        ("[run]\nsteps = 3\nbudget = '3s'", "exclude each other"),
        ("run = ", "is not valid TOML"),
    ],
)
def test_a_recipe_with_a_mistake(command: Command, recipe: str, message: str):
    path = command.text(recipe, "mine.toml")
    assert message in command.fails("pretrain", "a.txt", "--out", command.home / "out", "--recipe", path)


def test_a_text_without_a_blank(command: Command, good: Path):
    assert "write [MASK] where a word is missing" in command.fails("fill", good / "model", "nothing missing here")
    assert "top 0 must be at least 1" in command.fails("fill", good / "model", "a [MASK]", "--top", "0")


def test_every_checkpoint_damaged(command: Command, good: Path, monkeypatch: pytest.MonkeyPatch):
    from heedful.runs import pretrain

    def broken_off(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "save_model", broken_off)
        code, _, said = command.run(*command.pretrain(good / "shards"))
    assert (code, said) == (130, "heedful: interrupted\n")
    for folder in (command.home / "out" / "checkpoints").iterdir():
        (folder / "checksums.json").write_text(json.dumps({"state.json": "0"}), encoding="utf-8")
    code, _, said = command.run("pretrain", "--resume", "--out", command.home / "out")
    assert code == 2
    assert [line[: line.index(" ", 9)] for line in said.splitlines()] == ["heedful: the"] * 2 + ["heedful: every"]
    assert said.splitlines()[-1].endswith("is damaged; start the run again in another folder")


ASKED = (
    *("fill BERT the:[MASK]", "embed BERT FILE --out a.npy", "evaluate BERT FILE"),
    *("explore BERT --text a --export a.html", "translate TRANSLATOR FILE", "translate TRANSLATOR FILE --given FILE"),
    *("translate TRANSLATOR FILE --beam 1", "translate TRANSLATOR FILE --sample"),
)


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("who", ["the GPU's memory", "this machine's free memory"])
def test_memory_that_is_too_small_for_a_model_that_is_asked(
    command: Command,
    write_bert: Callable[..., Path],
    translator: Callable[[str], Path],
    asked: str,
    who: str,
    monkeypatch: pytest.MonkeyPatch,
):
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError if "GPU" in who else RuntimeError("DefaultCPUAllocator: can't allocate memory")

    bert = write_bert(command.home / "bert", ["the", "a"])
    names = {"BERT": bert, "FILE": command.text("one\n")}
    names["TRANSLATOR"] = translator("good") if "TRANSLATOR" in asked else bert
    monkeypatch.chdir(command.home)
    monkeypatch.setattr(EncoderLayer, "forward", full)
    said = command.fails(*(str(names.get(word, word)).replace(":", " ") for word in asked.split()))
    usual = "end what else uses it" + (" (nvidia-smi names it), or use the device cpu" if "GPU" in who else "")
    way_out = "use a smaller --beam, or end what else uses it" if asked == "translate TRANSLATOR FILE" else usual
    assert said == f"heedful: {who} is too small for this; {way_out}\n"
