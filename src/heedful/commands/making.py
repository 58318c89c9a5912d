"""Commands that make something: a vocabulary, prepared text, a model."""

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import optional, parse, several
from heedful.commands.exploring import explore
from heedful.commands.output import say
from heedful.commands.serving import require
from heedful.errors import UserError

R = TypeVar("R")


def demo(
    out: Annotated[Path, arg(metavar="FOLDER")] = Path("demo"),
    part: Literal["all", "bert", "translation", "vision"] = "all",
    steps: Annotated[int | None, optional(metavar="N")] = None,
    seed: int = 0,
    cache: Annotated[Path | None, optional(metavar="FOLDER")] = None,
    serve: Annotated[bool, FlagCreatePairsOff] = False,
) -> None:
    """Train a small BERT, a translator of numbers and a reader of digits in seven minutes, and try them.

    Args:
        out: Where the BERT goes, which learns from Python's own documentation; the others go beside it, into
            FOLDER-translator and FOLDER-vision.
        part: The BERT alone (about five minutes), the translator or the image classifier alone (about one each), or
            one after the other.
        steps: Train each model for this many steps instead of its usual number.
        seed: Everything random follows from it.
        cache: Where prepared text is kept (~/.cache/heedful by default).
        serve: Then open the explorer, in which one sees inside what was trained.
    """
    if serve:
        require()  # said now, if something is missing, and not after the training
    parts = ("bert", "translation", "vision") if part == "all" else (part,)
    made = []
    for number, one in enumerate(parts):
        if number:
            say("")
        run, folder = _demo(one, out)
        run(folder, steps=steps, seed=seed, cache=cache, say=say)
        made.append(folder)
    say("")
    if serve:
        explore(tuple(map(str, made)), runs=tuple(made))
    else:
        names = " ".join(shlex.quote(str(folder)) for folder in made)
        say(f"See inside, in a browser: {_program()} explore {names} --runs {names}")


def _program() -> str:
    """What to type for this program: its name where the shell finds it, or else how it was started."""
    if shutil.which("heedful") is not None:
        return "heedful"
    started = Path(sys.argv[0])  # by scripts/demo as .venv/bin/heedful
    return shlex.quote(str(started)) if started.name == "heedful" else f"{shlex.quote(sys.executable)} -m heedful"


def _demo(part: str, out: Path) -> tuple[Callable[..., None], Path]:
    """What a part of the demonstration runs, and where."""
    if part == "bert":
        from heedful.runs import demo

        return demo.demo, out
    if part == "translation":
        from heedful.runs import demo_translation

        return demo_translation.demo, demo_translation.folder(out)
    from heedful.runs import demo_vision

    return demo_vision.demo, demo_vision.folder(out)


def pretrain(options: Any) -> None:
    """Pretrain a BERT from plain text: tokenizer, shards, training, evaluation, a folder anyone can open."""
    from heedful.runs.pretrain import pretrain as run

    run(options)


def finetune(options: Any) -> None:
    """Fine-tune a BERT to classify, score, tag or answer: training, evaluation, a folder anyone can open."""
    if options.settings.run.seeds > 1:
        from heedful.runs.seeds import finetune_seeds

        finetune_seeds(options)
    else:
        from heedful.runs.finetune import finetune as run

        run(options)


def train_translator(options: Any) -> None:
    """Train a translator from sentence pairs: vocabulary, training, evaluation, a folder anyone can open."""
    from heedful.runs.translator import train_translator as run

    run(options)


def train_vision(options: Any) -> None:
    """Train a ViT to tell images apart: reading, training, evaluation, a folder anyone can open."""
    from heedful.runs.vision import train_vision as run

    run(options)


