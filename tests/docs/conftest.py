"""The code of docs/learn, which is no package: its folder is put where Python looks."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

CODE = Path(__file__).parents[2] / "docs" / "learn" / "code"


@pytest.fixture(scope="session")
def lesson() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a page's code by its name."""
    sys.path.insert(0, str(CODE))
    yield importlib.import_module
    sys.path.remove(str(CODE))
