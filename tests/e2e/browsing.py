"""The explorer's page as somebody reads it: a server with very small models, and a browser that looks at it."""

import base64
import io
import json
import re
import socket
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI
from PIL import Image

import heedful
from heedful.data import tokenizer as wordpiece
from heedful.data.tokenizer import SPECIAL
from heedful.formats.huggingface import save_model
from heedful.formats.word2vec import WordVectors
from heedful.models.bert import Bert, BertConfig, BertForPretraining, initialise
from heedful.serve.app import build
from heedful.serve.guard import Desk
from heedful.serve.keys import Keys
from heedful.serve.limits import Limits
from heedful.serve.logs import Log
from heedful.serve.metrics import Meters
from heedful.serve.models import Loaded, Models

STATIC = Path(heedful.__file__).parent / "explore" / "static"
WORDS = "the animal didn ' t cross street because it was too tired . capital of france is paris a river ##s old"
SENTENCE = "The animal didn't cross the street because it was too tired."

LONG = " ".join(["the old river is tired ."] * 83)
"""500 tokens with the marks."""
PATIENCE = 500
"""Milliseconds: as long may a page be deaf before a reader thinks that it hangs."""


def page_models(folder: Path, seed: int = 7) -> dict[str, Path]:
    """A BERT that fills blanks, and an encoder that turns its queries and keys."""
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS.split()]) + "\n", encoding="utf-8")
    tokenizer = wordpiece.load(folder)
    sizes = {"vocab_size": tokenizer.vocab_size, "layers": 2, "dim": 24, "heads": 3, "ffn_dim": 37}
    models: dict[str, Bert | BertForPretraining] = {
        "words": BertForPretraining(BertConfig(**sizes, max_length=512)),  # pyrefly: ignore
        "rotary": Bert(BertConfig(**sizes, max_length=31, positions="rotary")),  # pyrefly: ignore
    }
    for name, model in models.items():
        initialise(model, 0.5, torch.Generator().manual_seed(seed))
        save_model(model.eval(), folder / name)
        wordpiece.save(tokenizer, folder / name, model.config.max_length)
    return {name: folder / name for name in models}


class Host:
    """A server in a thread of this process, on a port of its own, that can be stopped and started again."""

    def __init__(
        self,
        models: Mapping[str, Any],
        key: str | None = None,
        runs: Sequence[Path] = (),
        vectors: WordVectors | None = None,
    ) -> None:
        self.models = models
        self.vectors = vectors
        self.key = key
        self.runs = runs
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.app = page_app(self.models, self.key, self.runs, self.vectors)
        config = uvicorn.Config(
            self.app,
            port=self.port,
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            assert self.thread.is_alive()
            self.thread.join(0.02)
        return self

    def __exit__(self, *error: object) -> None:
        self.server.should_exit = True
        self.thread.join()

    def ask(self, path: str, **body: Any) -> Any:
        """The answer of the API itself."""
        request = urllib.request.Request(
            self.url + path,
            json.dumps(body).encode() if body else None,
            {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})},
        )
        with urllib.request.urlopen(request) as response:
            return json.load(response)


def page_app(
    models: Mapping[str, Any], key: str | None, runs: Sequence[Path], vectors: WordVectors | None = None
) -> FastAPI:
    """The app of `heedful serve`, with models that are loaded already."""
    loaded = Models()
    for name, predictor in models.items():
        loaded.add(Loaded(name=name, predictor=predictor, lane=None, can=frozenset()))
    desk = Desk(loaded, Limits(), Keys([key] if key else []), Meters(), Log(file=io.StringIO()))
    desk.ready = True
    return build(desk, runs=runs, vectors=vectors)


def numbers(packed: Mapping[str, Any]) -> np.ndarray:
    """An array as the API sends it."""
    data = base64.b64decode(packed["data"])
    return np.frombuffer(data, np.dtype(packed["dtype"]).newbyteorder("<")).reshape(packed["shape"])


def percent(value: float) -> str:
    """A share as the page says it."""
    return "< 0.1 %" if 0 < value < 0.0005 else f"{100 * value:.1f} %"


def colours(image: Image.Image) -> int:
    """How many there are."""
    return len(np.unique(np.asarray(image).reshape(-1, 3), axis=0))


