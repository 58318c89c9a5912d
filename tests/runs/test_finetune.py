import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from heedful.config import to_toml
from heedful.data import tokenizer as wordpiece
from heedful.data.tagged import scheme
from heedful.errors import UserError
from heedful.formats.huggingface import load_model, save_model
from heedful.models.bert import Bert, initialise
from heedful.models.heads import BertForTask, Head
from heedful.predict import load
from heedful.runs import dataset, finetune, material, start
from heedful.runs.evaluate import evaluate
from heedful.runs.finetune_options import (
    DataPart,
    FinetuneOptions,
    FinetuneRecipe,
    FinetuneRun,
    HeadPart,
    LearningPart,
    read_recipe,
)
from heedful.runs.watching import Looked
from heedful.train.log import Log
from heedful.train.optim import set_rate

Files = Callable[..., Path]
LEARNING = LearningPart(epochs=4, batch=8, lr=3e-3, dropout=0.0, attention_dropout=0.0, patience=0)


def recipe_of(model: Path, train: Path, task: str, **changes: Any) -> FinetuneRecipe:
    """A very small run; `part__field=value` or `field=value` changes it."""
    recipe = FinetuneRecipe(
        start_from=str(model),
        train=(str(train),),
        task=task,  # type: ignore[arg-type]
        learning=LEARNING,
        run=FinetuneRun(device="cpu", checkpoint_every="1h"),
    )
    for name, value in changes.items():
        part, _, field = name.partition("__")
        recipe = replace(recipe, **{part: replace(getattr(recipe, part), **{field: value}) if field else value})
    return recipe


def go(recipe: FinetuneRecipe, out: Path, **options: Any) -> dict[str, float]:
    return finetune.finetune(FinetuneOptions(settings=recipe, out=out, **options))


def weights(folder: Path) -> dict[str, Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))


def evaluations(folder: Path) -> list[int]:
    """The steps at which a run was evaluated."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["step"] for line in lines if line["kind"] == "heldout"]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, list[float]], list[dict[str, Tensor]]]:
    """Has evaluations find given values of a metric; the weights at each of them are collected."""

    def make(metric: str, values: list[float]) -> list[dict[str, Tensor]]:
        seen: list[dict[str, Tensor]] = []
        coming: Iterator[float] = iter(values)

        def look(judge: finetune.Judge) -> Looked:
            seen.append({name: tensor.clone() for name, tensor in judge.model.state_dict().items()})
            return Looked({metric: next(coming)})

        monkeypatch.setattr(finetune.Judge, "look", look)
        return seen

    return make


KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "classify": ("classify", "classify", {}),
    "mean": ("classify", "classify", {"head__pool": "mean"}),
    "pairs": ("pairs", "classify", {}),
    "many": ("many", "classify", {}),
    "regress": ("regress", "regress", {"data__label": ("height", "depth")}),
    "conll": ("conll", "tag", {}),
    "answer": ("answer", "answer", {}),
}
"""The file, the task and what else is asked for."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, encoder: Path, labelled_files: Files) -> Callable[[str], Path]:
    """The folder of a run of a kind, each made once."""
    home = tmp_path_factory.mktemp("trained")

    def make(kind: str) -> Path:
        out = home / kind
        if not out.exists():
            file, task, more = KINDS[kind]
            dev = str(labelled_files(file, 40, 1))
            go(recipe_of(encoder, labelled_files(file, 100), task, dev=dev, learning__epochs=8, **more), out)
        return out

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_the_saved_model_scores_what_its_run_said(kind: str, trained: Callable[[str], Path], labelled_files: Files):
    """The best weights in the folder, with the tokenizer beside them, give the run's numbers again."""
    out, (file, _, more) = trained(kind), KINDS[kind]
    found = evaluate(load(out, "cpu"), [labelled_files(file, 40, 1)], DataPart(label=more.get("data__label", ())))
    told = result(out)
    assert told["examples"] == len(found.examples) == 40
    assert found.report.scores == pytest.approx(told["scores"], abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "metric", "least"),
    [
        ("classify", "accuracy", 0.9),
        ("mean", "accuracy", 0.9),
        ("many", "micro_f1", 0.8),
        ("regress", "pearson", 0.8),
    ],
)
def test_it_learns(kind: str, metric: str, least: float, trained: Callable[[str], Path]):
    assert result(trained(kind))["scores"][metric] > least


