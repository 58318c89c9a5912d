"""Fine-tuning and what follows it, as a user gives the commands."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from heedful.cli import main
from heedful.formats.huggingface import load_model
from heedful.models.heads import Head
from heedful.runs import fonts
from heedful.runs.finetune_options import read_recipe

PNG = b"\x89PNG\r\n\x1a\n"
Files = Callable[..., Path]
SMALL = ("--epochs", "6", "--batch", "8", "--lr", "3e-3", "--dropout", "0", "--attention-dropout", "0")
SMALL += ("--patience", "0", "--device", "cpu")


def run(capsys: pytest.CaptureFixture, *arguments: str | Path, warns: str = "") -> list[str]:
    """What a command that must go well says."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert (stop.value.code or 0, said.err) == (0, warns)
    return said.out.splitlines()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, encoder: Path, labelled_files: Files) -> Path:
    out = tmp_path_factory.mktemp("classifier") / "out"
    with pytest.raises(SystemExit) as stop:
        main([str(one) for one in ("finetune", encoder, labelled_files("classify", 100), *SMALL)] + at(out))
    assert not stop.value.code
    return out


def at(out: Path, task: str = "classify") -> list[str]:
    return ["--task", task, "--out", str(out)]


def test_what_is_known_of_a_model(classifier: Path, encoder: Path, capsys: pytest.CaptureFixture):
    said = "\n".join(run(capsys, "info", classifier))
    assert re.search(r"\bhead +classify: ", said)
    assert re.search(r"\btrained on +\S+classify\S*", said)
    assert re.search(rf"\bstarted from +{re.escape(str(encoder))}", said)
    facts = json.loads("\n".join(run(capsys, "info", classifier, "--json")))
    assert len(facts["trained on"]) == 1


@pytest.mark.parametrize(
    "flag",
    ["--task", "--dev", "--label", "--many-labels", "--pool", "--balance", "--layer-decay", "--freeze", "--seeds"],
)
def test_the_help_of_finetune_has_every_flag_without_a_prefix(capsys: pytest.CaptureFixture, flag: str):
    said = "\n".join(run(capsys, "finetune", "--help"))
    assert f" {flag}" in said
    assert "--settings" not in said


def test_what_a_run_says(tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture):
    said = run(capsys, "finetune", encoder, labelled_files("classify", 100), *at(tmp_path / "out"), *SMALL)
    assert re.fullmatch(r"held out \d+ of 100 examples to evaluate on: there is no --dev", said[0])
    assert said[1] == "2 labels: bad, good"
    assert re.fullmatch(r"there are only \d+ examples to evaluate on; .*--dev FILE.*", said[2])
    assert sum(line.startswith("epoch ") for line in said) == 6
    assert said[-2].startswith("best, after epoch ")
    assert said[-1] == f"saved {tmp_path / 'out'}"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt"),
        *("heedful.toml", "metrics.jsonl", "samples.jsonl", "evaluation.json"),
    }