class Reader:
    """Somebody before the page, who notes what the console says and who is asked for anything."""

    def __init__(self, browser: Any, host: Host, **options: Any) -> None:
        self.host = host
        self.said: list[str] = []
        self.asked: list[str] = []
        self.expected: list[str] = []
        """Patterns of what the console may say."""
        self.context = browser.new_context(
            # The page's policy forbids eval, with which Playwright waits; test_page_policy.py keeps it.
            **{"viewport": {"width": 1280, "height": 900}, "locale": "en-US", "bypass_csp": True, **options}
        )
        self.context.set_default_timeout(10_000)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, *rest: object) -> None:
        self.context.close()
        if kind is None:
            self.check()

    def check(self) -> None:
        """Nothing unexpected was said on the console, and nobody else was asked for anything."""
        said = [line for line in self.said if not any(re.search(one, line) for one in self.expected)]
        elsewhere = [url for url in self.asked if not url.startswith((self.host.url, "data:", "blob:"))]
        self.said, self.asked, self.expected = [], [], []
        assert said == []
        assert elsewhere == []

    def go(self, view: str = "", **values: Any) -> None:
        """Open a view by its link, and wait until it stands still."""
        query = urlencode({key: str(value) for key, value in values.items()})
        self.page.goto(f"{self.host.url}/#{view}{'?' if query else ''}{query}")
        self.settle()

    def settle(self) -> None:
        """Wait until the view has followed the address."""
        self.page.wait_for_function(
            """() => {
              const view = document.querySelector(".view:not([aria-busy]):not(:empty)");
              return view && view.dataset.shows === location.hash;
            }"""
        )

    def click(self, selector: str) -> None:
        """Click, and wait for what comes of it."""
        self.page.click(selector)
        self.settle()

    def text(self, selector: str) -> str:
        """What stands there."""
        return self.page.inner_text(selector)

    def texts(self, selector: str) -> list[str]:
        """What stands in each of several places."""
        return [one.strip() for one in self.page.locator(selector).all_text_contents()]

    def values(self) -> dict[str, str]:
        """What the address says."""
        return self.page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.split('?')[1] ?? ''))")

    def painted(self, selector: str) -> int:
        """How many colours a canvas shows."""
        return self.page.evaluate(
            """selector => {
              const canvas = document.querySelector(selector);
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              return new Set(new Uint32Array(data.buffer)).size;
            }""",
            selector,
        )

    def watch(self) -> None:
        """Note from now on how long the page does not listen: tasks that hold everything up."""
        self.page.evaluate(
            """() => {
              window.longest = 0;
              const note = list => list.getEntries().forEach(one => {
                window.longest = Math.max(window.longest, one.duration);
              });
              window.watching = new PerformanceObserver(note);
              window.watching.observe({ entryTypes: ["longtask"] });
              window.note = note;
            }"""
        )

    def longest(self) -> float:
        """Milliseconds of the longest such moment."""
        return self.page.evaluate(
            """async () => {
              await new Promise(heard => setTimeout(heard, 50));
              window.note({ getEntries: () => window.watching.takeRecords() });
              window.watching.disconnect();
              return window.longest;
            }"""
        )

    def seen(self) -> list[Any]:
        """All that a view shows: words, what is filled in, what is chosen, and every picture."""
        return self.page.evaluate(
            """() => {
              const view = document.querySelector(".view");
              const each = (selector, tell) => [...view.querySelectorAll(selector)].map(tell);
              return [
                view.innerText,
                each("input:not([type=file], [type=checkbox]), select, textarea", one => one.value),
                each("input[type=checkbox]", one => one.checked),
                each("[aria-pressed=true]", one => one.outerHTML),
                each("canvas", one => one.toDataURL()),
                each("[data-weight]", one => one.outerHTML),
              ];
            }"""
        )

    def check_what(self) -> None:
        """The view says what it shows: in some sentences, with a paper and files that are there."""
        if not self.page.evaluate("document.querySelector('.what').open"):
            self.page.click(".what summary")
        files = self.texts(".what code")
        assert files
        assert [file for file in files if not (STATIC.parents[3] / file).is_file()] == []
        assert re.search(r"\b[A-Z]\w+ (et al\.|& [A-Z]\w+) \d{4}", self.text(".what"))
        assert len(self.text(".what").split()) > 60

    def nameless(self) -> list[str]:
        """What can be reached by keyboard and does not say what it is."""
        return self.page.eval_on_selector_all(
            "button, select, input, textarea, a, [role=button], canvas[tabindex]",
            """all => all.filter(one => !(one.textContent.trim() || one.getAttribute("aria-label") || one.title ||
               one.labels?.[0]?.textContent.trim())).map(one => one.outerHTML)""",
        )

    def saved(self, picture: str, folder: Path) -> tuple[str, Image.Image]:
        """A picture of the page as the files that its buttons save: the SVG's text, and the PNG."""
        for ending in ("svg", "png"):
            with self.page.expect_download() as download:
                self.page.click(f"[data-picture={picture}] .saves button:text-is('{ending.upper()}')")
            assert download.value.suggested_filename == f"heedful-{picture}.{ending}"
            download.value.save_as(folder / f"{picture}.{ending}")
        with Image.open(folder / f"{picture}.png") as image:
            return (folder / f"{picture}.svg").read_text(encoding="utf-8"), image.convert("RGB")
