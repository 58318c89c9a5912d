"""Translating as a user gives the command: every flag, and what goes wrong."""

import dataclasses
import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from heedful.commands.translating import translate
from heedful.decode import SearchOptions

if TYPE_CHECKING:
    from tests.e2e.conftest import Shell

Make = Callable[[str], Path]
LINES = "three one four\n\nnine\n"


@pytest.fixture(scope="module")
def good(translator: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translator that may be exported, as the one of all tests may not."""
    folder = tmp_path_factory.mktemp("cli") / "good"
    shutil.copytree(translator("good"), folder)
    return folder


@pytest.fixture
def texts(shell: "Shell") -> Path:
    return shell.file("texts.txt", LINES)


def test_the_flags_of_a_search_are_its_options_with_the_same_defaults():
    flags = inspect.signature(translate).parameters
    for field in dataclasses.fields(SearchOptions):
        assert flags[field.name].default == field.default, field.name


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(SearchOptions)])
def test_every_option_of_a_search_reaches_it(
    shell: "Shell", good: Path, texts: Path, monkeypatch: pytest.MonkeyPatch, field: str
):
    asked = []
    monkeypatch.setattr("heedful.runs.translate.translate", lambda *arguments: asked.append(arguments[-1]))
    default = getattr(SearchOptions(), field)
    values = {"beam": 7, "n_best": 3, "penalty": "gnmt", "min_length": 2, "max_length": 11, "top_p": 0.5}
    value = True if default is False else values.get(field, 2)
    flag = f"--{field.replace('_', '-')}"
    draws = ["--sample"] if field in ("temperature", "top_k", "top_p") else []
    shell.goes_on("translate", good, texts, flag, *([] if value is True else [str(value)]), *draws, "--device", "cpu")
    drawn = {"sample": True} if draws else {}
    assert asked[0].options == dataclasses.replace(SearchOptions(), **drawn, **{field: value})


def test_the_help_has_the_commands_flags(shell: "Shell"):
    said = shell.goes_on("translate", "--help")
    for name in inspect.signature(translate).parameters:
        if name not in ("model", "file"):
            assert f"--{name.replace('_', '-')}" in said, name


def test_a_file_is_translated(shell: "Shell", good: Path, texts: Path):
    assert shell.goes_on("translate", good, texts) == "삼 일 사\n\n구\n"
    assert shell.goes_on("translate", good, texts, "--alignments") == "삼 일 사\t0-0 1-1 2-2\n\t\n구\t0-0\n"
    rows = shell.goes_on("translate", good, texts, "--n-best", "2", "--score", "--beam", "3").splitlines()
    assert [row.split("\t")[:2] for row in rows] == [["1", "1"], ["1", "2"], ["2", "1"], ["3", "1"], ["3", "2"]]
    assert float(rows[0].split("\t")[2]) > float(rows[1].split("\t")[2])
    assert shell.goes_on("translate", good, texts, "--prefix", "일").splitlines()[2].startswith("일")
    path = texts.with_name("answers.txt")
    assert shell.goes_on("translate", good, texts, "--out", path) == f"wrote {path}\n"
    assert path.read_text(encoding="utf-8") == "삼 일 사\n\n구\n"
    scores = shell.goes_on("translate", good, texts, "--given", path).splitlines()
    assert len(scores) == 3
    assert float(scores[0]) < float(scores[2]) < 0
    table = json.loads(shell.goes_on("translate", good, texts, "--json").splitlines()[2])
    assert table["source"] == "nine"
    assert table["translations"][0]["log_prob"] == pytest.approx(float(scores[2]), rel=1e-4)


def test_draws_follow_the_seed(shell: "Shell", good: Path, texts: Path):
    draw = ("translate", good, texts, "--sample", "--n-best", "5", "--temperature", "5")
    one, same, other = (shell.goes_on(*draw, "--seed", seed) for seed in ("3", "3", "5"))
    assert one == same != other
    assert shell.goes_on("translate", good, texts, "--sample", "--top-k", "1") == "삼 일 사\n\n구\n"
    assert shell.goes_on("translate", good, texts, "--sample", "--top-p", "0.1") == "삼 일 사\n\n구\n"


def test_lengths_and_repetitions_are_held(shell: "Shell", good: Path):
    file = shell.file("same.txt", "one one one one\n")
    assert shell.goes_on("translate", good, file) == "일 일 일 일\n"
    assert shell.goes_on("translate", good, file, "--max-length", "2") == "일 일\n"
    assert len(shell.goes_on("translate", good, file, "--min-length", "9").split()) >= 9
    assert len(shell.goes_on("translate", good, file, "--min-ratio", "2").split()) >= 8
    assert shell.goes_on("translate", good, file, "--block-ngrams", "2").split().count("일") < 4
    heavy = shell.goes_on("translate", good, file, "--repetition-penalty", "1000")
    assert heavy.split().count("일") < 4


def test_tables_ensembles_and_standard_input(shell: "Shell", good: Path, translator: Make):
    table = shell.file("table.jsonl", '{"en": "two six", "note": "x"}\n{"en": "nine", "note": "y"}\n')
    assert shell.goes_on("translate", good, table, "--source", "en") == "이 육\n구\n"
    said = shell.goes_on("translate", good, table, "--source", "en", "--ensemble", translator("fair"), "--score")
    alone = shell.goes_on("translate", good, table, "--source", "en", "--score")
    assert [line.split("\t")[1] for line in said.splitlines()] == ["이 육", "구"]
    assert said != alone
    assert shell.goes_on("translate", translator("rnn"), table, "--source", "en").count("\n") == 2
    done = subprocess.run(
        [sys.executable, "-m", "heedful", "translate", str(good), "-", "--device", "cpu"],
        input="two\n\xff\nsix".encode("latin-1"),
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert (done.returncode, done.stdout.decode()) == (2, "이\n")
    assert done.stderr.decode().startswith("heedful: standard input:2: byte 0xff is not UTF-8; convert the text (")


def test_export_and_the_engine_that_reads_it(shell: "Shell", good: Path, texts: Path):
    engine = ("--engine", "ctranslate2")
    again = f"`heedful export {good} --to ctranslate2`"
    assert (
        shell.fails("translate", good, texts, *engine) == f"{good} has no folder ctranslate2; write it with {again}"
    )
    assert shell.goes_on("export", good).startswith(f"wrote {good}/ctranslate2 (")
    assert shell.goes_on("export", good, "--int8", "--to", "ctranslate2").startswith(
        f"wrote {good}/ctranslate2-int8 ("
    )
    for int8 in ((), ("--int8",)):
        assert shell.goes_on("translate", good, texts, *engine, *int8) == "삼 일 사\n\n구\n"
    plain, theirs = (shell.goes_on("translate", good, texts, "--alignments", *extra) for extra in ((), engine))
    assert plain == theirs
    for flags, said in (
        (("--coverage-penalty", "0.2"), "leave out --coverage-penalty, or use --engine torch"),
        (("--penalty", "gnmt"), "use --penalty average, or --engine torch"),
        (("--min-ratio", "0.5"), "use --min-length instead of --min-ratio, or --engine torch"),
        (("--ensemble", good), "ctranslate2 runs one model, not an ensemble; use the engine torch"),
    ):
        assert shell.fails("translate", good, texts, *engine, *flags).endswith(said)
    assert "--to ctranslate2" in shell.fails("export", good, "--to", "onnx")
    assert "int8 is for the ctranslate2 engine" in shell.fails("translate", good, texts, "--int8")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--beam", "0"), "beam 0 must be at least 1; 1 is greedy search"),
        (("--beam", "2", "--n-best", "3"), "n_best 3 is more than the 2 beams; use a beam of 3"),
        (("--n-best", "0"), "n_best 0 must be at least 1"),
        (("--max-ratio", "0"), "max_ratio 0.0 must be above 0"),
        (("--min-length", "5", "--max-length", "3"), "min_length 5 is more than max_length 3"),
        (("--temperature", "0"), "temperature 0.0 must be at least 0.001; top_k 1 always takes the most probable"),
        (("--top-p", "2"), "top_p 2.0 must be above 0 and at most 1"),
        (("--prefix", "☃"), "no translation can begin with '☃': the model can't write ☃"),
        (
            ("--prefix", "일 이", "--max-length", "1"),
            "no translation can begin with '일 이': it may have 1 tokens, this",
        ),
        (("--source", "en"), "is not a table, hence has no column 'en'; leave out --source"),
        (("--given", "nowhere.txt"), "nowhere.txt"),
        (("--penalty", "wu"), "--penalty is 'wu'; choose from average, gnmt, none"),
        (("--beams", "3"), "--beam"),
    ],
)
def test_what_can_not_be_asked_is_one_line(
    shell: "Shell", good: Path, texts: Path, flags: tuple[str, ...], said: str
):
    assert said in shell.fails("translate", good, texts, *flags)


def test_bad_files_are_one_line(shell: "Shell", good: Path):
    assert "nowhere.txt" in shell.fails("translate", good, shell.home / "nowhere.txt")
    long = shell.file("long.txt", "one\n" + "nine " * 10_000 + "\ntwo\n")
    out = shell.home / "out"
    said = shell.fails("translate", good, long, "--out", out)
    assert said.startswith(f"{long}:2: 10,000 tokens are beyond the model's 28; split it, cut it with --truncate")
    code, answers, said = shell.run("translate", good, long, "--skip-bad")
    assert (code, answers) == (0, "일\n\n이\n")
    assert said.startswith(f"heedful: no translation of 1 bad row: {long}:2: 10,000 tokens")
    code, answers, said = shell.run("translate", good, long, "--truncate")
    assert (code, said) == (0, "heedful: 1 text is too long; only the beginning is read\n")
    assert answers.count("\n") == 3
    strange = shell.file("strange.txt", "one ☃\nㅎ\n")
    assert shell.run("translate", good, strange)[2] == "heedful: never seen: ☃ ㅎ; the model reads <unk> there\n"
    raw = shell.file("raw.txt", b"one\n\xff\n")
    assert "is not UTF-8" in shell.fails("translate", good, raw)
    assert shell.run("translate", good, raw, "--errors", "replace")[0] == 0
    assert "holds nothing to translate" in shell.fails("translate", good, shell.file("empty.txt", ""))
    few = shell.file("few.txt", "일\n")
    two = shell.file("two.txt", "one\ntwo\n")
    assert "there are more sources than translations" in shell.fails("translate", good, two, "--given", few)


def test_models_are_told_apart(shell: "Shell", good: Path, translator: Make, encoder: Path, texts: Path):
    use = f"{good} translates; use `heedful translate`, in Python heedful.load"
    for command in (
        ("fill", good, "a [MASK]"),
        ("predict", good, texts),
        ("embed", good, texts, "--out", shell.home / "out"),
        ("search", good, texts, "one"),
        ("generate", good),
    ):
        assert shell.fails(*command) == use
    said = shell.fails("translate", encoder, texts)
    assert said.startswith(f"{encoder} does not translate, it is a model of type 'bert'")
    other = translator("other")
    said = shell.fails("translate", good, texts, "--ensemble", other)
    assert said == f"an ensemble needs one vocabulary: {good} and {other} have different ones"
    assert "there is no such folder" in shell.fails("translate", shell.home / "nowhere", texts)
