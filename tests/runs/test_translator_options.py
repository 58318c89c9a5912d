from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.commands.making import translator_options
from heedful.config import differences, to_toml
from heedful.errors import UserError
from heedful.runs.recipe_files import recipe_path, without
from heedful.runs.translator import make_plan
from heedful.runs.translator_options import (
    RATES,
    RNN_RATE,
    PairsPart,
    SubwordsPart,
    TranslatorLearningPart,
    TranslatorModelPart,
    TranslatorOptions,
    TranslatorRecipe,
    TranslatorRun,
    check,
    load_recipe,
    read_recipe,
    resolved,
)

TABLES = TranslatorRecipe(train=("a.tsv",))
IN_VAIN = {"dev": ("b.tsv",), "pairs": PairsPart(held_out=0.5)}
RECIPES = sorted(path.stem for path in (Path(str(files("heedful"))) / "recipes/translator").glob("*.toml"))
names = st.lists(st.text(min_size=1, max_size=7).filter(lambda text: text.isprintable()), max_size=3).map(tuple)


@given(
    st.builds(
        TranslatorRecipe,
        train=names,
        source=names,
        dev=names,
        pairs=st.builds(PairsPart, held_out=st.none() | st.floats(0.1, 0.9), skip_bad=st.booleans()),
        vocabulary=st.builds(SubwordsPart, vocab_size=st.none() | st.integers(8, 997), joint=st.booleans()),
        model=st.builds(TranslatorModelPart, share=st.sampled_from([None, "all", "none"]), dropout=st.floats(0, 0.9)),
        learning=st.builds(TranslatorLearningPart, lr=st.none() | st.floats(1e-9, 1), warmup=st.floats(0, 5000)),
        run=st.builds(TranslatorRun, steps=st.none() | st.integers(1, 10**9), samples=st.integers(0, 9)),
    )
)
def test_a_recipe_comes_back_from_toml_as_it_was(tmp_path_factory: pytest.TempPathFactory, recipe: TranslatorRecipe):
    path = tmp_path_factory.mktemp("recipe") / "heedful.toml"
    path.write_text(f'{to_toml(recipe)}\n[made]\nheedful = "0"\n', encoding="utf-8")
    assert read_recipe(path) == recipe


def test_the_recipes_that_come_along_can_be_read_and_are_told_of(capsys: pytest.CaptureFixture):
    assert "paper" in RECIPES
    with pytest.raises(SystemExit):
        translator_options(["--help"])
    told = " ".join(capsys.readouterr().out.replace("│", "").split())
    for name in RECIPES:
        recipe = load_recipe(name)
        check(replace(recipe, train=("a.tsv",)))
        make_plan(resolved(recipe, dim=128))
        assert f"{name}: " in told


def test_kinds_of_recipes_lie_apart():
    with pytest.raises(UserError, match=r"there is no recipe 'classic'; choose from .*paper, or name a \.toml file"):
        load_recipe("classic")
    with pytest.raises(UserError, match="there is no recipe 'paper'; choose from classic, demo, modern, or name"):
        recipe_path("paper")
    assert recipe_path("some/paper.toml", "translator") == Path("some/paper.toml")


def test_the_papers_recipe_has_the_papers_numbers():
    """Section 5.3: lrate = d^-0.5 min(step^-0.5, step warmup^-1.5), with 4,000 steps of warm-up."""
    plan = make_plan(resolved(load_recipe("paper"), dim=512))
    for step in (1, 1000, 3999, 4000, 5000, 16_000, 100_000):
        middle = step - 0.5  # a rate is that of a step's middle
        expected = 512**-0.5 * min(middle**-0.5, middle * 4000**-1.5)
        assert plan.rate(step - 1, 0.0) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"train": ()}, "there is nothing to learn from; give TRAIN"),
        ({"train": (), "source": ("a",)}, "--source a is one side; give the other file with --target"),
        ({"train": (), "target": ("a",)}, "--target a is one side; give the other file with --source"),
        ({"train": (), "source": ("a", "b"), "target": ("c",)}, "2 files with --source but 1 with --target"),
        ({"source": ("a", "b")}, "--source and --target each name one column"),
        ({"dev": ("a", "b", "c")}, "--dev takes a table, or a source and a target file, not 3 files"),
        (IN_VAIN, "--dev has the pairs to evaluate on; leave --held-out out"),
        (
            {"model": TranslatorModelPart(share="all"), "vocabulary": SubwordsPart(joint=False)},
            "--share all needs one",
        ),
        ({"model": TranslatorModelPart(score="concat")}, "--score says nothing to --model transformer; leave it out"),
        ({"model": TranslatorModelPart(input_feeding=False)}, "--input-feeding says nothing to --model transformer"),
        ({"model": TranslatorModelPart(model="rnn", pre_norm=True)}, "--pre-norm says nothing to --model rnn"),
        ({"learning": TranslatorLearningPart(warmup=0)}, "--schedule inverse-root falls from where the warm-up ends"),
        ({"learning": TranslatorLearningPart(warmup=1)}, "--warmup in steps needs --steps"),
        ({"learning": TranslatorLearningPart(warmup=8), "run": TranslatorRun(steps=7)}, "a warm-up of 8 steps is lo"),
    ],
)
def test_what_cannot_become_a_run(changes: dict[str, Any], problem: str):
    with pytest.raises(UserError, match=problem):
        check(replace(TABLES, **changes))


