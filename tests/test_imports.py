"""Imports go one way only, and `--help` waits for nothing heavy."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import heedful
from heedful.cli import COMMANDS

ROOT = Path(heedful.__file__).parent
LAYERS = (
    ("errors", "durable", "config", "arguments", "container", "cores", "launch", "wording"),
    ("data", "nn"),
    ("models",),
    ("tasks",),
    ("train", "decode", "metrics"),
    ("formats",),
    ("predict", "runs"),
    ("explore",),
    ("serve",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
"""From the ground up: a part imports itself and what lies below. `predict` and `runs` share a floor."""
FLOOR = {part: number for number, parts in enumerate(LAYERS) for part in parts}
SAME_FLOOR = {("runs", "predict"), ("durable", "errors"), ("launch", "errors"), ("cores", "container")}
SAME_FLOOR |= {(one, other) for one in ("config", "arguments") for other in ("errors", "wording")}
"""Who may lean on a neighbour."""
NOT_FROM = dict.fromkeys(("data", "metrics", "errors", "config", "launch"), ("torch",))


def imported(source: str) -> Iterable[str]:
    """The modules that a source names, those for type checkers alone left out."""
    tree = ast.parse(source)
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for branch in block.body
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"a relative import: {ast.unparse(node)}"
            assert node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def allowed(part: str, target: str) -> bool:
    """Whether a part may import a module or a name."""
    if target.startswith(NOT_FROM.get(part, ())):
        return False
    package, _, rest = target.partition(".")
    if package != "heedful" or not rest:
        return True
    other = rest.split(".")[0]
    if part == "__init__" or other not in FLOOR:
        return False
    return other == part or (part, other) in SAME_FLOOR or FLOOR[other] < FLOOR[part]


def steps_back(sources: dict[str, str]) -> list[str]:
    """What is wrong with the imports of modules, given by their dotted names under `heedful`."""
    return [
        f"{name} imports {target}"
        for name, source in sources.items()
        for target in imported(source)
        if not allowed(name.split(".")[0], target)
    ]


def sources() -> dict[str, str]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in ROOT.rglob("*.py")
    }


def test_every_import_goes_down():
    found = sources()
    assert {name.split(".")[0] for name in found} - {"__init__"} <= FLOOR.keys(), "a part without a floor"
    assert len(found) > 30
    assert steps_back(found) == []


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("nn.layers", "from heedful.models import bert", "heedful.models.bert"),
        ("nn.layers", "from heedful.data.batch import Batch", "heedful.data.batch.Batch"),
        ("models.bert", "import heedful.tasks.pretraining", "heedful.tasks.pretraining"),
        ("tasks.tagging", "def f():\n    from heedful.train.loop import train", "heedful.train.loop.train"),
        ("train.loop", "from heedful.runs.options import Recipe", "heedful.runs.options.Recipe"),
        ("formats.onnx", "from heedful.predict import load", "heedful.predict.load"),
        ("predict", "from heedful.runs import device", "heedful.runs.device"),
        ("runs.info", "from heedful.cli import main", "heedful.cli.main"),
        ("data.batch", "import torch.nn", "torch.nn"),
        ("data.batch", "from torch import Tensor", "torch.Tensor"),
        ("metrics.spans", "def f():\n    import torch", "torch"),
        ("data.batch", "from heedful import load", "heedful.load"),
        ("errors", "from heedful.durable import write_file", "heedful.durable.write_file"),
        ("__init__", "from heedful.errors import UserError", "heedful.errors.UserError"),
    ],
)
def test_a_planted_step_back_is_found(name: str, source: str, target: str):
    assert steps_back({name: source}) == [f"{name} imports {target}"]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("models.bert", "from heedful.nn.layers import EncoderLayer\nimport torch"),
        ("runs.demo", "from heedful.predict import load\nfrom heedful.runs.options import Recipe"),
        ("train.loop", "from heedful.tasks.pretraining import Term\nimport heedful"),
        ("__init__", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from heedful.predict import load"),
    ],
)
def test_an_import_that_goes_down_is_let_be(name: str, source: str):
    assert steps_back({name: source}) == []


HELP = """
import contextlib, io, sys
from heedful.cli import main
for arguments in {arguments}:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            main(arguments)
    except SystemExit as stop:
        assert not stop.code, (arguments, stop.code)
    assert "usage" in said.getvalue(), arguments
    heavy = [name for name in ("torch", "matplotlib", "pyarrow", "tokenizers") if name in sys.modules]
    assert not heavy, (arguments, heavy)
"""


def test_help_is_instant_for_every_command():
    every = [["--help"], *([command, "--help"] for command in COMMANDS)]
    done = subprocess.run(
        [sys.executable, "-c", HELP.format(arguments=every)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
