"""The command line: which command is meant, and how it ends.

A user's mistake ends as one line on standard error and exit code 2, never as a traceback.
"""

import difflib
import errno
import io
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from heedful import durable, launch
from heedful.arguments import deferred, parse
from heedful.commands import asking, evaluating, exploring, folders, making, seeing, serving, translating, words
from heedful.commands.output import say, warn
from heedful.cores import keep_to_share
from heedful.errors import Interrupted, Missing, OfOneProcess, UserError
from heedful.nn.shortage import too_small

COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__.replace("_", "-"): command
    for command in (
        making.demo,
        making.pretrain,
        making.finetune,
        making.train_translator,
        making.train_vision,
        making.tokenizer,
        making.prepare,
        asking.fill,
        asking.predict,
        translating.translate,
        seeing.see,
        evaluating.evaluate,
        asking.embed,
        asking.search,
        asking.generate,
        serving.serve,
        exploring.explore,
        words.train_vectors,
        words.nearest,
        words.contrast,
        folders.export,
        folders.info,
        folders.plot,
        folders.doctor,
    )
}


WITH_RECIPES: dict[str, Callable[[list[str]], Any]] = {
    "pretrain": making.pretrain_options,
    "finetune": making.finetune_options,
    "train-translator": making.translator_options,
    "train-vision": making.vision_options,
    "train-vectors": making.vectors_options,
}
"""What reads the options of commands that take a recipe, or the settings of a run to go on with."""
TOGETHER = ("pretrain", "finetune", "train-translator", "train-vision")
"""What several processes can do together."""


PLACE = (
    "to go on, a run needs it under the name that it began with: "
    "give the command in the same folder as then, or put it there, a link will do"
)
PATIENCE = 15.0
"""Seconds in which torchrun ends this process, if another has met the same mistake and told it."""
LITTLE_MEMORY = b"heedful: there is too little free memory even to say for what; end what else uses it\n"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; exit with 0, with 2 for a mistake or a lack of room, with 130 when interrupted or ended."""
    try:
        _main(arguments)
    except MemoryError:
        os.write(2, LITTLE_MEMORY)
        os._exit(2)


def _main(arguments: Sequence[str] | None) -> NoReturn:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without our letters is no reason to fail
    keep_to_share()
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        _fail(str(error), 2, silent=not (launch.speaks_for_all() or isinstance(error, OfOneProcess)))
    except Interrupted as stop:
        _fail(str(stop), 130)
    except KeyboardInterrupt as stop:
        _fail(str(stop) or "interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has enough
        sys.exit(0)
    except OSError as error:
        _fail(_os_trouble(error), 2)
    except (RuntimeError, MemoryError, ImportError) as error:
        if (line := too_small(error)) is None:
            raise
        _fail(line, 2)
    sys.exit(0)


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say(_overview())
        return
    if arguments[0] == "--version":
        import heedful

        say(f"heedful {heedful.__version__}")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        raise UserError(
            f"there is no command {name!r}; {f'did you mean {near[0]!r}?' if near else 'see heedful --help'}"
        )
    if launch.by_torchrun() and not launch.alone() and name not in TOGETHER:
        raise UserError(f"{name} is for one process; start it without torchrun: heedful {name} …")
    if name in WITH_RECIPES:
        options = WITH_RECIPES[name](rest)
        try:
            COMMANDS[name](options)
        except Missing as error:
            if not options.resume:
                raise
            raise UserError(f"{error}; {PLACE}") from None
    else:
        parse(deferred(COMMANDS[name]), name, rest)()


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    head = "heedful trains, looks into and serves attention models on a modest budget.\n\nusage: heedful COMMAND …\n"
    return "\n".join([head, *lines, "", "heedful COMMAND --help says what a command takes."])


def _os_trouble(error: OSError) -> str:
    where = f" ({durable.meant(error.filename)})" if error.filename else ""
    if error.errno == errno.EFBIG:
        return f"a file became larger than is allowed here{where}; see ulimit -f: what was saved before is intact"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full{where}; free some space, or choose another folder: what was saved before is intact"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"this may not be written or read{where}; choose another folder, or mend its permissions"
    return f"{error.strerror or error}{where}"


def _fail(message: str, code: int, *, silent: bool = False) -> NoReturn:
    if silent:
        try:
            time.sleep(PATIENCE)  # who speaks for all may be slower, and torchrun would end it if this one went first
        except KeyboardInterrupt:
            os._exit(code)
    warn(launch.signed(message))
    if not launch.alone():
        # Threads that still wait for a process that has gone would abort this one on its way out, with another code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
