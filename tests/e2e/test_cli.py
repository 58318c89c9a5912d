"""The commands, one after the other, as a user gives them."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import heedful
from heedful.cli import COMMANDS, main
from heedful.runs import demo, pretrain
from heedful.runs.options import LEARNING_RATES, Recipe, VocabularyPart, load_recipe, read_recipe

PNG = b"\x89PNG\r\n\x1a\n"
SMALL = ("--size", "tiny", "--length", "32", "--batch-tokens", "256", "--steps", "4", "--evaluations", "2")


def made_up(documents: int = 60) -> str:
    """Documents of sentences of words that nobody knows."""
    random = Random(0)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(400)]
    sentences = [
        [" ".join(random.choices(words, k=random.randint(3, 9))) for _ in range(4)] for _ in range(documents)
    ]
    return "\n\n".join("\n".join(lines) for lines in sentences)


def run(capsys: pytest.CaptureFixture, *arguments: str | Path) -> list[str]:
    """What a command that must go well says."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert (stop.value.code or 0, said.err) == (0, "")
    return said.out.splitlines()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a model of it."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "text.txt").write_text(made_up(), encoding="utf-8")
    arguments = [folder / "text.txt", "--out", folder / "model", "--cache", folder / "cache", "--vocab-size", "300"]
    with pytest.raises(SystemExit) as stop:
        main(["pretrain", *map(str, arguments), *SMALL, "--held-out", "0.2"])
    assert not stop.value.code
    return folder


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_names_every_command(capsys: pytest.CaptureFixture, arguments: list[str]):
    said = "\n".join(run(capsys, *arguments))
    assert all(f"  {name} " in said for name in COMMANDS)


def test_the_version(capsys: pytest.CaptureFixture):
    assert run(capsys, "--version") == [f"heedful {heedful.__version__}"]


@pytest.mark.parametrize("flag", ["--length", "--batch-tokens", "--from", "--no-nsp", "--recipe", "--resume"])
def test_the_help_of_pretrain_has_every_flag_without_a_prefix(capsys: pytest.CaptureFixture, flag: str):
    said = "\n".join(run(capsys, "pretrain", "--help"))
    assert f" {flag}" in said
    assert "--settings" not in said


@pytest.mark.parametrize(
    ("command", "kind"), [("pretrain", ""), ("train-translator", "translator"), ("train-vision", "vision")]
)
def test_the_help_names_every_recipe(capsys: pytest.CaptureFixture, command: str, kind: str):
    said = " ".join("\n".join(run(capsys, command, "--help")).replace("│", " ").split())
    told = said.partition(" Start from a recipe (")[2].partition(" or a TOML file,")[0]
    recipes = Path(heedful.__file__).parent / "recipes" / kind
    assert {*re.findall(r"\w+", told)} > {file.stem for file in recipes.glob("*.toml")}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_shows_an_empty_default(capsys: pytest.CaptureFixture, command: str):
    assert "(default: )" not in "\n".join(run(capsys, command, "--help"))


