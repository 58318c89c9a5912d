"""Any model folder, whichever family of models it holds."""

from collections.abc import Callable
from pathlib import Path

from heedful.errors import UserError
from heedful.formats import huggingface, translators, vit
from heedful.formats.documents import read_document
from heedful.models.rnn import Rnn
from heedful.models.transformer import Transformer
from heedful.models.vit import ViT, ViTClassifier

Model = huggingface.Model | Transformer | Rnn | ViT | ViTClassifier

LOADERS: dict[str, Callable[[Path], Model]] = {
    **dict.fromkeys(huggingface.TYPES, huggingface.load_model),
    **translators.LOADERS,
    **dict.fromkeys(vit.TYPES, vit.load_vit),
}
"""What opens a folder, by the type of model that its config.json names."""
KINDS = {
    "encoder": tuple(huggingface.TYPES),
    "translator": tuple(translators.LOADERS),
    "image classifier": vit.TYPES,
}
"""What can be done with a folder, and the types of model that it can be done with."""


def kind_of(folder: str | Path) -> str:
    """What the model of a folder is good for: one of `KINDS`."""
    folder = Path(folder)
    return next(kind for kind, types in KINDS.items() if _known_type(folder) in types)


def load_model(folder: str | Path) -> Model:
    """The model in a folder, ours or anyone's, ready to use."""
    folder = Path(folder)
    return LOADERS[_known_type(folder)](folder)


def save_model(model: Model, folder: str | Path) -> None:
    """Write `config.json` and `model.safetensors`, in the layout that the ecosystem has for such a model."""
    if isinstance(model, Transformer | Rnn):
        translators.save_translator(model, folder)
    elif isinstance(model, ViT | ViTClassifier):
        vit.save_vit(model, folder)
    else:
        huggingface.save_model(model, folder)


def _known_type(folder: Path) -> str:
    kind = read_document(folder).get("model_type")
    if kind not in LOADERS:
        raise UserError(f"{folder} holds a model of type {kind!r}; those that can be loaded are {', '.join(LOADERS)}")
    return kind
