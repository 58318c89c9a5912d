"""docs/ as a site: static pages that work from a folder, without a server and without the network.

    python docs/book.py [--out FOLDER]

Pages are written for GitHub and read there as they are. Here they get a list of all pages beside them, in order, and
a switch between the languages. A link to source code leads to a page of that code, so that both can be read side by
side. Nothing is fetched from elsewhere: one style sheet, system fonts, no scripts.
"""

import argparse
import html
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

DOCS = Path(__file__).parent
ROOT = DOCS.parent
LANGUAGES = {"en": ("learn", "English"), "ko": ("learn/ko", "한국어")}
"""Where the path lies in each language, and what the language calls itself."""
MARK = ".book"
"""A file that says whose folder this is: building again deletes what is in it."""
CODE, FILES = "code", "files"
"""Where pages of source code go, and copies of pictures."""
SHOWN = (".py", ".toml", ".sh")
"""What is shown as code."""

_FORMATTER = HtmlFormatter(nowrap=False, cssclass="code")
STYLE = """
:root { color-scheme: light dark; --ink: #1c2126; --paper: #fff; --faint: #667; --line: #d8dde2; --link: #0a58ca;
  --shade: #f5f6f8 }
@media (prefers-color-scheme: dark) { :root { --ink: #dde2e7; --paper: #16191d; --faint: #98a2ad; --line: #363c43;
  --link: #7ab4ff; --shade: #20252b }
  main img { background: #fff }
  pre.code { background: #f0f1f3; color: #1c2126 } }
body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.6 system-ui, sans-serif; display: flex }
nav { flex: 0 0 17rem; padding: 1.5rem; border-right: 1px solid var(--line); font-size: 0.92rem;
  box-sizing: border-box; position: sticky; top: 0; height: 100vh; overflow: auto }
nav ol, nav ul { list-style: none; padding: 0; margin: 0.4rem 0 1.4rem }
nav li { margin: 0.25rem 0 }
nav strong { color: var(--faint); font-weight: 600 }
nav [aria-current] { color: var(--ink); font-weight: 600; text-decoration: none }
main { flex: 1 1 auto; min-width: 0; max-width: 48rem; padding: 1.5rem 2.5rem 5rem; box-sizing: border-box }
main.wide { max-width: none }
a { color: var(--link) }
h1, h2, h3 { line-height: 1.25; margin: 1.8em 0 0.6em }
h1 { margin-top: 0 }
img { max-width: 100%; height: auto }
code { font: 0.88em/1.5 ui-monospace, monospace; background: var(--shade); padding: 0.1em 0.3em; border-radius: 3px }
pre { overflow-x: auto; background: var(--shade); padding: 0.9rem 1rem; border-radius: 5px; line-height: 1.45 }
pre code, pre { font: 0.86rem/1.5 ui-monospace, monospace }
pre code { padding: 0 }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: 0.35rem 0.9rem 0.35rem 0; text-align: left;
  vertical-align: top }
:lang(ko) { word-break: keep-all; overflow-wrap: break-word }
@media (max-width: 55rem) { body { display: block } nav { position: static; height: auto; border: 0 }
  main { padding: 1rem 1.2rem 4rem } }
"""


class Page(NamedTuple):
    """One page of the book."""

    source: Path
    address: PurePosixPath
    """Inside the site."""
    title: str
    language: str


def pages() -> list[Page]:
    """Every page: the path in each language, in its order, then everything else."""
    found = [
        _page(path, language) for language, (folder, _) in LANGUAGES.items() for path in _in_order(DOCS / folder)
    ]
    return found + [_page(path, "en") for path in _in_order(DOCS)]


