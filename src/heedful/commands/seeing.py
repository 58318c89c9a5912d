"""The command that says what is in images."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from heedful.arguments import optional, several
from heedful.commands.output import say, warn

Flag = Annotated[bool, FlagCreatePairsOff]


def see(
    model: Annotated[Positional[Path], arg(metavar="MODEL")],
    image: Annotated[Positional[tuple[str, ...]], several(metavar="IMAGE…")],
    top: int = 3,
    json: Flag = False,
    picture: Annotated[Path | None, optional(metavar="FILE")] = None,
    layer: Annotated[int | None, optional(metavar="N")] = None,
    skip_bad: Flag = False,
    engine: Literal["torch", "onnx"] = "torch",
    int8: Flag = False,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["auto", "fp32", "fp16", "bf16"] = "auto",
) -> None:
    """Say what is in images: the most probable classes of each, one line an image.

    Args:
        model: The folder of an image classifier.
        image: Files (png, jpeg, bmp, webp, gif), folders with such files, patterns like 'photos/*.jpg'; arrays
            (.npy, .npz, IDX), each row an image, or one of them as 'images.npy[7]'; digits for the embedded ones.
        top: Classes to name for each image, the most probable first.
        json: One JSON object an image.
        picture: Draw here which patches each head of a layer looks at, over the image, as png, svg or pdf; of
            many images, the first 8.
        layer: Whose heads are drawn, counted from 1 (the last by default).
        skip_bad: Pass over files that can't be read. How many is said, in JSON why.
        engine: What computes: torch, or what `heedful export` wrote.
        int8: With --engine onnx, the smaller and faster file.
        device: Where torch computes.
        precision: How exactly: fp16 by default on a GPU, always fp32 on a CPU.
    """
    from heedful.predict import load_images
    from heedful.runs import see as run

    wanted = run.Wanted(top=top, json=json, skip_bad=skip_bad, picture=picture, layer=layer)
    found = run.find(image)
    predictor = load_images(model, device, precision=precision, engine=engine, int8=int8)
    if remark := run.see(predictor, found, wanted, say):
        warn(remark)
    if picture is not None and not json:
        say(f"drew {picture}")