def test_a_run_that_began_with_what_is_refused_now_goes_on():
    check(replace(TABLES, **IN_VAIN), begun=True)
    check(replace(TABLES, pairs=IN_VAIN["pairs"]))
    check(replace(TABLES, dev=IN_VAIN["dev"]))


@pytest.mark.parametrize(
    ("part", "changes", "problem"),
    [
        (PairsPart, {"held_out": 1.0}, "held_out 1.0 must lie between 0 and 1"),
        (PairsPart, {"length": 3}, "length 3 is too short"),
        (SubwordsPart, {"bpe_dropout": 1.0}, "bpe_dropout 1.0 must be"),
        (SubwordsPart, {"bpe_dropout": 0.1, "subwords": "wordpiece"}, "for --subwords bpe, not wordpiece"),
        (TranslatorModelPart, {"attention_dropout": -0.1}, "attention_dropout -0.1 must be at least 0"),
        (TranslatorLearningPart, {"batch_tokens": 0}, "batch_tokens 0 must be at least 1"),
        (TranslatorLearningPart, {"patience": -1}, "patience -1 must not be negative"),
        (TranslatorLearningPart, {"agreement": -1.0}, "agreement -1.0 must not be negative"),
        (TranslatorLearningPart, {"beta2": 1.0}, "beta2 1.0 must be at least 0 and less than 1"),
        (TranslatorLearningPart, {"clip": 0.0}, "clip 0.0 must be above 0"),
        (TranslatorRun, {"samples": -1}, "samples -1 must not be negative"),
    ],
)
def test_values_that_cannot_be(part: type[Any], changes: dict[str, Any], problem: str):
    with pytest.raises(UserError, match=problem):
        part(**changes)


def test_defaults_are_written_out():
    done = resolved(TABLES, dim=128)
    assert (done.model.share, done.model.dropout, done.learning.lr) == ("all", 0.3, RATES[128])
    assert (done.run.budget, done.run.steps) == ("10m", None)
    assert differences(resolved(done, dim=128), done) == []  # a resumed run is the same run
    apart = replace(TABLES, vocabulary=SubwordsPart(joint=False), model=TranslatorModelPart(size="base", model="rnn"))
    done = resolved(apart, dim=512)
    assert (done.model.share, done.model.dropout, done.learning.lr) == ("output", 0.1, RNN_RATE)


@pytest.mark.parametrize(("dim", "width"), [(100, 128), (128, 128), (129, 256), (512, 512), (1000, 1024)])
def test_widths_between_take_the_rate_of_the_next_wider(dim: int, width: int):
    assert resolved(TABLES, dim=dim).learning.lr == RATES[width]


def test_a_warm_up_in_steps_is_a_share_of_them():
    learning = TranslatorLearningPart(warmup=7)
    recipe = resolved(replace(TABLES, learning=learning, run=TranslatorRun(steps=70)), dim=128)
    assert make_plan(recipe).warmup == pytest.approx(0.1)


def test_what_is_typed_puts_aside_what_the_recipe_says(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text('source = ["a.en"]\ntarget = ["a.de"]\n[run]\nsteps = 7\nseed = 5\n', encoding="utf-8")
    given = ["--recipe", str(path), "--out", "x", "--source", "b.en", "--budget", "3m"]
    options: TranslatorOptions = translator_options(given)
    settings = options.settings
    assert (settings.source, settings.target) == (("b.en",), ("a.de",))
    assert (settings.run.steps, settings.run.budget, settings.run.seed) == (None, "3m", 5)
    assert translator_options(["--recipe", str(path), "--out", "x"]).settings.source == ("a.en",)
    path.write_text("[pairs]\nheld_out = 0.25\n", encoding="utf-8")
    settings = translator_options(["--recipe", str(path), "--out", "x", "--dev", "b.tsv"]).settings
    assert (settings.dev, settings.pairs.held_out) == (("b.tsv",), None)
    path.write_text('dev = ["b.tsv"]\n', encoding="utf-8")
    settings = translator_options(["--recipe", str(path), "--out", "x", "--held-out", "0.25"]).settings
    assert (settings.dev, settings.pairs.held_out) == ((), 0.25)


def test_a_field_as_if_nothing_had_been_said_of_it():
    recipe = TranslatorRecipe(train=("a",), source=("b",), run=TranslatorRun(steps=7, seed=3))
    assert without(recipe, ["source", "run.steps"]) == TranslatorRecipe(train=("a",), run=TranslatorRun(seed=3))
