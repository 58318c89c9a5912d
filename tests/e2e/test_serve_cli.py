"""`heedful serve` as a user starts and ends it."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import torch

from heedful.data import tokenizer as wordpiece
from heedful.formats.huggingface import load_model, save_model
from heedful.models.bert import BertForPretraining, initialise


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """The folder of a small model that fills blanks."""
    folder = tmp_path_factory.mktemp("writers") / "writer"
    tokenizer, config = wordpiece.load(encoder), load_model(encoder).config
    model = BertForPretraining(config)
    initialise(model, 0.3, torch.Generator().manual_seed(2))
    save_model(model, folder)
    wordpiece.save(tokenizer, folder, config.max_length)
    return folder


@contextmanager
def started(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address when it is warm."""
    process = subprocess.Popen(
        [sys.executable, "-m", "heedful", "serve", *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HEEDFUL_API_KEY": ""},
    )
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("loading ")
        found = re.fullmatch(r"serving \S+ at (http://\S+:\d+)\n", second)
        assert found is not None, (first, second)
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=20)


def test_sigterm_lets_the_server_finish_and_it_ends_with_0(writer: Path):
    asked = {"inputs": "the river", "tokens": 31, "order": "gibbs", "steps": 17}
    with started(writer, "--log-format", "json") as (process, address), ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(httpx.post, f"{address}/generate", json=asked, timeout=60) for _ in range(2)]
        while "heedful_requests_active 2.0" not in httpx.get(f"{address}/metrics").text:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        answers = [one.result() for one in slow]
        assert [one.status_code for one in answers] == [200, 200]
        assert answers[0].json() == answers[1].json()
        assert process.wait(20) == 0
        assert process.stderr is not None
        said = process.stderr.read()
        assert '"event": "draining", "requests": 2' in said
        assert "river" not in said
        assert "Traceback" not in said


SLOW = """
import sys, time
from heedful.cli import main
from heedful.serve import server
real = server.open_model

def slowly(*given):
    found = real(*given) if {loads} else None
    if found is not None:
        engine = found.predictor.engine
        vectors = engine.vectors
        engine.vectors = lambda *more: time.sleep(300) or vectors(*more)
        return found
    time.sleep(300)

server.open_model = slowly
main(sys.argv[1:])
"""
"""A server that takes minutes to load its model, or minutes to answer."""


@contextmanager
def slow(writer: Path, *, loads: bool) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Such a server, and its address when it listens, or is warm."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW.format(loads=loads), "serve", str(writer), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HEEDFUL_API_KEY": ""},
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(1 + loads)]
        found = re.search(r"http://\S+:\d+", lines[-1])
        assert found is not None, lines
        yield process, found[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=20)


def test_sigterm_while_a_model_is_loaded_ends_it_soon_with_0(writer: Path):
    with slow(writer, loads=False) as (process, address):
        assert httpx.get(f"{address}/health").status_code == 503
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_the_second_signal_ends_it_at_once(writer: Path):
    with slow(writer, loads=True) as (process, address), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(httpx.post, f"{address}/embed", json={"inputs": "the river"}, timeout=60)
        while "heedful_requests_active 1.0" not in httpx.get(f"{address}/metrics").text:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        while httpx.get(f"{address}/metrics").text.count("heedful_ready 0.0") == 0:
            time.sleep(0.02)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 1
        with pytest.raises(httpx.HTTPError):
            asked.result()


def test_ctrl_c_ends_it_too_and_beyond_loopback_it_warns(writer: Path):
    with started(writer, "--host", "0.0.0.0") as (process, address):
        assert httpx.get(address.replace("0.0.0.0", "127.0.0.1") + "/health").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert process.stderr.readline().startswith("heedful: anyone who reaches this machine can use the server")


def test_a_key_and_a_name(writer: Path, tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text("open-sesame\n", encoding="ascii")
    with started(f"org/mine={writer}", "--key-file", keys) as (_, address):
        asked = {"inputs": "the [MASK]", "model": "org/mine"}
        assert httpx.post(f"{address}/fill", json=asked).status_code == 401
        key = {"authorization": "Bearer open-sesame"}
        assert httpx.post(f"{address}/fill", json=asked, headers=key).status_code == 200
        assert httpx.get(f"{address}/v1/models/org/mine", headers=key).json()["id"] == "org/mine"


def test_mistakes_are_told_in_one_line(shell, writer: Path, tmp_path: Path, monkeypatch):
    monkeypatch.delenv("HEEDFUL_API_KEY", raising=False)
    assert "no such folder" in shell.fails("serve", tmp_path / "none")
    assert "two models would be called 'writer'" in shell.fails("serve", writer, writer)
    assert "at least one" in shell.fails("serve")
    assert "key file" in shell.fails("serve", writer, "--key-file", tmp_path / "none")
    assert "is empty" in shell.fails("serve", writer, "--key-file", shell.file("keys", ""))
    assert "no origin" in shell.fails("serve", writer, "--cors", "example.org")
    assert "max-inputs 0" in shell.fails("serve", writer, "--max-inputs", "0")
    assert "not known" in shell.fails("serve", writer, "--host", "no.such.host.invalid")
    assert "65535" in shell.fails("serve", writer, "--port", "70000")
    assert "run" in shell.fails("serve", writer, "--runs", tmp_path / "none")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is taken" in shell.fails("serve", writer, "--port", str(port))


def test_a_folder_that_can_not_be_loaded_ends_the_server(shell, writer: Path, tmp_path: Path):
    (tmp_path / "broken").mkdir()
    code, _, said = shell.run("serve", writer, tmp_path / "broken", "--port", "0")
    assert code == 2
    assert said.startswith("heedful: ")
    assert said.count("\n") == 1
    assert "broken" in said
    code, _, said = shell.run("serve", writer, "--engine", "onnx", "--port", "0")
    assert code == 2
    assert "no ONNX file" in said


def test_without_the_extra_it_says_what_to_install(shell, writer: Path, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "uvicorn" else real(name, *more)
    )
    said = shell.fails("serve", writer)
    assert said == "serving needs uvicorn; install it with `pip install 'heedful[serve]'`"