def tokenizer(
    corpus: Annotated[Positional[tuple[str, ...]], several(metavar="CORPUS…")],
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
        held_out: Share of the documents, which blank lines separate, to test on (by default 1 to 10 percent).
    """
    from heedful.runs.options import TextPart, VocabularyPart
    from heedful.runs.tokenizer import make

    part = TextPart(text=text, errors=errors, held_out=held_out)
    for line in make(corpus, part, VocabularyPart(vocab_size=vocab_size, cased=cased), out):
        say(line)


def prepare(
    corpus: Annotated[Positional[tuple[str, ...]], several(metavar="CORPUS…")],
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
        held_out: Share of the documents, which blank lines separate, kept for evaluation (by default 1 to 10
            percent).
    """
    from heedful.runs.options import TextPart
    from heedful.runs.shards import make

    say(make(corpus, TextPart(text=text, errors=errors, held_out=held_out), tokenizer, out))


def pretrain_options(arguments: list[str]) -> Any:
    """The options of a run: those of its recipe, or of the run to resume, under what the user types."""
    from heedful.runs.options import RIVALS, SHAPE, PretrainOptions, Recipe, load_recipe, read_recipe
    from heedful.runs.recipe_files import without

    _refuse_shape(arguments, SHAPE)
    base = without(_base(arguments, Recipe(), load_recipe, read_recipe), _put_aside(arguments, RIVALS))
    # MISSING keeps --out required although the rest has defaults.
    from tyro import MISSING

    options = parse(PretrainOptions, "pretrain", arguments, default=PretrainOptions(settings=base, out=MISSING))
    recipe = options.settings
    noted = options.resume and options.recipe is None  # by the run itself
    if recipe.start_from is None or noted or _told_of_next_sentences(options.recipe, arguments):
        return options
    objective = replace(recipe.objective, nsp=_tells_next_sentences(recipe.start_from))
    return replace(options, settings=replace(recipe, objective=objective))


def _told_of_next_sentences(recipe: str | None, arguments: list[str]) -> bool:
    """Whether the user, or the recipe, says if a model is to learn them."""
    from heedful.config import read_toml
    from heedful.runs.recipe_files import recipe_path

    typed = {"--nsp", "--no-nsp", "--no_nsp"} & {*arguments}
    return bool(typed) or (recipe is not None and "nsp" in read_toml(recipe_path(recipe)).get("objective", {}))


def _tells_next_sentences(folder: str) -> bool:
    """Whether a model has a head for next sentences, or none at all and the form of one that learns them."""
    from heedful.formats.huggingface import load_model
    from heedful.models.bert import BertForPretraining

    model = load_model(folder, outline=True)  # what config.json says of heads need not be so
    if isinstance(model, BertForPretraining):
        return model.nsp is not None
    return model.config.published and model.config.segments > 1


def finetune_options(arguments: list[str]) -> Any:
    """The options of a run: those of its recipe, or of the run to resume, under what the user types."""
    from tyro import MISSING

    from heedful.runs.finetune_options import RIVALS, FinetuneOptions, FinetuneRecipe, load_recipe, read_recipe
    from heedful.runs.recipe_files import without

    base = without(_base(arguments, FinetuneRecipe(), load_recipe, read_recipe), _put_aside(arguments, RIVALS))
    return parse(FinetuneOptions, "finetune", arguments, default=FinetuneOptions(settings=base, out=MISSING))


def translator_options(arguments: list[str]) -> Any:
    """The options of a run: those of its recipe, or of the run to resume, under what the user types."""
    from tyro import MISSING

    from heedful.runs.recipe_files import without
    from heedful.runs.translator_options import RIVALS, TranslatorOptions, TranslatorRecipe, load_recipe, read_recipe

    base = without(_base(arguments, TranslatorRecipe(), load_recipe, read_recipe), _put_aside(arguments, RIVALS))
    default = TranslatorOptions(settings=base, out=MISSING)
    return parse(TranslatorOptions, "train-translator", arguments, default=default)


def vectors_options(arguments: list[str]) -> Any:
    """The options of a run: those of its recipe, or of the run to resume, under what the user types."""
    from tyro import MISSING

    from heedful.runs.recipe_files import without
    from heedful.runs.word_options import RIVALS, WordOptions, WordRecipe, load_recipe, read_recipe

    if any(argument.partition("=")[0] == "--steps" for argument in arguments):
        raise UserError(
            "train-vectors counts no --steps; say how often to read the text with --epochs, or how long with --budget"
        )
    base = without(_base(arguments, WordRecipe(), load_recipe, read_recipe), _put_aside(arguments, RIVALS))
    return parse(WordOptions, "train-vectors", arguments, default=WordOptions(settings=base, out=MISSING))


def vision_options(arguments: list[str]) -> Any:
    """The options of a run: those of its recipe, or of the run to resume, under what the user types."""
    from tyro import MISSING

    from heedful.runs.options import NO_SHARDS
    from heedful.runs.recipe_files import without
    from heedful.runs.vision_options import DIGITS, RIVALS, VisionOptions, VisionRecipe, load_recipe, read_recipe

    if "--shard" in arguments:  # which its help does not list
        raise UserError(NO_SHARDS)

    def under(base: VisionRecipe) -> VisionOptions:
        default = VisionOptions(settings=without(base, _put_aside(arguments, RIVALS)), out=MISSING)
        try:
            return parse(VisionOptions, "train-vision", arguments, default=default)
        except UserError as error:
            spare = re.match(r"Unrecognized options: ([^-\s]\S*)", str(error))
            if spare is None:
                raise
            raise UserError(
                f"{spare[1]} is one name too many: DATA is one folder or file; "
                "of a pair of arrays name the images, and the labels are found beside them"
            ) from None

    options = under(_base(arguments, VisionRecipe(), load_recipe, read_recipe))
    from heedful.data.image_store import is_digits

    if options.recipe is None and not options.resume and is_digits(options.settings.data):
        return under(load_recipe(DIGITS))
    return options


def _base(arguments: list[str], plain: R, named: Callable[[str], R], read: Callable[[Path], R]) -> R:
    """What the options start from: a recipe that is named, the run to resume, or nothing in particular."""
    from heedful.runs.recipe_files import RUN_FILE

    recipe, out = _value(arguments, "--recipe"), _value(arguments, "--out")
    if recipe is not None:
        return named(recipe)
    if "--resume" in arguments and out is not None and (Path(out) / RUN_FILE).is_file():
        return read(Path(out) / RUN_FILE)
    return plain


def _refuse_shape(arguments: list[str], shape: tuple[str, ...]) -> None:
    """Refuse to be told how a model is made that exists already, be it by what is usual."""
    if _value(arguments, "--from") is None:
        return
    typed = [argument.partition("=")[0] for argument in arguments]
    for name in shape:
        for flag in (f"--{name.replace('_', '-')}", f"--no-{name.replace('_', '-')}"):
            if flag in typed:
                raise UserError(f"with --from, the model keeps its own {name.replace('_', ' ')}; leave {flag} out")


def _put_aside(arguments: list[str], rivals: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The fields of a recipe that what was typed makes void."""
    return [
        field for flag, fields in rivals.items() if _value(arguments, f"--{flag}") is not None for field in fields
    ]


def _value(arguments: list[str], flag: str) -> str | None:
    """What stands behind a flag, the last time that it is given."""
    for number, argument in reversed([*enumerate(arguments)]):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == flag:  # tyro takes both spellings
            return value if equals else next(iter(arguments[number + 1 :]), None)
    return None
