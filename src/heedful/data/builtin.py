"""The corpus every Python installation carries: its own documentation, as English prose.

The language reference (`pydoc_data.topics`) and the docstrings of the standard library, numpy and torch are
read from their source files with `ast`; nothing is imported or run, and a package that is not installed is
left out. What is not prose (doctests, code, tables, formulas, signatures) is dropped with a few plain rules
rather than a full reStructuredText parser: a lost sentence costs nothing here, a garbled one does.

Knows nothing of tokens, of held-out parts or of other corpora.
"""

import ast
import importlib.util
import inspect
import re
import sysconfig
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from heedful.data.sentences import split_sentences

# In the standard library's folder: tests, other people's packages, and the topics, which are read apart.
_SKIPPED_FOLDERS = frozenset({"test", "tests", "idlelib", "lib2to3", "pydoc_data", "site-packages", "dist-packages"})

# Calls that give a docstring to what is written in C, and torch's tables of shared argument descriptions.
_DOCUMENTING_CALLS = frozenset(
    {"add_docstr", "_add_docstr", "add_docstr_all", "add_newdoc", "add_newdoc_for_scalar_type"}
    | {"parse_kwargs", "merge_dicts"}
)

# A sentence met this often is boilerplate ("out : ndarray, optional ..."): later ones are dropped.
_MAX_REPEATS = 1


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


def unique(found: Iterable[list[str]]) -> Iterator[list[str]]:
    """Drop documents seen before, and sentences that have become boilerplate."""
    seen: set[tuple[str, ...]] = set()
    repeats: Counter[str] = Counter()
    for document in found:
        if tuple(document) in seen:
            continue
        repeats.update(set(document))
        fresh = [sentence for sentence in document if repeats[sentence] <= _MAX_REPEATS]
        if fresh and tuple(fresh) not in seen:
            yield fresh
        seen |= {tuple(document), tuple(fresh)}


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


def sentences(docstring: str) -> list[str]:
    """The sentences of a docstring that read as English."""
    lines = _without_blocks(inspect.cleandoc(docstring).splitlines())
    plain = (without_markup(paragraph) for paragraph in _paragraphs(lines))
    return [sentence for text in plain for sentence in split_sentences(text) if is_prose(sentence)]


_DOCTEST = re.compile(r">>> ?|In \[\d+\]:|\$ ")
_UNDERLINE = re.compile(r"([-=~^*+#\"'`_.:])\1{2,}$")
_TABLE = re.compile(r"[-=+|]{2,}(\s+[-=+|]{2,})+$|\+[-=+]{3,}|\|.*\|$")
_DIRECTIVE = re.compile(r"\.\.(?:$|\s+(?:(?P<name>[\w:-]+)::)?\s*(?P<rest>.*))")
_SIGNATURE = re.compile(r"[\w.]+\(.*\) *(->|→)")
_VERSION = re.compile(r"v?\d[\w.]*:?\s*")

# Directives with prose inside; the body of any other (math, code-block, a label, a comment) is dropped.
_PROSE_DIRECTIVES = frozenset(
    {"note", "warning", "tip", "hint", "important", "caution", "attention", "danger", "admonition", "seealso"}
    | {"topic", "versionadded", "versionchanged", "deprecated"}
)
_DROPPED_SECTIONS = frozenset({"see also", "references"})


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _without_blocks(lines: list[str]) -> list[str]:
    """Drop what is not running text; a blank line stands where a block was."""
    kept: list[str] = []
    fenced = to_blank = dropped_section = False
    deeper: int | None = None  # dropping all that is indented deeper than this
    previous = ""
    for line in lines:
        text = line.strip()
        heading, previous = previous, text
        if text.startswith("```") and text.count("```") == 1:
            fenced = not fenced
            text = ""
        if fenced or (to_blank and text):
            continue
        to_blank = False
        if deeper is not None:
            if not text or _indent(line) > deeper:
                continue
            deeper = None
        if _UNDERLINE.match(text):
            if not dropped_section and heading and kept:
                kept.pop()
            dropped_section = heading.lower() in _DROPPED_SECTIONS
            text = ""
        if dropped_section:
            continue
        if _DOCTEST.match(text) or _TABLE.match(text):
            to_blank = True
            text = ""
        if _SIGNATURE.match(text):
            text = ""
        if directive := _DIRECTIVE.match(text):
            if directive["name"] in _PROSE_DIRECTIVES:
                rest = _VERSION.sub("", directive["rest"], count=1)
                kept += ["", " " * _indent(line) + "* " + rest if rest else ""]
                continue
            deeper = _indent(line)
            text = ""
        elif text.endswith("::"):
            kept += [line.rstrip()[:-1], ""]
            deeper = _indent(line)
            continue
        kept.append(line.rstrip() if text else "")
    return kept