def test_tags_and_answers_are_learned(tmp_path: Path, encoder: Path, labelled_files: Files):
    tags = recipe_of(encoder, labelled_files("tags", 100), "tag", dev=str(labelled_files("tags", 40, 1)))
    assert go(replace(tags, learning=replace(LEARNING, epochs=9)), tmp_path / "tags")["f1"] > 0.9
    asked = recipe_of(encoder, labelled_files("answer", 100), "answer", dev=str(labelled_files("answer", 40, 1)))
    assert go(asked, tmp_path / "answer")["f1"] > 0.9
    assert load(tmp_path / "answer", "cpu").answer("who lives ?", "the mill is kind . bruno lives in oslo .")[0].text


def test_numbers_come_back_in_the_units_that_they_came_in(trained: Callable[[str], Path]):
    predictor = load(trained("regress"), "cpu")
    high, low = predictor.regress(["fine warm kind bright fine mill", "dull grim cold harsh dull mill"])
    assert list(high) == ["height", "depth"]
    # All words good: 1010 and -52.5; none: 1000 and -50.
    assert 1006 < high["height"] < 1013
    assert 997 < low["height"] < 1004
    assert -53.5 < high["depth"] < -51.5 < low["depth"] < -49.5


def test_one_number_is_called_score_unless_its_column_was_named(tmp_path: Path, encoder: Path, labelled_files: Files):
    content = labelled_files("regress", 100).read_text(encoding="utf-8")
    file = tmp_path / "scores.csv"
    file.write_text(content.replace("text,height,depth", "text,score,other", 1), encoding="utf-8")
    go(recipe_of(encoder, file, "regress"), tmp_path / "unnamed")
    go(recipe_of(encoder, file, "regress", data__label=("other",)), tmp_path / "named")
    assert list(load(tmp_path / "unnamed", "cpu").regress("fine mill")) == ["score"]
    assert list(load(tmp_path / "named", "cpu").regress("fine mill")) == ["other"]


def test_without_dev_a_part_is_held_out_and_that_is_said(
    tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    file = labelled_files("classify", 100)
    go(recipe_of(encoder, file, "classify"), tmp_path / "out")
    said = re.search(r"held out (\d+) of 100 examples to evaluate on", capsys.readouterr().out)
    assert said
    assert result(tmp_path / "out")["examples"] == int(said[1])
    assert 3 < int(said[1]) < 25

    go(recipe_of(encoder, file, "classify", dev=str(labelled_files("classify", 40, 1))), tmp_path / "dev")
    assert "held out 4" not in capsys.readouterr().out
    assert result(tmp_path / "dev")["examples"] == 40


def test_text_that_the_tokenizer_does_not_know_is_told_of(
    tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    file, remark = labelled_files("classify", 40), "% of the tokens are unknown: does the tokenizer suit the text?"
    go(recipe_of(encoder, file, "classify"), tmp_path / "known")
    assert remark not in capsys.readouterr().out
    strange = tmp_path / f"strange{file.suffix}"
    strange.write_text(file.read_text(encoding="utf-8").replace("the", "ж"), encoding="utf-8")
    go(recipe_of(encoder, strange, "classify"), tmp_path / "unknown")
    assert remark in capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "kind", "metric", "values", "best"),
    [
        ("classify", "classify", "accuracy", [0.3, 0.8, 0.5, 0.2], 1),
        ("classify", "classify", "macro_f1", [0.3, 0.8, 0.8, 0.2], 2),  # of two as good, the last
        ("regress", "regress", "rmse", [5.0, 7.0, 2.0, 4.0], 2),  # less is better
        ("regress", "regress", "pearson", [-0.9, -0.1, -0.5, -0.8], 1),
    ],
)
def test_the_best_weights_are_saved_and_not_the_last(
    tmp_path: Path,
    encoder: Path,
    labelled_files: Files,
    scripted: Callable[..., list[dict[str, Tensor]]],
    task: str,
    kind: str,
    metric: str,
    values: list[float],
    best: int,
):
    seen = scripted(metric, values)
    more = {"data__label": ("height",)} if task == "regress" else {}
    recipe = recipe_of(encoder, labelled_files(kind, 100), task, head__metric=metric, **more)
    told = go(recipe, tmp_path)
    assert len(seen) == 4
    assert told == {metric: values[best]}
    assert result(tmp_path) | {"examples": 0} == {
        "metric": metric,
        "step": evaluations(tmp_path)[best],
        "examples": 0,
        "scores": {metric: values[best]},
    }
    saved = load_model(tmp_path).state_dict()
    for name, tensor in seen[best].items():
        if not (task == "regress" and name.startswith("output.")):  # which is in other units
            assert torch.equal(saved[name], tensor), name
    name = next(name for name in saved if name.startswith("bert.layers.0."))
    assert not any(torch.equal(saved[name], other[name]) for n, other in enumerate(seen) if n != best)


