"""A server in a thread of this process, with a very small model of every kind."""

import asyncio
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from heedful.data import tokenizer as wordpiece
from heedful.formats.huggingface import load_model, save_model
from heedful.models.bert import BertForPretraining, initialise
from heedful.models.heads import Head
from heedful.serve.keys import Keys
from heedful.serve.limits import Limits
from heedful.serve.loading import Computing
from heedful.serve.logs import Log
from heedful.serve.models import Wanted
from heedful.serve.server import Serving, Settings, address, listen

HEADS = {
    "classifier": Head(task="classify", labels=("good", "bad", "odd")),
    "labeller": Head(task="multilabel", labels=("old", "warm")),
    "reranker": Head(task="regress", labels=("fit",), pairs=True),
    "judge": Head(task="classify", labels=("no", "yes"), pairs=True),
    "tagger": Head(task="tag", labels=("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), length=19, overlap=5),
    "answerer": Head(task="answer", labels=("start", "end"), length=23, overlap=4),
}


class Served:
    """A server that runs, and a client of it."""

    def __init__(self, settings: Settings) -> None:
        self.listening = listen("127.0.0.1", 0)
        self.address = address(self.listening)
        self.port = int(self.address.rpartition(":")[2])
        self.serving = Serving(settings, self.listening)
        self.desk = self.serving.desk
        self.log = settings.log
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ready = threading.Event()
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        async def run() -> None:
            self.loop = asyncio.get_running_loop()
            await self.serving.run(lambda: None, self.ready.set)

        try:
            asyncio.run(run())
        except BaseException as error:
            self.failed = error
        self.ready.set()

    def predictor(self, name: str) -> Any:
        return self.desk.models.get(name)

    def post(self, path: str, body: Any = None, **options: Any) -> httpx.Response:
        with httpx.Client(base_url=self.address, timeout=60) as client:
            return client.post(path, json=body, **options) if body is not None else client.post(path, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        with httpx.Client(base_url=self.address, timeout=60) as client:
            return client.get(path, **options)

    def ask(self, path: str, **body: Any) -> Any:
        """The answer to a request that must go well."""
        found = self.post(path, body)
        assert found.status_code == 200, found.text
        return found.json()

    def refuses(self, path: str, status: int, body: Any = None, **options: Any) -> str:
        """What a request is told that must be refused, in the usual shape."""
        found = self.post(path, body, **options)
        assert found.status_code == status, found.text
        said = found.json()
        assert said.keys() == {"error", "error_type"}
        assert "\n" not in said["error"]
        assert "Traceback" not in said["error"]
        return said["error"]

    def stop(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.serving.stop)

    def end(self) -> None:
        if self.thread.is_alive():
            self.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()
        self.listening.close()


@contextmanager
def running(models: dict[str, Path], *, wait: bool = True, **told: Any) -> Iterator[Served]:
    """A server with models by name, when they are warm, or as soon as it listens."""
    settings = Settings(
        models=[Wanted(name=name, folder=folder) for name, folder in models.items()],
        computing=told.pop("computing", Computing(device="cpu")),
        limits=told.pop("limits", Limits()),
        keys=told.pop("keys", Keys()),
        log=told.pop("log", None) or Log(file=io.StringIO()),
        **told,
    )
    served = Served(settings)
    try:
        assert not wait or served.ready.wait(60)
        if served.failed is not None:
            raise served.failed
        yield served
    finally:
        served.end()


@pytest.fixture(scope="session")
def filler(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """The folder of the small encoder with a masked-word head."""
    folder = tmp_path_factory.mktemp("filler")
    tokenizer, config = wordpiece.load(encoder), load_model(encoder).config
    model = BertForPretraining(config)
    initialise(model, 0.3, torch.Generator().manual_seed(5))
    save_model(model, folder)
    wordpiece.save(tokenizer, folder, config.max_length)
    return folder


@pytest.fixture(scope="session")
def folders(
    encoder: Path,
    filler: Path,
    headed: Callable[..., Path],
    translator: Callable[[str], Path],
    colours: Path,
) -> dict[str, Path]:
    """A folder of every kind."""
    heads = {name: headed(head) for name, head in HEADS.items()}
    return {"embedder": encoder, "filler": filler, **heads, "translator": translator("good"), "colours": colours}


@pytest.fixture(scope="session")
def served(folders: dict[str, Path]) -> Iterator[Served]:
    """A server that has all of them."""
    with running(folders) as found:
        yield found


@pytest.fixture(scope="session")
def serving() -> Callable[..., Any]:
    """Runs a server of one's own."""
    return running
