"""What README.md and docs/map.md name is there, and what is there is named in them."""

import re
from pathlib import Path

import pytest

from heedful.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCED = [line for block in re.findall(r"```\w*\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
CODE = [*FENCED, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", README, flags=re.DOTALL))]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"\bheedful ([a-z][a-z-]*)(.*)")


def flags(name: str, capsys: pytest.CaptureFixture) -> set[str]:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert not stop.value.code
    return set(FLAG.findall(capsys.readouterr().out))


def test_every_command_is_told_of_and_there():
    assert {found[1] for line in CODE if (found := COMMAND.search(line))} == set(COMMANDS)


def test_every_flag_is_there(capsys: pytest.CaptureFixture):
    known = {name: flags(name, capsys) for name in COMMANDS}
    checked = set()
    for line in CODE:
        if found := COMMAND.search(line):  # what stands before it is another program's
            asked, allowed = set(FLAG.findall(found[2])), known[found[1]]
        else:
            asked, allowed = set(FLAG.findall(line)), set().union(*known.values())
        assert asked <= allowed, line
        checked |= asked
    assert {"--out", "--budget", "--resume", "--json"} <= checked


def tree() -> list[Path]:
    """The paths of the map, whose indentation says what lies where."""
    lines = (ROOT / "docs" / "map.md").read_text(encoding="utf-8").splitlines()
    paths: list[Path] = []
    parents: dict[int, Path] = {}
    for line in (line for line in lines if line.startswith("    ")):
        depth = len(line) - len(line.lstrip())
        parents = {above: path for above, path in parents.items() if above < depth}
        path = (parents[max(parents)] if parents else ROOT) / line.split()[0]
        parents[depth] = path
        paths.append(path)
    return paths


def test_every_path_of_the_map_exists():
    assert len(tree()) > 40
    assert [path for path in tree() if not path.exists()] == []


def test_every_module_is_in_the_map():
    modules = set((ROOT / "src" / "heedful").rglob("*.py"))
    packages = {path for path in modules if path.name == "__init__.py" and path.parent.name != "heedful"}
    assert modules - packages - set(tree()) == set()
    assert {path.parent for path in packages} <= set(tree())


def test_every_link_leads_somewhere():
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
