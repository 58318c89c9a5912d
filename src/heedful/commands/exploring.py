"""The command that shows a model's inside: in a browser, or as one page to keep."""

import os
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from tyro.conf import FlagCreatePairsOff, Positional

from heedful.arguments import optional, several
from heedful.commands.output import say, warn
from heedful.commands.serving import require, share_cores
from heedful.errors import UserError
from heedful.explore.about import About

Flag = Annotated[bool, FlagCreatePairsOff]
PORT = 8080
MOST_IMAGE = 500_000
"""Bytes: what a browser still takes as an address."""


def explore(
    model: Annotated[Positional[tuple[str, ...]], several(metavar="MODEL…")],
    text: Annotated[str | None, optional(metavar="TEXT")] = None,
    pair: Annotated[str | None, optional(metavar="TEXT")] = None,
    image: Annotated[Path | None, optional(metavar="FILE")] = None,
    export: Annotated[Path | None, optional(metavar="FILE")] = None,
    runs: Annotated[tuple[Path, ...], optional(metavar="FOLDER…")] = (),
    vectors: Annotated[Path | None, optional(metavar="FOLDER|FILE")] = None,
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
        image: For a model that sees: a png or jpeg to look at first.
        export: Write one self-contained .html for that text or image, and serve nothing.
        runs: Folders of training runs to show, finished or not.
        vectors: Word vectors to show beside a model's own, of `heedful train-vectors` or in word2vec's format.
        port: Where to serve (8080 by default, or any that is free if that is taken).
        no_browser: Only say where the page is.
        device: Where to compute.
        precision: How exactly: fp16 by default on a GPU, always fp32 on a CPU.
    """
    if pair is not None and text is None:
        raise UserError("--pair stands beside a text; give that too: --text TEXT")
    about = About(text=text, pair=pair, image=None if image is None else _read(image))
    if export is not None:
        if text is None and image is None:
            raise UserError("--export writes a page about a text or an image; say which: --text TEXT or --image FILE")
        if runs:
            raise UserError("--runs are for the view of training, which --export has no answers for; leave one out")
        if not export.parent.is_dir():
            raise UserError(f"{export.parent} is no folder; make it, or choose another --export")
        if vectors is not None:
            raise UserError("--vectors are for the view of meaning, which --export has no answers for; leave one out")
        _export(model, about, export, device, precision)
        return
    require()
    share_cores()
    from heedful.explore.training import run_folder
    from heedful.formats.word2vec import load
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
        log=Log("text", quiet=True),
        vectors=None if vectors is None else load(vectors),
        runs=[run_folder(folder) for folder in runs],
    )
    listening = _listen(port)
    where = address(listening) + link(about)
    names = ", ".join(one.name for one in settings.models)

    def ready() -> None:
        say(f"explore {names} at {where} (Ctrl+C ends it)")
        if not no_browser:
            _open(where)

    try:
        serve(settings, listening, lambda: say(f"loading {names}"), ready)
    finally:
        listening.close()


def link(about: About) -> str:
    """The part of an address that says what the page opens on."""
    view = "images" if about.image is not None and about.text is None else "attention"
    values = "&".join(f"{name}={quote(value, safe='')}" for name, value in about.values().items())
    return f"/#{view}?{values}" if values else "/"


def _read(image: Path) -> bytes:
    """The bytes of an image file that an address can hold."""
    if not image.is_file():
        raise UserError(f"{image} is no file; name a png or jpeg")
    if image.stat().st_size > MOST_IMAGE:
        raise UserError(f"{image} is larger than {MOST_IMAGE // 1000:,} kB, too much for a link; make it smaller")
    return image.read_bytes()


def _export(model: tuple[str, ...], about: About, path: Path, device: str, precision: Any) -> None:
    from heedful.explore.explorer import Explorer, Opened
    from heedful.explore.export import export
    from heedful.predict import load
    from heedful.predict.images import ImagePredictor
    from heedful.serve.models import wanted

    opened = Opened({one.name: load(one.folder, device, precision=precision) for one in wanted(model)})
    sees = [isinstance(opened.get(name), ImagePredictor) for name in opened.names()]
    if about.image is not None and not any(sees):
        raise UserError("no model that was named looks at images; leave --image out, or name a ViT")
    if about.text is not None and all(sees):
        raise UserError("no model that was named reads text; leave --text out, and give --image FILE")
    done, left = export(Explorer(opened), path, about)
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
