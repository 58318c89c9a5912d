"""The command line: one plain function a command. Heavy imports are inside, so that `--help` is instant.

A user's mistake ends as one line on standard error and exit code 2, never as a traceback.
"""

import difflib
import errno
import io
import itertools
import json as json_module
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import deferred, optional, parse
from heedful.errors import Interrupted, UserError


def demo(
    out: Annotated[Path, arg(metavar="FOLDER")] = Path("demo"),
    steps: Annotated[int | None, optional(metavar="N")] = None,
    seed: int = 0,
    cache: Annotated[Path | None, optional(metavar="FOLDER")] = None,
) -> None:
    """Train a small BERT on Python's own documentation in about five minutes, and try it.

    Args:
        out: Where the model goes.
        steps: Train for this many steps instead of the usual number.
        seed: Everything random follows from it.
        cache: Where prepared text is kept (~/.cache/heedful by default).
    """
    from heedful.runs.demo import demo as run

    run(out, steps=steps, seed=seed, cache=cache, say=_say)


def pretrain(options: Any) -> None:
    """Pretrain a BERT from plain text: tokenizer, shards, training, evaluation, a folder anyone can open."""
    from heedful.runs.pretrain import pretrain as run

    run(options)


def tokenizer(
    corpus: Annotated[Positional[tuple[str, ...]], arg(metavar="CORPUS…")],
    out: Annotated[Path, arg(metavar="FOLDER")],
    vocab_size: Annotated[int | None, optional(metavar="N")] = None,
    cased: Annotated[bool, FlagCreatePairsOff] = False,
    text: Annotated[str | None, optional(metavar="COLUMN")] = None,
    errors: Literal["strict", "replace"] = "strict",
    held_out: Annotated[float | None, optional(metavar="SHARE")] = None,
) -> None:
    """Train a WordPiece tokenizer and say how well it covers text that it has not seen.

    Args:
        corpus: Files, folders, globs, or - for standard input.
        out: Where the tokenizer goes.
        vocab_size: Tokens in the vocabulary (by default 16000, or as many as the text supports).
        cased: Keep upper and lower case apart.
        text: Column that holds the text, for tables.
        errors: What to do with bytes that are not UTF-8.
        held_out: Share of the documents to test on (by default 1 to 10 percent).
    """
    from heedful.runs.options import TextPart, VocabularyPart
    from heedful.runs.tokenizer import make

    part = TextPart(text=text, errors=errors, held_out=held_out)
    for line in make(corpus, part, VocabularyPart(vocab_size=vocab_size, cased=cased), out):
        _say(line)


def prepare(
    corpus: Annotated[Positional[tuple[str, ...]], arg(metavar="CORPUS…")],
    tokenizer: Annotated[Path, arg(metavar="FOLDER")],
    out: Annotated[Path, arg(metavar="FOLDER")],
    text: Annotated[str | None, optional(metavar="COLUMN")] = None,
    errors: Literal["strict", "replace"] = "strict",
    held_out: Annotated[float | None, optional(metavar="SHARE")] = None,
) -> None:
    """Turn text into shards once, for `heedful pretrain` to use here or on another machine.

    Args:
        corpus: Files, folders, globs, or - for standard input.
        tokenizer: Folder of the tokenizer to use (`heedful tokenizer` makes one; a model folder has one).
        out: Where the shards go.
        text: Column that holds the text, for tables.
        errors: What to do with bytes that are not UTF-8.
        held_out: Share of the documents kept for evaluation (by default 1 to 10 percent).
    """
    from heedful.runs.options import TextPart
    from heedful.runs.shards import make

    _say(make(corpus, TextPart(text=text, errors=errors, held_out=held_out), tokenizer, out))


def fill(
    model: Annotated[Positional[Path], arg(metavar="MODEL")],
    text: Annotated[Positional[tuple[str, ...]], optional(metavar="TEXT…")] = (),
    top: int = 5,
    json: Annotated[bool, FlagCreatePairsOff] = False,
) -> None:
    """Fill the blanks of a text: the most probable words for every [MASK].

    Args:
        model: A model folder.
        text: Texts with [MASK] in them; without any, lines from standard input.
        top: Candidates to show for each blank.
        json: One JSON object a text.
    """
    from heedful.predict import load

    predictor = load(model)
    answered = 0
    for chunk in _chunks(_checked(text or _lines())):
        try:
            answers = predictor.fill(chunk, top)
        except UserError:  # one of them is wrong: answer those before it
            answers = (predictor.fill(one, top) for one in chunk)
        for one, blanks in zip(chunk, answers, strict=True):
            answered += 1
            if json:
                found = [[candidate._asdict() for candidate in blank] for blank in blanks]
                _say(json_module.dumps({"text": one, "blanks": found}, ensure_ascii=False))
                continue
            _say(one)
            for number, blank in enumerate(blanks, 1):
                if len(blanks) > 1:
                    _say(f"  blank {number}")
                for candidate in blank:
                    _say(f"  {candidate.probability:6.1%}  {candidate.token}")
    if not answered:
        raise UserError("there is no text to fill; give it as an argument or on standard input")