@pytest.mark.parametrize(
    ("patience", "values", "looks"),
    [
        (1, [0.5, 0.4, 0.9, 0.9], 2),
        (2, [0.5, 0.5, 0.6, 0.6, 0.1, 0.9], 5),  # as good is not better; a better one starts the count anew
        (0, [0.9, 0.1, 0.1, 0.1, 0.1, 0.1], 6),
        (5, [0.9, 0.1, 0.1, 0.1, 0.1, 0.1], 6),  # at the end there is nothing left to stop
    ],
)
def test_it_stops_early_when_nothing_gets_better(
    tmp_path: Path,
    encoder: Path,
    labelled_files: Files,
    scripted: Callable[..., list[dict[str, Tensor]]],
    capsys: pytest.CaptureFixture,
    patience: int,
    values: list[float],
    looks: int,
):
    scripted("accuracy", values)
    recipe = recipe_of(
        encoder, labelled_files("classify", 100), "classify", learning__patience=patience, learning__epochs=6
    )
    go(recipe, tmp_path)
    assert len(evaluations(tmp_path)) == looks
    assert ("stopping early" in capsys.readouterr().out) == (looks < 6)
    assert result(tmp_path)["scores"]["accuracy"] == max(values[:looks])


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    tmp_path: Path, encoder: Path, labelled_files: Files
):
    recipe = recipe_of(encoder, labelled_files("classify", 100), "classify", learning__dropout=0.1)
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        go(replace(recipe, run=replace(recipe.run, seed=seed)), tmp_path / name)
    one, two, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two", "other"))
    assert one == two != other


def moved(before: dict[str, Tensor], folder: Path) -> set[str]:
    """The depths whose weights are no longer those of the encoder."""
    after = load_model(folder).state_dict()
    changed = {name for name, tensor in before.items() if not torch.equal(tensor, after[f"bert.{name}"])}
    return {name.split(".")[0] if "layers" not in name else ".".join(name.split(".")[:2]) for name in changed}


@pytest.mark.parametrize(
    ("freeze", "learning"),
    [
        (0, {"embeddings", "layers.0", "layers.1", "pooler"}),
        (1, {"layers.1", "pooler"}),
        (2, {"pooler"}),
        (-1, {"pooler"}),
    ],
)
def test_frozen_weights_stay_as_they_were(
    tmp_path: Path, encoder: Path, labelled_files: Files, freeze: int, learning: set[str]
):
    before = load_model(encoder).state_dict()
    go(recipe_of(encoder, labelled_files("classify", 100), "classify", learning__freeze=freeze), tmp_path)
    assert moved(before, tmp_path) == learning


def test_lower_layers_learn_slower(encoder: Path):
    """Adam's first step is as long as the rate, whatever the gradient."""
    model = BertForTask(load_model(encoder).config, Head(task="classify", labels=("a", "b")))
    initialise(model, 0.02, torch.Generator().manual_seed(0))
    optimizer = start.optimizer_for(model, LearningPart(lr=0.01, layer_decay=0.5, weight_decay=0.0))
    set_rate(optimizer, 0.01)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    shares = {
        "bert.embeddings.": 0.125,
        "bert.layers.0.": 0.25,
        "bert.layers.1.": 0.5,
        "bert.pooler.": 1,
        "output.": 1,
    }
    for name, tensor in model.state_dict().items():
        share = next(share for prefix, share in shares.items() if name.startswith(prefix))
        torch.testing.assert_close(before[name] - tensor, torch.full_like(tensor, 0.01 * share), atol=1e-6, rtol=0)


