"""Models with the newer options, from their pretraining to every use of them, as a user gives the commands."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
import transformers

from heedful.cli import main
from heedful.config import read_toml
from heedful.data import tokenizer as wordpiece
from heedful.formats.huggingface import load_model, read_config, save_model
from heedful.models.bert import BertConfig

MODERN = ("--pre-norm", "--positions", "rotary", "--gated", "--no-bias", "--segments", "0", "--init", "scaled")
MIXES = {
    "modern": (*MODERN, "--rotary-base", "5000", "--no-nsp"),
    "with pairs": MODERN,
    "mixed": ("--pre-norm", "--gated"),
}
RECIPE = ("--recipe", "modern", "--size", "tiny", "--steps", "20")
TYPES = {"modern": "modernbert", "with pairs": "heedful_mixed_bert", "mixed": "heedful_mixed_bert"}
WORDS = ["the", "river", "mill", "baker", "bridge", "ferry", "is", "of", "and", "in", "fine", "dull", "warm", "cold"]
Files = Callable[..., Path]


def run(capsys: pytest.CaptureFixture, *arguments: str | Path) -> list[str]:
    """What a command that must go well says."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert (stop.value.code or 0, said.err) == (0, "")
    return said.out.splitlines()


def refused(capsys: pytest.CaptureFixture, *arguments: str | Path) -> str:
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said.count("\n") == 1
    return said


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random, path = Random(0), tmp_path_factory.mktemp("corpus") / "corpus.txt"
    documents = [[" ".join(random.choices(WORDS, k=7)) + "." for _ in range(6)] for _ in range(60)]
    path.write_text("\n\n".join("\n".join(one) for one in documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Callable[[str], Path]:
    made: dict[str, Path] = {}
    cache = tmp_path_factory.mktemp("cache")

    def make(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("pretrained") / "out"
            small = (
                "--size",
                "tiny",
                "--max-length",
                "64",
                "--length",
                "32",
                "--batch-tokens",
                "256",
                "--steps",
                "20",
            )
            where = ("--vocab-size", "70", "--device", "cpu", "--cache", str(cache), "--out", str(made[name]))
            with pytest.raises(SystemExit) as stop:
                main(["pretrain", str(corpus), *small, *where, *(RECIPE if name == "recipe" else MIXES[name])])
            assert not stop.value.code
        return made[name]

    return make


def test_the_recipe_makes_a_modernbert_that_transformers_opens(pretrained: Callable[[str], Path]):
    folder = pretrained("recipe")
    part = read_toml(folder / "heedful.toml")["model"]
    assert (part["segments"], part["bias"]) == (1, True)
    config = read_config(folder)
    assert (config.segments, config.bias, config.modern) == (0, True, True)  # what all tokens share is in each
    ids = torch.tensor([[2, 17, 4, 31, 3]])
    with torch.no_grad():
        theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()(ids).logits
        ours = load_model(folder).eval()(ids).mlm_logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_recipe_needs_nothing_but_a_budget(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    """Size and batches are chosen for the time and this machine, and the time is kept."""
    told = ("--recipe", "modern", "--budget", "3s", "--device", "cpu", "--cache", tmp_path / "cache")
    said = run(capsys, "pretrain", corpus, *told, "--out", tmp_path / "out")
    (chosen,) = (line for line in said if line.startswith("--size"))
    assert re.fullmatch(
        r"--size auto: tiny, --batch-tokens budget: 4096; sees about [\d.,]+( million)? tokens in the time", chosen
    )
    tables = read_toml(tmp_path / "out" / "heedful.toml")
    assert (tables["model"]["size"], tables["optimizer"]["batch_tokens"]) == ("tiny", 4096)
    assert tables["made"]["chosen"].items() >= {"model.size": "auto", "optimizer.batch_tokens": "budget"}.items()
    lines = (tmp_path / "out" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [one for one in map(json.loads, lines) if one["kind"] == "train"]
    assert 1.0 < steps[-1]["elapsed"] < 10.0
    assert f"saved {tmp_path / 'out'}" in said


@pytest.mark.parametrize("name", MIXES)
def test_what_is_asked_for_is_what_is_made(
    pretrained: Callable[[str], Path], name: str, capsys: pytest.CaptureFixture
):
    folder = pretrained(name)
    modern = name != "mixed"
    config = read_config(folder)
    assert config == BertConfig(
        vocab_size=70,
        layers=2,
        dim=128,
        heads=2,
        ffn_dim=320,
        max_length=64,
        pre_norm=True,
        gated=True,
        positions="rotary" if modern else "learned",
        rotary_base=5000.0 if name == "modern" else 10000.0,
        bias=not modern,
        segments=0 if modern else 2,
    )
    assert json.loads((folder / "config.json").read_text())["model_type"] == TYPES[name]
    part = read_toml(folder / "heedful.toml")["model"]
    assert (part["pre_norm"], part["init"], part["segments"]) == (
        True,
        "scaled" if modern else "normal",
        config.segments,
    )
    said = "\n".join(run(capsys, "info", folder))
    assert ("ModernBERT tiny" in said) == (name == "modern")
    assert ("rotary positions, gated, no biases, no segments" in said) == modern
    assert ("has no architecture that equals this one" in said) == (name != "modern")


@pytest.mark.parametrize("name", MIXES)
def test_every_use(
    pretrained: Callable[[str], Path],
    name: str,
    labelled_files: Files,
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
):
    folder, exported = pretrained(name), name != "with pairs"  # which takes seconds
    assert run(capsys, "fill", folder, "the river is [MASK] .")[0].startswith("the river is")
    (tmp_path / "texts.txt").write_text("the river is warm .\nthe mill\n", encoding="utf-8")
    run(capsys, "embed", folder, tmp_path / "texts.txt", "--out", tmp_path / "torch.npy", "--device", "cpu")
    vectors = np.load(tmp_path / "torch.npy")
    assert vectors.shape == (2, 128)
    if exported:
        assert "model.onnx" in run(capsys, "export", folder, "--to", "onnx")[-1]
        run(capsys, "embed", folder, tmp_path / "texts.txt", "--out", tmp_path / "onnx.npy", "--engine", "onnx")
        np.testing.assert_allclose(vectors, np.load(tmp_path / "onnx.npy"), atol=1e-4)

    pairs, out = labelled_files("pairs", 60), tmp_path / "out"
    small = ("--epochs", "1", "--device", "cpu", "--patience", "0")
    run(capsys, "finetune", folder, pairs, "--task", "classify", "--out", out, *small)
    answers = [json.loads(line) for line in run(capsys, "predict", out, pairs, "--device", "cpu")]
    assert len(answers) == 60
    if name == "modern":
        run(capsys, "export", out, "--to", "onnx")
        again = [json.loads(line) for line in run(capsys, "predict", out, pairs, "--engine", "onnx")]
        assert [one["label"] for one in again] == [one["label"] for one in answers]
    assert any("accuracy" in line for line in run(capsys, "evaluate", out, pairs, "--device", "cpu"))


@pytest.mark.parametrize("task", ["tag", "answer"])
def test_tokens_of_a_modern_one(
    pretrained: Callable[[str], Path], task: str, labelled_files: Files, tmp_path: Path, capsys: pytest.CaptureFixture
):
    data, out = labelled_files("tags" if task == "tag" else task, 24), tmp_path / "out"
    small = ("--epochs", "1", "--device", "cpu", "--patience", "0")
    run(capsys, "finetune", pretrained("modern"), data, "--task", task, "--out", out, *small)
    config = json.loads((out / "config.json").read_text())
    assert config["architectures"] == [
        f"ModernBertFor{'TokenClassification' if task == 'tag' else 'QuestionAnswering'}"
    ]
    assert run(capsys, "evaluate", out, data, "--device", "cpu")


def test_training_goes_on(
    pretrained: Callable[[str], Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    folder = pretrained("modern")
    options = (
        "--steps",
        "2",
        "--batch-tokens",
        "256",
        "--length",
        "32",
        "--device",
        "cpu",
        "--cache",
        tmp_path / "cache",
    )
    for out, flags, kind in (("out", (), "modernbert"), ("pairs", ("--nsp",), "heedful_mixed_bert")):
        run(capsys, "pretrain", corpus, "--from", folder, "--out", tmp_path / out, *flags, *options)
        assert read_config(tmp_path / out).variations == read_config(folder).variations
        assert json.loads((tmp_path / out / "config.json").read_text())["model_type"] == kind
    said = run(capsys, "pretrain", corpus, "--from", tmp_path / "pairs", "--out", tmp_path / "again", *options)
    assert "goes on with masked words and next sentences" in said
    assert json.loads((tmp_path / "again/config.json").read_text())["model_type"] == "heedful_mixed_bert"
    said = run(
        capsys, "pretrain", corpus, "--from", tmp_path / "pairs", "--out", tmp_path / "words", "--no-nsp", *options
    )
    assert f"the head for next sentences of {tmp_path / 'pairs'} is left behind; --nsp would go on with it" in said
    assert "goes on with masked words alone" in said


def test_what_never_learned_next_sentences_goes_on_without(
    pretrained: Callable[[str], Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """An encoder that has lost its heads too; and recipes that say nothing of it decide nothing."""
    save_model(load_model(pretrained("modern")).bert, tmp_path / "encoder")
    wordpiece.save(wordpiece.load(pretrained("modern")), tmp_path / "encoder")
    (tmp_path / "mine.toml").write_text("[objective]\nmask_rate = 0.2\n", encoding="utf-8")
    options = ("--steps", "1", "--batch-tokens", "256", "--length", "32", "--device", "cpu", "--cache", tmp_path)
    for name, folder, flags in (
        ("bare", tmp_path / "encoder", ()),
        ("told", pretrained("modern"), ("--recipe", tmp_path / "mine.toml")),
    ):
        line = ("pretrain", corpus, "--from", folder, "--out", tmp_path / name, *flags, *options)
        assert "goes on with masked words alone" in run(capsys, *line)
        (tmp_path / name / "model.safetensors").unlink()  # as if it had been stopped
        assert "goes on with masked words alone" in run(capsys, *line, "--resume")
        assert json.loads((tmp_path / name / "config.json").read_text())["model_type"] == "modernbert"
    (tmp_path / "mine.toml").write_text("[objective]\nnsp = true\n", encoding="utf-8")
    said = run(capsys, "pretrain", corpus, "--from", folder, "--out", tmp_path / "pairs", *flags, *options)
    assert "goes on with masked words and next sentences" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--pre-norm",), "with --from, the model keeps its own pre norm; leave --pre-norm out"),
        (("--no-pre-norm",), "with --from, the model keeps its own pre norm; leave --no-pre-norm out"),
        (("--segments=2",), "with --from, the model keeps its own segments; leave --segments out"),
        (("--no-bias",), "with --from, the model keeps its own bias; leave --no-bias out"),
        (("--positions", "rotary"), "the model keeps its own positions; leave --positions out"),
    ],
)
def test_a_model_that_goes_on_keeps_its_form(
    tmp_path: Path, flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture
):
    assert said in refused(capsys, "pretrain", "x.txt", "--from", tmp_path, "--out", tmp_path / "out", *flags)


def test_segments_that_can_not_be(tmp_path: Path, capsys: pytest.CaptureFixture):
    said = refused(capsys, "pretrain", "x.txt", "--out", tmp_path / "out", "--segments", "3")
    assert "segments 3 must be 2, 1, or 0 for none" in said
    said = refused(capsys, "pretrain", "x.txt", "--out", tmp_path / "out", "--segments", "1")
    assert "with 1 two can't be told apart; or train without (--no-nsp)" in said


def test_a_cpu_does_not_multiply_in_8_bits(tmp_path: Path, capsys: pytest.CaptureFixture):
    said = refused(capsys, "pretrain", "x.txt", "--out", tmp_path / "out", "--device", "cpu", "--fp8")
    assert said == "heedful: --fp8 is for GPUs, and a CPU is used here; go on with --no-fp8\n"
    assert not (tmp_path / "out").exists()