def test_a_recipe_is_overridden_field_by_field(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    recipe = tmp_path / "mine.toml"
    recipe.write_text(
        f'corpus = ["{home / "text.txt"}"]\n[vocabulary]\nvocab_size = 300\n[model]\nsize = "mini"\nmax_length = 64\n'
        "[objective]\nlength = 24\n[optimizer]\nbatch_tokens = 128\n[run]\nsteps = 2\n",
        encoding="utf-8",
    )
    out = tmp_path / "out"
    run(capsys, "pretrain", "--recipe", recipe, "--out", out, "--size", "tiny", "--cache", home / "cache")
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert (config["hidden_size"], config["max_position_embeddings"]) == (128, 64)
    assert json.loads((out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["step"] == 2


def test_a_typed_budget_puts_a_recipes_steps_aside(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    given = (home / "text.txt", "--recipe", "classic", "--size", "tiny", "--length", "32", "--batch-tokens", "256")
    more = ("--vocab-size", "300", "--cache", home / "cache")
    out = tmp_path / "out"
    run(capsys, "pretrain", *given, *more, "--budget", "1s", "--out", out)
    made = read_recipe(out / "heedful.toml")
    assert (made.run.budget, made.run.steps, made.model.size) == ("1s", None, "tiny")
    assert made.optimizer.beta2 == load_recipe("classic").optimizer.beta2 != Recipe().optimizer.beta2
    with pytest.raises(SystemExit):  # both typed is still a mistake
        main(["pretrain", *map(str, given), "--budget", "1s", "--steps", "1", "--out", str(tmp_path / "no")])
    assert "exclude each other" in capsys.readouterr().err


def test_what_a_run_chose_for_itself_is_chosen_anew_where_it_is_a_recipe(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    cache = ("--cache", home / "cache")
    run(capsys, "pretrain", "--recipe", home / "model", "--size", "mini", *cache, "--out", tmp_path / "mini")
    made, before = (read_recipe(folder / "heedful.toml") for folder in (tmp_path / "mini", home / "model"))
    rates = (before.optimizer.lr, made.optimizer.lr)
    assert rates == (LEARNING_RATES["tiny"], LEARNING_RATES["mini"])
    assert made.objective == before.objective
    assert (made.run, made.vocabulary) == (before.run, before.vocabulary)


def test_a_model_to_go_on_with_puts_a_recipes_size_aside(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    given = ("--recipe", "classic", "--from", home / "model", "--length", "32", "--batch-tokens", "256")
    more = ("--steps", "1", "--dropout", "0.37", "--cache", home / "cache", "--out", tmp_path / "out")
    run(capsys, "pretrain", home / "text.txt", *given, *more)
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert (config["hidden_size"], config["vocab_size"]) == (128, 300)
    assert (config["hidden_dropout_prob"], config["attention_probs_dropout_prob"]) == (0.37, 0.1)
    assert read_recipe(tmp_path / "out" / "heedful.toml").optimizer.lr == load_recipe("classic").optimizer.lr


def test_a_model_inside_its_corpus_is_resumed(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """What the run itself writes beside the text (vocab.txt among it) is not text."""
    (tmp_path / "text.txt").write_bytes((home / "text.txt").read_bytes())
    out, cache = tmp_path / "models" / "mine", ("--cache", home / "cache")
    arguments = ["pretrain", tmp_path, "--out", out, *cache, "--vocab-size", "300", *SMALL, "--held-out", "0.2"]
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "save_model", broken_off)
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
    assert stop.value.code == 130
    assert (out / "vocab.txt").is_file()
    capsys.readouterr()
    said = run(capsys, "pretrain", "--resume", "--out", out, *cache)
    assert "resuming at step 4" in said
    assert (out / "model.safetensors").read_bytes() == (home / "model" / "model.safetensors").read_bytes()


def broken_off(*_: object) -> None:
    raise KeyboardInterrupt


def test_fill_answers_arguments(home: Path, capsys: pytest.CaptureFixture):
    first, *lines = run(capsys, "fill", home / "model", "ka [MASK] lo [MASK]", "[MASK]", "--top", "3")
    assert first == "ka [MASK] lo [MASK]"
    assert (lines[0], lines[4]) == ("  blank 1", "  blank 2")
    assert lines[8] == "[MASK]"
    assert len(lines) == 12
    for line in lines[1:4]:
        share, token = line.split()
        assert 0 < float(share.rstrip("%")) < 100
        assert token in (home / "model" / "vocab.txt").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("dash", [(), ("-",)])
def test_fill_answers_standard_input_as_json(
    dash: tuple[str, ...], home: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    texts = [f"ka [MASK] {number}" for number in range(67)]
    monkeypatch.setattr("sys.stdin", io.StringIO("\r\n".join([*texts[:3], "   ", *texts[3:]])))
    answers = [json.loads(line) for line in run(capsys, "fill", home / "model", *dash, "--json")]
    assert [answer["text"] for answer in answers] == texts
    for answer in answers:
        (blank,) = answer["blanks"]
        assert len(blank) == 5
        shares = [candidate["probability"] for candidate in blank]
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) < 1


def test_fill_gives_the_same_answer_alone_and_in_a_batch(home: Path, capsys: pytest.CaptureFixture):
    together = run(capsys, "fill", home / "model", "ka [MASK] lo", "mi mi mi [MASK]", "--json")
    alone = run(capsys, "fill", home / "model", "ka [MASK] lo", "--json")
    one, other = (json.loads(lines[0])["blanks"][0] for lines in (together, alone))
    assert [c["probability"] for c in one] == pytest.approx([c["probability"] for c in other], rel=1e-4)


def test_fill_answers_what_comes_before_a_mistake(home: Path, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        main(["fill", str(home / "model"), "ka [MASK]", "lo [MASK]", "no blank", "mi [MASK]", "--json"])
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert [json.loads(line)["text"] for line in said.out.splitlines()] == ["ka [MASK]", "lo [MASK]"]
    assert "write [MASK] where a word is missing" in said.err


def test_fill_of_nothing_is_a_mistake(home: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n  \n"))
    with pytest.raises(SystemExit) as stop:
        main(["fill", str(home / "model")])
    assert stop.value.code == 2
    assert "there is no text to fill" in capsys.readouterr().err


def test_fill_does_not_take_broken_text(home: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    for given in (["kaf\udce9 [MASK]"], []):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"kaf\xe9 [MASK]\n"), "utf-8"))
        with pytest.raises(SystemExit) as stop:
            main(["fill", str(home / "model"), *given])
        assert stop.value.code == 2
        assert "not UTF-8" in capsys.readouterr().err


def test_info_tells_of_a_model(home: Path, capsys: pytest.CaptureFixture):
    told = json.loads("\n".join(run(capsys, "info", home / "model", "--json")))
    assert told["model"] == "BERT tiny: 2 layers, 128 wide, 2 heads"
    assert told["shape"] == {"layers": 2, "dim": 128, "heads": 2}
    assert told["heads"] == ["masked words", "next sentence"]
    assert told["reads"] == {"tokens": 512, "segments": 2}
    assert told["tokenizer"] == {"tokens": 300, "case": "uncased"}
    assert told["trained on"] == [str(home / "text.txt")]
    assert told["steps"] == 4
    assert told["tokens"] > 4
    # By hand: the embeddings and their norm, two layers, the pooler, the two heads.
    layer = 4 * (128 * 128 + 128) + 2 * 128 * 512 + 512 + 128 + 4 * 128
    heads = (128 * 128 + 128) + (128 * 128 + 128) + 2 * 128 + 300 + (2 * 128 + 2)
    assert told["parameters"] == 128 * (300 + 512 + 2) + 2 * 128 + 2 * layer + heads
    lines = run(capsys, "info", home / "model")
    assert lines[0].split(maxsplit=1) == ["model", told["model"]]
    assert lines[1].split(maxsplit=1) == ["parameters", f"{told['parameters']:,}"]
    assert "heads       masked words, next sentence" in lines


def test_info_tells_how_to_go_on_with_an_unfinished_run(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "heedful.toml").write_bytes((home / "model" / "heedful.toml").read_bytes())
    told = json.loads("\n".join(run(capsys, "info", tmp_path, "--json")))
    assert told["run"] == "unfinished, no checkpoint yet"
    assert told["go on with"] == f"heedful pretrain --resume --out {tmp_path}"


@pytest.mark.parametrize(("name", "start"), [("curves.png", PNG), ("mine.svg", b"<?xml"), ("mine.pdf", b"%PDF")])
def test_plot_draws(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture, name: str, start: bytes):
    path = tmp_path / name
    assert run(capsys, "plot", home / "model", "--out", path) == [f"drew {path}"]
    assert path.read_bytes().startswith(start)


def test_plot_draws_beside_the_run(home: Path, capsys: pytest.CaptureFixture):
    assert run(capsys, "plot", home / "model") == [f"drew {home / 'model' / 'curves.png'}"]
    assert (home / "model" / "curves.png").read_bytes().startswith(PNG)


def test_doctor_tells_of_the_machine(capsys: pytest.CaptureFixture):
    told = json.loads("\n".join(run(capsys, "doctor", "--json")))
    assert told["heedful"] == heedful.__version__
    assert {"python", "torch", "processor", "memory", "GPU", "precision"} <= told.keys()
    assert [line.split()[0] for line in run(capsys, "doctor")][:2] == ["heedful", "python"]


def test_tokenizer_and_prepare_once_then_pretrain_on_the_shards(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    text, tokenizer, shards, model = (
        home / "text.txt",
        tmp_path / "tokenizer",
        tmp_path / "조각 shards",
        tmp_path / "model",
    )
    first, second = run(
        capsys, "tokenizer", text, "--out", tokenizer, "--vocab-size", "300", "--cased", "--held-out", "0.2"
    )
    assert first == f"300 tokens, cased, saved in {tokenizer}"
    assert second.startswith("on held-out text: 0.000% [UNK], ")
    (line,) = run(capsys, "prepare", text, "--tokenizer", tokenizer, "--out", shards, "--held-out", "0.2")
    assert line.endswith(f"saved in {shards}: heedful pretrain '{shards}' --out FOLDER")
    lines = run(capsys, "pretrain", shards, "--out", model, *SMALL)
    assert lines[-1] == f"saved {model}"
    assert (model / "tokenizer.json").read_bytes() == (tokenizer / "tokenizer.json").read_bytes()
    assert len(run(capsys, "fill", model, "ka [MASK]")) == 6


def test_prepare_reads_standard_input(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    given = ("--tokenizer", home / "model", "--held-out", "0.2")
    (from_file,) = run(capsys, "prepare", home / "text.txt", *given, "--out", tmp_path / "file")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((home / "text.txt").read_bytes())))
    (from_pipe,) = run(capsys, "prepare", "-", *given, "--out", tmp_path / "pipe")
    assert from_pipe.split(";")[:2] == from_file.split(";")[:2]
    assert (tmp_path / "pipe" / "train.tokens").read_bytes() == (tmp_path / "file" / "train.tokens").read_bytes()


def untimed(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("That took ")]


@pytest.fixture
def small_demo(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(name: str) -> Recipe:
        recipe = load_recipe(name)
        objective = replace(recipe.objective, length=32)
        return replace(recipe, vocabulary=VocabularyPart(vocab_size=300), objective=objective)

    monkeypatch.setattr(demo, "builtin_corpus", lambda cache, say: home / "text.txt")
    monkeypatch.setattr(demo, "load_recipe", small)


@pytest.mark.usefixtures("small_demo")
def test_demo_trains_compares_fills_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "a demo"
    lines = run(capsys, "demo", "--part", "bert", "--out", out, "--steps", "3", "--cache", tmp_path / "cache")
    said = "\n".join(lines)
    (words,) = [line for line in lines if line.startswith("  masked words right")]
    baseline = words.partition("always the most frequent token:")[2].strip()
    assert 0 < float(baseline.rstrip("%")) < 50
    assert "next sentence right" in said
    assert "a coin: 50.0%" in said
    assert all(f"  {sentence}" in lines for sentence in demo.SENTENCES)
    assert f"""  heedful fill '{out}' "Return the [MASK] of the list.\"""" in lines
    assert f"  heedful info '{out}'" in lines
    for name in ("curves.png", "positions.png"):
        assert (out / name).read_bytes().startswith(PNG)
    assert (out / "model.safetensors").is_file()
    assert json.loads((out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["step"] == 3

    monkeypatch.setattr(demo, "pretrain", lambda _: pytest.fail("trained twice"))
    first, *again = run(capsys, "demo", "--part", "bert", "--out", out, "--steps", "3", "--cache", tmp_path / "cache")
    assert first == f"{out} is trained already; delete it to train anew"
    shown = lines[lines.index("On documents it has never seen:") - 1 :]
    assert untimed(again) == untimed(shown)
    with pytest.raises(SystemExit) as stop:
        main(["demo", "--part", "bert", "--out", str(out), "--steps", "5", "--cache", str(tmp_path / "cache")])
    assert stop.value.code == 2
    assert f"{out} holds another run; choose another --out" in capsys.readouterr().err


@pytest.mark.usefixtures("small_demo")
def test_an_unfinished_demo_is_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    arguments = ("demo", "--part", "bert", "--out", tmp_path / "demo", "--steps", "3", "--cache", tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "save_model", broken_off)
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
    assert stop.value.code == 130
    capsys.readouterr()
    assert "resuming at step 3" in run(capsys, *arguments)
    assert (tmp_path / "demo" / "model.safetensors").is_file()


def test_the_text_of_the_demo_is_collected_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    monkeypatch.setattr(demo.builtin, "documents", lambda: iter([["ka lo"]]))
    path = demo.builtin_corpus(tmp_path, said.append)
    assert path.read_text(encoding="utf-8") == "ka lo\n\n"
    monkeypatch.setattr(demo.builtin, "write", lambda path: pytest.fail("written twice"))
    assert demo.builtin_corpus(tmp_path, said.append) == path
    assert len(said) == 1


def process(*arguments: str | Path, **options: object) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("more", {})}
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **options)


def test_whoever_has_read_enough_is_no_trouble(home: Path):
    with process("fill", home / "model", *["ka [MASK]"] * 300, "--top", "50") as running:
        assert running.stdout.readline().strip() == b"ka [MASK]"
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_a_run_goes_on_when_nobody_listens(home: Path, tmp_path: Path):
    arguments = (home / "text.txt", "--out", tmp_path / "out", "--cache", home / "cache", "--vocab-size", "300")
    with process("pretrain", *arguments, *SMALL) as running:
        assert running.stdout.readline() == b"training the tokenizer\n"
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert json.loads((tmp_path / "out" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])["step"] == 4


def test_a_terminal_without_our_letters_is_no_trouble():
    with process("--help", more={"PYTHONIOENCODING": "ascii"}) as running:
        said, trouble = running.communicate()
    assert (running.returncode, trouble) == (0, b"")
    assert b"usage: heedful COMMAND ?" in said