def build(out: Path) -> list[Path]:
    """Write the site into a folder; every page that was written."""
    if out.exists() and not (out.is_dir() and ((out / MARK).is_file() or not any(out.iterdir()))):
        raise SystemExit(f"{out} is there, and is no site of this book; choose another folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).touch()
    book = pages()
    addresses = {page.source: page.address for page in book}
    code: dict[Path, PurePosixPath] = {}
    copied: dict[Path, PurePosixPath] = {}
    written = []
    for page in book:
        body = _body(page, addresses, code, copied)
        written.append(_write(out, page, body, book))
    for source, address in code.items():
        name = source.relative_to(ROOT).as_posix()
        page = Page(source, address, name, "en")
        body = f"<h1>{html.escape(name)}</h1>\n{_highlighted(source.read_text(encoding='utf-8'), source.name)}"
        written.append(_write(out, page, body, book, wide=True))
    for source, address in copied.items():
        target = out / address
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    (out / "style.css").write_text(STYLE + _FORMATTER.get_style_defs(".code"), encoding="utf-8")
    first = next(page for page in book if page.source == DOCS / LANGUAGES["en"][0] / "README.md")
    (out / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>heedful</title>'
        f'<meta http-equiv="refresh" content="0; url={first.address}"><a href="{first.address}">heedful</a>\n',
        encoding="utf-8",
    )
    return written


def _in_order(folder: Path) -> list[Path]:
    """The pages of a folder: what introduces it, then by name."""
    return sorted(folder.glob("*.md"), key=lambda path: (path.name != "README.md", path.name))


def _page(path: Path, language: str) -> Page:
    address = PurePosixPath(path.relative_to(DOCS).with_suffix(".html").as_posix())
    if path.name == "README.md":
        address = address.with_name("index.html")
    heading = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return Page(path, address, heading[1].replace("`", "") if heading else path.stem, language)


def _body(
    page: Page,
    addresses: dict[Path, PurePosixPath],
    code: dict[Path, PurePosixPath],
    copied: dict[Path, PurePosixPath],
) -> str:
    """A page as HTML. What it links to is noted: code to show, files to copy."""
    reader = MarkdownIt("commonmark", {"highlight": _block}).enable("table")
    tokens = reader.parse(page.source.read_text(encoding="utf-8"))
    for token in _every(tokens):
        for name in ("href", "src"):
            if link := token.attrs.get(name):
                token.attrs[name] = _link(page, str(link), addresses, code, copied)
    return reader.renderer.render(tokens, reader.options, {})


def _link(
    page: Page,
    link: str,
    addresses: dict[Path, PurePosixPath],
    code: dict[Path, PurePosixPath],
    copied: dict[Path, PurePosixPath],
) -> str:
    """Where a link of a page leads in the site."""
    path, mark, fragment = link.partition("#")
    if not path or re.match(r"[a-z]+:", link):
        return link
    target = Path(os.path.normpath(page.source.parent / unquote(path)))
    if not target.exists():
        raise SystemExit(f"{page.source}: {link} leads nowhere")
    if target in addresses:
        address = addresses[target]
    elif target.suffix in SHOWN:
        address = code.setdefault(target, PurePosixPath(CODE) / f"{target.relative_to(ROOT).as_posix()}.html")
    elif target.is_file():
        address = copied.setdefault(target, PurePosixPath(FILES) / target.relative_to(ROOT).as_posix())
    else:
        raise SystemExit(f"{page.source}: {link} is a folder; link to a file in it")
    return _from(page.address, address) + mark + fragment


def _from(page: PurePosixPath, target: PurePosixPath) -> str:
    """A relative address, so that the site works wherever it lies."""
    return PurePosixPath(os.path.relpath(target, page.parent)).as_posix()


def _every(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _every(token.children or [])


def _block(text: str, language: str, _attributes: str) -> str:
    """A fenced block: in colours where its language is known."""
    return _highlighted(text, None, language) if language and language != "text" else ""


def _highlighted(text: str, name: str | None, language: str = "") -> str:
    try:
        lexer = get_lexer_for_filename(name) if name else get_lexer_by_name(language)
    except ClassNotFound:
        return f"<pre>{html.escape(text)}</pre>"
    return (
        highlight(text, lexer, _FORMATTER)
        .replace('<div class="code"><pre>', '<pre class="code">')
        .replace("</pre></div>", "</pre>")
    )


def _write(out: Path, page: Page, body: str, book: list[Page], *, wide: bool = False) -> Path:
    style = _from(page.address, PurePosixPath("style.css"))
    text = (
        f'<!doctype html>\n<html lang="{page.language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(page.title)}</title>\n"
        f'<link rel="stylesheet" href="{style}">\n</head>\n<body>\n{_navigation(page, book)}\n'
        f'<main class="{"wide" if wide else "text"}">\n{body}</main>\n</body>\n</html>\n'
    )
    path = out / page.address
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _navigation(page: Page, book: list[Page]) -> str:
    """The path in the page's language, the same page in others, and what else there is."""
    learn = [other for other in book if _of_path(other) and other.language == page.language]
    rest = [other for other in book if not _of_path(other)]
    twins = [other for other in book if _of_path(other) and other.language != page.language and _twin(other, page)]
    parts = [f"<ol>{''.join(_entry(page, other, other.title) for other in learn)}</ol>"]
    if rest:
        parts.append(f"<ul>{''.join(_entry(page, other, other.title) for other in rest)}</ul>")
    if twins:
        names = "".join(_entry(page, twin, LANGUAGES[twin.language][1]) for twin in twins)
        parts.insert(0, f"<ul>{names}</ul>")
    return f"<nav><strong>heedful</strong>{''.join(parts)}</nav>"


def _of_path(page: Page) -> bool:
    return page.address.parts[0] == LANGUAGES["en"][0]


def _twin(other: Page, page: Page) -> bool:
    return _of_path(page) and other.address.name == page.address.name


def _entry(page: Page, other: Page, title: str) -> str:
    here = ' aria-current="page"' if other.address == page.address else ""
    return f'<li><a href="{_from(page.address, other.address)}"{here}>{html.escape(title)}</a></li>'


def main() -> None:
    """Build the site."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    out = parser.parse_args().out
    count = len(build(out))
    print(f"wrote {count} pages; open {out / 'index.html'}")


if __name__ == "__main__":
    main()
