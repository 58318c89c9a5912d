from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heedful.commands.making import finetune_options
from heedful.config import to_toml
from heedful.data.columns import Columns
from heedful.errors import UserError
from heedful.runs.finetune_options import (
    LOWER_IS_BETTER,
    METRICS,
    DataPart,
    FinetuneRecipe,
    FinetuneRun,
    HeadPart,
    LearningPart,
    check,
    read_recipe,
    resolved,
    trained_with,
    usual_epochs,
    usual_rate,
)

GOOD = FinetuneRecipe(start_from="model", train=("data.csv",), task="classify")

TAGS, ANSWERS = "to tag, the columns read are those called tokens and tags", "called question, context and answers"
IN_VAIN = [
    (
        {"dev": "dev.csv", "data": DataPart(held_out=0.5)},
        "--dev has the examples to evaluate on; leave --held-out out",
    ),
    ({"task": "tag", "data": DataPart(text="t", label=("l",))}, f"{TAGS}; leave --text out"),
    ({"task": "tag", "data": DataPart(pair="p")}, f"{TAGS}; leave --pair out"),
    ({"task": "tag", "data": DataPart(label=("l",))}, f"{TAGS}; leave --label out"),
    ({"task": "answer", "data": DataPart(text="t")}, f"{ANSWERS}; leave --text out"),
]
"""What would have no effect, and is refused unless a run has begun with it."""


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        (DataPart, {"held_out": 0.0}, r"held_out 0\.0 must lie between 0 and 1"),
        (DataPart, {"held_out": 1.0}, r"held_out 1\.0 must lie between 0 and 1"),
        (DataPart, {"length": 7}, "length 7 is too short to read anything; use 8 or more"),
        (DataPart, {"overlap": -1}, "overlap -1 must not be negative"),
        (LearningPart, {"epochs": 0}, "epochs 0 must be at least 1"),
        (LearningPart, {"batch": 0}, "batch 0 must be at least 1"),
        (LearningPart, {"evaluations": 0}, "evaluations 0 must be at least 1"),
        (LearningPart, {"lr": 0.0}, r"--lr 0\.0 must be a number above 0"),
        (LearningPart, {"lr": float("nan")}, "--lr nan must be a number above 0"),
        (LearningPart, {"warmup": 1.1}, "must lie between 0 and 1"),
        (LearningPart, {"clip": 0.0}, r"clip 0\.0 must be above 0"),
        (LearningPart, {"weight_decay": -0.1}, "must not be negative"),
        (LearningPart, {"layer_decay": 0.0}, "must be above 0 and at most 1"),
        (LearningPart, {"layer_decay": 1.01}, "must be above 0 and at most 1"),
        (LearningPart, {"freeze": -2}, "or -1 for all"),
        (LearningPart, {"patience": -1}, "patience -1 must not be negative"),
        (LearningPart, {"dropout": 1.0}, "must be at least 0 and less than 1"),
        (LearningPart, {"attention_dropout": -0.1}, "must be at least 0 and less than 1"),
        (FinetuneRun, {"seeds": 0}, "seeds 0 must be at least 1"),
    ],
)
def test_what_a_part_refuses(part: type, changes: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        part(**changes)


def test_the_ends_of_what_is_allowed():
    DataPart(held_out=0.5, length=8, overlap=0)
    LearningPart(warmup=0.0, layer_decay=1.0, freeze=-1, patience=0, dropout=0.0, weight_decay=0.0)
    LearningPart(warmup=1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start_from": None}, "MODEL is missing"),
        ({"train": ()}, "TRAIN is missing"),
        ({"task": None}, "--task is missing; choose from classify, regress, tag, answer"),
        ({"task": "tag", "head": HeadPart(pool="mean")}, "to tag, every token is read: leave it out"),
        ({"task": "answer", "head": HeadPart(pool="mean")}, "to answer, every token is read: leave it out"),
        ({"task": "regress", "head": HeadPart(balance=True)}, "to regress there are none; leave it out"),
        ({"task": "answer", "head": HeadPart(balance=True)}, "to answer there are none; leave it out"),
        ({"task": "tag", "data": DataPart(many_labels=True)}, "--many-labels is for --task classify, not tag"),
        ({"data": DataPart(overlap=8)}, "--overlap is for windows, and to classify there are none"),
        *IN_VAIN,
    ],
)
def test_what_cannot_become_a_run(changes: dict[str, Any], message: str):
    check(GOOD)
    with pytest.raises(UserError, match=message):
        check(replace(GOOD, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "regress", "head": HeadPart(pool="mean")},
        {"task": "tag", "head": HeadPart(balance=True), "data": DataPart(overlap=8)},
        {"data": DataPart(many_labels=True)},
        {"dev": "dev.csv", "data": DataPart(text="t", pair="p", label=("l",))},
        {"data": DataPart(held_out=0.5)},
        {"task": "tag", "dev": "dev.conll"},
    ],
)
def test_what_may_be_asked_together(changes: dict[str, Any]):
    check(replace(GOOD, **changes))


@pytest.mark.parametrize("changes", [changes for changes, _ in IN_VAIN])
def test_a_run_that_began_with_what_is_refused_now_goes_on(changes: dict[str, Any]):
    check(replace(GOOD, **changes), begun=True)


def test_what_is_typed_puts_aside_what_the_recipe_says(tmp_path: Path):
    path = tmp_path / "mine.toml"
    for said, typed, dev, share in (
        ("[data]\nheld_out = 0.25", ("--dev", "dev.csv"), "dev.csv", None),
        ('dev = "dev.csv"', ("--held-out", "0.25"), None, 0.25),
        ("", ("--dev", "dev.csv", "--held-out", "0.25"), "dev.csv", 0.25),  # which is refused
    ):
        path.write_text(f"{said}\n", encoding="utf-8")
        settings = finetune_options(["--recipe", str(path), "--out", "x", *typed]).settings
        assert (settings.dev, settings.data.held_out) == (dev, share)


