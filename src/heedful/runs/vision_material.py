"""From what a user names to images that a classifier can be trained and judged on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.data import image_store
from heedful.data.image_files import ENDINGS
from heedful.data.image_store import Stored
from heedful.data.images import Images, measure, split
from heedful.models.vit import default_patch
from heedful.nn.pixels import Pixels
from heedful.runs.cache import kept_in, require_folder
from heedful.runs.vision_options import VisionRecipe, check_patches, resolved
from heedful.train.log import Log
from heedful.wording import counted


@dataclass(frozen=True, kw_only=True, eq=False)
class VisionMaterial:
    """What a run trains on."""

    recipe: VisionRecipe
    """With its defaults written out."""
    train: Images
    heldout: Images
    read_as: Pixels
    """Mean and deviation of the images to train on; of a picture, the middle, which is what they are too."""
    digest: str
    """Tells the content, of both."""
    trained_on: str
    """Tells the images that those to train on are of: all, before some of them were held out."""


def gather(recipe: VisionRecipe, cache: Path, log: Log, *, gpu: bool) -> VisionMaterial:
    """Read the images, and say what there is."""
    part = recipe.images
    require_folder(cache)

    def prepare(data: str, **told: Any) -> Stored:
        with kept_in(cache):
            return image_store.prepare(data, cache=cache, skip_bad=part.skip_bad, **told)

    stored = prepare(recipe.data, size=part.image_size, channels=part.channels)
    train, heldout, skipped, key = stored.train, stored.heldout, stored.skipped, stored.key
    if recipe.dev is not None:
        classes, channels = train.classes, train.channels
        dev = prepare(recipe.dev, size=train.height, channels=channels, classes=classes)
        # A folder with parts of its own is evaluated on by the part that is for it.
        heldout, skipped, key = dev.heldout or dev.train, (*skipped, *dev.skipped), f"{key}+{dev.key}"
    elif heldout is None or part.held_out is not None:
        train, heldout = split(train, part.held_out, recipe.run.seed)
    if skipped:
        files = "1 bad file" if len(skipped) == 1 else f"{len(skipped):,} bad files, the first"
        log.note(f"skipped {files}: {skipped[0]}")
    if others := stored.others:
        files = "1 file that is" if len(others) == 1 else f"{len(others):,} files that are"
        log.note(f"passed over {files} no {' '.join(ENDINGS)} of a class: {others[0]}")
    absent = [name for label, name in enumerate(train.classes) if label not in heldout.labels]
    if absent:
        log.note(f"no image of {', '.join(absent[:5])}{' …' if absent[5:] else ''} is held out to evaluate on")
    side = train.height
    patch = recipe.model.patch_size or default_patch(side)
    check_patches(side, patch)
    log.note(
        f"images: {len(train):,} to train on and {len(heldout):,} held out, {side} x {side} pixels, "
        f"{'grey' if train.channels == 1 else 'RGB'}, {counted(len(train.classes), 'class', 'classes')}"
    )
    return VisionMaterial(
        recipe=resolved(recipe, side=side, patch=patch, images=len(train), gpu=gpu),
        train=train,
        heldout=heldout,
        read_as=Pixels(**measure(train)._asdict(), edge=side),
        digest=key,
        trained_on=stored.content,
    )
