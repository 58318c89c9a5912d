"""Whatever is wrong with sentence pairs, or with what is asked of them, ends as one line that says what to do."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heedful.cli import main
from heedful.data.numbers import english, korean
from heedful.models.heads import Head

Shell = Any  # tests/e2e/conftest.py has it
SMALL = ("--model", "rnn", "--steps", "2", "--evaluations", "1", "--batch-tokens", "512", "--device", "cpu")
OR_SKIP = "or pass over such rows with --skip-bad"
NUMBERS = range(3, 20_000, 331)
ENGLISH, KOREAN = ("".join(f"{say(number)}\n" for number in NUMBERS) for say in (english, korean))
TABLE = "en\tko\n" + "".join(f"{english(number)}\t{korean(number)}\n" for number in NUMBERS)


def train(shell: Shell, *more: str | Path) -> list[str | Path]:
    return ["train-translator", *more, "--out", shell.home / "out", *SMALL]


def two(shell: Shell, source: str | bytes = ENGLISH, target: str | bytes = KOREAN) -> list[str | Path]:
    """Two files as options."""
    return ["--source", shell.file("a.en", source), "--target", shell.file("a.ko", target)]


LINES = {
    "a line more": (ENGLISH + "one\n", KOREAN, "a.en has 62 lines but {home}/a.ko has 61: line by line one must be"),
    "a line less": (
        ENGLISH,
        KOREAN + "일\n일\n",
        "a.en has 61 lines but {home}/a.ko has 63: line by line one must be",
    ),
    "nothing on one side": ("", KOREAN, "a.en has 0 lines but {home}/a.ko has 61: line by line one must be"),
    "nothing at all": ("", "", "a.en, {home}/a.ko: no pairs to learn from"),
    "empty lines alone": ("\n \n", "\n\n", "a.en, {home}/a.ko: no pairs to learn from"),
    "not UTF-8": (ENGLISH.encode() + b"\xff\n", KOREAN + "일\n", "a.en:62: byte 0xff is not UTF-8; convert the text"),
    "UTF-16": (ENGLISH.encode("utf-16"), KOREAN, "a.en looks like binary data, not text; give UTF-8 text"),
}
"""The two files, and what is said of them."""


@pytest.mark.parametrize("name", LINES)
def test_files_that_are_no_pair(shell: Shell, name: str):
    source, target, problem = LINES[name]
    said = shell.fails(*train(shell, *two(shell, source, target)))
    assert said.startswith(f"{shell.home}/{problem.format(home=shell.home)}")


ROWS = {
    "an empty source": (
        "two",
        "\n",
        "일\n",
        "a.en:62: the source is empty, but its target {home}/a.ko:62 is not; fill",
    ),
    "an empty target": (
        "two",
        "one\n",
        " \n",
        "a.en:62: the target {home}/a.ko:62 is empty, but its source is not; fi",
    ),
    "an empty field": ("table", "one\t\n", "", "a.tsv:63: the target is empty (column 'ko'); fill it in"),
    "a field too few": ("table", "one\n", "", "a.tsv:63: 1 field under 2 columns"),
    "no text": ("jsonl", '{"en": "one", "ko": 1}\n', "", "a.jsonl:1: the target (column 'ko') is 1, not text"),
    "no JSON": ("jsonl", '{"en": "one\n', "", "a.jsonl:1: not valid JSON"),
}
"""What is added to which file or files, and what is said of it."""


@pytest.mark.parametrize("name", ROWS)
def test_a_bad_pair_is_told_with_its_line_or_passed_over(shell: Shell, name: str):
    kind, row, other, problem = ROWS[name]
    rows = "".join(json.dumps({"en": english(number), "ko": korean(number)}) + "\n" for number in NUMBERS)
    given = {
        "two": lambda: two(shell, ENGLISH + row, KOREAN + other),
        "table": lambda: [shell.file("a.tsv", TABLE + row)],
        "jsonl": lambda: [shell.file("a.jsonl", row + rows)],
    }[kind]()
    problem = f"{shell.home}/{problem.format(home=shell.home)}"
    assert shell.fails(*train(shell, *given)).startswith(problem)
    said = shell.goes_on(*train(shell, *given, "--skip-bad"))
    assert f"skipped 1 bad row: {problem}" in said
    assert OR_SKIP not in said  # which was done already
    assert f"saved {shell.home / 'out'}" in said


def test_bytes_that_are_not_utf_8_can_be_replaced(shell: Shell):
    given = two(shell, ENGLISH.encode() + b"tw\xff\n", KOREAN + "이\n")
    assert f"saved {shell.home / 'out'}" in shell.goes_on(*train(shell, *given, "--errors", "replace"))


def test_tables_without_the_columns(shell: Shell):
    one = shell.file("one.tsv", "en\none\ntwo\n")
    three = shell.file("three.tsv", TABLE.replace("\n", "\tx\n"))
    good, text = shell.file("a.tsv", TABLE), shell.file("a.en", ENGLISH)
    for given, problem in {
        (one,): f"{one}: source and target cannot be told among the columns en; name them with --source and --target",
        (three,): f"{three}: source and target cannot be told among the columns en, ko, x; name them with",
        (good, "--source", "de"): f"{good}: there is no column 'de' among en, ko; name one with --source COLUMN",
        (good, "--source", "en", "--target", "en"): f"{good}: 'en' is named by --source and by --target; name two",
        (good, "--source", "en", "--source", "ko"): "with TRAIN, --source and --target each name one column; give ea",
        (text,): f"{text} is neither a table of pairs nor one of two files, a source and a target",
        (text, good): f"{text} is neither a table of pairs nor one of two files, a source and a target",
        (text, text, text): f"{text} is neither a table of pairs nor one of two files, a source and a target",
    }.items():
        assert shell.fails(*train(shell, *given)).startswith(problem)


def test_what_is_missing(shell: Shell):
    text, good = shell.file("a.en", ENGLISH), shell.file("a.tsv", TABLE)
    nowhere = shell.home / "nowhere.tsv"
    for given, problem in {
        (): "there is nothing to learn from; give TRAIN, or two files with --source and --target",
        ("--source", text): f"--source {text} is one side; give the other file with --target, or the table that has",
        ("--target", text): f"--target {text} is one side; give the other file with --source, or the table that has",
        ("--source", "en", "--target", "ko"): "there is no file en; if it is a column, give the table that has it",
        ("--source", text, "--source", text, "--target", text): "2 files with --source but 1 with --target; give as",
        ("--source", text, "--target", good): f"{good} is a table, not lines of text; give one table with both",
        (text, text, "--source", "en"): f"{text} and {text} are no tables, hence have no columns; leave out --source",
        (nowhere,): f"{nowhere} ",
        ("--source", text, "--target", nowhere): f"{nowhere} ",
        (good, "--dev", nowhere): f"{nowhere} ",
        (good, "--dev", good, good, good): "--dev takes a table, or a source and a target file, not 3 files",
        (good, "--dev", shell.file("none.tsv", "en\tko\n")): f"{shell.home / 'none.tsv'}: no pairs to evaluate on",
        (good, "--recipe", "papper"): "there is no recipe 'papper'; did you mean paper?",
        (good, "--recipe", nowhere.with_suffix(".toml")): f"{nowhere.with_suffix('.toml')} does not exist",
    }.items():
        assert shell.fails(*train(shell, *given)).startswith(problem)
    shell.file("a.en.txt", ENGLISH)
    said = shell.fails(*train(shell, "--source", text, "--target", shell.home / "a.en*"))
    assert said == f"{shell.home / 'a.en*'} stands for 2 files; name one"


OPTIONS = {
    ("--vocab-size", "7"): "vocab_size 7 leaves no room beside the 4 special tokens; try 8000",
    ("--vocab-size", "9000"): "a vocabulary of 9000 is larger than this text supports (",
    ("--bpe-dropout", "0.1", "--subwords", "unigram"): "bpe_dropout is for --subwords bpe, not unigram; leave one of",
    ("--bpe-dropout", "1"): "bpe_dropout 1.0 must be at least 0 and less than 1; try 0.1",
    ("--share", "all", "--no-joint"): "--share all needs one vocabulary for both languages; leave out --no-joint",
    ("--warmup", "3"): "a warm-up of 3 steps is longer than the 2 of the run",
    ("--held-out", "1e-9"): "61 pairs are too few to hold out a part of 1e-09; give others with --dev",
    ("--held-out", "0"): "held_out 0.0 must lie between 0 and 1",
    ("--dev", "a.tsv", "--held-out", "0.5"): "--dev has the pairs to evaluate on; leave --held-out out",
    ("--length", "3"): "length 3 is too short to hold a sentence; use 4 or more",
    ("--lr", "0"): "--lr 0.0 must be a number above 0",
    ("--lr", "nan"): "--lr nan must be a number above 0",
    ("--average", "0"): "average 0 must be at least 1",
    ("--samples", "-1"): "samples -1 must not be negative",
    ("--evaluations", "0"): "--evaluations 0 must be at least 1",
    ("--checkpoint-every", "0"): "--checkpoint-every 0 would never go on; write steps like 500 or a time like 5m",
    ("--label-smoothing", "1"): "label_smoothing 1.0 must be at least 0 and less than 1",
    ("--dropout", "1"): "dropout 1.0 must be at least 0 and less than 1",
    ("--score", "cosine"): "--score is 'cosine'; choose from concat, dot, general, location, scaled",
    ("--size", "huge"): "--size is 'huge'; choose from base, big, small, tiny",
    ("--seed", "x"): "--seed is 'x' but must be a whole number",
    ("--seed", "-1"): "--seed -1 must lie between 0 and 2^63",
    ("--sourse", "en"): "Unrecognized options: --sourse, en; did you mean --source?",
    ("--resume",): "{out} holds no run to resume: there is no such folder; name the --out that the run had",
}
"""What is typed, and what is said of it."""


@pytest.mark.parametrize("typed", OPTIONS, ids=" ".join)
def test_options_that_cannot_be(shell: Shell, typed: tuple[str, ...]):
    # what is typed later counts
    said = shell.fails(*train(shell, shell.file("a.tsv", TABLE)), *typed)
    assert said.startswith(OPTIONS[typed].format(out=shell.home / "out"))


def test_a_warm_up_in_steps_needs_steps(shell: Shell):
    file = shell.file("a.tsv", TABLE)
    given = ["train-translator", file, "--out", shell.home / "out", "--warmup", "300", "--budget", "5s"]
    assert shell.fails(*given) == "--warmup in steps needs --steps; with a time budget give a share of it, like 0.1"


def test_sharding_is_refused(shell: Shell):
    said = shell.fails(*train(shell, shell.file("a.tsv", TABLE)), "--shard")
    assert said == "--shard is for pretrain; leave it out: every process then has the whole model"


def test_sentences_without_end(shell: Shell):
    """They are left out of training; to evaluate on, they are cut and stay beside their references."""
    endless = "five " * 10_000
    file = shell.file("a.tsv", f"{TABLE}{endless}\t오\nfive\t{endless}\n")
    dev = shell.file("dev.tsv", f"en\tko\n{endless}\t오\nsix\t육\n")
    said = shell.goes_on(*train(shell, file, "--dev", dev))
    assert "left out 2 pairs with more than 256 tokens on a side" in said
    assert "1 dev source is too long; only the beginning is read" in said
    assert "training: 61 pairs" in said
    model = shell.home / "out"
    code, _, problem = shell.run("evaluate", model, dev)
    assert (code, problem.count("\n")) == (2, 1)
    assert problem.startswith(f"heedful: {dev}:2: 10,000 tokens are beyond the model's 511; ")
    found = json.loads(shell.goes_on("evaluate", model, dev, "--skip-bad", "--json"))
    assert (found["examples"], found["skipped"]) == (1, 1)
    assert "1 source is too long; only the beginning is read" in shell.goes_on("evaluate", model, dev, "--truncate")


def test_nothing_but_sentences_that_are_too_long(shell: Shell):
    file = shell.file("a.tsv", TABLE.replace("\t", " five" * 37 + "\t"))
    said = shell.fails(*train(shell, file, "--length", "37"))
    assert said == "every pair has a sentence of more than 37 tokens; use a larger --length"


def test_a_folder_that_is_taken(shell: Shell):
    file, out = shell.file("a.tsv", TABLE), shell.home / "out"
    out.mkdir()
    (out / "mine.txt").touch()
    taken = f"heedful: {out} exists and is not empty; choose another --out\n"
    assert shell.run(*train(shell, file)) == (2, "", taken)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]
    (out / "mine.txt").unlink()
    shell.goes_on(*train(shell, file))  # an empty folder may be used
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    complete = f"the run in {out} is complete; to train for longer, start a new one in another --out"
    for more, problem in ((), f"{out} already holds a model; choose another --out"), (("--resume",), complete):
        code, said, error = shell.run(*train(shell, file), *more)
        assert (code, said) == (2, "")
        assert error.startswith(f"heedful: {problem}")
        assert error.count("\n") == 1
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("flags", [("--source", "en", "--target", "ko"), ("--source", "ko", "--target", "en")])
def test_korean_both_ways(shell: Shell, flags: tuple[str, ...]):
    packed = shell.home / "a.tsv.gz"
    packed.write_bytes(gzip.compress(TABLE.encode()))
    dev, rows = shell.file("dev.tsv", TABLE), shell.home / "rows.jsonl"
    given = ("--steps", "90", "--lr", "1e-2", "--dropout", "0", "--language", flags[3])
    said = shell.goes_on(*train(shell, packed, "--dev", dev, *flags), *given)
    losses = [float(line.split("loss ")[1].split()[0]) for line in said.splitlines() if "loss " in line]
    assert losses[-1] < 0.6 * losses[0]
    found = json.loads(shell.goes_on("evaluate", shell.home / "out", dev, *flags, "--json", "--predictions", rows))
    assert found["examples"] == len(NUMBERS)
    assert found["scores"]["chrf"] > 5
    written = [json.loads(row)["translation"] for row in rows.read_text(encoding="utf-8").splitlines()]
    assert set("".join(written)) <= set(KOREAN if flags[3] == "ko" else ENGLISH)
    assert len(set(written)) > 1


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is hardly trained."""
    home = tmp_path_factory.mktemp("translator")
    (home / "a.tsv").write_text(TABLE, encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        main(["train-translator", str(home / "a.tsv"), "--out", str(home / "model"), *SMALL])
    assert not stop.value.code
    return home / "model"


def test_what_evaluate_does_not_do_for_a_translator(shell: Shell, translator: Path):
    file = shell.file("a.tsv", TABLE)
    for given in (
        ("--text", "en"),
        ("--pair", "en"),
        ("--label", "ko"),
        ("--separator", ";"),
        ("--picture", "a.png"),
    ):
        said = shell.fails("evaluate", translator, file, *given)
        assert said == f"{given[0]} says nothing to {translator}, which translates; leave it out"
    for given, problem in {
        ("--beam", "0"): "beam 0 must be at least 1",
        ("--worst", "-1"): "worst -1 must not be negative",
        ("--source", "de"): f"{file}: there is no column 'de' among en, ko",
        ("--engine", "onnx"): f"the engine onnx is for encoders; for {translator} there are torch and ctranslate2",
        ("--picture", "a.txt"): "a.txt can't be drawn",
    }.items():
        assert shell.fails("evaluate", translator, file, *given).startswith(problem)
    assert shell.fails("evaluate", translator, shell.home / "none.tsv").startswith(f"{shell.home / 'none.tsv'} ")


def test_what_evaluate_does_for_translators_alone(shell: Shell, headed: Callable[..., Path]):
    model, file = headed(Head(task="classify", labels=("bad", "good"))), shell.file("a.csv", "text,label\na,good\n")
    for given in (
        *(("--source", "en"), ("--target", "ko"), ("--language", "ko"), ("--tokenised",)),
        *(("--beam", "0"), ("--length-penalty", "0")),
    ):
        said = shell.fails("evaluate", model, file, *given)
        assert said == f"{given[0]} is for translators, which {model} is not; leave it out"


def test_evaluate_takes_a_table_or_two_files(shell: Shell, translator: Path):
    table, rows = shell.file("a.tsv", TABLE), shell.home / "rows.jsonl"
    files = shell.file("a.en", ENGLISH), shell.file("a.ko", KOREAN)
    options = ("--beam", "2", "--length-penalty", "0.5", "--device", "cpu")
    said = shell.goes_on("evaluate", translator, table, *options, "--tokenised", "--predictions", rows).splitlines()
    assert said[0] == "61 pairs, translated with a beam of 2"
    assert [line.split("  ")[0].strip() for line in said[2:5]] == [
        "BLEU",
        "chrF2",
        "BLEU, lower-cased and tokenised (as in older papers)",
    ]
    assert said[6] == "worst mistakes, by chrF:"
    first = json.loads(rows.read_text(encoding="utf-8").splitlines()[0])
    assert list(first) == ["where", "source", "reference", "translation", "score"]
    assert (first["where"], first["source"], first["reference"]) == (f"{table}:2", "three", "삼")
    one, other = (
        json.loads(shell.goes_on("evaluate", translator, *given, *options, "--json", "--worst", "0"))
        for given in ((table, "--source", "en", "--target", "ko"), files)
    )
    assert one == other
    assert set(one["scores"]) == {"bleu", "chrf"}
