"""`heedful explore`, as it is typed."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from PIL import Image

from heedful.commands import exploring
from heedful.commands.exploring import link
from heedful.explore.about import About
from heedful.formats.vit import save_vit
from heedful.models.vit import ViTClassifier, ViTConfig
from heedful.serve.logs import Log
from tests.e2e.conftest import Shell


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.e2e.browsing import page_models

    return page_models(tmp_path_factory.mktemp("models"))["words"]


def test_a_page_is_written_without_a_server(shell: Shell, words: Path, tmp_path: Path):
    path = tmp_path / "page.html"
    said = shell.goes_on("explore", f"mine={words}", "--text", "The old river.", "--export", path)
    assert re.fullmatch(rf"wrote {re.escape(str(path))}: \d+ answers, \d+\.\d MB\n", said)
    assert '"name":"mine"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--export", "page.html"],
            "--export writes a page about a text or an image; say which: --text TEXT or --image FILE",
        ),
        (["--pair", "b"], "--pair stands beside a text; give that too: --text TEXT"),
        (["--image", "nowhere.png"], "nowhere.png is no file; name a png or jpeg"),
        (["--text", "a", "--export", "page.pdf"], "page.pdf does not end in .html, as pages do; try page.pdf.html"),
        (["--text", " ", "--export", "page.html"], "the text is empty; write something in it"),
        (
            ["--text", "a", "--export", "page.html", "--vectors", "nowhere"],
            "--vectors are for the view of meaning, which --export has no answers for; leave one out",
        ),
        (
            ["--vectors", "nowhere"],
            "nowhere does not exist; name a folder of `heedful train-vectors`, or a word2vec text file",
        ),
        (["--runs", "nowhere"], "nowhere is not the folder of a run: there is no such folder"),
    ],
)
def test_mistakes_are_one_line(shell: Shell, words: Path, arguments: list[str], said: str):
    assert shell.fails("explore", words, *arguments) == said


def test_what_no_model_can_look_at_is_not_left_out_silently(shell: Shell, words: Path, tmp_path: Path):
    vit, picture = tmp_path / "vit", tmp_path / "a.png"
    config = ViTConfig(image_size=6, patch_size=3, layers=1, dim=14, heads=2, ffn_dim=17)
    save_vit(ViTClassifier(config, ("red", "green")), vit)
    Image.new("RGB", (8, 8)).save(picture)
    said = shell.fails("explore", words, "--text", "a", "--image", picture, "--export", "page.html")
    assert said == "no model that was named looks at images; leave --image out, or name a ViT"
    said = shell.fails("explore", vit, "--text", "a", "--export", "page.html")
    assert said == "no model that was named reads text; leave --text out, and give --image FILE"


def test_a_folder_that_is_not_there(shell: Shell):
    assert "nowhere is not a model folder" in shell.fails("explore", "nowhere", "--no-browser")


def test_a_link_restores_what_was_asked():
    assert link(About()) == "/"
    assert link(About(text="a & b?")) == "/#attention?text=a%20%26%20b%3F"
    assert link(About(text="하나", pair="one")) == "/#attention?text=%ED%95%98%EB%82%98&pair=one"
    assert link(About(image=b"\xff\xfe\xfb")) == "/#images?image=__77"


def test_the_usual_port_or_any_other(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(exploring, "PORT", taken.getsockname()[1])
        with exploring._listen(None) as found:
            assert found.getsockname()[1] not in (0, exploring.PORT)


def test_a_browser_is_opened_where_there_is_a_screen(monkeypatch: pytest.MonkeyPatch):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    exploring._open("http://here")
    monkeypatch.setenv("DISPLAY", ":0")
    exploring._open("http://there").join()
    assert opened == ["http://there"]


def test_a_page_and_its_models_are_served(words: Path, tmp_path: Path):
    """In a process of its own, which SIGTERM ends well, and which does not tell of every request."""
    (tmp_path / "vectors.txt").write_text("2 2\nriver 1 0\nold 1 1\n")
    command = [sys.executable, "-m", "heedful", "explore", str(words), "--port", "0", "--no-browser", "--text", "a b"]
    command += ["--vectors", str(tmp_path)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "loading words\n"
            said = process.stdout.readline()
            found = re.fullmatch(r"explore words at (http://127\.0\.0\.1:\d+)/#attention\?text=a%20b \(.*\)\n", said)
            assert found, said
            with urllib.request.urlopen(f"{found[1]}/explore/models") as answer:
                assert [one["name"] for one in json.load(answer)] == ["words"]
            asked = {"model": "words", "word": "river", "sentences": ["the old river"]}
            body = json.dumps(asked).encode()
            request = urllib.request.Request(
                f"{found[1]}/explore/meaning", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as answer:
                assert [one["word"] for one in json.load(answer)["word_vectors"]["neighbours"]] == ["old"]
            with urllib.request.urlopen(found[1]) as answer:
                assert b"heedful" in answer.read()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_what_goes_wrong_is_still_told():
    said = io.StringIO()
    log = Log("text", quiet=True, file=said)
    log.write("request", path="/explore/models")
    log.write("busy", "warning")
    log.failure("broken", ValueError("secret"))
    assert [line.split()[1:3] for line in said.getvalue().splitlines()] == [["warning", "busy"], ["error", "broken"]]
