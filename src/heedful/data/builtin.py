"""The data that every installation carries: Python's own documentation, as English prose, and handwritten digits.

The language reference (`pydoc_data.topics`) and the docstrings of the standard library, numpy and torch are
read from their source files with `ast`; nothing is imported or run, and a package that is not installed is
left out. The digits are those of scikit-learn.

Knows nothing of tokens, of held-out parts or of other corpora.
"""

import ast
import importlib.util
import inspect
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import numpy as np

from heedful.data.prose import sentences

# In the standard library's folder: tests, other people's packages, and the topics, which are read apart.
_SKIPPED_FOLDERS = frozenset({"test", "tests", "idlelib", "lib2to3", "pydoc_data", "site-packages", "dist-packages"})

# Calls that give a docstring to what is written in C, and torch's tables of shared argument descriptions.
_DOCUMENTING_CALLS = frozenset(
    {"add_docstr", "_add_docstr", "add_docstr_all", "add_newdoc", "add_newdoc_for_scalar_type"}
    | {"parse_kwargs", "merge_dicts"}
)


FORMAT = 1
"""To be raised when the same documentation would give another text."""


def documents() -> Iterator[list[str]]:
    """Every document of the corpus as sentences: deduplicated, always in the same order."""
    return unique(filter(None, map(sentences, _docstrings())))


def write(path: Path) -> None:
    """Write the corpus as text: one sentence a line, a blank line after each document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".part")  # an interrupted run never leaves half a corpus under the name
    with aside.open("w", encoding="utf-8", newline="\n") as out:
        for document in documents():
            out.writelines(sentence + "\n" for sentence in document)
            out.write("\n")
    aside.replace(path)


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Handwritten digits (Alpaydin and Kaynak 1998): 1,797 grey images (N, 8, 8) uint8, and what each is (N,)."""
    from sklearn.datasets import load_digits  # slow to import

    found = cast("dict[str, np.ndarray]", load_digits())
    return np.rint(found["images"] * (255 / 16)).astype(np.uint8), found["target"].astype(np.int64)


def unique(found: Iterable[list[str]]) -> Iterator[list[str]]:
    """Drop every sentence that was met before: copied text would be in the training and the held-out part."""
    seen: set[str] = set()
    for document in found:
        if fresh := [sentence for sentence in dict.fromkeys(document) if sentence not in seen]:
            seen.update(fresh)
            yield fresh


def _docstrings() -> Iterator[str]:
    standard = Path(sysconfig.get_path("stdlib"))
    yield from topics(standard / "pydoc_data" / "topics.py")
    roots = [standard, _folder("numpy"), _folder("torch")]
    for root in filter(None, roots):
        yield from docstrings(root)


def _folder(package: str) -> Path | None:
    """Where a top-level package lies, found without importing it."""
    spec = importlib.util.find_spec(package)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def topics(path: Path) -> Iterator[str]:
    """The chapters of the language reference: the strings of the one dict in `pydoc_data.topics`."""
    if not path.is_file():  # some distributions leave it to another package
        return
    for node in ast.walk(_parse(path.read_bytes())):
        if isinstance(node, ast.Dict):
            for value in node.values:
                yield from _texts(value)


def docstrings(root: Path) -> Iterator[str]:
    """The raw docstrings of all Python files under `root`, in order of path, then line."""
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).parts):
        if _SKIPPED_FOLDERS.isdisjoint(path.relative_to(root).parts):
            source = path.read_bytes()
            if b'"""' in source or b"'''" in source:  # parsing is what takes the time
                yield from _in_statements(_parse(source))


def _parse(source: bytes) -> ast.Module:
    """The syntax tree of a file; an empty one where it is no Python of this version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old sources have invalid escapes in plain strings
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            return ast.Module(body=[], type_ignores=[])


def _in_statements(node: ast.AST) -> Iterator[str]:
    """The docstrings below a node, in order of line. Expressions, most of a tree, are not visited."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if docstring := ast.get_docstring(node, clean=False):
            yield docstring
    elif isinstance(node, ast.Expr | ast.Assign):
        yield from _given(node)
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _in_statements(child)


def _given(node: ast.Expr | ast.Assign) -> Iterator[str]:
    """The docstring that a statement gives to something else: `add_docstr(f, "...")`, `f.__doc__ = "..."`."""
    call = node.value.func if isinstance(node.value, ast.Call) else None
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if _name(call) in _DOCUMENTING_CALLS or _name(target).strip("_").endswith(("doc", "docs", "docstring")):
        texts = (inspect.cleandoc(text) for text in _texts(node.value) if "\n" in text)
        yield "\n\n".join(texts)


def _name(node: ast.expr | None) -> str:
    return getattr(node, "id", None) or getattr(node, "attr", "")


def _texts(node: ast.AST) -> Iterator[str]:
    """The string literals of an expression; what an f-string would fill in is left as `{}`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join("".join(_texts(part)) or "{}" for part in node.values)
    elif not isinstance(node, ast.FormattedValue):
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)
