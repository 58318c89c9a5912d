"""Commands that put a model on the network, or before somebody's eyes."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional

from heedful.arguments import optional, several
from heedful.commands.output import say, warn
from heedful.cores import sleep_at_once
from heedful.errors import UserError
from heedful.serve.limits import Limits

if TYPE_CHECKING:
    import socket

    from heedful.serve.server import Settings

DEFAULT = Limits()
Flag = Annotated[bool, FlagCreatePairsOff]
NEEDED = ("fastapi", "uvicorn", "httptools", "uvloop", "multipart", "prometheus_client")
"""What the extra `serve` brings."""


def serve(
    model: Annotated[Positional[tuple[str, ...]], several(metavar="MODEL…")],
    host: str = "127.0.0.1",
    port: int = 8080,
    key_file: Annotated[Path | None, optional(metavar="FILE")] = None,
    cors: Annotated[tuple[str, ...], optional(metavar="ORIGIN…")] = (),
    engine: Literal["torch", "onnx", "ctranslate2"] = "torch",
    int8: Flag = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto",
    limits: Limits = DEFAULT,
    runs: Annotated[tuple[Path, ...], optional(metavar="FOLDER…")] = (),
    vectors: Annotated[Path | None, optional(metavar="FOLDER|FILE")] = None,
    log_format: Literal["text", "json"] = "text",
    log_text: Flag = False,
) -> None:
    """Serve models over HTTP, and the explorer beside them.

    Args:
        model: Model folders; NAME=FOLDER names one otherwise than its folder is called.
        host: The address to listen on; only this machine can reach 127.0.0.1.
        port: 0 is any that is free.
        key_file: Keys, one a line; who asks must send one: Authorization: Bearer KEY. Without a file, the key in
            HEEDFUL_API_KEY, if there is one.
        cors: Origins whose pages may ask from a browser, as https://example.org; * is all.
        engine: What computes: torch, or what `heedful export` wrote.
        int8: With --engine onnx or ctranslate2, the smaller and faster model.
        device: Where to compute.
        precision: How exactly: fp16 by default on a GPU, always fp32 on a CPU.
        limits: What the server takes on.
        runs: Folders of training runs that the explorer shows.
        vectors: Word vectors that the explorer shows beside a model's own.
        log_format: Lines for people, or JSON, on standard error.
        log_text: Log what users sent, too.
    """
    require()
    share_cores()
    from heedful.explore.training import run_folder
    from heedful.formats.word2vec import load
    from heedful.serve.keys import read_keys
    from heedful.serve.loading import Computing
    from heedful.serve.logs import Log
    from heedful.serve.models import wanted
    from heedful.serve.server import Settings, listen

    settings = Settings(
        models=wanted(model),
        computing=Computing(engine, device, precision, int8),
        limits=limits,
        keys=read_keys(key_file),
        log=Log(log_format, texts=log_text),
        cors=_origins(cors),
        runs=[run_folder(folder) for folder in runs],
        vectors=None if vectors is None else load(vectors),
        host=host,
    )
    run(settings, listen(host, port))


def run(settings: "Settings", listening: "socket.socket") -> None:
    """Serve until told to stop, and say where."""
    from heedful.serve.server import address, is_loopback
    from heedful.serve.server import serve as serve_on

    if not is_loopback(listening) and not settings.keys:
        warn("anyone who reaches this machine can use the server; give it a key: --key-file, or HEEDFUL_API_KEY")
    where = address(listening)
    names = ", ".join(one.name for one in settings.models)
    try:
        serve_on(
            settings,
            listening,
            lambda: say(f"loading {names}; listening on {where}"),
            lambda: say(f"serving {names} at {where}"),
        )
    finally:
        listening.close()


def require() -> None:
    """An error that says what to install, if something is missing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"serving needs {', '.join(missing)}; install it with `pip install 'heedful[serve]'`")


def share_cores() -> None:
    """Have torch's threads sleep while they wait for each other, before torch is there.

    They would spin, and take the core from the thread that speaks HTTP, or from whatever else runs on the machine:
    then every text takes twice as much of the processor. Where nothing else runs, it makes no difference.
    """
    sleep_at_once()


def _origins(cors: tuple[str, ...]) -> list[str]:
    for one in cors:
        scheme, _, rest = one.partition("://")
        if one != "*" and (scheme not in ("http", "https") or not rest or "/" in rest):
            raise UserError(f"{one!r} is no origin; write https://HOST or http://HOST:PORT, without a path, or *")
    return [*cors]