@pytest.mark.parametrize(
    ("examples", "epochs", "batch"),
    [(1, 20, 16), (999, 20, 16), (1000, 10, 16), (4999, 10, 16), (5000, 5, 32), (19999, 5, 32), (20000, 3, 32)],
)
def test_fewer_examples_are_gone_through_more_often(examples: int, epochs: int, batch: int):
    assert usual_epochs(examples) == epochs
    made = resolved(GOOD, task="classify", examples=examples, dim=128, pool="cls")
    assert (made.learning.epochs, made.learning.batch, made.learning.evaluations) == (epochs, batch, epochs)


@pytest.mark.parametrize(
    ("dim", "rate"), [(128, 1e-4), (511, 1e-4), (512, 5e-5), (767, 5e-5), (768, 3e-5), (1024, 2e-5)]
)
def test_wider_models_learn_slower(dim: int, rate: float):
    assert usual_rate(dim) == rate
    assert resolved(GOOD, task="classify", examples=100, dim=dim, pool="cls").learning.lr == rate


def test_what_was_said_is_kept():
    said = replace(
        GOOD,
        head=HeadPart(metric="matthews", pool="cls"),
        learning=LearningPart(epochs=7, batch=5, lr=0.5, evaluations=3),
    )
    assert resolved(said, task="classify", examples=100, dim=128, pool="cls") == said


@pytest.mark.parametrize(
    ("task", "usual"),
    [
        ("classify", "accuracy"),
        ("binary", "accuracy"),
        ("multilabel", "micro_f1"),
        ("regress", "r2"),  # numbers that only go along with the truth are no answers in its units
        ("tag", "f1"),
        ("plain", "accuracy"),
        ("answer", "f1"),
    ],
)
def test_the_usual_metric_of_each_task(task: str, usual: str):
    assert resolved(GOOD, task=task, examples=100, dim=128, pool="cls").head.metric == usual
    for metric in METRICS[task]:
        asked = replace(GOOD, head=HeadPart(metric=metric))
        assert resolved(asked, task=task, examples=100, dim=128, pool="cls").head.metric == metric
    with pytest.raises(UserError, match=f"metric 'bleu' is not one of this task; choose from {usual}"):
        resolved(replace(GOOD, head=HeadPart(metric="bleu")), task=task, examples=100, dim=128, pool="cls")


def test_f1_is_of_two_classes():
    asked = replace(GOOD, head=HeadPart(metric="f1"))
    assert resolved(asked, task="binary", examples=100, dim=128, pool="cls").head.metric == "f1"
    with pytest.raises(UserError, match="metric 'f1' is not one of this task; choose from accuracy, macro_f1, matth"):
        resolved(asked, task="classify", examples=100, dim=128, pool="cls")


@pytest.mark.parametrize(
    ("task", "said", "own", "pool"),
    [
        ("classify", None, "mean", "mean"),
        ("regress", None, "cls", "cls"),
        ("classify", "cls", "mean", "cls"),
        ("tag", None, "mean", None),  # where nothing is pooled
    ],
)
def test_what_is_pooled_is_what_the_model_pools(task: Any, said: Any, own: str, pool: str | None):
    recipe = replace(GOOD, task=task, head=HeadPart(pool=said))
    assert resolved(recipe, task=task, examples=100, dim=128, pool=own).head.pool == pool


def test_errors_are_better_when_lower():
    assert set(LOWER_IS_BETTER) < set(METRICS["regress"])


def test_a_recipe_comes_back_from_its_file(tmp_path: Path):
    recipe = replace(
        GOOD,
        dev="dev.csv",
        data=DataPart(label=("a", "b"), separator="|", skip_bad=True, held_out=0.25),
        head=HeadPart(pool="mean", balance=True),
        learning=LearningPart(epochs=3, lr=2e-5, freeze=-1),
        run=FinetuneRun(seeds=3, seed=5),
    )
    (tmp_path / "run.toml").write_text(f'{to_toml(recipe)}\n[made]\nheedful = "0"\n', encoding="utf-8")
    assert read_recipe(tmp_path / "run.toml") == recipe


def test_a_misspelt_key_of_a_recipe_is_told(tmp_path: Path):
    (tmp_path / "run.toml").write_text("[learning]\nepoch = 3\n", encoding="utf-8")
    with pytest.raises(UserError, match="epochs"):
        read_recipe(tmp_path / "run.toml")


def test_columns_are_those_named():
    assert DataPart(text="t", pair="p", label=("a",)).columns == Columns(text="t", pair="p", label=("a",))


def test_how_the_data_of_a_folder_was_read(tmp_path: Path):
    assert trained_with(tmp_path) == DataPart()
    file = tmp_path / "heedful.toml"
    file.write_text('data = "digits"\n', encoding="utf-8")
    assert trained_with(tmp_path) == DataPart()
    # What has nothing to do with how files are read, also of later versions, says nothing here.
    said = 'text = "t"\nlabel = ["a", "b"]\nseparator = "|"\nskip_bad = true\nnews = 3\n'
    file.write_text(f"task = 'classify'\n[data]\n{said}", encoding="utf-8")
    assert trained_with(tmp_path) == DataPart(text="t", label=("a", "b"), separator="|")
    file.write_text("[data]\ntext = 3\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"heedful.toml \[data\]: text"):
        trained_with(tmp_path)