def test_the_same_seed_gives_the_same_bytes(
    classifier: Path, tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    run(capsys, "finetune", encoder, labelled_files("classify", 100), *at(tmp_path / "out"), *SMALL, "--seed", "0")
    assert (tmp_path / "out/model.safetensors").read_bytes() == (classifier / "model.safetensors").read_bytes()


def test_a_folders_recipe_makes_it_again_and_can_be_overridden(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    run(capsys, "finetune", "--recipe", classifier, "--out", tmp_path / "same")
    assert (tmp_path / "same/model.safetensors").read_bytes() == (classifier / "model.safetensors").read_bytes()
    given = ("--pool", "mean", "--epochs", "1", "--evaluations", "1")
    run(capsys, "finetune", "--recipe", classifier / "heedful.toml", "--out", tmp_path / "other", *given)
    made = read_recipe(tmp_path / "other/heedful.toml")
    assert (made.head.pool, made.learning.epochs, made.learning.batch) == ("mean", 1, 8)
    assert load_model(tmp_path / "other").config.pool == "mean"


def test_flags_reach_the_run(tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture):
    rows = ["text,what,labels", *(f"the {noun} is fine,x,{noun}|fine" for noun in ("mill", "river", "ferry") * 20)]
    (tmp_path / "many.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    given = ("--many-labels", "--separator", "|", "--label", "labels", "--text", "text", "--balance", "--held-out")
    more = ("0.3", "--freeze", "-1", "--layer-decay", "0.9", "--metric", "macro_f1", *SMALL, "--epochs", "1")
    run(capsys, "finetune", encoder, tmp_path / "many.csv", *at(tmp_path / "out"), *given, *more)
    made = read_recipe(tmp_path / "out/heedful.toml")
    assert (made.head.balance, made.head.metric, made.data.held_out) == (True, "macro_f1", 0.3)
    assert (made.learning.freeze, made.learning.layer_decay) == (-1, 0.9)
    head = load_model(tmp_path / "out").head
    assert (head.task, head.labels) == ("multilabel", ("ferry", "fine", "mill", "river"))


def test_several_seeds(tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture):
    file = labelled_files("classify", 100)
    said = run(capsys, "finetune", encoder, file, *at(tmp_path / "out"), *SMALL, "--epochs", "2", "--seeds", "2")
    assert "2 seeds, mean and deviation on the examples to evaluate on:" in said
    assert any(re.fullmatch(r"  accuracy +\d\.\d{4} ± \d\.\d{4}", line) for line in said)
    assert re.search(r"the model of seed [01], which has the best accuracy", said[-1])
    assert run(capsys, "predict", tmp_path / "out", file)


def test_evaluate_says_what_its_picture_lacks(
    classifier: Path,
    tmp_path: Path,
    labelled_files: Files,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(fonts, "choose", lambda text: fonts.Fonts(["sans-serif"], {"한"}))
    asked = ("evaluate", classifier, labelled_files("classify", 40, 1), "--device", "cpu")
    run(capsys, *asked)
    run(capsys, *asked, "--picture", tmp_path / "confusion.png", warns=f"heedful: {fonts.lacks('한')}\n")


def test_evaluate_for_people_and_programs(
    classifier: Path, tmp_path: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    file = labelled_files("classify", 40, 1)
    given = ("--predictions", tmp_path / "said.jsonl", "--picture", tmp_path / "confusion.png", "--device", "cpu")
    said = run(capsys, "evaluate", classifier, file, *given)
    assert said[0] == "40 examples"
    assert (tmp_path / "confusion.png").read_bytes().startswith(PNG)
    rows = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text(encoding="utf-8").splitlines()]
    right = sum(row["truth"] == row["label"] for row in rows) / 40
    assert f"accuracy  {right:.2%}" in said
    found = json.loads("\n".join(run(capsys, "evaluate", classifier, file, "--json", "--worst", "2")))
    assert found["scores"]["accuracy"] == pytest.approx(right)
    wrong = sum(row["truth"] != row["label"] for row in rows)
    assert len(found["worst"]) == min(2, wrong)


def test_several_numbers_are_named_alike_to_train_and_to_evaluate(
    tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    named = ("--label", "height", "--label", "depth")
    run(capsys, "finetune", encoder, labelled_files("regress", 100), *at(tmp_path / "out", "regress"), *named, *SMALL)
    given = ("evaluate", tmp_path / "out", labelled_files("regress", 40, 1), *named, "--json")
    found = json.loads("\n".join(run(capsys, *given)))
    assert found["targets"]["height"]["rmse"] < 3  # of numbers around 1005
    (tmp_path / "one.txt").write_text("fine warm kind bright fine mill\n", encoding="utf-8")
    header, line = run(capsys, "predict", tmp_path / "out", tmp_path / "one.txt", "--format", "tsv")
    assert header == "height\tdepth"
    height, depth = map(float, line.split("\t"))
    assert 1000 < height < 1015
    assert -55 < depth < -49


def test_predict_answers_files_and_standard_input(
    classifier: Path, tmp_path: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    file = labelled_files("classify", 40, 1)
    said = run(capsys, "predict", classifier, file, "--echo", "--all")
    rows = [json.loads(line) for line in said]
    texts = [line.rpartition(",")[0] for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    assert [row["text"] for row in rows] == texts
    assert rows[0]["probabilities"].keys() == {"bad", "good"}
    out = tmp_path / "said.jsonl"
    assert run(capsys, "predict", classifier, file, "--echo", "--all", "--out", out) == [f"wrote {out}"]
    assert out.read_text(encoding="utf-8").splitlines() == said
    run(capsys, "predict", classifier, file, "--out", tmp_path / "said.tsv")
    assert (tmp_path / "said.tsv").read_text(encoding="utf-8").startswith("label\tprobability\n")
    done = subprocess.run(
        [sys.executable, "-m", "heedful", "predict", str(classifier), "--device", "cpu", "--skip-bad"],
        input="\n".join([texts[0], "", texts[1]]) + "\n",
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"},
        check=False,
        timeout=100,
    )
    assert done.returncode == 0
    first, second, third = (json.loads(line) for line in done.stdout.splitlines())
    assert first["probability"] == pytest.approx(rows[0]["probability"], abs=1e-5)
    assert second == {"error": "standard input:2: the text is empty; fill it in"}
    assert third["label"] == rows[1]["label"]
    assert done.stderr == "heedful: no answer to 1 bad row: standard input:2: the text is empty; fill it in\n"


def test_what_is_cut_is_told(classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    file = tmp_path / "long.csv"
    file.write_text(f"text,label\n{'mill ' * 60},good\nthe mill,bad\n", encoding="utf-8")
    remark = "1 text is too long; only the beginning is read"
    assert len(run(capsys, "predict", classifier, file, "--truncate", warns=f"heedful: {remark}\n")) == 2
    assert run(capsys, "evaluate", classifier, file, "--truncate")[1] == remark
    (said,) = run(capsys, "embed", classifier, file, "--truncate", "--out", tmp_path / "v.npy")
    assert said.endswith(f"; {remark}")


def test_search_among_pairs(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    file, vectors = tmp_path / "pairs.csv", tmp_path / "v.npy"
    file.write_text("one,two\nthe mill,grim\na river,the ferry\n", encoding="utf-8")
    named = ("--text", "one", "--pair", "two")
    run(capsys, "embed", encoder, file, *named, "--out", vectors)
    said = run(capsys, "search", encoder, file, "the ferry", *named, "--vectors", vectors, "--json")
    hits = json.dumps(json.loads(said[0]))
    assert "the mill\\tgrim" in hits
    assert "a river\\tthe ferry" in hits


def test_search_shows_the_beginning_of_long_texts(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    file = tmp_path / "long.txt"
    file.write_text("the ferry " * 99 + "\nthe mill\n", encoding="utf-8")
    said = run(capsys, "search", encoder, file, "the ferry", "--truncate")
    assert sum(line.endswith(f"the ferry…  ({file}:1)") and len(line) < 320 + len(str(file)) for line in said) == 1
    (told,) = run(capsys, "search", encoder, file, "the ferry", "--truncate", "--json")
    assert ("the ferry " * 99).strip() in {hit["text"].strip() for hit in json.loads(told)["hits"]}


def test_a_model_to_go_on_from(
    classifier: Path, tmp_path: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    file = labelled_files("classify", 100)
    run(capsys, "finetune", classifier, file, *at(tmp_path / "out"), *SMALL, "--lr", "1e-12", "--epochs", "1")
    given = ("evaluate", labelled_files("classify", 40, 1), "--json")
    before, after = (
        json.loads("\n".join(run(capsys, given[0], model, *given[1:])))["scores"]
        for model in (classifier, tmp_path / "out")
    )
    assert before == after


def test_embed_works_with_and_without_a_head(
    classifier: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    (tmp_path / "texts.txt").write_text("the mill\na river\n", encoding="utf-8")
    for number, model in enumerate((classifier, encoder)):
        run(capsys, "embed", model, tmp_path / "texts.txt", "--out", tmp_path / f"{number}.npy")
        assert np.load(tmp_path / f"{number}.npy").shape == (2, 24)


MEASURED = """
import sys
from heedful.cli import main

try:
    main(sys.argv[1:])
except SystemExit as stop:
    assert not stop.code
status = open("/proc/self/status").read()
print(status.partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(headed: Callable[..., Path], tmp_path: Path):
    model = headed(Head(task="classify", labels=("a", "b")))
    peaks = []
    for count in (2_000, 60_000):
        (tmp_path / f"{count}.txt").write_text("the mill is fine .\n" * count, encoding="utf-8")
        files = (str(tmp_path / f"{count}.txt"), "--out", str(tmp_path / f"{count}.jsonl"))
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, "predict", str(model), *files, "--device", "cpu"],
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            timeout=300,
        )
        peaks.append(int(done.stderr))
        with (tmp_path / f"{count}.jsonl").open(encoding="utf-8") as file:
            assert sum(1 for _ in file) == count
    small, large = peaks
    assert large < 1.1 * small


def test_files_are_read_as_in_training(
    tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    """Columns of usual names mislead whoever trained with others."""
    rows = [line.rsplit(",", 1) for line in labelled_files("classify", 40).read_text().splitlines()[1:]]
    file = tmp_path / "topics.csv"
    table = ["label,text,title,topic", *(f"{n},x,{text},{topic}" for n, (text, topic) in enumerate(rows))]
    file.write_text("\n".join(table), encoding="utf-8")
    named = ("--text", "title", "--label", "topic")
    run(capsys, "finetune", encoder, file, *named, *at(tmp_path / "out"), *SMALL[2:], "--epochs", "1")
    scores = run(capsys, "evaluate", tmp_path / "out", file)
    assert scores[0] == "40 examples"
    assert scores == run(capsys, "evaluate", tmp_path / "out", file, *named)
    answers = run(capsys, "predict", tmp_path / "out", file, "--echo")
    assert [json.loads(line)["text"] for line in answers] == [text for text, _ in rows]
    answers = run(capsys, "predict", tmp_path / "out", file, "--echo", "--text", "text")
    assert {json.loads(line)["text"] for line in answers} == {"x"}
    vectors = ("--vectors", tmp_path / "v.npy")
    run(capsys, "embed", tmp_path / "out", file, "--out", vectors[1])
    for given in ((), vectors):
        (found,) = run(capsys, "search", tmp_path / "out", file, rows[7][0], "--json", "--top", "1", *given)
        assert json.loads(found)["hits"][0]["text"] == rows[7][0]
    plain = labelled_files("classify", 30)  # without those columns
    assert run(capsys, "evaluate", tmp_path / "out", plain)[0] == "30 examples"


def test_labels_are_separated_as_in_training(
    tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    rows = [line.rsplit(",", 1)[0] for line in labelled_files("classify", 40).read_text().splitlines()[1:]]
    file = tmp_path / "a.csv"
    labels = ("red|blue", "blue", "red")
    table = ["text,label", *(f"{text},{labels[n % 3]}" for n, text in enumerate(rows))]
    file.write_text("\n".join(table), encoding="utf-8")
    flags = ("--many-labels", "--separator", "|", "--epochs", "1")
    run(capsys, "finetune", encoder, file, *flags, *at(tmp_path / "out"), *SMALL[2:])
    assert run(capsys, "evaluate", tmp_path / "out", file)[0] == "40 examples"


def test_the_ending_of_a_file_says_how_answers_are_written(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    (tmp_path / "texts.txt").write_text("the fine river\n", encoding="utf-8")
    for name, flags, begin in (
        ("a.TSV", (), "label\t"),
        ("a.JSONL", (), "{"),
        ("a.out", ("--format", "tsv"), "label\t"),
    ):
        run(capsys, "predict", classifier, tmp_path / "texts.txt", "--out", tmp_path / name, *flags)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(begin)


def test_what_search_and_predict_refuse(
    classifier: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    file = tmp_path / "texts.txt"
    file.write_text("the fine river\n", encoding="utf-8")
    refused = {
        ("search", encoder, file): "there is nothing to look for; give a QUERY after the file, or several",
        ("search", encoder, file, "the \udcff"): "'the \\udcff' is not UTF-8 at character 5; convert it first",
        ("predict", classifier, file, "--out", tmp_path / "a.csv"): (
            "answers are written as jsonl or tsv, not as csv; "
            "end the name of --out with .jsonl or .tsv, or say --format"
        ),
    }
    for arguments, said in refused.items():
        with pytest.raises(SystemExit) as stop:
            main([str(one) for one in arguments])
        assert (stop.value.code, capsys.readouterr().err) == (2, f"heedful: {said}\n")
    assert list(tmp_path.iterdir()) == [file]