def info(
    model: Annotated[Positional[Path], arg(metavar="MODEL")],
    json: Annotated[bool, FlagCreatePairsOff] = False,
) -> None:
    """Describe a model folder.

    Args:
        model: A model folder.
        json: As one JSON object.
    """
    from heedful.runs.info import describe

    _facts(describe(model), json=json)


def plot(
    folder: Annotated[Positional[Path], arg(metavar="FOLDER")],
    out: Annotated[Path | None, optional(metavar="FILE")] = None,
) -> None:
    """Draw a run's curves.

    Args:
        folder: The folder of a run, finished or not.
        out: The picture, png, svg or pdf (FOLDER/curves.png by default).
    """
    from heedful.runs.pictures import curves

    path = out or folder / "curves.png"
    curves(folder, path)
    _say(f"drew {path}")


def doctor(json: Annotated[bool, FlagCreatePairsOff] = False) -> None:
    """Say what this machine offers: versions, processor, memory, GPU, safe precision, missing parts.

    Args:
        json: As one JSON object.
    """
    from heedful.runs.doctor import examine

    _facts(examine(), json=json)


COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command for command in (demo, pretrain, tokenizer, prepare, fill, info, plot, doctor)
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; exit with 0, with 2 for a user's mistake, with 130 when interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without our letters is no reason to fail
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except UserError as error:
        _fail(str(error), 2)
    except Interrupted as stop:
        _fail(str(stop), 130)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has enough
        sys.exit(0)
    except OSError as error:
        _fail(_os_trouble(error), 2)
    sys.exit(0)


def _run(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        _say(_overview())
        return
    if arguments[0] == "--version":
        import heedful

        _say(f"heedful {heedful.__version__}")
        return
    name, *rest = arguments
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        raise UserError(
            f"there is no command {name!r}; {f'did you mean {near[0]!r}?' if near else 'see heedful --help'}"
        )
    if name == "pretrain":
        pretrain(_pretrain_options(rest))
    else:
        parse(deferred(COMMANDS[name]), name, rest)()


def _pretrain_options(arguments: list[str]) -> Any:
    """The options of a run: those of its recipe, or of the run to resume, under what the user types."""
    from heedful.runs.options import RIVALS, RUN_FILE, PretrainOptions, Recipe, load_recipe, read_recipe, without

    recipe = _value(arguments, "--recipe")
    out = _value(arguments, "--out")
    base = Recipe()
    if recipe is not None:
        base = load_recipe(recipe)
    elif "--resume" in arguments and out is not None and (Path(out) / RUN_FILE).is_file():
        base = read_recipe(Path(out) / RUN_FILE)
    typed = [flag for flag in RIVALS if _value(arguments, f"--{flag}") is not None]
    base = without(base, (field for flag in typed for field in RIVALS[flag]))
    # MISSING keeps --out required although the rest has defaults.
    from tyro import MISSING

    return parse(PretrainOptions, "pretrain", arguments, default=PretrainOptions(settings=base, out=MISSING))


def _value(arguments: list[str], flag: str) -> str | None:
    """What stands behind a flag."""
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == flag:  # tyro takes both spellings
            return value if equals else next(iter(arguments[number + 1 :]), None)
    return None


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    head = "heedful trains, looks into and serves attention models on a modest budget.\n\nusage: heedful COMMAND …\n"
    return "\n".join([head, *lines, "", "heedful COMMAND --help says what a command takes."])


def _os_trouble(error: OSError) -> str:
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full{where}; free some space, or choose another folder: what was saved before is intact"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"this may not be written or read{where}; choose another folder, or mend its permissions"
    return f"{error.strerror or error}{where}"


def _fail(message: str, code: int) -> NoReturn:
    print("heedful:", " ".join(message.split()), file=sys.stderr)
    sys.exit(code)


def _say(line: str) -> None:
    print(line, flush=True)


def _facts(facts: list[tuple[str, str]], *, json: bool) -> None:
    if json:
        _say(json_module.dumps(dict(facts), ensure_ascii=False, indent=2))
        return
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        _say(f"{name:<{width}}  {value}")


def _lines() -> Iterator[str]:
    if sys.stdin is None:
        raise UserError("standard input is closed; give the text as an argument")
    try:
        yield from (line.rstrip("\r\n") for line in sys.stdin if line.strip())
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input is not UTF-8 ({error.reason} at byte {error.start}); convert it first"
        ) from None


def _checked(texts: Iterable[str]) -> Iterator[str]:
    """The same texts; bytes that are not UTF-8 come from a shell or a pipe as halves of characters."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{text[:60]!r} is not UTF-8 at character {error.start + 1}; convert it first") from None
        yield text


def _chunks(texts: Iterable[str], size: int = 64) -> Iterator[list[str]]:
    """A few texts at a time, which is quicker than one by one; what is typed is answered line by line."""
    waiting = iter(texts)
    typed = sys.stdin is not None and sys.stdin.isatty()
    while chunk := list(itertools.islice(waiting, 1 if typed else size)):
        yield chunk