def test_balance_weighs_every_class_alike(
    tmp_path: Path, encoder: Path, labelled_files: Files, monkeypatch: pytest.MonkeyPatch
):
    lines = labelled_files("classify", 200).read_text(encoding="utf-8").splitlines()
    good = [line for line in lines if line.endswith(",good")][:60]
    bad = [line for line in lines if line.endswith(",bad")][:15]
    file = tmp_path / "rare.csv"
    file.write_text("\n".join(["text,label", *good, *bad]) + "\n", encoding="utf-8")
    real, given = finetune.finetuning_terms, []

    def terms(model: Any, batch: Any, device: Any, balance: Tensor | None, scores: Any) -> Any:
        given.append(balance)
        return real(model, batch, device, balance, scores)

    monkeypatch.setattr(finetune, "finetuning_terms", terms)
    dev = str(labelled_files("classify", 40, 1))
    go(recipe_of(encoder, file, "classify", dev=dev, learning__epochs=1, head__balance=True), tmp_path / "balanced")
    assert given[0] is not None
    assert given[0].tolist() == pytest.approx([75 / (2 * 15), 75 / (2 * 60)])  # bad, good
    given.clear()
    go(recipe_of(encoder, file, "classify", dev=dev, learning__epochs=1), tmp_path / "plain")
    assert given[0] is None


BIOES = {"B-PER I-PER I-PER": "B-PER I-PER E-PER", "B-PER I-PER": "B-PER E-PER"}


@pytest.mark.parametrize(("kind", "metric"), [("BIO", "f1"), ("BIOES", "f1"), ("plain", "accuracy")])
def test_every_way_to_tag(tmp_path: Path, encoder: Path, labelled_files: Files, kind: str, metric: str):
    rows = [json.loads(line) for line in labelled_files("tags", 60).read_text(encoding="utf-8").splitlines()]
    for row in rows:
        tags = " ".join(row["tags"])
        if kind == "BIOES":
            tags = tags.replace("B-LOC", "S-LOC")
            long = next((old for old in BIOES if old in tags), None)
            tags = tags.replace(long, BIOES[long]) if long else tags.replace("B-PER", "S-PER")
        elif kind == "plain":
            tags = tags.replace("B-", "").replace("I-", "")
        row["tags"] = tags.split()
    file = tmp_path / "tags.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = go(recipe_of(encoder, file, "tag", learning__epochs=16), tmp_path / "out")
    head = load_model(tmp_path / "out").head
    assert scheme(head.labels) == kind
    assert head.labels == tuple(sorted({tag for row in rows for tag in row["tags"]}))
    assert result(tmp_path / "out")["metric"] == metric
    assert found[metric] > 0.5


@pytest.mark.parametrize("empty", [True, False])
def test_a_model_says_that_there_is_no_answer_if_it_has_seen_such_questions(
    tmp_path: Path, encoder: Path, labelled_files: Files, empty: bool
):
    document = json.loads(labelled_files("answer", 60).read_text(encoding="utf-8"))
    for article in document["data"]:
        article["paragraphs"] = [one for one in article["paragraphs"] if empty or one["qas"][0]["answers"]]
    file = tmp_path / "questions.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    go(recipe_of(encoder, file, "answer"), tmp_path / "out")
    predictor = load(tmp_path / "out", "cpu")
    assert predictor.head is not None
    assert predictor.head.may_be_empty == empty
    found = predictor.answer("who was grim ?", "the mill is kind . bruno lives in oslo .")[0]
    assert (found.text == "") == empty


def test_several_labels_in_one_column_of_text(tmp_path: Path, encoder: Path, labelled_files: Files):
    rows = [json.loads(line) for line in labelled_files("many", 100).read_text(encoding="utf-8").splitlines()]
    file = tmp_path / "many.csv"
    lines = [f"{row['text']},{' | '.join(row['labels'])}" for row in rows]
    file.write_text("\n".join(["text,labels", *lines]) + "\n", encoding="utf-8")
    recipe = recipe_of(encoder, file, "classify", data__many_labels=True, data__separator="|")
    go(recipe, tmp_path / "csv")
    go(recipe_of(encoder, labelled_files("many", 100), "classify"), tmp_path / "jsonl")
    head = load_model(tmp_path / "csv").head
    assert (head.task, head.labels) == ("multilabel", ("baker", "mill", "river"))
    assert (tmp_path / "csv/model.safetensors").read_bytes() == (tmp_path / "jsonl/model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", ["classify", "mean", "many", "regress", "conll", "answer"])
