"""Recipes of every kind: where their files are, how they are read, what a flag puts aside of them."""

import difflib
from collections.abc import Iterable
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from heedful.config import from_tables, read_toml
from heedful.errors import UserError

RUN_FILE = "heedful.toml"
RECIPES = "recipes"
CHOSEN = "chosen"
"""What a run's file notes of itself: the fields that it has chosen, and what it was told of them, if anything."""

R = TypeVar("R")


def recipe_path(name: str, kind: str = "") -> Path:
    """The file of a recipe: one that comes along, by its name, the one of a run's folder, or any other.

    A `kind` has a folder of its own, or no recipes that come along.
    """
    folder = Path(str(files("heedful"))) / RECIPES / kind
    known = sorted(file.stem for file in folder.glob("*.toml"))
    if name in known:
        return folder / f"{name}.toml"
    if (noted := Path(name) / RUN_FILE).is_file():
        return noted
    if Path(name).suffix == ".toml" or Path(name).is_file():
        return Path(name)
    near = difflib.get_close_matches(name, known, n=1)
    others = f"choose from {', '.join(known)}, or name" if known else "name"
    hint = f"did you mean {near[0]}?" if near else f"{others} a .toml file or the folder of a run"
    raise UserError(f"there is no recipe {name!r}; {hint}")


def named(cls: type[R], name: str, kind: str = "", base: R | None = None) -> R:
    """A recipe by its name. That of a run's folder is what the run was told: what it chose suited it alone."""
    path = recipe_path(name, kind)
    return read_as(cls, path, base, chosen=path != Path(name) / RUN_FILE)


def read_as(cls: type[R], path: Path, base: R | None = None, *, chosen: bool = True) -> R:
    """A recipe of a kind from a file, with what a run has `chosen`, or without; how it was made is passed over."""
    tables = read_toml(path)
    made = how_made(tables, path)
    of_a_run = tables.pop("made", None) is not None
    known = {field.name for field in fields(cls)}  # pyrefly: ignore
    strange = [name for name in tables if not difflib.get_close_matches(name, known)]
    if of_a_run and strange:  # all of a run's own names are known to its kind
        raise UserError(
            f"{path} is of another kind of run: it has {strange[0]!r}; name the folder of one of this kind"
        )
    if not chosen:
        _untell(tables, made)
    return from_tables(cls, tables, str(path), base)


def how_made(tables: dict[str, Any], path: Path) -> dict[str, Any]:
    """What a run's file notes of how it was made, where it does."""
    made = tables.get("made", {})
    if not (isinstance(made, dict) and isinstance(made.get(CHOSEN, {}), dict)):
        raise UserError(f"{path}: [made] and [made.{CHOSEN}] are tables; undo what was changed by hand")
    return made


def _untell(tables: dict[str, Any], made: dict[str, Any]) -> None:
    """Put what a run was told in place of what it has chosen."""
    for name, told in made.get(CHOSEN, {}).items():
        *part, key = name.split(".")
        table = tables.setdefault(part[0], {}) if part else tables
        if isinstance(table, dict):  # else it is told of as any other mistake
            table.pop(key, None)
            table |= {key: told} if told != "" else {}


def without(recipe: R, names: Iterable[str]) -> R:
    """The recipe with some fields as if it had never said anything about them."""
    for full in names:
        name, _, inner = full.partition(".")
        old = getattr(recipe, name)
        new = without(old, [inner]) if inner else getattr(type(recipe)(), name)
        recipe = replace(recipe, **{name: new})  # pyrefly: ignore
    return recipe
