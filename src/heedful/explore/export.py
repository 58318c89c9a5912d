"""One self-contained page for a lecture or a paper: the explorer's page with its modules and answers inside.

It asks no server and needs no network. Modules become data URLs in the page's import map; plotly.js, which is larger
than all the rest, is there only where a chart is drawn.
"""

import base64
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from heedful.durable import write_file
from heedful.errors import UserError
from heedful.explore.about import About
from heedful.explore.answers import MOST_BYTES, collect
from heedful.explore.explorer import Explorer
from heedful.explore.numbers import written

PAGE = Path(__file__).parent / "static"
IMPORT_MAP = '{"imports": {"heedful/": "./static/"}}'
STYLE = re.compile(r'<link rel="stylesheet" href="static/(.*?)">')
SCRIPT = '<script type="module" src="static/app.js"></script>'
LANGUAGES = ("en", "ko")
CHARTS = ("positions", "training")
"""Views that draw with plotly."""


def export(explorer: Explorer, path: Path, about: About, most_bytes: int = MOST_BYTES) -> tuple[str, str | None]:
    """Write the page; a line that says so, and one on what was left out, if anything was."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{path} does not end in .html, as pages do; try {path.name}.html")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file")
    answers = collect(explorer, about, most_bytes)
    content = page(answers.found).encode()
    write_file(path, content)
    parts = ", ".join(f"{count:,} {kind}" for kind, count in answers.left_out.items())
    left = f"left out, so that the page stays small: {parts}; a shorter text leaves room for more" if parts else None
    return f"wrote {path}: {len(answers.found):,} answers, {len(content) / 1e6:.1f} MB", left


def page(answers: dict[str, Any]) -> str:
    """The page with everything inside."""
    texts = {
        f"GET /static/text.{code}.json": json.loads((PAGE / f"text.{code}.json").read_text(encoding="utf-8"))
        for code in LANGUAGES
    }
    views = {view for model in answers["GET /explore/models"] for view in model["views"]}
    charts = f"<script>{_plotly()}</script>\n  " if views & set(CHARTS) else ""
    carried = f'<script id="exported" type="application/json">{embedded({**answers, **texts})}</script>\n  '
    whole = STYLE.sub(
        lambda link: f"<style>\n{(PAGE / link[1]).read_text(encoding='utf-8')}</style>",
        (PAGE / "index.html").read_text(encoding="utf-8"),
    )
    for old, new in (
        (IMPORT_MAP, json.dumps({"imports": modules()})),
        (SCRIPT, f'{charts}{carried}<script type="module">import "heedful/app.js";</script>'),
    ):
        assert whole.count(old) == 1, f"the page has changed: {old}"
        whole = whole.replace(old, new)
    return whole


def modules() -> dict[str, str]:
    """Every module of the page by the name that others import it by."""
    return {
        f"heedful/{path.relative_to(PAGE).as_posix()}": "data:text/javascript;base64,"
        + base64.b64encode(path.read_bytes()).decode()
        for path in sorted(PAGE.rglob("*.js"))
    }


def embedded(table: dict[str, Any]) -> str:
    """JSON that no HTML parser takes for markup."""
    return written(table).replace("<", "\\u003c")


def _plotly() -> str:
    """plotly.js; no parser may see the end of its script before it is there."""
    file = plotly_file()
    if file is None:
        raise UserError("charts need plotly; install it with `pip install 'heedful[serve]'`")
    return file.read_text(encoding="utf-8").replace("</script", "<\\/script")


def plotly_file() -> Path | None:
    """plotly.js as the installed package has it, which need not be imported for that."""
    found = find_spec("plotly")
    for folder in (found.submodule_search_locations or []) if found is not None else []:
        file = Path(folder) / "package_data" / "plotly.min.js"
        if file.is_file():
            return file
    return None
