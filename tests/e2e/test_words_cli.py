"""Words as a user gives the commands: vectors, their neighbours, a word in two sentences, and what goes wrong."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from heedful.cli import main
from heedful.runs import fonts
from heedful.runs.word_options import WordVectorsPart

if TYPE_CHECKING:
    from tests.e2e.conftest import Shell

WATER, STONE = ("river", "ferry", "heron", "harbour", "tide"), ("mill", "wall", "quarry", "tower", "bridge")
SHORT = ("--dim", "11", "--epochs", "2", "--device", "cpu", "--subsample", "0", "--lr", "0.05")


@pytest.fixture
def text(shell: "Shell") -> Path:
    random = Random(0)
    lines = (" ".join(random.choices(random.choice((WATER, STONE)), k=7)) + " .\n" for _ in range(1201))
    return shell.file("text.txt", "".join(lines))


@pytest.fixture
def vectors(shell: "Shell") -> Path:
    return shell.file("vectors.txt", "4 2\nking 3 4\nman 0 1\nwoman 1 0\nqueen 4 1\n")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, write_bert: Callable[..., Path]) -> Path:
    known = ["he", "got", "bit", "by", "python", "is", "my", "favorite", "language", "king"]
    return write_bert(tmp_path_factory.mktemp("words") / "bert", known, deviation=0.4)


def test_vectors_are_trained_and_asked(shell: "Shell", text: Path, tmp_path: Path):
    out, cache = tmp_path / "단어 벡터", tmp_path / "cache"
    said = shell.goes_on("train-vectors", text, "--out", out, "--cache", cache, *SHORT)
    assert "9,608 words, 11 different ones that occur 5 times or more; vectors of 11 numbers, on cpu" in said
    assert " words/s" in said
    assert shlex.split(said.rpartition(f"saved {out}; try: ")[2])[:3] == ["heedful", "nearest", str(out)]
    found = shell.goes_on("nearest", out, "river", "mill", "--top", "4").splitlines()
    assert found[0] == "river"
    assert len(found) == 10
    assert {line.split()[1] for line in found[1:4]} < {*WATER, "."}
    assert found[5] == "mill"
    assert {line.split()[1] for line in found[6:9]} < {*STONE, "."}
    table = json.loads(shell.goes_on("nearest", out, "tower", "--json"))
    assert table["word"] == "tower"
    near = [one["word"] for one in table["nearest"] if one["word"] != "."]
    assert {*near[:4]} == {*STONE} - {"tower"}
    assert "word2vec: 11 words, each a vector of 11" in shell.goes_on("info", out)
    shell.goes_on("plot", out, "--out", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10000


def test_a_resumed_run_keeps_its_options_and_says_when_it_is_done(shell: "Shell", text: Path, tmp_path: Path):
    out, cache = tmp_path / "vectors", tmp_path / "cache"
    shell.goes_on("train-vectors", text, "--out", out, "--cache", cache, *SHORT)
    (out / "vectors.txt").unlink()  # as if it had been killed while it saved
    assert "unfinished" in shell.goes_on("info", out)
    assert "heedful train-vectors --resume --out" in shell.goes_on("info", out)
    shell.goes_on("train-vectors", "--resume", "--out", out, "--cache", cache)
    assert (out / "vectors.txt").read_text(encoding="utf-8").startswith("11 11\n")
    assert "already holds word vectors" in shell.fails("train-vectors", "--resume", "--out", out)


def test_the_help_says_what_the_rate_is_and_what_it_means(shell: "Shell"):
    said = " ".join(shell.goes_on("train-vectors", "--help").replace("│", " ").split())
    meaning = said.partition("--lr FLOAT ")[2].partition(" (default: ")
    assert meaning[0].startswith("Learning rate at the start: how far a step moves the vectors. It falls ")
    assert meaning[2].startswith(f"{WordVectorsPart().lr})")
    assert f" {WordVectorsPart().lr} is that of the original word2vec and of gensim; higher " in meaning[0]


def test_standard_input_is_read(shell: "Shell", text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with text.open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        shell.goes_on("train-vectors", "-", "--out", tmp_path / "vectors", "--cache", tmp_path / "cache", *SHORT)
    assert (tmp_path / "vectors" / "vectors.txt").read_text(encoding="utf-8").startswith("11 11\n")
    assert not [*(tmp_path / "vectors").rglob("*stdin*")]


def test_any_file_of_vectors_is_asked(shell: "Shell", vectors: Path):
    assert shell.goes_on("nearest", vectors, "King", "--top", "1") == "King\n   0.800  man\n"
    said = shell.goes_on("nearest", vectors, "king", "--minus", "man", "--plus", "woman", "--top", "1")
    assert said.splitlines()[0] == "king - man + woman"
    assert said.splitlines()[1].endswith("queen")


def test_a_word_is_contrasted(shell: "Shell", bert: Path, tmp_path: Path):
    sentences = ("He got bit by Python", "Python is my favorite language")
    asked = ("contrast", bert, *sentences, "--word", "python", "--device", "cpu")
    said = shell.goes_on(*asked, "--picture", tmp_path / "python.png")
    assert "without context (the model's own table of tokens): 1.000 like itself in both" in said
    assert "in context (layer 2 of 2): " in said
    assert said.index(sentences[0]) < said.index(sentences[1])
    assert said.endswith(f"drew {tmp_path / 'python.png'}\n")
    assert (tmp_path / "python.png").read_bytes().startswith(b"\x89PNG")
    table = json.loads(shell.goes_on(*asked, "--json", "--layer", "1", "--top", "3"))
    assert table["contextual"]["layer"] == 1
    assert len(table["contextual"]["sentences"][1]["in_its_place"]) == 3


def test_a_picture_says_what_it_lacks(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    monkeypatch.setattr(fonts, "choose", lambda text: fonts.Fonts(["sans-serif"], {"한"}))
    sentences = ("He got bit by Python", "Python is my favorite language")
    with pytest.raises(SystemExit):
        main(["contrast", str(bert), *sentences, "--word", "python", "--picture", str(tmp_path / "python.png")])
    assert capsys.readouterr().err == f"heedful: {fonts.lacks('한')}\n"


def test_a_word_is_contrasted_with_given_vectors_and_a_corpus(shell: "Shell", bert: Path, vectors: Path):
    corpus = shell.file("corpus.txt", "he is king\n")
    asked = ("contrast", bert, "he is king", "king by king", "--word", "king", "--json")
    table = json.loads(shell.goes_on(*asked, "--vectors", vectors, "--corpus", corpus))
    assert table["context_free"]["vectors"] == "4 word vectors"
    assert table["context_free"]["nearest"][0]["word"] == "man"
    first, second = table["contextual"]["sentences"]
    assert {one["word"] for one in first["in_the_text"]} == {"he", "is"}
    assert (first["times"], second["times"]) == (1, 2)


def test_mistakes_end_in_one_line(shell: "Shell", text: Path, vectors: Path, bert: Path, tmp_path: Path):
    out = tmp_path / "out"
    assert "'quen' is not among the 4 words; did you mean queen?" in shell.fails("nearest", vectors, "quen")
    assert "'kin' is not among" in shell.fails("nearest", vectors, "king", "--plus", "kin")
    assert "holds no word vectors" in shell.fails("nearest", bert, "king")
    assert "there is no word to look for; name one" in shell.fails("nearest", vectors)
    assert "no text was given" in shell.fails("train-vectors", "--out", out)
    assert "gone.txt does not exist" in shell.fails("train-vectors", "gone.txt", "--out", out)
    assert "exclude each other" in shell.fails("train-vectors", text, "--out", out, "--epochs", "2", "--budget", "1m")
    assert "dim 0 must be at least 1" in shell.fails("train-vectors", text, "--out", out, "--dim", "0")
    large = shell.fails("train-vectors", text, "--out", out, "--dim", "9" * 400, "--cache", tmp_path / "cache")
    assert re.search(
        r"9 are too large for the [\d.,]+ GiB of (GPU )?memory that can be had; try --dim \d+ or less", large
    )
    assert "did you mean --window?" in shell.fails("train-vectors", text, "--out", out, "--windov", "3")
    assert "'soon' is not a duration" in shell.fails("train-vectors", text, "--out", out, "--budget", "soon")
    few = shell.fails("train-vectors", text, "--out", out, "--min-count", "99999", "--cache", tmp_path / "cache")
    assert "0 words occur 99999 times or more" in few
    shell.file("empty.txt", "\n")
    assert "no text" in shell.fails("train-vectors", tmp_path / "empty.txt", "--out", out)
    asked = ("contrast", bert, "he got bit", "he is my king", "--word")
    assert "'king' is not in 'he got bit'; its words are: he, got, bit" in shell.fails(*asked, "king")
    assert "can't be drawn" in shell.fails(*asked, "he", "--picture", tmp_path / "he.gif")
    assert "no such folder" in shell.fails("contrast", tmp_path / "gone", "he", "he", "--word", "he")
    for texts in (("he",), ("he", "he is", "he got"), ()):
        said = shell.fails("contrast", bert, *texts, "--word", "he")
        assert f"contrast takes two sentences, each in quotes, and got {len(texts)}" in said
    for steps in (("--steps", "30"), ("--steps=30",)):
        assert "say how often to read the text with --epochs" in shell.fails(
            "train-vectors", text, "--out", out, *steps
        )
    assert "is 2 words, and a vector is of one" in shell.fails("nearest", vectors, "old king")
    assert "king - king leaves nothing to look near" in shell.fails("nearest", vectors, "king", "--minus", "king")


def test_vectors_are_no_model_and_it_is_said_what_they_are_good_for(shell: "Shell", vectors: Path, tmp_path: Path):
    made = tmp_path / "made"
    made.mkdir()
    (made / "vectors.txt").write_bytes(vectors.read_bytes())
    (made / "heedful.toml").write_text("[vectors]\n", encoding="utf-8")
    image = shell.file("image.png", "")
    for asked in (
        ("see", made, image),
        ("evaluate", made, vectors),
        ("export", made),
        ("fill", made, "he is [MASK]"),
        ("predict", made, vectors),
        ("embed", made, vectors, "--out", tmp_path / "x.npy"),
        ("translate", made, vectors),
        ("contrast", made, "he is", "he got", "--word", "he"),
        ("serve", made),
    ):
        said = shell.fails(*asked)
        assert f"{made} holds word vectors, not a model; ask them with `heedful nearest {made} WORD`" in said, asked
        assert f"--vectors {made}`" in said


def test_a_model_without_the_head_is_contrasted_too(shell: "Shell", encoder: Path):
    said = shell.goes_on("contrast", encoder, "the river", "a river", "--word", "river")
    assert "like itself in the other sentence" in said
    assert "in its place " not in said
    assert said.endswith("can't say what fits in the word's place; --corpus TEXT finds what is like it there\n")
