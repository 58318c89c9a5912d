"""TOML to frozen dataclasses and back. An unknown key is an error that suggests the right one.

Knows nothing of what the fields mean: the dataclasses check themselves.
"""

import difflib
import json
import tomllib
import types
import typing
from collections.abc import Collection, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from heedful.errors import UserError
from heedful.wording import any_of

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as tables."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} does not exist") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder, not a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def to_toml(value: Any, leave_out: Collection[str] = (), prefix: str = "") -> str:
    """A dataclass as TOML; fields that are None are left out, nested dataclasses become tables.

    `leave_out` names further fields, like `table.key`.
    """
    plain, tables = [], []
    for field in fields(value):
        content = getattr(value, field.name)
        if is_dataclass(content):
            inner = to_toml(content, leave_out, f"{prefix}{field.name}.")
            tables.append(f"\n[{field.name}]\n{inner}")
        elif content is not None and prefix + field.name not in leave_out:
            plain.append(f"{field.name} = {literal(content)}\n")
    return "".join(plain + tables)


def from_tables(cls: type[T], tables: dict[str, Any], origin: str, base: T | None = None) -> T:
    """A dataclass from TOML tables; what they do not say comes from the base, or is the default."""
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in fields(cls)}  # pyrefly: ignore
    values = {} if base is None else {name: getattr(base, name) for name in known}
    for key, content in tables.items():
        if key not in known:
            table = next((name for name, kind in hints.items() if is_dataclass(kind) and key in _names(kind)), None)
            near = _typed(cls).get(key) or next(iter(difflib.get_close_matches(key, known, n=1)), None)
            hint = f"did you mean {near!r}?" if near else f"known are {', '.join(known)}"
            if table:
                hint = f"it belongs below [{table}]"
            raise UserError(f"{origin}: unknown key {key!r}; {hint}")
        kind = hints[key]
        if is_dataclass(kind):
            if not isinstance(content, dict):
                raise UserError(f"{origin}: {key!r} must be a table [{key}]")
            values[key] = from_tables(kind, content, f"{origin} [{key}]", values.get(key))  # pyrefly: ignore
        else:
            values[key] = _checked(content, kind, f"{origin}: {key}")
    missing = [
        name
        for name, field in known.items()
        if name not in values and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing:
        raise UserError(f"{origin}: the key {missing[0]!r} is missing")
    try:
        return cls(**values)
    except UserError as error:
        raise UserError(f"{origin}: {error}") from None


def _names(cls: Any) -> set[str]:
    return {field.name for field in fields(cls)}


def _typed(cls: type) -> dict[str, str]:
    """The fields that are typed under another name, as `arg(name=…)` says, by that name."""
    hints = typing.get_type_hints(cls, include_extras=True)
    notes = ((name, note) for name, hint in hints.items() for note in getattr(hint, "__metadata__", ()))
    return {typed: name for name, note in notes if (typed := getattr(note, "name", None))}


def differences(one: Any, other: Any, prefix: str = "") -> list[str]:
    """The names of the fields in which two dataclasses of a kind differ."""
    found = []
    for field in fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if is_dataclass(left):
            found += differences(left, right, f"{prefix}{field.name}.")
        elif left != right:
            found.append(prefix + field.name)
    return found


def literal(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(literal, value)) + "]"
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise UserError(f"{value!r} is not UTF-8, so it can't be noted in a TOML file; rename it") from None
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")  # which JSON leaves, TOML forbids


def _checked(content: Any, kind: Any, origin: str, words: Sequence[str] = ()) -> Any:
    """The content as the kind of value that the field takes, beside certain words."""
    origin_kind = get_origin(kind)
    if origin_kind in (types.UnionType, typing.Union):
        kinds = [one for one in get_args(kind) if one is not type(None)]
        words = [word for one in kinds[1:] if get_origin(one) is typing.Literal for word in get_args(one)]
        if content in words:
            return content
        return _checked(content, kinds[0], origin, words)
    if origin_kind is typing.Literal:
        if content in get_args(kind):
            return content
        raise UserError(f"{origin} is {content!r}; choose from {', '.join(map(str, get_args(kind)))}")
    if origin_kind is tuple:
        if isinstance(content, list):
            return tuple(_checked(item, get_args(kind)[0], origin) for item in content)
        raise UserError(f"{origin} is {content!r} but must be a list; write {literal([content])}")
    if kind is float and isinstance(content, int) and not isinstance(content, bool):
        return float(content)
    if kind is Path and isinstance(content, str):
        return Path(content)
    if type(content) is not kind:
        raise UserError(f"{origin} is {content!r} but must be {any_of([_NOUNS.get(kind, kind.__name__), *words])}")
    return content


_NOUNS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", Path: "a path"}