def test_going_on_from_a_model_with_the_same_labels_keeps_its_head(
    kind: str, tmp_path: Path, trained: Callable[[str], Path], labelled_files: Files
):
    """With a rate of nearly nothing, the new model is the old one."""
    file, task, more = KINDS[kind]
    recipe = recipe_of(trained(kind), labelled_files(file, 100), task, learning__lr=1e-12, learning__epochs=1, **more)
    go(replace(recipe, dev=str(labelled_files(file, 40, 1))), tmp_path)
    before, after = load_model(trained(kind)).state_dict(), load_model(tmp_path).state_dict()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=1e-5, atol=1e-5, msg=name)
    assert result(tmp_path)["scores"] == pytest.approx(result(trained(kind))["scores"], rel=1e-3)


def test_other_labels_or_another_pool_begin_with_a_new_head(
    tmp_path: Path, trained: Callable[[str], Path], labelled_files: Files, encoder: Path
):
    old = trained("classify")
    recipe = recipe_of(old, labelled_files("classify", 100), "classify")
    for changed in (
        start.build(recipe, Head(task="classify", labels=("bad", "worse"))),
        start.build(recipe, Head(task="multilabel", labels=("bad", "good"))),
        start.build(replace(recipe, head=HeadPart(pool="mean")), Head(task="classify", labels=("bad", "good"))),
    ):
        weight = changed.state_dict()["output.weight"]
        assert not torch.equal(weight, load_model(old).state_dict()["output.weight"])
        # A head is drawn from the seed alone.
        fresh = start.build(replace(recipe, start_from=str(encoder)), changed.head)
        assert torch.equal(weight, fresh.state_dict()["output.weight"])
        table = next(name for name in changed.state_dict() if name.startswith("bert.embeddings."))
        assert torch.equal(changed.state_dict()[table], load_model(old).state_dict()[table])


def test_a_head_that_cannot_be_used_is_told(
    tmp_path: Path, trained: Callable[[str], Path], labelled_files: Files, encoder: Path
):
    recipe = recipe_of(trained("classify"), labelled_files("classify", 100), "classify")
    same = Head(task="classify", labels=("bad", "good"))
    other = Head(task="classify", labels=("bad", "worse"))
    told = "the model's head is for another task, other labels or another --pool: a new one is trained"
    for start_from, head, pool, expected in (
        (trained("classify"), same, "cls", []),
        (trained("classify"), other, "cls", [told]),
        (trained("classify"), same, "mean", [told]),
        (encoder, other, "cls", []),  # which has no head
    ):
        said: list[str] = []
        start.build(replace(recipe, start_from=str(start_from), head=HeadPart(pool=pool)), head, say=said.append)
        assert said == expected


def test_the_pool_is_the_models_own_unless_said(
    tmp_path: Path, trained: Callable[[str], Path], labelled_files: Files, capsys: pytest.CaptureFixture
):
    recipe = recipe_of(trained("mean"), labelled_files("classify", 100), "classify", learning__epochs=1)
    capsys.readouterr()
    go(recipe, tmp_path / "own")
    assert load_model(tmp_path / "own").config.pool == "mean"
    assert "a new one is trained" not in capsys.readouterr().out
    go(replace(recipe, head=HeadPart(pool="cls")), tmp_path / "cls")
    assert load_model(tmp_path / "cls").config.pool == "cls"
    assert "a new one is trained" in capsys.readouterr().out


def test_a_length_is_kept_and_read(tmp_path: Path, encoder: Path, labelled_files: Files):
    file = labelled_files("classify", 100)
    go(recipe_of(encoder, file, "classify", data__length=8, data__truncate=True, learning__epochs=1), tmp_path)
    predictor = load(tmp_path, "cpu")
    assert predictor.head == Head(task="classify", labels=("bad", "good"), length=8, pairs=False)
    assert predictor.classify("the mill is fine and kind")  # 8 with [CLS] and [SEP]
    with pytest.raises(UserError, match="9 tokens, of which 8 can be read"):
        predictor.classify("the mill is fine and kind .")


