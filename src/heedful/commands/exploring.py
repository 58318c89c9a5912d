"""The command that shows a model's inside: in a browser, or as one page to keep."""

import os
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import optional
from heedful.commands.output import say, warn
from heedful.commands.serving import require
from heedful.errors import UserError

Flag = Annotated[bool, FlagCreatePairsOff]
PORT = 8080


def explore(
    model: Annotated[Positional[tuple[str, ...]], arg(metavar="MODEL…")],
    text: Annotated[str | None, optional(metavar="TEXT")] = None,
    pair: Annotated[str | None, optional(metavar="TEXT")] = None,
    export: Annotated[Path | None, optional(metavar="FILE")] = None,
    runs: Annotated[tuple[Path, ...], optional(metavar="FOLDER…")] = (),
    port: Annotated[int | None, optional(metavar="PORT")] = None,
    no_browser: Flag = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto",
) -> None:
    """See inside models in a browser: attention, blanks, positions, beams, meanings, training.

    Args:
        model: Model folders; NAME=FOLDER names one otherwise than its folder is called.
        text: What to look at first.
        pair: A second text beside it; of a translator, the translation to look at.
        export: Write one self-contained .html for that text, and serve nothing.
        runs: Folders of training runs to show, finished or not.
        port: Where to serve (8080 by default, or any that is free if that is taken).
        no_browser: Only say where the page is.
        device: Where to compute.
        precision: How exactly: fp16 by default on a GPU, always fp32 on a CPU.
    """
    if export is not None:
        if text is None:
            raise UserError("--export writes a page about one text; say which: --text TEXT")
        _export(model, text, pair, export, device, precision)
        return
    require()
    from heedful.explore.training import run_folder
    from heedful.serve.keys import read_keys
    from heedful.serve.limits import Limits
    from heedful.serve.loading import Computing
    from heedful.serve.logs import Log
    from heedful.serve.models import wanted
    from heedful.serve.server import Settings, address, serve

    settings = Settings(
        models=wanted(model),
        computing=Computing("torch", device, precision, False),  # pyrefly: ignore
        limits=Limits(),
        keys=read_keys(None),
        log=Log("text"),
        runs=[run_folder(folder) for folder in runs],
    )
    listening = _listen(port)
    where = address(listening) + link(text, pair)
    names = ", ".join(one.name for one in settings.models)

    def ready() -> None:
        say(f"explore {names} at {where} (Ctrl+C ends it)")
        if not no_browser:
            _open(where)

    try:
        serve(settings, listening, lambda: say(f"loading {names}"), ready)
    finally:
        listening.close()


def link(text: str | None, pair: str | None = None) -> str:
    """The part of an address that says what the page opens on."""
    asked = {"text": text, "pair": pair}
    values = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items() if value)
    return f"/#attention?{values}" if values else "/"


def _export(model: tuple[str, ...], text: str, pair: str | None, path: Path, device: str, precision: Any) -> None:
    from heedful.explore.explorer import Explorer, Opened
    from heedful.explore.export import export
    from heedful.predict import load
    from heedful.serve.models import wanted

    opened = Opened({one.name: load(one.folder, device, precision=precision) for one in wanted(model)})
    done, left = export(Explorer(opened), path, text, pair)
    if left is not None:
        warn(left)
    say(done)


def _listen(port: int | None) -> Any:
    """Where to serve: at a port that was asked for, else at the usual one, or at any that is free."""
    from heedful.serve.server import listen

    if port is not None:
        return listen("127.0.0.1", port)
    try:
        return listen("127.0.0.1", PORT)
    except UserError:
        return listen("127.0.0.1", 0)


def _open(where: str) -> threading.Thread | None:
    """Show the page, where there is a screen; a browser in the terminal would hold everything up."""
    import webbrowser

    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return None
    opening = threading.Thread(target=webbrowser.open, args=(where,), daemon=True)
    opening.start()
    return opening
