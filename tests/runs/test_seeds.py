import json
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heedful.config import to_toml
from heedful.errors import Interrupted, UserError
from heedful.predict import load
from heedful.runs import finetune, seeds
from heedful.runs.finetune_options import (
    FinetuneOptions,
    FinetuneRecipe,
    FinetuneRun,
    HeadPart,
    LearningPart,
    read_recipe,
)
from heedful.runs.seeds import finetune_seeds, summarise

Files = Callable[..., Path]


@pytest.fixture
def recipe(encoder: Path, labelled_files: Files) -> FinetuneRecipe:
    return FinetuneRecipe(
        start_from=str(encoder),
        train=(str(labelled_files("regress", 60)),),
        task="regress",
        dev=str(labelled_files("regress", 40, 1)),
        data=replace(FinetuneRecipe().data, label=("height",)),
        learning=LearningPart(epochs=1, batch=8, lr=3e-3, dropout=0.1, patience=0),
        run=FinetuneRun(device="cpu", seeds=3, seed=5, checkpoint_every="2"),
    )


def go(recipe: FinetuneRecipe, out: Path, **options: Any) -> dict[str, tuple[float, float]]:
    return finetune_seeds(FinetuneOptions(settings=recipe, out=out, **options))


def document(out: Path) -> dict[str, Any]:
    return json.loads((out / "seeds.json").read_text(encoding="utf-8"))


def test_mean_and_deviation_of_the_sample():
    found = summarise([{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 3.0}, {"a": 6.0, "b": 3.0}])
    assert found["a"] == pytest.approx((3.0, 7**0.5))  # (4 + 1 + 9) / (3 - 1)
    assert found["b"] == (3.0, 0.0)
    assert summarise([{"a": 1.0}]) == {"a": (1.0, 0.0)}


@pytest.mark.parametrize("metric", ["pearson", "rmse"])
def test_the_best_of_three_is_kept(
    recipe: FinetuneRecipe, tmp_path: Path, capsys: pytest.CaptureFixture, metric: str
):
    out = tmp_path / "out"
    summary = go(replace(recipe, head=HeadPart(metric=metric)), out)
    told = document(out)
    assert list(told["seeds"]) == ["5", "6", "7"]
    values = {seed: scores[metric] for seed, scores in told["seeds"].items()}
    assert len(set(values.values())) == 3
    best = (min if metric == "rmse" else max)(values, key=lambda seed: values[seed])
    assert (told["metric"], told["best"]) == (metric, int(best))
    mean = sum(values.values()) / 3
    deviation = (sum((value - mean) ** 2 for value in values.values()) / 2) ** 0.5
    assert summary[metric] == pytest.approx((mean, deviation))
    assert told["scores"][metric] == pytest.approx({"mean": mean, "deviation": deviation})
    said = capsys.readouterr().out
    assert re.search(rf"{metric} +{mean:.4f} ± {deviation:.4f}", said)
    assert f"the model of seed {best}" in said

    # The model is the one that a run with that seed alone makes.
    alone = replace(recipe, head=HeadPart(metric=metric), run=replace(recipe.run, seed=int(best), seeds=1))
    finetune.finetune(FinetuneOptions(settings=alone, out=tmp_path / "alone"))
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "alone" / "model.safetensors").read_bytes()
    scores = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))["scores"]
    assert scores == told["seeds"][best]
    for seed in values:  # one model is enough
        assert {path.name for path in (out / f"seed-{seed}").iterdir()} == {"metrics.jsonl", "evaluation.json"}
    assert 900 < load(out, "cpu").regress("fine mill")["height"] < 1100
    assert read_recipe(out / "heedful.toml").run.seeds == 3


def test_broken_off_between_seeds_it_goes_on_where_it_was(
    recipe: FinetuneRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    go(recipe, tmp_path / "whole")
    trained: list[Path] = []

    def counting(options: FinetuneOptions, whole: Path | None = None) -> dict[str, float]:
        if trained and not options.resume and len(trained) == 1:
            trained.append(options.out)
            raise KeyboardInterrupt
        trained.append(options.out)
        return finetune.finetune(options, whole)

    out = tmp_path / "out"
    monkeypatch.setattr(seeds, "finetune", counting)
    with pytest.raises(KeyboardInterrupt):
        go(recipe, out)
    assert not (out / "model.safetensors").exists()
    go(read_recipe(out / "heedful.toml"), out, resume=True)
    assert [path.name for path in trained] == ["seed-5", "seed-6", "seed-6", "seed-7"]
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()
    assert document(out) == document(tmp_path / "whole")
    with pytest.raises(UserError, match="is complete"):
        go(read_recipe(out / "heedful.toml"), out, resume=True)


def test_interrupted_within_a_seed_it_says_how_to_go_on_with_all(
    recipe: FinetuneRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    go(recipe, tmp_path / "whole")
    real, calls = finetune.finetuning_terms, []

    def terms(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 12:  # 8 batches a seed
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "finetuning_terms", terms)
        with pytest.raises(Interrupted, match=rf"go on with: heedful finetune --resume --out {out}$"):
            go(recipe, out)
    assert (out / "seed-6" / "checkpoints").is_dir()
    noted, kept = read_recipe(out / "heedful.toml"), []

    def noting(options: FinetuneOptions, whole: Path | None = None) -> dict[str, float]:
        kept.append(options.settings.run.keep)
        return finetune.finetune(options, whole)

    monkeypatch.setattr(seeds, "finetune", noting)
    go(replace(noted, run=replace(noted.run, keep=3)), out, resume=True)  # which it may be told anew
    assert (kept, read_recipe(out / "heedful.toml").run.keep) == ([3, 3], 3)
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


def test_a_run_that_cannot_begin_leaves_no_folder(recipe: FinetuneRecipe, tmp_path: Path):
    out = tmp_path / "out"
    for wrong in (
        replace(recipe, task=None),
        replace(recipe, start_from=str(tmp_path / "none")),
        replace(recipe, train=(str(tmp_path / "none.csv"),)),
        replace(recipe, head=HeadPart(metric="accuracy")),
    ):
        with pytest.raises(UserError):
            go(wrong, out)
        assert not out.exists()
    out.mkdir()
    with pytest.raises(UserError):
        go(replace(recipe, head=HeadPart(metric="accuracy")), out)
    assert list(out.iterdir()) == []  # the folder was there before, so it stays


def test_seeds_that_began_with_what_is_refused_now_go_on(recipe: FinetuneRecipe, tmp_path: Path):
    told = replace(recipe, data=replace(recipe.data, held_out=0.5), run=replace(recipe.run, seeds=2))
    with pytest.raises(UserError, match="leave --held-out out"):
        go(told, tmp_path / "new")
    out = tmp_path / "out"
    out.mkdir()
    (out / "heedful.toml").write_text(to_toml(told), encoding="utf-8")
    go(read_recipe(out / "heedful.toml"), out, resume=True)
    assert list(document(out)["seeds"]) == ["5", "6"]


def test_what_is_no_run_is_not_resumed(recipe: FinetuneRecipe, tmp_path: Path):
    with pytest.raises(UserError, match="holds no run to resume"):
        go(recipe, tmp_path / "none", resume=True)