@pytest.mark.parametrize("train", ["pairs", "singles"])
def test_what_is_evaluated_on_must_be_pairs_like_what_is_learned_on(
    tmp_path: Path, encoder: Path, labelled_files: Files, train: str
):
    pairs, single = labelled_files("pairs", 60), tmp_path / "singles.csv"
    single.write_text("text,label\n" + "the mill,0\na river,1\n" * 9, encoding="utf-8")
    files = (pairs, single) if train == "pairs" else (single, pairs)
    recipe = recipe_of(encoder, files[0], "classify", dev=str(files[1]))
    with pytest.raises(UserError, match="one of the training data and --dev holds pairs of texts and the other"):
        go(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_cut_to_evaluate_on_is_told(
    tmp_path: Path, encoder: Path, labelled_files: Files, capsys: pytest.CaptureFixture
):
    dev = tmp_path / "dev.csv"
    dev.write_text(f"text,label\n{'mill ' * 60},good\nthe mill,bad\n", encoding="utf-8")
    recipe = recipe_of(encoder, labelled_files("classify", 60), "classify", dev=str(dev), learning__epochs=1)
    go(replace(recipe, data=DataPart(truncate=True)), tmp_path / "out")
    said = capsys.readouterr().out
    assert "to evaluate on, 1 text is too long; only the beginning is read\n" in said
    assert said.count("too long") == 1  # nothing that is learned on is


def test_dropout_is_the_models_own_unless_said(encoder: Path, labelled_files: Files):
    recipe = recipe_of(encoder, labelled_files("classify", 100), "classify", learning=LearningPart())
    head = Head(task="classify", labels=("a", "b"))
    own = load_model(encoder).config
    kept = start.build(recipe, head).config
    assert (kept.dropout, kept.attention_dropout) == (own.dropout, own.attention_dropout)
    set_to = start.build(replace(recipe, learning=LearningPart(dropout=0.37, attention_dropout=0.0)), head).config
    assert (set_to.dropout, set_to.attention_dropout) == (0.37, 0.0)


def broken_off(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_that_began_with_what_is_refused_now_goes_on(encoder: Path, labelled_files: Files, tmp_path: Path):
    """Its folder says what it was told in vain; that is no reason to begin anew."""
    dev = str(labelled_files("classify", 40, 1))
    plain = recipe_of(encoder, labelled_files("classify", 60), "classify", dev=dev, learning__epochs=1)
    go(plain, tmp_path / "plain")
    told = read_recipe(tmp_path / "plain" / "heedful.toml")
    told = replace(told, data=replace(told.data, held_out=0.5))
    with pytest.raises(UserError, match="leave --held-out out"):
        go(told, tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "heedful.toml").write_text(to_toml(told), encoding="utf-8")
    go(read_recipe(tmp_path / "out" / "heedful.toml"), tmp_path / "out", resume=True)
    assert all(tensor.equal(weights(tmp_path / "out")[name]) for name, tensor in weights(tmp_path / "plain").items())


def test_changed_data_is_not_resumed(
    tmp_path: Path, encoder: Path, labelled_files: Files, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "data.csv"
    file.write_bytes(labelled_files("classify", 100).read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "save_model", broken_off)
        with pytest.raises(KeyboardInterrupt):
            go(recipe_of(encoder, file, "classify"), tmp_path / "out")
    noted = read_recipe(tmp_path / "out" / "heedful.toml")
    file.write_text(file.read_text(encoding="utf-8").replace("mill", "ferry", 1), encoding="utf-8")
    with pytest.raises(UserError, match=r"the data has changed since the run began"):
        go(noted, tmp_path / "out", resume=True)
    with pytest.raises(UserError, match="was started with another --epochs"):
        go(replace(noted, learning=replace(noted.learning, epochs=5)), tmp_path / "out", resume=True)
    file.write_bytes(labelled_files("classify", 100).read_bytes())
    go(noted, tmp_path / "out", resume=True)
    assert not (tmp_path / "out" / "checkpoints").exists()
    with pytest.raises(UserError, match=r"is complete; to go on training its model, start a new one with MODEL"):
        go(noted, tmp_path / "out", resume=True)


def test_what_never_began_leaves_no_folder(tmp_path: Path, encoder: Path, labelled_files: Files):
    file = labelled_files("classify", 100)
    for changes in (
        {"learning__freeze": 3},
        {"run__checkpoint_every": "0"},
        {"run__checkpoint_every": "soon"},
        {"head__metric": "pearson"},
        {"data__length": 49},
        {"dev": str(tmp_path / "none.csv")},
    ):
        with pytest.raises(UserError):
            go(recipe_of(encoder, file, "classify", **changes), tmp_path / "out")
        assert not (tmp_path / "out").exists(), changes


def test_a_question_without_room_in_dev_is_told_before_training(tmp_path: Path, encoder: Path, labelled_files: Files):
    asked = {"id": "long", "question": "who " * 60, "context": "anna lives .", "answers": []}
    dev = tmp_path / "dev.jsonl"
    dev.write_text(json.dumps(asked) + "\n", encoding="utf-8")
    recipe = recipe_of(encoder, labelled_files("answer", 60), "answer", dev=str(dev))
    with pytest.raises(UserError, match=r"dev\.jsonl:1: the question leaves no room"):
        go(recipe, tmp_path / "out")
    skipping = replace(recipe, data=DataPart(skip_bad=True))
    with pytest.raises(UserError, match=r"no example is left to evaluate on: 1 bad row: .*dev\.jsonl:1"):
        go(skipping, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    good = {"id": "good", "question": "who ?", "context": "anna lives .", "answers": []}
    dev.write_text(json.dumps(asked) + "\n" + json.dumps(good) + "\n", encoding="utf-8")
    go(skipping, tmp_path / "out")
    assert result(tmp_path / "out")["examples"] == 1


def test_sharding_is_refused(tmp_path: Path, encoder: Path, labelled_files: Files):
    recipe = recipe_of(encoder, labelled_files("classify", 20), "classify", run__shard=True)
    with pytest.raises(UserError, match="--shard is for pretrain; leave it out"):
        go(recipe, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_processes_that_cannot_meet_are_told_to_use_torchrun(
    tmp_path: Path, encoder: Path, labelled_files: Files, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        UserError, match=r"2 processes of this run can't find each other .*RANK.*; start them by torchrun"
    ):
        go(recipe_of(encoder, labelled_files("classify", 100), "classify"), tmp_path / "out")


def test_scaling_a_layer_and_back_is_the_same_layer():
    layer = torch.nn.Linear(3, 2)
    old = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    at = torch.tensor([[0.5, -1.0, 2.0]])
    scaled = layer(at)
    scaling = dataset.Scale(torch.tensor([1000.0, -3.0]).numpy(), torch.tensor([4.0, 0.25]).numpy())
    start.unscale(layer, scaling)
    torch.testing.assert_close(layer(at), scaled * torch.tensor([4.0, 0.25]) + torch.tensor([1000.0, -3.0]))
    start.rescale(layer, scaling)
    for name, tensor in layer.state_dict().items():
        torch.testing.assert_close(tensor, old[name], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("characters", [True, False])
def test_a_tagger_of_characters_is_told_that_texts_have_words(
    tmp_path: Path, encoder: Path, capsys: pytest.CaptureFixture, characters: bool
):
    rows = ["the river runs past", "anna lives in oslo", "a baker carries bread"]
    lines = []
    for row in rows:
        tokens = list(row.replace(" ", "")) if characters else row.split()
        lines.append(json.dumps({"tokens": tokens, "tags": ["O"] * (len(tokens) - 1) + ["B-X"]}) + "\n")
    file = tmp_path / "tags.jsonl"
    file.write_text("".join(lines), encoding="utf-8")
    go(recipe_of(encoder, file, "tag", dev=str(file), learning__epochs=1), tmp_path / "out")
    assert ("the tokens are single characters, but texts are cut into words" in capsys.readouterr().out) is characters


def test_pairs_need_two_segments(tmp_path: Path, encoder: Path, labelled_files: Files):
    old = load_model(encoder)
    config = replace(old.config, segments=1)
    save_model(Bert(config), tmp_path / "old")
    wordpiece.save(wordpiece.load(encoder), tmp_path / "old")
    recipe = recipe_of(tmp_path / "old", labelled_files("pairs", 40), "classify")
    with pytest.raises(UserError, match="old has one segment, so it can't tell the texts of a pair apart; name one"):
        go(recipe, tmp_path / "out")
    assert go(
        replace(recipe, data=DataPart(text="sentence1"), learning=replace(LEARNING, epochs=1)), tmp_path / "out"
    )


def test_a_file_that_is_named_twice_is_read_once(encoder: Path, labelled_files: Files, tmp_path: Path):
    file = labelled_files("classify", 40)
    recipe = recipe_of(encoder, file, "classify")
    twice = replace(recipe, train=(str(file), str(file.parent / "." / file.name)))
    once, again = (material.gather(one, Log(tmp_path, leads=False)) for one in (recipe, twice))
    assert len(again.training.inputs) == len(once.training.inputs)
    assert again.digest == once.digest
