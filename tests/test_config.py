import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import differences, from_tables, read_toml, to_toml
from heedful.errors import UserError
from heedful.runs.options import (
    ModelPart,
    ObjectivePart,
    OptimizerPart,
    PretrainRun,
    Recipe,
    TextPart,
    VocabularyPart,
    load_recipe,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
"""Any text that UTF-8 can hold: quotes, backslashes, line ends, control characters, emoji."""
recipes = st.builds(
    Recipe,
    corpus=st.lists(texts, max_size=3).map(tuple),
    text=st.builds(
        TextPart,
        text=st.none() | texts,
        errors=st.sampled_from(["strict", "replace"]),
        held_out=st.none() | st.floats(0, 0.99),
    ),
    vocabulary=st.builds(VocabularyPart, vocab_size=st.none() | st.integers(), cased=st.booleans()),
    model=st.builds(ModelPart, size=st.none() | st.sampled_from(["tiny", "large"]), dropout=st.floats(0, 0.99)),
    objective=st.builds(ObjectivePart, nsp=st.booleans(), length=st.integers(8, 1 << 40)),
    optimizer=st.builds(OptimizerPart, lr=st.none() | st.floats(1e-300, 1e300), weight_decay=st.floats(0, 1e9)),
    run=st.builds(PretrainRun, steps=st.none() | st.integers(1), checkpoint_every=texts),
)


@dataclass(frozen=True, kw_only=True)
class Wheel:
    spokes: int
    rubber: Literal["soft", "hard"] = "soft"


@dataclass(frozen=True, kw_only=True)
class Bicycle:
    name: str
    weight: float = 7.5
    gears: int | None = None
    bell: bool = False
    owners: tuple[str, ...] = ()
    shed: Path = Path("shed")
    wheel: Wheel = field(default_factory=lambda: Wheel(spokes=31))


def read(text: str, base: Bicycle | None = None) -> Bicycle:
    return from_tables(Bicycle, tomllib.loads(text), "bike.toml", base)


@given(recipes)
def test_a_recipe_comes_back_from_toml_as_it_was(recipe: Recipe):
    assert from_tables(Recipe, tomllib.loads(to_toml(recipe)), "recipe") == recipe


def test_toml_is_written_as_expected():
    bicycle = Bicycle(name='"Blitz"\n\\', weight=1e-05, owners=("Ada", "준"), shed=Path("a/b"))
    assert to_toml(bicycle) == (
        'name = "\\"Blitz\\"\\n\\\\"\n'
        "weight = 1e-05\n"
        "bell = false\n"
        'owners = ["Ada", "준"]\n'
        'shed = "a/b"\n'
        "\n[wheel]\n"
        "spokes = 31\n"
        'rubber = "soft"\n'
    )
    assert read(to_toml(bicycle)) == bicycle


def test_fields_can_be_left_out_of_toml():
    toml = to_toml(Bicycle(name="Blitz"), ("bell", "wheel.spokes", "weight.spokes"))
    assert tomllib.loads(toml).keys() == tomllib.loads(to_toml(Bicycle(name="Blitz"))).keys() - {"bell"}
    assert tomllib.loads(toml)["wheel"] == {"rubber": "soft"}


def test_a_name_that_is_not_utf8_is_a_users_mistake():
    with pytest.raises(UserError, match=r"'caf\\udce9' is not UTF-8.*rename it"):
        to_toml(Bicycle(name="caf\udce9"))


def test_what_a_file_does_not_say_is_the_default_or_the_base():
    assert read('name = "Blitz"') == Bicycle(name="Blitz")
    base = Bicycle(name="Blitz", gears=7, wheel=Wheel(spokes=29, rubber="hard"))
    assert read("bell = true\n[wheel]\nspokes = 37", base) == Bicycle(
        name="Blitz", gears=7, bell=True, wheel=Wheel(spokes=37, rubber="hard")
    )


def test_a_whole_number_may_stand_for_a_number():
    weight = read('name = "Blitz"\nweight = 8').weight
    assert (weight, type(weight)) == (8.0, float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "B"\ngear = 3', "bike.toml: unknown key 'gear'; did you mean 'gears'?"),
        (
            'name = "B"\nxyz = 3',
            "bike.toml: unknown key 'xyz'; known are name, weight, gears, bell, owners, shed, wheel",
        ),
        ('name = "B"\n[wheel]\nspoke = 3', "bike.toml [wheel]: unknown key 'spoke'; did you mean 'spokes'?"),
        ('name = "B"\nspokes = 3', "bike.toml: unknown key 'spokes'; it belongs below [wheel]"),
        ('name = "B"\n[whel]\nspokes = 3', "bike.toml: unknown key 'whel'; did you mean 'wheel'?"),
        ('name = "B"\nwheel = 3', "bike.toml: 'wheel' must be a table [wheel]"),
        ("bell = true", "bike.toml: the key 'name' is missing"),
        ("name = 3", "bike.toml: name is 3 but must be a text"),
        ('name = "B"\ngears = "three"', "bike.toml: gears is 'three' but must be a whole number"),
        ('name = "B"\ngears = 3.5', "bike.toml: gears is 3.5 but must be a whole number"),
        ('name = "B"\ngears = true', "bike.toml: gears is True but must be a whole number"),
        ('name = "B"\nweight = true', "bike.toml: weight is True but must be a number"),
        ('name = "B"\nbell = 1', "bike.toml: bell is 1 but must be true or false"),
        ('name = "B"\nshed = 1', "bike.toml: shed is 1 but must be a path"),
        ('name = "B"\nowners = "Ada"', "bike.toml: owners is 'Ada' but must be a list; write [\"Ada\"]"),
        ('name = "B"\nowners = ["Ada", 3]', "bike.toml: owners is 3 but must be a text"),
        (
            'name = "B"\n[wheel]\nspokes = 3\nrubber = "wet"',
            "bike.toml [wheel]: rubber is 'wet'; choose from soft, hard",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_the_way_out(text: str, message: str):
    with pytest.raises(UserError) as error:
        read(text)
    assert str(error.value) == message


def test_differences_are_named_with_their_table():
    one = Bicycle(name="Blitz")
    assert differences(one, Bicycle(name="Blitz")) == []
    other = replace(one, gears=3, wheel=Wheel(spokes=31, rubber="hard"))
    assert differences(one, other) == ["gears", "wheel.rubber"]
    assert differences(other, one) == ["gears", "wheel.rubber"]


def test_a_toml_file_that_is_missing_or_broken_is_a_users_mistake(tmp_path: Path):
    path = tmp_path / "a.toml"
    with pytest.raises(UserError, match="does not exist"):
        read_toml(path)
    path.write_bytes(b"a = = 3")
    with pytest.raises(UserError, match="not valid TOML"):
        read_toml(path)
    path.write_bytes(b'a = "\xff"')
    with pytest.raises(UserError, match="not valid TOML"):
        read_toml(path)


@pytest.mark.parametrize("name", ["classic", "demo"])
def test_the_recipes_that_come_along_can_be_read(name: str):
    recipe = load_recipe(name)
    assert recipe != Recipe()
    assert from_tables(Recipe, tomllib.loads(to_toml(recipe)), name) == recipe
