"""docs/ as a site: pages in order, links that lead somewhere, nothing asked of the network."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {
    "docs/results.md": "# Results\n\n[back](learn/README.md)\n",
    "docs/learn/README.md": "# Start\n\n[first](01-one.md), [elsewhere](https://example.org/), [part](#part)\n",
    "docs/learn/01-one.md": '# 1. `One` & all\n\n![a](pictures/a.png)\n\n```python\nprint("<x>")\n```\n\n'
    "```text\n<x>\n```\n\n[code](../../src/one.py) [two](02-two.md#there)\n\n| a | b |\n|---|--:|\n| √d | 2 |\n",
    "docs/learn/02-two.md": "# 2. Two\n\n[results](../results.md)\n",
    "docs/learn/ko/README.md": "# 처음\n\n[하나](01-one.md)\n",
    "docs/learn/ko/01-one.md": "# 1. 하나\n\n![a](../pictures/a.png) [code](../../../src/one.py)\n",
    "src/one.py": "def one() -> int:\n    return 1 < 2\n",
}


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("book", ROOT / "docs" / "book.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The builder over a small project of its own."""
    module = loaded()
    for name, text in PAGES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "project" / "docs" / "learn" / "pictures").mkdir()
    (tmp_path / "project" / "docs" / "learn" / "pictures" / "a.png").write_bytes(b"picture")
    monkeypatch.setattr(module, "ROOT", tmp_path / "project")
    monkeypatch.setattr(module, "DOCS", tmp_path / "project" / "docs")
    return module


def asked(page: str) -> list[str]:
    """What a browser fetches to show a page."""
    tags = re.findall(r"<(?:img|link|script|iframe|source)\b[^>]*>", page)
    return [link for tag in tags for link in re.findall(r'(?:src|href)="([^"]*)"', tag)]


def check_site(out: Path) -> int:
    """Every address of every page leads to a file, and nothing is fetched from elsewhere; how many were checked."""
    checked = 0
    for path in out.rglob("*.html"):
        page = path.read_text("utf-8")
        assert [link for link in asked(page) if ":" in link] == []
        assert "<script" not in page
        for link in re.findall(r'(?:href|src)="([^"]*)"', page):
            if not re.match(r"[a-z]+:|#", link):
                assert (path.parent / unquote(link.partition("#")[0])).is_file(), (path, link)
                checked += 1
    assert not re.search(r"url\(|@import", (out / "style.css").read_text("utf-8"))
    return checked


def test_every_link_leads_to_a_file_and_nothing_leaves_the_site(book: ModuleType, tmp_path: Path):
    written = book.build(tmp_path / "site")
    assert len(written) == 7  # three English, two Korean, the results, one of code
    assert check_site(tmp_path / "site") > 30
    assert (tmp_path / "site" / "index.html").is_file()


def test_pages_stand_in_order_in_their_own_language(book: ModuleType, tmp_path: Path):
    book.build(tmp_path / "site")
    english = (tmp_path / "site/learn/01-one.html").read_text("utf-8").partition("</nav>")[0]
    assert re.findall(r'href="([^"]+)"', english.partition("<nav>")[2]) == [
        "ko/01-one.html",
        "index.html",
        "01-one.html",
        "02-two.html",
        "../results.html",
    ]
    assert re.findall(r'href="([^"]+)" aria-current="page"', english) == ["01-one.html"]
    assert "1. One &amp; all" in english
    korean = (tmp_path / "site/learn/ko/01-one.html").read_text("utf-8").partition("</nav>")[0]
    assert '<html lang="ko">' in korean
    assert re.findall(r">([^<>\n]+)</a>", korean) == ["English", "처음", "1. 하나", "Results"]
    assert "한국어" not in (tmp_path / "site/learn/02-two.html").read_text("utf-8")  # it has no Korean twin


def test_what_a_page_holds_is_kept(book: ModuleType, tmp_path: Path):
    book.build(tmp_path / "site")
    page = (tmp_path / "site/learn/01-one.html").read_text("utf-8")
    assert (tmp_path / "site/learn" / re.findall(r'<img src="([^"]+)"', page)[0]).read_bytes() == b"picture"
    assert "<td>√d</td>" in page
    assert '<pre class="code">' in page
    assert "&lt;x&gt;" in page
    assert "<x>" not in page
    assert 'href="02-two.html#there"' in page
    assert 'href="https://example.org/"' in (tmp_path / "site/learn/index.html").read_text("utf-8")
    code = (tmp_path / "site/code/src/one.py.html").read_text("utf-8")
    assert re.sub(r"<[^>]+>", "", code).count("def one() -&gt; int:") == 1


def test_building_again_gives_the_same_and_leaves_nothing_old(book: ModuleType, tmp_path: Path):
    out = tmp_path / "site"
    book.build(out)
    first = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (out / "learn" / "old.html").write_text("old")
    book.build(out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == first


def test_a_folder_of_somebody_else_is_left_alone(book: ModuleType, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine" / "style.css"  # another site, which has one too
    file.write_text("dear")
    for out in (tmp_path / "mine", file):
        with pytest.raises(SystemExit, match="no site of this book"):
            book.build(out)
    assert file.read_text() == "dear"


@pytest.mark.parametrize(("link", "trouble"), [("03-none.md", "leads nowhere"), ("pictures", "is a folder")])
def test_a_link_that_leads_nowhere_is_named(book: ModuleType, tmp_path: Path, link: str, trouble: str):
    (book.DOCS / "learn" / "02-two.md").write_text(f"# 2\n\n[x]({link})\n")
    with pytest.raises(SystemExit, match=rf"02-two.md: {link} {trouble}"):
        book.build(tmp_path / "site")


def test_the_real_book(tmp_path: Path):
    written = loaded().build(tmp_path / "site")
    assert len(written) > 30
    assert check_site(tmp_path / "site") > 500