# What opens an item, and is dropped: a bullet, a number, `:param x:`, `name (type):`, a name in a column.
_ITEM = re.compile(
    r"(?:[-*+•o]|\(?\d{1,2}[.)]|\(?[a-zA-Z]\)|[:@][a-z]\w*(?: [\w*., ]+)?:"
    r"|[`*]*[\w.]+[`*]*(?:, [`*]*\w+[`*]*)* ?\((?:[^()]|\([^()]*\))*\) ?:)(?:\s+|$)|\w+ {2,}(?=\w)"
)
# `name:` and `name -` open an item too, but a wrapped line may happen to begin so.
_NAME = re.compile(r"[`*]*\w+[`*]*(?::| --?)(?:\s+|$)")
_NUMPY = re.compile(r"[`*\w., ]{1,60} :(?: |$)")  # `name : type`, its description indented below
_ENDS = (".", ":", "!", "?")


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Join wrapped lines. A blank line, an item, or a change of indentation begins a new paragraph."""
    block: list[str] = []
    item = False  # an item's later lines are indented deeper than its first
    inside = 0  # the indentation of the latest line
    for line, following in pairwise([*lines, "", ""]):
        text, indent = line.strip(), _indent(line)
        if not text:
            yield from _joined(block)
            block, item = [], False
            continue
        if (numpy := _NUMPY.match(text)) and _indent(following) > indent:
            yield from _joined(block)
            block, item, inside = [], False, indent
            continue
        opening = _ITEM.match(text) or numpy
        if not opening and (not block or indent < inside or block[-1].endswith(_ENDS) or (item and len(block) == 1)):
            opening = _NAME.match(text)
        hanging = indent > inside and (
            (item and len(block) == 1)
            or (text[0].islower() and block and len(block[-1].split()) > 4 and not block[-1].endswith(_ENDS))
        )
        if opening or not (indent == inside or hanging):
            yield from _joined(block)
            block = []
            item = bool(opening)
        block.append(text[opening.end() :] if opening else text)
        inside = indent
    yield from _joined(block)


_CODE = re.compile(
    r"(def|class|import|from|for|if|elif|while|with|try|except|return|raise|yield|assert)\b.*[:)\]]$"
    r"|(import|from) [\w.]+( import .*)?$|[\w.\[\], ]+ [-+*/|&]?= \S|[\w.]+\(.*\)?,?$"
    r"|[@#}\])]|.*[{\[(,\\]$|.*::=|.*->"
)


def _joined(block: list[str]) -> Iterator[str]:
    """A paragraph of these lines, unless most of them are code."""
    if block and sum(bool(_CODE.match(line)) for line in block) * 2 <= len(block):
        yield " ".join(block)


# Stands for what is not words (a formula, an address, a blank to fill in); the sentence goes with it.
_GAP = "\0"
_MARKUP = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r":math:`([\w ,()]{1,12})`", r"\1"),  # a name or a number reads as text
        (r":math:`[^`]*`|\$[^$]+\$|\\\(.*?\\\)", _GAP),
        (r":[a-z][\w:+-]*:`[~!]([^`]*\.)?([^`.]*)`", r"\2"),  # :func:`~torch.add` shows the last part
        (r"(?::[a-z][\w:+-]*:)?`([^`<]+?)\s*<[^`>]*>`_{0,2}", r"\1"),
        (r":[a-z][\w:+-]*:`([^`]*)`", r"\1"),
        (r"``(.+?)``", r"\1"),
        (r"`([^`]+)`_{0,2}", r"\1"),
        (r"\[([^\]]+)\]\((?:https?|ftp)://[^)\s]*\)", r"\1"),
        (r"<?\b(?:https?|ftp)://\S+|\bwww\.\S+", _GAP),
        (r"\{\w*\}", _GAP),
        (r" ?\[[^\]\s]+\]_| \[\d+\](?=[\s.,;)]|$)", ""),  # footnote marks, but not x[1]
        (r"(?<![\w*])\*\*(?=\S)([^*]+)(?<=\S)\*\*(?![\w*])", r"\1"),
        (r"(?<![\w*])\*(?=\w)([^*]+)(?<=\S)\*(?![\w*])", r"\1"),
        (r"(?<!\w)\|(\w+)\|", r"\1"),
        (r"\\ |\\([*`_|\\])", r"\1"),
        (r"\s+", " "),
        (r" (?=[.,;:!?)](?:\s|$))", ""),
    ]
]


def without_markup(text: str) -> str:
    """Plain text from a paragraph with reStructuredText or Markdown inside."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return unicodedata.normalize("NFC", text).strip()


_WORD = re.compile(r"(?<![\w.])[A-Za-z]+(?:['’-][A-Za-z]+)*(?![\w(=\[])")
_COMMON = re.compile(
    r"\b(an?|the|of|to|in|is|are|be|was|for|and|or|not|with|this|that|its?|as|by|on|if|from|at|all|when|which|can"
    r"|will|no|does|has|have|into|than|then|may|must|should|use|used|using)\b",
    re.IGNORECASE,
)


def is_prose(sentence: str) -> bool:
    """Whether a sentence reads as English: plain words, few symbols, and an end or common words."""
    words = _WORD.findall(sentence)
    letters = sum(c.isalpha() or c in " ,.'’" for c in sentence)
    return (
        _GAP not in sentence
        and len(words) >= 3
        and len(sentence) <= 1000
        and len(words) >= 0.6 * len(sentence.split())
        and letters >= 0.88 * len(sentence)
        and (sentence[-1] in '.:!?)"' or len(words) >= 4)
        and (len(words) > 7 or sentence.endswith(".") or _COMMON.search(sentence) is not None)
    )
