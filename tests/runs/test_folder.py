import platform
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import UserError
from heedful.runs.cache import require_folder
from heedful.runs.folder import amend, claim, give_back, is_complete, noted_cache, reclaim, require_free
from heedful.runs.options import ObjectivePart, OptimizerPart, PretrainRun, Recipe, load_recipe, read_recipe, resolved
from heedful.runs.training import taken
from heedful.train.distributed import World

RECIPE = resolved(Recipe(corpus=("a.txt",), run=PretrainRun(steps=7, seed=3)))


def fill(folder: Path) -> None:
    (folder / "checkpoints" / "step").mkdir(parents=True)
    (folder / "checkpoints" / "step" / "state.json").write_text("{}", encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")


def test_a_claimed_folder_says_what_the_run_is(tmp_path: Path):
    assert claim(tmp_path / "deep" / "out", RECIPE)
    assert read_recipe(tmp_path / "deep" / "out" / "heedful.toml") == RECIPE
    (tmp_path / "empty").mkdir()
    assert not claim(tmp_path / "empty", RECIPE)
    assert read_recipe(tmp_path / "empty" / "heedful.toml") == RECIPE


def test_what_is_not_free_is_left_alone(tmp_path: Path):
    claim(tmp_path / "run", RECIPE)
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    for path, message in (
        (tmp_path / "run", "already holds a run; go on with --resume, or choose another --out"),
        (tmp_path, "exists and is not empty; choose another --out"),
        (file, "file is a file; choose another --out"),
    ):
        with pytest.raises(UserError, match=message):
            require_free(path)
        with pytest.raises(UserError, match=message):
            claim(path, replace(RECIPE, corpus=("b.txt",)))
    assert read_recipe(tmp_path / "run" / "heedful.toml") == RECIPE
    assert file.read_bytes() == b"mine"
    before = sorted(tmp_path.rglob("*"))
    require_free(tmp_path / "missing" / "deep")
    assert sorted(tmp_path.rglob("*")) == before


def test_where_no_folder_can_be_made(tmp_path: Path):
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    with pytest.raises(UserError, match=f"can't be made in {file} .*; choose another --out"):
        require_free(file / "out")
    if Path("/proc/self").exists():
        with pytest.raises(UserError, match=r"/proc/heedful/out can't be made in /proc \(.*\); choose another --out"):
            require_free(Path("/proc/heedful/out"))


def test_a_new_folder_is_given_back_by_removing_it(tmp_path: Path):
    claim(tmp_path / "out", RECIPE)
    fill(tmp_path / "out")
    give_back(tmp_path / "out", remove=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_is_given_back_empty(tmp_path: Path):
    """A link to a folder elsewhere stays a link; what a link inside points to is nobody's business."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "mine").write_bytes(b"mine")
    claim(tmp_path / "link", RECIPE)
    fill(tmp_path / "link")
    (tmp_path / "link" / "inner").symlink_to(tmp_path / "precious")
    give_back(tmp_path / "link", remove=False)
    assert (tmp_path / "link").is_symlink()
    assert list((tmp_path / "real").iterdir()) == []
    assert (tmp_path / "precious" / "mine").read_bytes() == b"mine"


def test_giving_back_what_has_gone_is_no_trouble(tmp_path: Path):
    give_back(tmp_path / "missing", remove=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"run": PretrainRun(steps=7, seed=5)}, "--seed"),
        ({"objective": ObjectivePart(length=24)}, "--length"),
        ({"run": PretrainRun(steps=11, seed=3), "optimizer": OptimizerPart(lr=1e-3)}, "--lr, --steps"),
        ({"corpus": ("another.txt",)}, "CORPUS"),
        ({"optimizer": replace(RECIPE.optimizer, name="muon")}, "--optimizer"),
    ],
)
def test_a_run_is_resumed_only_as_it_was(tmp_path: Path, change: dict[str, Any], named: str):
    claim(tmp_path, RECIPE)
    them = "them" if "," in named else "it"
    with pytest.raises(UserError, match=f"was started with another {named}; leave {them} out to resume"):
        reclaim(tmp_path, resolved(replace(RECIPE, **change)), read_recipe)
    reclaim(tmp_path, RECIPE, read_recipe)


def test_where_all_is_other_a_few_are_named(tmp_path: Path):
    """As by a recipe that is given to a run that has one."""
    claim(tmp_path, RECIPE)
    with pytest.raises(
        UserError, match=r"another( \S+,){3} \S+ and \d+ more; give --resume and --out alone, or start"
    ):
        reclaim(tmp_path, resolved(replace(load_recipe("modern"), corpus=RECIPE.corpus)), read_recipe)


def test_what_does_not_make_it_another_run_may_change_and_is_noted(tmp_path: Path):
    claim(tmp_path, RECIPE)
    anew = replace(RECIPE, run=replace(RECIPE.run, keep=7, checkpoint_every="5", tensorboard=True))
    for recipe in (anew, anew):
        reclaim(tmp_path, recipe, read_recipe)
        assert read_recipe(tmp_path / "heedful.toml") == anew


@pytest.mark.parametrize(
    ("old", "new"), [("seed = 3", "seed = 4"), ('size = "small"', 'size = "mini"'), ("steps = 7", "steps = 5")]
)
def test_what_was_changed_by_hand_is_another_run(tmp_path: Path, old: str, new: str):
    claim(tmp_path, RECIPE)
    file = tmp_path / "heedful.toml"
    noted = file.read_text()
    assert old in noted
    file.write_text(noted.replace(old, new))
    with pytest.raises(UserError, match=r"heedful\.toml was changed after the run began, .*; undo that, or start"):
        reclaim(tmp_path, read_recipe(file), read_recipe)
    file.write_text("# as it was\n" + noted.replace("keep = 2", "keep=2"))
    reclaim(tmp_path, read_recipe(file), read_recipe)
    file.write_text(noted.partition("[made]")[0])  # a run of before this was noted
    reclaim(tmp_path, RECIPE, read_recipe)


def test_a_run_is_a_recipe_of_what_it_was_told(tmp_path: Path):
    told = Recipe(corpus=("a.txt",), optimizer=OptimizerPart(batch_tokens="auto"), run=PretrainRun(steps=7))
    begun = resolved(told)
    claim(tmp_path / "out", begun, None, told)
    decided = replace(begun, optimizer=replace(begun.optimizer, batch_tokens=512))
    amend(tmp_path / "out", decided, told=begun)
    assert read_recipe(tmp_path / "out" / "heedful.toml") == decided
    assert load_recipe(str(tmp_path / "out" / "heedful.toml")) == decided
    assert load_recipe(str(tmp_path / "out")) == told


def test_what_a_resumed_run_is_told_anew_is_noted(tmp_path: Path):
    claim(tmp_path, RECIPE, None, Recipe())
    chosen = load_recipe(str(tmp_path))
    anew = replace(RECIPE, run=replace(RECIPE.run, keep=5))
    with taken(tmp_path, anew, anew, read_recipe, World(), resume=True):
        pass
    assert read_recipe(tmp_path / "heedful.toml") == anew
    assert load_recipe(str(tmp_path)).optimizer == chosen.optimizer != anew.optimizer
    reclaim(tmp_path, anew, read_recipe)


def test_its_cache_is_noted_for_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    claim(tmp_path / "usual", RECIPE)
    assert noted_cache(tmp_path / "usual") is None
    claim(tmp_path / "out", RECIPE, Path("my cache"))
    amend(tmp_path / "out", replace(RECIPE, run=replace(RECIPE.run, seed=5)))
    assert noted_cache(tmp_path / "out") == tmp_path / "my cache"
    noted = read_recipe(tmp_path / "out/heedful.toml")
    with taken(tmp_path / "out", noted, noted, read_recipe, World(), resume=True):
        assert noted_cache(tmp_path / "out") == tmp_path / "my cache"
    other = {"resume": True, "cache": tmp_path / "other"}
    with taken(tmp_path / "out", noted, noted, read_recipe, World(), **other):
        pass
    assert noted_cache(tmp_path / "out") == tmp_path / "other"
    assert read_recipe(tmp_path / "out" / "heedful.toml").run.seed == 5
    assert noted_cache(tmp_path / "none") is None


def test_a_cache_that_can_not_be_used_does_not_take_the_place_of_one_that_can(tmp_path: Path):
    claim(tmp_path, RECIPE, tmp_path / "good")
    mistyped = {"resume": True, "cache": tmp_path / "heedful.toml"}
    with (
        pytest.raises(UserError, match="name a folder"),
        taken(tmp_path, RECIPE, RECIPE, read_recipe, World(), **mistyped),
    ):
        require_folder(tmp_path / "heedful.toml")
    assert noted_cache(tmp_path) == tmp_path / "good"


def test_what_is_no_run_or_a_complete_one_is_not_resumed(tmp_path: Path):
    with pytest.raises(UserError, match=r"holds no run to resume: it has no heedful\.toml; name the --out that"):
        reclaim(tmp_path, RECIPE, read_recipe)
    with pytest.raises(UserError, match="missing holds no run to resume: there is no such folder; name the --out"):
        reclaim(tmp_path / "missing", RECIPE, read_recipe)
    claim(tmp_path, RECIPE)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"is complete; to go on training its model, use --from"):
        reclaim(tmp_path, RECIPE, read_recipe)


def test_what_a_killed_run_left_is_swept_on_resume(tmp_path: Path):
    claim(tmp_path, RECIPE)
    (tmp_path / f".model.safetensors.{2**22 + 7}@{platform.node()}.tmp").write_bytes(b"half")
    reclaim(tmp_path, RECIPE, read_recipe)
    assert [path.name for path in tmp_path.iterdir()] == ["heedful.toml"]


@pytest.mark.parametrize("strange", ["made = 3", '[made]\nchosen = "x"'])
def test_how_a_run_was_made_is_a_table(tmp_path: Path, strange: str):
    (tmp_path / "heedful.toml").write_text(f"{strange}\n", encoding="utf-8")
    for read in (partial(load_recipe, str(tmp_path)), partial(reclaim, tmp_path, RECIPE, lambda _: RECIPE)):
        with pytest.raises(UserError, match=r"heedful\.toml: \[made\] and \[made\.chosen\] are tables; undo"):
            read()


def test_a_folder_is_complete_for_the_run_that_made_it_alone(tmp_path: Path):
    out = tmp_path / "out"
    claim(out, RECIPE)
    assert not is_complete(out, RECIPE, read_recipe)
    (out / "model.safetensors").touch()
    assert is_complete(out, RECIPE, read_recipe)
    assert is_complete(out, replace(RECIPE, run=replace(RECIPE.run, keep=7)), read_recipe)
    undecided = replace(
        RECIPE, model=replace(RECIPE.model, size="auto"), optimizer=replace(RECIPE.optimizer, lr=None)
    )
    assert is_complete(out, undecided, read_recipe)
    left_open = replace(RECIPE, optimizer=replace(RECIPE.optimizer, batch_tokens="budget"))
    assert is_complete(out, left_open, read_recipe)
    assert not is_complete(out, replace(RECIPE, run=replace(RECIPE.run, steps=8)), read_recipe)
    assert not is_complete(out, replace(RECIPE, corpus=("b.txt",)), read_recipe)
    (out / "heedful.toml").write_text("[learning]\nlr = 1.0\n", encoding="utf-8")  # of another kind of run
    assert not is_complete(out, RECIPE, read_recipe)
