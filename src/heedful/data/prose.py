"""The English in a docstring: sentences, without code, tables, formulas, signatures and markup.

A few plain rules rather than a full reStructuredText parser: a lost sentence costs nothing here, a garbled one
does. Knows nothing of where docstrings come from.
"""

import inspect
import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise

from heedful.data.sentences import split_sentences


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
