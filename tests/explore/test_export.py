import base64
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from heedful.errors import UserError
from heedful.explore.about import About
from heedful.explore.explorer import Explorer, Opened
from heedful.explore.export import PAGE, embedded, export, modules, page
from heedful.predict import Predictor

ABOUT = About(text="the animal was tired.")


@pytest.fixture
def explorer(bert: Callable[[str], Predictor]) -> Explorer:
    return Explorer(Opened({"bert": bert("published")}))


def test_the_page_has_everything_inside(explorer: Explorer, tmp_path: Path):
    path = tmp_path / "page.html"
    done, left = export(explorer, path, ABOUT)
    content = path.read_text(encoding="utf-8")
    assert done.startswith(f"wrote {path}: ")
    assert left is None
    outside = re.sub(r"<script>.*?</script>", "", content, flags=re.DOTALL)  # plotly
    assert "static/" not in re.sub(r'"data:[^"]*"|<script id="exported".*?</script>', "", outside)
    block = re.search(r'<script id="exported" type="application/json">(.*?)</script>', content, re.DOTALL)
    assert block is not None
    found = json.loads(block[1])
    assert found["GET /explore/models"][0]["name"] == "bert"
    assert found["GET /static/text.ko.json"] == json.loads((PAGE / "text.ko.json").read_text(encoding="utf-8"))
    assert content.count("</script>") == content.count("<script")
    assert all(path.read_text(encoding="utf-8") in content for path in PAGE.rglob("*.css"))


def test_modules_are_named_as_they_are_imported():
    found = modules()
    for name, url in found.items():
        source = base64.b64decode(url.removeprefix("data:text/javascript;base64,")).decode()
        assert set(re.findall(r'^import .*?"(.*?)"', source, re.MULTILINE)) <= set(found), name
        assert source.encode() == (PAGE / name.removeprefix("heedful/")).read_bytes()
    assert "heedful/views/attention.js" in found


def test_plotly_is_there_only_for_charts(explorer: Explorer):
    models = [{"name": "bert", "views": ["attention"]}]
    without = page({"GET /explore/models": models})
    assert len(without) < 500_000
    charts = page({"GET /explore/models": [{"name": "bert", "views": ["attention", "positions"]}]})
    assert len(charts) - len(without) > 1_000_000


def test_text_can_not_end_the_script():
    said = embedded({"text": "</script><!-- <script>", "한": "글"})
    assert "<" not in said
    assert json.loads(said) == {"text": "</script><!-- <script>", "한": "글"}


def test_what_was_left_out_is_said(explorer: Explorer, tmp_path: Path):
    _, left = export(explorer, tmp_path / "page.html", ABOUT, most_bytes=90_000)
    assert left is not None
    assert re.search(r"left out, so that the page stays small: \d+ words inside heads; a shorter text", left)


def test_only_a_page_can_be_written(explorer: Explorer, tmp_path: Path):
    with pytest.raises(UserError, match=r"does not end in \.html, as pages do; try page\.pdf\.html"):
        export(explorer, tmp_path / "page.pdf", ABOUT)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UserError, match="is a folder; give the name of a file"):
        export(explorer, tmp_path / "folder.html", ABOUT)


def test_numbers_that_are_none_are_a_users_mistake(
    explorer: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(explorer, "positions", lambda model: {"by_distance": [0.5, float("nan")]})
    with pytest.raises(
        UserError, match="the model's numbers are too large or none at all here; try --precision fp32"
    ):
        export(explorer, tmp_path / "page.html", ABOUT)
    assert not (tmp_path / "page.html").exists()
