"""Commands about a folder or the machine."""

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import optional
from heedful.commands.output import facts, say


def info(
    model: Annotated[Positional[Path], arg(metavar="MODEL")],
    json: Annotated[bool, FlagCreatePairsOff] = False,
) -> None:
    """Describe a model folder.

    Args:
        model: A model folder.
        json: As one JSON object, numbers as numbers and lists in full.
    """
    from heedful.runs.info import as_json, describe

    if json:
        say(dumps(as_json(model), ensure_ascii=False, indent=2))
    else:
        facts(describe(model), as_json=False)


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
    say(f"drew {path}")


def export(
    model: Annotated[Positional[Path], arg(metavar="MODEL")],
    to: Annotated[Literal["onnx", "ctranslate2"] | None, optional(metavar="onnx|ctranslate2")] = None,
    int8: Annotated[bool, FlagCreatePairsOff] = False,
    out: Annotated[Path | None, optional(metavar="FILE|FOLDER")] = None,
) -> None:
    """Write a model for another engine.

    Args:
        model: A model folder.
        to: The engine: onnx for encoders and image classifiers, ctranslate2 for translators (by default the one that
            fits).
        int8: With weights of 8 bits (for onnx beside the others): a quarter of the size and faster on a CPU, a
            little less exact.
        out: The file for onnx, the folder for ctranslate2 (by default in MODEL, where --engine looks for it).
    """
    from heedful.runs.export import export as run

    say(run(model, to=to, int8=int8, out=out))


def doctor(json: Annotated[bool, FlagCreatePairsOff] = False) -> None:
    """Say what this machine offers: versions, processor, memory, GPU, safe precision, missing parts.

    Args:
        json: As one JSON object.
    """
    from heedful.runs.doctor import examine

    facts(examine(), as_json=json)
